#include "engines/consul/lock_state.hpp"

#include "engines/consul/kv.hpp"
#include "support/names.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace holdfast::engines::consul {
namespace {

const lock_keys keys = keys_of("p/", "stock");
const owner_id ours{{1, 2}, 3}, theirs{{4, 5}, 6};

// As our engine writes it.
kv_pair entry(const owner_id& owner, std::int64_t created, const std::string& session, bool holds,
              lock_mode mode = lock_mode::exclusive, std::vector<std::string> permits = {}) {
  queue_entry what;
  what.owner = owner;
  what.mode = mode;
  what.entered = holds;
  what.weight = mode == lock_mode::permits ? permits.size() : 1;
  what.capacity = 3;
  what.permit_sessions = std::move(permits);
  const auto index = static_cast<std::uint64_t>(created);
  return {owner_key(keys, owner), entry_value(what), session, 0, index, index};
}
kv_pair lock_key(std::uint64_t index, const std::string& session) {
  return {keys.lock, "", session, lock_flags, index, index};
}
kv_pair record(const semaphore_record& what, std::uint64_t index) {
  return {keys.lock, semaphore_text(what), "", semaphore_flags, index, index};
}

// ---- names

TEST(consul_keys, differ_for_all_good_names) {
  std::set<std::string> folders;
  for (const auto& name : testing::good_names()) {
    const auto of = keys_of("p/", name);
    EXPECT_TRUE(folders.insert(of.folder).second) << name;
    EXPECT_TRUE(is_printable(of.folder)) << name;
    const auto parts = split_key("p/", of.lock);
    ASSERT_TRUE(parts) << name;
    EXPECT_EQ(parts->name, name);
    EXPECT_EQ(parts->leaf, ".lock");
  }
}

TEST(consul_keys, name_what_other_programs_name_so) {
  EXPECT_EQ(keys_of("locks/", "job").lock, "locks/job/.lock");
  EXPECT_EQ(keys_of("locks/", "备份/caf\xc3\xa9 1").lock, "locks/备份/caf\xc3\xa9 1/.lock");
  EXPECT_EQ(keys_of("locks/", "100%").lock, "locks/100%25/.lock");
  EXPECT_EQ(keys_of("locks/",
                    "\xe2\x80\xae"
                    "a")
                .lock,
            "locks/%E2%80%AEa/.lock");
}

TEST(consul_keys, of_others_are_none_of_ours) {
  EXPECT_FALSE(split_key("p/", "q/a/.lock"));
  EXPECT_FALSE(split_key("p/", "p/.epoch-1"));
  EXPECT_FALSE(split_key("p/", "p/50%/.lock")) << "not how we write a name";
  EXPECT_FALSE(split_key("p/", "p/%41/.lock")) << "A is written as it is";
}

// Consul answers a path with such a segment by a redirect.
TEST(consul_keys, are_listed_without_segments_that_consul_rewrites) {
  EXPECT_EQ(listed_prefix(""), "");
  EXPECT_EQ(listed_prefix("a"), "a");
  EXPECT_EQ(listed_prefix("a/b"), "a/b");
  EXPECT_EQ(listed_prefix("a/"), "a/");
  EXPECT_EQ(listed_prefix("a/."), "a/");
  EXPECT_EQ(listed_prefix(".."), "");
  EXPECT_EQ(listed_prefix("a/.b"), "a/.b");
  for (const auto* none : {"/", "/a", "a//b", "a/../b", "./a"})
    EXPECT_EQ(listed_prefix(none), std::nullopt) << none;
}

// ---- what follows from keys

TEST(consul_lock_state, nothing_is_free) {
  const lock_state seen{{}, keys};
  EXPECT_FALSE(seen.anybody_holds());
  EXPECT_EQ(seen.version(), 0U);
  EXPECT_EQ(seen.lock_index(), 0U);
}

TEST(consul_lock_state, entry_comes_back_as_it_was_written) {
  queue_entry what;
  what.owner = ours;
  what.mode = lock_mode::permits;
  what.weight = 2;
  what.capacity = 3;
  what.entered = true;
  what.permit_sessions = {"s1", "s2"};
  what.pid = 7;
  what.host = "here";
  what.label = "nightly \"run\"";
  what.session_lasts = std::chrono::seconds{10};
  const kv_pair pair{owner_key(keys, ours), entry_value(what), "s1", 0, 40, 41};
  const lock_state seen{{pair}, keys};
  const auto* const found = seen.find(ours);
  ASSERT_NE(found, nullptr);
  EXPECT_TRUE(found->holds());
  EXPECT_EQ(found->weight, 2U);
  EXPECT_EQ(found->capacity, 3U);
  EXPECT_EQ(found->permit_sessions, what.permit_sessions);
  EXPECT_EQ(found->pid, 7);
  EXPECT_EQ(found->host, "here");
  EXPECT_EQ(found->label, what.label);
  EXPECT_EQ(found->session_lasts, what.session_lasts);
  EXPECT_EQ(found->created, 40);
  EXPECT_EQ(found->modified, 41U);
}

TEST(consul_lock_state, lock_of_another_program_is_a_holder_before_all_others) {
  const lock_state seen{{lock_key(5, "alien"), entry(ours, 7, "mine", false)}, keys};
  EXPECT_TRUE(seen.is_held_by_others());
  EXPECT_TRUE(seen.anybody_holds());
  EXPECT_NE(seen.find(ours)->stands, queue_entry::standing::holder);
}

TEST(consul_lock_state, own_lock_is_counted_once) {
  const lock_state seen{{lock_key(7, "mine"), entry(ours, 7, "mine", true)}, keys};
  EXPECT_TRUE(seen.is_lock_ours());
  EXPECT_FALSE(seen.is_held_by_others());
  EXPECT_EQ(seen.queue().all().size(), 1U);
}

// behavior=release leaves the key of a dead owner without a session.
TEST(consul_lock_state, key_without_a_session_is_dead) {
  const lock_state seen{{entry(ours, 7, "", true)}, keys};
  EXPECT_EQ(seen.find(ours), nullptr);
  EXPECT_FALSE(seen.anybody_holds());
  ASSERT_EQ(seen.dead().size(), 1U);
}

TEST(consul_lock_state, semaphore_counts_living_sessions_only) {
  const kv_pair contender{keys.folder + "alive", "", "alive", semaphore_flags, 3, 3};
  const lock_state seen{{record({2, {"alive", "dead"}}, 9), contender}, keys};
  ASSERT_TRUE(seen.is_semaphore());
  EXPECT_EQ(seen.semaphore().holders, std::vector<std::string>{"alive"});
  EXPECT_TRUE(seen.counts_all({"alive"}));
  EXPECT_FALSE(seen.counts_all({"alive", "dead"}));
}

TEST(consul_lock_state, waiter_before_is_the_nearest_one) {
  const owner_id third{{7, 7}, 7};
  const lock_state seen{{lock_key(1, "h"), entry(ours, 10, "a", false),
                         entry(theirs, 11, "b", false), entry(third, 12, "c", false)},
                        keys};
  ASSERT_NE(seen.waiter_before(*seen.find(third)), nullptr);
  EXPECT_EQ(seen.waiter_before(*seen.find(third))->owner, theirs);
  EXPECT_EQ(seen.waiter_before(*seen.find(ours)), nullptr);
}

TEST(consul_lock_state, damaged_entry_keeps_its_place_and_holds_nothing) {
  for (const auto* text : {"", "7", "[]", "{\"holds\":\"yes\"}", "{\"mode\":7}", "\xff"}) {
    const kv_pair pair{owner_key(keys, ours), text, "s", 0, 4, 4};
    const lock_state seen{{pair}, keys};
    ASSERT_NE(seen.find(ours), nullptr) << text;
    EXPECT_FALSE(seen.find(ours)->holds()) << text;
  }
}

// What was deleted since the last write leaves no write behind, but raises the index of the answer.
TEST(consul_lock_state, newest_is_that_of_the_answer) {
  EXPECT_EQ(lock_state({entry(ours, 7, "s", false)}, keys).newest(), 7U);
  EXPECT_EQ(lock_state({entry(ours, 7, "s", false)}, keys, 9).newest(), 9U);
}

}  // namespace
}  // namespace holdfast::engines::consul

// Keys of the etcd engine: what is written is read back, and what others wrote is an exclusive holder or waiter.
#include "engines/etcd/queue_entry.hpp"

#include "support/names.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace holdfast::engines::etcd {
namespace {

using testing::good_names;

const owner_id somebody{{0x0123456789abcdefU, 0xfU}, 0x2a};

key_parts parts(lock_mode mode = lock_mode::exclusive) {
  key_parts out;
  out.lease = 0x694d7b0c1d2e3f40;
  out.owner = somebody;
  out.mode = mode;
  out.weight = weight_of(mode, 3);
  out.capacity = mode == lock_mode::permits ? 10 : rw_capacity;
  out.since_ms = 1'700'000'000'123;
  out.pid = 4711;
  out.host = "db-1.example.org";
  return out;
}

queue_entry read(const std::string& key, std::string_view value = {}, std::int64_t created = 7,
                 std::int64_t modified = 7) {
  return read_queue_entry(
      stored_key{key, value, created, modified, 0x694d7b0c1d2e3f40, created == modified ? 1 : 2});
}

TEST(etcd_queue_entry, what_is_written_is_read_back) {
  for (const auto mode :
       {lock_mode::exclusive, lock_mode::shared, lock_mode::upgradeable, lock_mode::permits}) {
    const auto asked = parts(mode);
    const auto key = make_key("locks/", "stock/sku-42", asked);
    const auto got = read(key, "nightly");
    EXPECT_FALSE(got.foreign) << key;
    EXPECT_EQ(got.owner, somebody);
    EXPECT_EQ(got.mode, mode);
    EXPECT_EQ(got.weight, asked.weight);
    EXPECT_EQ(got.capacity, asked.capacity);
    EXPECT_EQ(got.since_ms, asked.since_ms);
    EXPECT_EQ(got.pid, 4711);
    EXPECT_EQ(got.host, "db-1.example.org");
    EXPECT_EQ(got.label, "nightly");
    EXPECT_EQ(got.token.value, 7U);
    EXPECT_FALSE(got.entered);
    EXPECT_EQ(name_in("locks/", key), "stock/sku-42");
  }
}

TEST(etcd_queue_entry, key_begins_as_those_of_other_clients_do) {
  EXPECT_TRUE(make_key("", "a", parts()).starts_with("a/694d7b0c1d2e3f40-"));
}

TEST(etcd_queue_entry, hosts_cannot_break_out_of_the_key) {
  for (const auto* host : {"a/b", "a-b-c", "%2f", "", "caf\xc3\xa9"}) {
    auto asked = parts();
    asked.host = host;
    const auto key = make_key("", "a", asked);
    EXPECT_EQ(key.find('/', 2), std::string::npos) << key;
    EXPECT_EQ(read(key).host, host);
  }
}

TEST(etcd_queue_entry, upgrades_say_what_they_replace) {
  auto asked = parts();
  asked.replaces = 0x5f;
  EXPECT_EQ(read(make_key("", "a", asked)).replaces, 0x5f);
}

TEST(etcd_queue_entry, marks_are_read_and_the_label_stays_apart) {
  const auto key = make_key("", "a", parts());
  marks granted;
  granted.granted = true;
  const auto stamped = read(key, make_value("me", granted), 7, 12);
  EXPECT_EQ(stamped.label, "me");
  EXPECT_TRUE(stamped.entered);
  EXPECT_FALSE(stamped.overtaken());
  EXPECT_EQ(stamped.token.value, 12U);

  marks shrunk;
  shrunk.mode = lock_mode::shared;
  shrunk.token = fencing_token{0x30};
  const auto reader = read(key, make_value("me", shrunk), 7, 50);
  EXPECT_EQ(reader.mode, lock_mode::shared);
  EXPECT_EQ(reader.weight, 1U);
  EXPECT_EQ(reader.token.value, 0x30U) << "kept through the change";
  EXPECT_TRUE(reader.entered);
  EXPECT_EQ(make_value("me", {}), "me") << "an election's value is the value";
}

TEST(etcd_queue_entry, touched_without_a_mark_is_overtaken) {
  const auto key = make_key("", "a", parts());
  EXPECT_FALSE(read(key, "", 7, 7).overtaken());
  EXPECT_TRUE(read(key, "", 7, 9).overtaken());
  EXPECT_FALSE(read("a/694d7b0c1d2e3f40", "proclaimed", 7, 9).overtaken()) << "not one of ours";
}

// Without a label: the key is one that the client uses again and again.
key_parts reused(std::uint64_t slot = 0) {
  auto out = parts();
  out.slot = slot;
  return out;
}

marks tag() {
  marks out;
  out.sequence = 0x2a;
  out.since_ms = 1'700'000'000'123;
  return out;
}

TEST(etcd_queue_entry, keys_that_are_used_again_have_their_owner_in_the_value) {
  auto later = reused();
  later.owner.sequence = 0x2b;
  later.since_ms += 1000;
  const auto key = make_key("locks/", "a", reused());
  EXPECT_EQ(key, make_key("locks/", "a", later));
  EXPECT_NE(key, make_key("locks/", "a", reused(1)));
  EXPECT_NE(key, make_key("locks/", "a", parts()));
  const auto got = read(key, make_value("", tag()));
  EXPECT_FALSE(got.foreign);
  EXPECT_TRUE(got.reused);
  EXPECT_EQ(got.owner, somebody);
  EXPECT_EQ(got.since_ms, 1'700'000'000'123);
  EXPECT_EQ(got.pid, 4711);
  EXPECT_EQ(got.label, "");
  EXPECT_FALSE(got.entered);
  EXPECT_FALSE(got.overtaken());
  EXPECT_EQ(name_in("locks/", key), "a");
  EXPECT_FALSE(read(make_key("", "a", parts()), make_value("", tag())).reused);
  EXPECT_EQ(read(key, "garbage").owner.sequence, 0U) << "a key of ours all the same";
}

TEST(etcd_queue_entry, called_is_not_overtaken_until_it_is_touched_again) {
  auto with = tag();
  with.called = 3;
  const auto key = make_key("", "a", reused());
  const auto value = make_value("", with);
  const auto called = read_queue_entry(stored_key{key, value, 7, 9, 0x694d7b0c1d2e3f40, 3});
  EXPECT_FALSE(called.overtaken());
  EXPECT_FALSE(called.entered);
  EXPECT_TRUE(called.takes_hand_over());
  EXPECT_EQ(called.owner, somebody);
  const auto touched = read_queue_entry(stored_key{key, value, 7, 11, 0x694d7b0c1d2e3f40, 4});
  EXPECT_TRUE(touched.overtaken());
}

TEST(etcd_queue_entry, successors_are_told_and_read_back) {
  const auto key = make_key("locks/", "a", reused());
  const auto next = make_key("locks/", "a", reused(1));
  auto with = tag();
  with.token = fencing_token{7};
  with.successors = {{next, 8, 8, 0x99, 1'700'000'000'456}, {next + "x", 0x1f, 0x1f, 1, 2}};
  const auto got = read(key, make_value("", with), 7, 12);
  EXPECT_TRUE(got.entered);
  EXPECT_EQ(got.owner, somebody);
  EXPECT_EQ(got.token.value, 7U);
  ASSERT_EQ(got.successors.size(), 2U);
  EXPECT_EQ(got.successors[0].key, next);
  EXPECT_EQ(got.successors[0].created, 8);
  EXPECT_EQ(got.successors[0].modified, 8);
  EXPECT_EQ(got.successors[0].sequence, 0x99U);
  EXPECT_EQ(got.successors[0].since_ms, 1'700'000'000'456);
  EXPECT_EQ(got.successors[1].key, next + "x");
  EXPECT_EQ(got.successors[1].created, 0x1f);
}

TEST(etcd_queue_entry, successors_that_make_no_sense_end_the_list) {
  const auto key = make_key("", "a", parts());
  const auto successors = [&](std::string_view text) {
    return read(key, std::string{"\0t=7 n=", 7}.append(text), 7, 12).successors.size();
  };
  EXPECT_EQ(successors("b:1:5:5,c:2:5:5"), 2U);
  EXPECT_EQ(successors(""), 0U);
  EXPECT_EQ(successors(":1:5:5"), 0U);
  EXPECT_EQ(successors("b"), 0U);
  EXPECT_EQ(successors("b:1:5"), 0U);
  EXPECT_EQ(successors("b:1:5:5,../c:2:5:5"), 1U) << "a key of another name";
  EXPECT_EQ(successors("b:1:5:5,c:zz:5:5,d:3:5:5"), 1U);
  EXPECT_EQ(successors(",b:1:5:5"), 0U);
}

TEST(etcd_queue_entry, keys_of_others_are_exclusive) {
  auto half = make_key("", "a", parts(lock_mode::shared));
  half.resize(half.size() / 2);
  for (const auto& key : {std::string{"a/694d7b0c1d2e3f40"}, std::string{"a/x"}, std::string{"a/"},
                          std::string{"a/1-2-3-s-4-5-h"}, half}) {
    const auto got = read(key, std::string_view{"leader\0x", 8});
    EXPECT_TRUE(got.foreign) << key;
    EXPECT_EQ(got.mode, lock_mode::exclusive) << key;
    EXPECT_EQ(got.weight, rw_capacity) << key;
    EXPECT_EQ(got.capacity, rw_capacity) << key;
    EXPECT_EQ(got.label.find('\0'), std::string::npos);
  }
}

TEST(etcd_queue_entry, permits_beyond_the_capacity_are_no_permits) {
  auto asked = parts(lock_mode::permits);
  asked.weight = 11;
  EXPECT_TRUE(read(make_key("", "a", asked)).foreign);
}

TEST(etcd_queue_entry, names_never_meet) {
  std::set<std::string> keys;
  std::vector<key_range> ranges;
  auto names = good_names();
  names.insert(names.end(), {"a/b", "a/b/c", "b"});
  for (const auto& name : names) {
    const auto key = make_key("", name, parts());
    EXPECT_TRUE(keys.insert(key).second) << name;
    EXPECT_EQ(name_in("", key), name);
    ranges.push_back(keys_of("", name));
  }
  for (const auto& key : keys)
    EXPECT_EQ(std::ranges::count_if(ranges, [&](const auto& range) { return lies_in(range, key); }),
              1)
        << key;
}

TEST(etcd_queue_entry, counters_are_no_locks) {
  EXPECT_EQ(name_in("", counter_key("", "a")), std::nullopt);
  EXPECT_EQ(name_in("p/", counter_key("p/", "a/b")), std::nullopt);
  EXPECT_EQ(name_in("p/", "q/a/1"), std::nullopt);
  EXPECT_EQ(name_in("", "alone"), std::nullopt);
}

TEST(etcd_queue_entry, ranges_end_where_they_should) {
  EXPECT_EQ(keys_of("", "a").first, "a/");
  EXPECT_EQ(keys_of("", "a").end, "a0");
  EXPECT_EQ(keys_from("ab").end, "ac");
  EXPECT_EQ(keys_from("a\xff").end, "b");
  EXPECT_EQ(keys_from("").first, std::string(1, '\0'));
  EXPECT_EQ(keys_from("").end, std::string(1, '\0')) << "etcd's word for all there is";
}

}  // namespace
}  // namespace holdfast::engines::etcd

// The reference engine against its contract, with a clock that only moves by hand.
#include "engines/memory/engine.hpp"

#include "support/engine_fixture.hpp"
#include "support/expect.hpp"
#include "support/wait_until.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using testing::fails_with;
using testing::is_ok;
using testing::wait_until;
using kind = entered::kind;

std::string fresh_url() {
  static int number = 0;
  return "memory:unit-" + std::to_string(++number);
}

struct memory_engine : ::testing::Test {
  testing::fake_clock time;
  std::string url = fresh_url();
  testing::raw_client a{engines::memory::make_engine, url, time, 1};
  testing::raw_client b{engines::memory::make_engine, url, time, 2};

  static entered enter(testing::raw_client& who, const request& ask) {
    return who.verbs->enter(ask, {}).value();
  }
  static request reader(request ask) {
    ask.mode = lock_mode::shared;
    ask.weight = 1;
    return ask;
  }
  static request upgradeable(request ask) {
    ask.mode = lock_mode::upgradeable;
    ask.weight = upgradeable_weight;
    return ask;
  }
  lock_info look(std::string_view name) { return a.verbs->inspect(name, {}).value(); }
};

TEST_F(memory_engine, enter_grants_queues_or_says_busy) {
  const auto first = enter(a, a.ask("x"));
  EXPECT_EQ(first.what, kind::granted);
  EXPECT_EQ(first.granted.valid_from, time.now());
  auto impatient = b.ask("x");
  impatient.wait = false;
  EXPECT_EQ(enter(b, impatient).what, kind::busy);
  EXPECT_TRUE(look("x").waiters.empty()) << "busy must not leave a place in the queue";
  EXPECT_EQ(enter(b, b.ask("x")).what, kind::waiting);
}

TEST_F(memory_engine, enter_is_idempotent_by_owner) {
  const auto ask = a.ask("x");
  const auto first = enter(a, ask);
  const auto again = enter(a, ask);
  EXPECT_EQ(again.what, kind::granted);
  EXPECT_EQ(again.granted.token, first.granted.token);
  const auto second = b.ask("x");
  EXPECT_EQ(enter(b, second).what, kind::waiting);
  EXPECT_EQ(enter(b, second).what, kind::waiting);
  EXPECT_EQ(look("x").waiters.size(), 1U);
}

TEST_F(memory_engine, release_hands_the_lock_to_the_next) {
  const auto held = enter(a, a.ask("x")).granted;
  const auto place = enter(b, b.ask("x")).waiting;
  EXPECT_FALSE(b.verbs->await(place, {time.now()}).value().is_granted);
  ASSERT_TRUE(is_ok(a.verbs->release(held, {})));
  const auto moved = b.verbs->await(place, {}).value();
  ASSERT_TRUE(moved.is_granted);
  EXPECT_GT(moved.granted.token, held.token);
  EXPECT_TRUE(fails_with(a.verbs->release(held, {}), errc::not_held));
  EXPECT_EQ(look("x").holders.size(), 1U);
}

TEST_F(memory_engine, an_expired_holder_is_in_nobodys_way) {
  const auto held = enter(a, a.ask("x")).granted;
  const auto place = enter(b, b.ask("x")).waiting;
  std::jthread mover{[&] { time.advance(10s); }};
  const auto moved = b.verbs->await(place, {}).value();
  ASSERT_TRUE(moved.is_granted) << "await must notice the expiry without being told";
  EXPECT_GT(moved.granted.token, held.token);
  EXPECT_TRUE(wait_until([&] { return a.listener.lost().size() == 1; }));
  EXPECT_TRUE(fails_with(a.verbs->release(held, {}), errc::not_held));
}

TEST_F(memory_engine, renewal_prolongs_and_never_revives) {
  const auto held = enter(a, a.ask("x")).granted;
  time.advance(9s);
  std::array batch{renewal{&held}};
  ASSERT_TRUE(is_ok(a.verbs->renew(batch, {})));
  EXPECT_EQ(batch[0].answer, renewal::verdict::held);
  EXPECT_EQ(batch[0].valid_from, time.now());
  time.advance(9s);
  EXPECT_EQ(look("x").holders.size(), 1U);
  time.advance(1s);
  ASSERT_TRUE(is_ok(a.verbs->renew(batch, {})));
  EXPECT_EQ(batch[0].answer, renewal::verdict::lost);
}

TEST_F(memory_engine, settle_knows_who_holds_who_waits_and_who_was_never_there) {
  const auto first = a.ask("x"), second = b.ask("x"), third = b.ask("x");
  enter(a, first);
  enter(b, second);
  EXPECT_EQ(a.verbs->settle(first, {}).value().what, kind::granted);
  EXPECT_EQ(b.verbs->settle(second, {}).value().what, kind::waiting);
  EXPECT_EQ(b.verbs->settle(third, {}).value().what, kind::busy);
}

TEST_F(memory_engine, leave_gives_up_the_place_or_the_grant) {
  const auto held = enter(a, a.ask("x")).granted;
  const auto place = enter(b, b.ask("x")).waiting;
  ASSERT_TRUE(is_ok(b.verbs->leave(place, {})));
  ASSERT_TRUE(is_ok(b.verbs->leave(place, {})));
  EXPECT_TRUE(look("x").waiters.empty());
  const auto late = enter(b, b.ask("x")).waiting;
  ASSERT_TRUE(is_ok(a.verbs->release(held, {})));
  ASSERT_TRUE(is_ok(b.verbs->leave(late, {})));  // it was granted meanwhile
  EXPECT_TRUE(look("x").holders.empty());
}

TEST_F(memory_engine, queue_is_by_priority_then_arrival) {
  const auto held = enter(a, a.ask("x")).granted;
  std::vector<owner_id> expected(4);
  for (const auto& [priority, place] : {std::pair{0, 2U}, {5, 0U}, {0, 3U}, {5, 1U}}) {
    auto ask = b.ask("x");
    ask.priority = priority;
    expected[place] = ask.owner;
    enter(b, ask);
  }
  const auto waiters = look("x").waiters;
  ASSERT_EQ(waiters.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(waiters[i].owner, expected[i]) << i;
  EXPECT_TRUE(a.verbs->contended(held));
}

TEST_F(memory_engine, a_writer_in_the_queue_holds_back_later_readers) {
  enter(a, reader(a.ask("x")));
  EXPECT_EQ(enter(b, reader(b.ask("x"))).what, kind::granted);
  const auto writer = enter(b, b.ask("x"));
  EXPECT_EQ(writer.what, kind::waiting);
  const auto late = enter(a, reader(a.ask("x")));
  EXPECT_EQ(late.what, kind::waiting);
  auto barging = reader(a.ask("x"));
  barging.order = queue_order::barging;
  EXPECT_EQ(enter(a, barging).what, kind::granted);
  ASSERT_TRUE(is_ok(b.verbs->leave(writer.waiting, {})));
  EXPECT_TRUE(a.verbs->await(late.waiting, {}).value().is_granted)
      << "with the writer gone, the readers behind it fit";
}

TEST_F(memory_engine, downgrade_keeps_the_token_and_lets_readers_in) {
  const auto held = enter(a, a.ask("x")).granted;
  const auto place = enter(b, reader(b.ask("x"))).waiting;
  const auto shared = a.verbs->downgrade(held, lock_mode::shared, {}).value();
  EXPECT_EQ(shared.token, held.token);
  EXPECT_EQ(shared.weight, 1U);
  EXPECT_TRUE(b.verbs->await(place, {}).value().is_granted);
  EXPECT_TRUE(
      fails_with(a.verbs->downgrade(shared, lock_mode::upgradeable, {}), errc::misconfigured));
  ASSERT_TRUE(is_ok(a.verbs->release(shared, {})));
  EXPECT_TRUE(fails_with(a.verbs->downgrade(shared, lock_mode::shared, {}), errc::not_held));
}

TEST_F(memory_engine, upgrade_waits_for_readers_and_passes_the_queue) {
  const auto old = enter(a, upgradeable(a.ask("x"))).granted;
  const auto other = enter(b, reader(b.ask("x"))).granted;
  const auto writer = enter(b, b.ask("x")).waiting;
  auto ask = a.ask("x");
  ask.replaces = &old;
  const auto place = enter(a, ask);
  ASSERT_EQ(place.what, kind::waiting);
  EXPECT_EQ(look("x").holders.size(), 2U) << "still a reader while it waits";
  ASSERT_TRUE(is_ok(b.verbs->release(other, {})));
  const auto moved = a.verbs->await(place.waiting, {}).value();
  ASSERT_TRUE(moved.is_granted);
  EXPECT_EQ(moved.granted.mode, lock_mode::exclusive);
  EXPECT_GT(moved.granted.token, old.token);
  EXPECT_EQ(look("x").holders.size(), 1U) << "the new grant took the place of the old";
  EXPECT_FALSE(b.verbs->await(writer, {time.now()}).value().is_granted);
}

TEST_F(memory_engine, an_upgrade_that_is_given_up_leaves_the_reader) {
  const auto old = enter(a, upgradeable(a.ask("x"))).granted;
  const auto other = enter(b, reader(b.ask("x"))).granted;
  auto ask = a.ask("x");
  ask.replaces = &old;
  const auto place = enter(a, ask).waiting;
  ASSERT_TRUE(is_ok(b.verbs->release(other, {})));  // granted, and nobody has heard of it
  ASSERT_TRUE(is_ok(a.verbs->leave(place, {})));
  const auto holders = look("x").holders;
  ASSERT_EQ(holders.size(), 1U);
  EXPECT_EQ(holders[0].owner, old.owner);
  EXPECT_EQ(holders[0].mode, lock_mode::upgradeable);
}

TEST_F(memory_engine, an_upgrade_of_what_is_gone_is_not_held) {
  const auto old = enter(a, upgradeable(a.ask("x"))).granted;
  enter(b, reader(b.ask("x")));
  auto ask = a.ask("x");
  ask.replaces = &old;
  const auto place = enter(a, ask).waiting;
  EXPECT_EQ(b.verbs->revoke("x", {}).value(), 2U);
  EXPECT_FALSE(a.verbs->await(place, {}).value().is_granted);
  EXPECT_TRUE(fails_with(a.verbs->enter(ask, {}), errc::not_held));
  EXPECT_TRUE(a.verbs->list("", 10, {}).value().empty());
}

TEST_F(memory_engine, another_capacity_is_misconfigured_while_in_use) {
  auto ask = a.ask("x");
  ask.mode = lock_mode::permits;
  ask.capacity = 3;
  ask.weight = 2;
  const auto held = enter(a, ask).granted;
  auto other = b.ask("x");
  other.mode = lock_mode::permits;
  other.capacity = 4;
  other.weight = 1;
  EXPECT_TRUE(fails_with(b.verbs->enter(other, {}), errc::misconfigured));
  other.capacity = 3;
  EXPECT_EQ(enter(b, other).what, kind::granted);
  ASSERT_TRUE(is_ok(a.verbs->release(held, {})));
}

TEST_F(memory_engine, revoke_tells_the_owner_and_raises_the_fence) {
  const auto held = enter(a, a.ask("x")).granted;
  EXPECT_EQ(b.verbs->revoke("x", {}).value(), 1U);
  EXPECT_EQ(b.verbs->revoke("x", {}).value(), 0U);
  ASSERT_TRUE(wait_until([&] { return !a.listener.lost().empty(); }));
  EXPECT_EQ(a.listener.lost()[0].first, held.owner);
  EXPECT_TRUE(b.listener.lost().empty());
  EXPECT_GT(enter(b, b.ask("x")).granted.token.value, held.token.value + 1);
}

TEST_F(memory_engine, list_shows_names_in_use_sorted_and_limited) {
  for (const auto* name : {"b/2", "a/1", "b/1", "c"}) enter(a, a.ask(name));
  const auto gone = enter(a, a.ask("b/3")).granted;
  ASSERT_TRUE(is_ok(a.verbs->release(gone, {})));
  const auto all = b.verbs->list("b/", 10, {}).value();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name, "b/1");
  EXPECT_EQ(all[1].name, "b/2");
  EXPECT_EQ(all[0].holders[0].pid, 1);
  EXPECT_EQ(all[0].holders[0].host, "here");
  EXPECT_EQ(b.verbs->list("", 1, {}).value().size(), 1U);
  time.advance(10s);
  EXPECT_TRUE(b.verbs->list("", 10, {}).value().empty());
}

TEST_F(memory_engine, the_end_of_a_client_frees_all_that_is_its) {
  enter(a, a.ask("x"));
  const auto place = enter(b, b.ask("x")).waiting;
  enter(a, a.ask("y"));
  a.verbs.reset();
  EXPECT_TRUE(b.verbs->await(place, {}).value().is_granted);
  EXPECT_TRUE(b.verbs->list("y", 10, {}).value().empty());
}

}  // namespace
}  // namespace holdfast

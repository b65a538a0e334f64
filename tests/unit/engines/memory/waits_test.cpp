// The reference engine's counters, watches and async waits.
#include "engines/memory/engine.hpp"

#include "support/engine_fixture.hpp"
#include "support/expect.hpp"
#include "support/wait_until.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using testing::is_ok;
using testing::promised;
using testing::wait_until;

std::string next_url() {
  static int number = 0;
  return "memory:waits-" + std::to_string(++number);
}

// By the machine's clock: these are about sleeping and waking.
struct memory_waits : ::testing::Test {
  std::string url = next_url();
  testing::raw_client a{engines::memory::make_engine, url, system_clock(), 1};
  testing::raw_client b{engines::memory::make_engine, url, system_clock(), 2};

  static entered enter(testing::raw_client& who, const request& ask) {
    return who.verbs->enter(ask, {}).value();
  }
  counter count(counter_op op, std::int64_t operand = 0, std::int64_t expected = 0) {
    return a.verbs->count({"c", op, operand, expected, 1h}, {}).value();
  }
};

TEST_F(memory_waits, counter_operations_apply_as_the_contract_says) {
  EXPECT_FALSE(count(counter_op::read).exists);
  EXPECT_FALSE(count(counter_op::add, 1).applied) << "add needs a counter";
  EXPECT_FALSE(count(counter_op::compare_exchange, 1, 0).applied);
  const auto created = count(counter_op::create, 3);
  EXPECT_TRUE(created.applied && created.exists && created.value == 3);
  const auto again = count(counter_op::create, 9);
  EXPECT_FALSE(again.applied);
  EXPECT_EQ(again.value, 3);
  EXPECT_EQ(count(counter_op::add, -2).value, 1);
  EXPECT_EQ(count(counter_op::add, -5).value, 0) << "never below zero";
  EXPECT_FALSE(count(counter_op::compare_exchange, 7, 1).applied);
  EXPECT_TRUE(count(counter_op::compare_exchange, 7, 0).applied);
  EXPECT_EQ(count(counter_op::store, 2).value, 2);
  const auto last = count(counter_op::read).version;
  EXPECT_FALSE(count(counter_op::erase).exists);
  EXPECT_FALSE(count(counter_op::read).exists);
  EXPECT_GT(count(counter_op::create, 2).version, last) << "a version never comes back";
  EXPECT_EQ(count(counter_op::add, INT64_MAX).value, INT64_MAX) << "no overflow";
}

TEST(memory_counters, are_forgotten_when_unchanged_for_long) {
  testing::fake_clock time;
  testing::raw_client a{engines::memory::make_engine, next_url(), time, 1};
  const auto count = [&](counter_op op, std::int64_t operand) {
    return a.verbs->count({"c", op, operand, 0, 10s}, {}).value();
  };
  count(counter_op::create, 5);
  time.advance(9s);
  EXPECT_EQ(count(counter_op::add, 1).value, 6);
  time.advance(9s);
  EXPECT_TRUE(count(counter_op::read, 0).exists) << "the change made it young again";
  time.advance(1s);
  EXPECT_FALSE(count(counter_op::read, 0).exists);
}

TEST_F(memory_waits, watch_returns_when_the_version_moves) {
  const auto seen = count(counter_op::create, 1).version;
  std::jthread changer{[&] { count(counter_op::add, 1); }};
  ASSERT_TRUE(is_ok(b.verbs->watch(watch_kind::counter, "c", seen, {})));
  EXPECT_NE(count(counter_op::read).version, seen);
  EXPECT_TRUE(is_ok(b.verbs->watch(watch_kind::counter, "c", seen, {}))) << "moved already";
  EXPECT_TRUE(is_ok(
      b.verbs->watch(watch_kind::counter, "absent", 0, {std::chrono::steady_clock::now() + 10ms})));
}

TEST_F(memory_waits, watch_of_a_lock_sees_holders_come_go_and_expire) {
  auto ask = a.ask("x");
  ask.ttl = 50ms;
  std::jthread holder{[&] { enter(a, ask); }};
  ASSERT_TRUE(is_ok(b.verbs->watch(watch_kind::lock, "x", 0, {})));
  const auto seen = b.verbs->inspect("x", {}).value().version;
  ASSERT_NE(seen, 0U);
  ASSERT_TRUE(is_ok(b.verbs->watch(watch_kind::lock, "x", seen, {})));
  EXPECT_TRUE(b.verbs->inspect("x", {}).value().holders.empty()) << "nobody renewed it";
}

TEST_F(memory_waits, await_ends_on_stop_and_at_its_deadline) {
  enter(a, a.ask("x"));
  const auto place = enter(b, b.ask("x")).waiting;
  std::stop_source stop;
  std::jthread stopper{[&] { stop.request_stop(); }};
  EXPECT_FALSE(b.verbs->await(place, {steady_time::max(), stop.get_token()}).value().is_granted);
  EXPECT_FALSE(b.verbs->await(place, {steady_time::max(), stop.get_token()}).value().is_granted);
  EXPECT_FALSE(b.verbs->await(place, {std::chrono::steady_clock::now() + 10ms}).value().is_granted);
}

TEST_F(memory_waits, the_next_in_line_watches_over_a_new_holders_ttl) {
  const auto held = enter(a, a.ask("x")).granted;
  auto short_lived = a.ask("x");
  short_lived.ttl = 50ms;
  enter(a, short_lived);  // will be granted, and nobody will ever renew it
  const auto place = enter(b, b.ask("x")).waiting;
  promised<progress> moved;
  b.verbs->start_await(place, {}, moved);
  ASSERT_TRUE(is_ok(a.verbs->release(held, {})));
  EXPECT_TRUE(moved.get().value().is_granted);
}

TEST_F(memory_waits, async_waits_end_by_grant_stop_deadline_and_the_clients_end) {
  const auto held = enter(a, a.ask("x")).granted;
  const std::array places{enter(b, b.ask("x")).waiting, enter(b, b.ask("x")).waiting,
                          enter(b, b.ask("x")).waiting, enter(b, b.ask("x")).waiting};
  std::array<promised<progress>, 4> moved;
  std::stop_source stop;
  b.verbs->start_await(places[0], {}, moved[0]);
  b.verbs->start_await(places[1], {steady_time::max(), stop.get_token()}, moved[1]);
  b.verbs->start_await(places[2], {std::chrono::steady_clock::now() + 20ms}, moved[2]);
  b.verbs->start_await(places[3], {}, moved[3]);
  promised<void> watched;
  b.verbs->start_watch(watch_kind::counter, "absent", 0, {}, watched);

  EXPECT_FALSE(moved[2].get().value().is_granted);
  EXPECT_FALSE(moved[1].is_done());
  stop.request_stop();
  EXPECT_FALSE(moved[1].get().value().is_granted);
  EXPECT_FALSE(moved[0].is_done());
  ASSERT_TRUE(is_ok(a.verbs->release(held, {})));
  EXPECT_TRUE(moved[0].get().value().is_granted);
  EXPECT_FALSE(moved[3].is_done());
  b.verbs.reset();
  EXPECT_FALSE(moved[3].get().value().is_granted);
  EXPECT_TRUE(is_ok(watched.get()));
  EXPECT_TRUE(a.verbs->list("", 10, {}).value().empty());
}

TEST_F(memory_waits, stop_and_grant_at_once_complete_once) {
  for (int round = 0; round < 200; ++round) {
    const auto held = enter(a, a.ask("x")).granted;
    const auto place = enter(b, b.ask("x")).waiting;
    std::stop_source stop;
    promised<progress> moved;
    b.verbs->start_await(place, {steady_time::max(), stop.get_token()}, moved);
    std::jthread stopper{[&] { stop.request_stop(); }};
    ASSERT_TRUE(is_ok(a.verbs->release(held, {})));
    static_cast<void>(moved.get());
    ASSERT_TRUE(is_ok(b.verbs->leave(place, {})));
  }
  EXPECT_TRUE(a.verbs->list("", 10, {}).value().empty());
}

TEST_F(memory_waits, exclusion_and_rising_tokens_under_many_threads) {
  int inside = 0;  // plain on purpose: the thread sanitizer checks the lock, too
  std::uint64_t newest = 0;
  std::atomic<std::uint64_t> next{1000};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto& who = t % 2 == 0 ? a : b;
      for (int round = 0; round < 200; ++round) {
        request ask;
        ask.name = "x";
        ask.owner = {who.id, ++next};
        ask.ttl = 10s;
        auto answer = who.verbs->enter(ask, {}).value();
        auto held = answer.granted;
        if (answer.what == entered::kind::waiting) {
          held = who.verbs->await(answer.waiting, {}).value().granted;
        }
        EXPECT_EQ(++inside, 1);
        EXPECT_GT(held.token.value, newest);
        newest = held.token.value;
        --inside;
        EXPECT_TRUE(is_ok(who.verbs->release(held, {})));
      }
    });
  }
}

}  // namespace
}  // namespace holdfast

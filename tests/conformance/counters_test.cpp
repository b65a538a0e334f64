// Latches and barriers.
#include "conformance/conformance.hpp"

#include <atomic>

namespace holdfast::testing {
namespace {

class counters : public conformance {
 protected:
  void SetUp() override {
    conformance::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    NEEDS(counters);
  }
};
FOR_EVERY_ENGINE(counters);

TEST_P(counters, latch_opens_once) {
  const auto a = open(), b = open();
  latch ours{a, name(), 3}, theirs{b, name(), 99};
  EXPECT_EQ(theirs.value().value(), 3) << "the first handle decides";
  EXPECT_FALSE(ours.try_wait().value());
  EXPECT_EQ(ours.count_down().value(), 2);
  EXPECT_TRUE(fails_with(theirs.wait(20ms), errc::timed_out));
  EXPECT_EQ(theirs.count_down(2).value(), 0);
  EXPECT_TRUE(ours.try_wait().value());
  EXPECT_TRUE(is_ok(ours.wait()));
  EXPECT_EQ(ours.count_down(5).value(), 0) << "never below zero";
  EXPECT_TRUE(is_ok(theirs.wait()));
  ASSERT_TRUE(is_ok(ours.set(1)));
  EXPECT_FALSE(theirs.try_wait().value());
  ASSERT_TRUE(is_ok(ours.remove()));
}

TEST_P(counters, latch_wait_is_woken) {
  const auto a = open(), b = open();
  latch ours{a, name(), 1}, theirs{b, name(), 1};
  auto waiting = std::async(std::launch::async, [&] {
    const auto outcome = theirs.wait(patience);
    return std::pair{outcome.has_value(), std::chrono::steady_clock::now()};
  });
  EXPECT_EQ(waiting.wait_for(100ms), std::future_status::timeout);
  const auto opened = std::chrono::steady_clock::now();
  ASSERT_TRUE(is_ok(ours.count_down()));
  const auto [ok, woken] = waiting.get();
  EXPECT_TRUE(ok);
  if (caps().observe) {
    EXPECT_LT(woken - opened, 500ms) << "declared as pushed";
  }
}

TEST_P(counters, latch_that_nobody_made_yet_is_waited_for) {
  const auto a = open(), b = open();
  latch joined{b, name()};
  EXPECT_TRUE(fails_with(joined.count_down(), errc::not_held));
  EXPECT_TRUE(fails_with(joined.value(), errc::not_held));
  auto waiting = std::async(std::launch::async, [&] { return joined.wait(patience); });
  latch made{a, name(), 1};
  ASSERT_TRUE(is_ok(made.count_down()));
  EXPECT_TRUE(is_ok(waiting.get()));
}

TEST_P(counters, latch_wait_can_be_cancelled) {
  const auto a = open();
  latch lock{a, name(), 1};
  std::stop_source stop;
  auto waiting =
      std::async(std::launch::async, [&] { return lock.wait(forever, stop.get_token()); });
  stop.request_stop();
  ASSERT_EQ(waiting.wait_for(patience), std::future_status::ready);
  EXPECT_TRUE(fails_with(waiting.get(), errc::cancelled));
}

TEST_P(counters, wrong_counts_are_refused) {
  const auto a = open();
  EXPECT_EQ(thrown_by([&] { latch(a, name("l"), -1); }), errc::misconfigured);
  EXPECT_EQ(thrown_by([&] { barrier(a, name("b"), 0); }), errc::misconfigured);
  EXPECT_EQ(thrown_by([&] { barrier(a, name("b"), -1); }), errc::misconfigured);
  EXPECT_EQ(thrown_by([&] { barrier(a, name("b"), barrier::max() + 1); }), errc::misconfigured);
  latch good{a, name("good"), 3};
  EXPECT_TRUE(fails_with(good.count_down(-1), errc::misconfigured));
  EXPECT_EQ(good.value().value(), 3);
}

TEST_P(counters, barrier_lets_nobody_into_the_next_phase_early) {
  constexpr int participants = 3, phases = 6;
  std::atomic<int> arrived{0};
  std::vector<std::jthread> pool;
  for (int p = 0; p < participants; ++p) {
    pool.emplace_back([&] {
      const auto own = open();
      barrier meeting{own, name(), participants};
      for (int phase = 0; phase < phases; ++phase) {
        EXPECT_GE(arrived.load(), phase * participants) << "somebody was left behind";
        ++arrived;
        ASSERT_TRUE(is_ok(meeting.arrive_and_wait(patience)));
        EXPECT_GE(arrived.load(), (phase + 1) * participants);
      }
    });
  }
  pool.clear();
  EXPECT_EQ(arrived, participants * phases);
}

TEST_P(counters, barrier_goes_on_without_those_who_drop) {
  const auto a = open(), b = open(), c = open();
  barrier one{a, name(), 3}, two{b, name(), 3}, three{c, name(), 3};
  const auto first = one.arrive();
  ASSERT_TRUE(is_ok(first));
  EXPECT_TRUE(fails_with(one.wait(*first, 20ms), errc::timed_out));
  ASSERT_TRUE(is_ok(three.arrive_and_drop()));
  EXPECT_TRUE(fails_with(one.wait(*first, 20ms), errc::timed_out));
  ASSERT_TRUE(is_ok(two.arrive_and_wait(patience)));
  EXPECT_TRUE(is_ok(one.wait(*first, patience)));
  const auto second = one.arrive();
  ASSERT_TRUE(is_ok(second));
  EXPECT_NE(*second, *first);
  ASSERT_TRUE(is_ok(two.arrive_and_wait(patience))) << "two of two are there";
  EXPECT_TRUE(is_ok(one.wait(*second, patience)));
  ASSERT_TRUE(is_ok(one.remove()));
}

TEST_P(counters, barrier_for_another_number_is_misconfigured) {
  const auto a = open(), b = open();
  const barrier meeting{a, name(), 3};
  EXPECT_EQ(thrown_by([&] { barrier(b, name(), 4); }), errc::misconfigured);
  EXPECT_EQ(thrown_by([&] { barrier(b, name(), 3); }), std::nullopt);
}

TEST_P(counters, barrier_for_as_many_as_it_takes_is_still_the_same_barrier) {
  const auto a = open(), b = open();
  barrier meeting{a, name(), barrier::max()};
  EXPECT_EQ(thrown_by([&] { barrier(b, name(), barrier::max()); }), std::nullopt);
  const auto arrived = meeting.arrive();
  ASSERT_TRUE(is_ok(arrived));
  EXPECT_TRUE(fails_with(meeting.wait(*arrived, 20ms), errc::timed_out));
}

TEST_P(counters, a_lock_of_the_same_name_is_another_thing) {
  NEEDS(counters_apart);
  const auto a = open();
  latch counted{a, name(), 2};
  mutex lock{a, name()};
  const auto held = lock.try_acquire();
  ASSERT_TRUE(is_ok(held));
  EXPECT_EQ(counted.count_down().value(), 1);
  EXPECT_TRUE(held->valid());
}

}  // namespace
}  // namespace holdfast::testing

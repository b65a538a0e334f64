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

// ---- listing

class listed_counters : public counters {
 protected:
  void SetUp() override {
    counters::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    NEEDS(listing);
  }
  using lines = std::vector<std::string>;
  // "name:left" of each latch under this test's own prefix and `under`.
  lines listed(const client& by, std::string_view under = {}, std::size_t limit = 100) const {
    const auto found = by.latches(prefix() + std::string{under}, limit);
    if (!found) return {found.error().message()};
    lines out;
    for (const auto& each : *found)
      out.push_back(each.name.substr(prefix().size()) + ":" + std::to_string(each.left));
    return out;
  }
};
FOR_EVERY_ENGINE(listed_counters);

TEST_P(listed_counters, latches_are_listed_by_name_with_what_is_left) {
  const auto a = open(), b = open();
  EXPECT_EQ(listed(b), lines{});
  latch second{a, name("tiles/b"), 3}, first{a, name("tiles/a"), 1}, other{a, name("other"), 5};
  ASSERT_TRUE(is_ok(second.count_down()));
  ASSERT_TRUE(is_ok(first.count_down()));
  EXPECT_EQ(listed(b), (lines{"other:5", "tiles/a:0", "tiles/b:2"})) << "open ones, too";
  EXPECT_EQ(listed(b, "tiles/"), (lines{"tiles/a:0", "tiles/b:2"}));
  EXPECT_EQ(listed(b, {}, 2), (lines{"other:5", "tiles/a:0"}));
  EXPECT_EQ(listed(b, {}, 0), lines{});
  EXPECT_EQ(listed(b, "nothing"), lines{});
}

TEST_P(listed_counters, names_that_look_like_patterns_are_listed_as_they_are) {
  const auto a = open();
  const latch star{a, name("a*"), 1}, plain{a, name("ab"), 2}, brace{a, name("a{b}"), 3},
      percent{a, name("a%_"), 4};
  EXPECT_EQ(listed(a, "a*"), lines{"a*:1"});
  EXPECT_EQ(listed(a, "a{"), lines{"a{b}:3"});
  EXPECT_EQ(listed(a, "a%"), lines{"a%_:4"});
  EXPECT_EQ(listed(a), (lines{"a%_:4", "a*:1", "ab:2", "a{b}:3"}));
}

TEST_P(listed_counters, latch_that_was_removed_is_not_listed) {
  const auto a = open();
  latch gone{a, name("gone"), 1};
  const latch kept{a, name("kept"), 1};
  ASSERT_TRUE(is_ok(gone.remove()));
  EXPECT_EQ(listed(a), lines{"kept:1"});
}

TEST_P(listed_counters, latch_that_was_forgotten_is_not_listed) {
  const auto a = open();
  const latch short_lived{a, name("short"), 1, 1s}, kept{a, name("kept"), 1};
  EXPECT_EQ(listed(a), (lines{"kept:1", "short:1"}));
  EXPECT_TRUE(wait_until([&] { return listed(a) == lines{"kept:1"}; }));
}

TEST_P(listed_counters, latch_says_when_it_will_be_forgotten) {
  const auto a = open();
  const latch an_hour{a, name("hour"), 1, 1h};
  latch open_one{a, name("open"), 1, 1h};
  ASSERT_TRUE(is_ok(open_one.count_down()));
  const auto found = a.latches(prefix());
  ASSERT_TRUE(is_ok(found));
  ASSERT_EQ(found->size(), 2U);
  for (const auto& each : *found) {
    EXPECT_LE(each.forgotten_in, 1h) << each.name;
    EXPECT_GT(each.forgotten_in, 59min) << each.name;
  }
}

// Times are sums: one that wraps would be in the past.
TEST_P(listed_counters, latch_may_be_kept_for_as_long_as_can_be_said) {
  const auto a = open(), b = open();
  latch kept{a, name("kept"), 1, nanoseconds::max() - 1ns};
  auto waiting = std::async(std::launch::async, [&] {
    return latch{b, name("kept")}.wait(patience);
  });
  const auto found = a.latches(prefix());
  ASSERT_TRUE(is_ok(found));
  ASSERT_EQ(found->size(), 1U);
  EXPECT_GT(found->front().forgotten_in, 24h * 365 * 50);
  ASSERT_TRUE(is_ok(kept.count_down()));
  EXPECT_TRUE(is_ok(waiting.get()));
}

TEST_P(listed_counters, barriers_are_not_listed_as_latches) {
  const auto a = open();
  barrier meeting{a, name("barrier/a"), 1}, other{a, name("barrier/b"), barrier::max()};
  const latch after{a, name("latch"), 7};
  ASSERT_TRUE(is_ok(meeting.arrive_and_drop()));  // no participant is left
  EXPECT_EQ(listed(a), lines{"latch:7"});
  EXPECT_EQ(listed(a, {}, 1), lines{"latch:7"}) << "barriers take no latch's place";
}

TEST_P(listed_counters, locks_are_not_listed_as_latches) {
  const auto a = open();
  mutex lock{a, name("lock")};
  const auto held = lock.try_acquire();
  ASSERT_TRUE(is_ok(held));
  const latch counted{a, name("latch"), 1};
  EXPECT_EQ(listed(a), lines{"latch:1"});
  const auto locks = a.list(prefix());
  ASSERT_TRUE(is_ok(locks));
  ASSERT_EQ(locks->size(), 1U) << "nor latches as locks";
  EXPECT_EQ(locks->front().name, name("lock"));
}

// In several steps, where a store is asked about some names at a time.
TEST_P(listed_counters, many_are_listed_completely) {
  const auto a = open();
  lines expected;
  for (int i = 100; i < 400; ++i) {
    const latch made{a, name(std::to_string(i)), i};
    expected.push_back(std::to_string(i) + ":" + std::to_string(i));
  }
  EXPECT_EQ(listed(a, {}, 1000), expected);
  EXPECT_EQ(listed(a, "39", 2), (lines{"390:390", "391:391"}));
}

// ---- barriers

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

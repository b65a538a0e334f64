// Counting: semaphores.
#include "conformance/conformance.hpp"

#include <atomic>

namespace holdfast::testing {
namespace {

class permits : public conformance {
 protected:
  void SetUp() override {
    conformance::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    NEEDS(permits);
  }
};
FOR_EVERY_ENGINE(permits);

TEST_P(permits, never_exceed_n) {
  constexpr std::size_t n = 3;
  std::atomic<int> out{0}, most{0};
  std::vector<std::jthread> pool;
  for (int t = 0; t < 6; ++t) {
    pool.emplace_back([&] {
      const auto own = open();
      counting_semaphore seats{own, name(), n};
      for (int round = 0; round < 20; ++round) {
        seats.acquire();
        const auto now = ++out;
        auto seen = most.load();
        while (now > seen && !most.compare_exchange_weak(seen, now)) {
        }
        std::this_thread::yield();
        --out;
        seats.release();
      }
    });
  }
  pool.clear();
  EXPECT_LE(most, static_cast<int>(n));
  EXPECT_GE(most, 1);
}

TEST_P(permits, several_at_once_are_all_or_nothing) {
  const auto a = open(), b = open();
  counting_semaphore ours{a, name(), 5}, theirs{b, name(), 5};
  auto three = ours.acquire_permits(3);
  ASSERT_TRUE(is_ok(three));
  EXPECT_EQ(three->mode(), lock_mode::permits);
  EXPECT_TRUE(fails_with(theirs.acquire_permits(3, {.wait = 0s}), errc::busy));
  auto two = theirs.acquire_permits(2, {.wait = 0s});
  ASSERT_TRUE(is_ok(two));
  EXPECT_TRUE(fails_with(theirs.acquire_permits(1, {.wait = 0s}), errc::busy));
  ASSERT_TRUE(is_ok(three->release()));
  EXPECT_TRUE(is_ok(theirs.acquire_permits(3, {.wait = 0s})));
}

TEST_P(permits, another_n_is_misconfigured_while_in_use) {
  const auto a = open(), b = open();
  counting_semaphore ours{a, name(), 3}, theirs{b, name(), 4};
  auto held = ours.acquire_permits(1);
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(fails_with(theirs.acquire_permits(1, {.wait = 0s}), errc::misconfigured));
  mutex plain{b, name()};
  EXPECT_TRUE(fails_with(plain.try_acquire(), errc::misconfigured));
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(theirs.acquire_permits(4, {.wait = 0s})));
}

TEST_P(permits, wrong_numbers_are_refused) {
  const auto a = open();
  const auto make = [&](std::size_t n) { counting_semaphore{a, name(), n}; };
  EXPECT_EQ(thrown_by([&] { make(0); }), errc::misconfigured);
  EXPECT_EQ(thrown_by([&] { make(counting_semaphore::max() + 1); }), errc::misconfigured);
  EXPECT_EQ(thrown_by([&] { make(SIZE_MAX); }), errc::misconfigured);
  EXPECT_EQ(thrown_by([&] { make(counting_semaphore::max()); }), std::nullopt);
  counting_semaphore three{a, name(), 3};
  EXPECT_TRUE(fails_with(three.acquire_permits(0), errc::misconfigured));
  EXPECT_TRUE(fails_with(three.acquire_permits(4), errc::misconfigured));
  EXPECT_TRUE(fails_with(three.acquire_permits(SIZE_MAX), errc::misconfigured));
}

TEST_P(permits, std_face_takes_and_gives_one) {
  const auto a = open(), b = open();
  counting_semaphore ours{a, name(), 2}, theirs{b, name(), 2};
  ours.acquire();
  EXPECT_TRUE(ours.try_acquire());
  EXPECT_FALSE(theirs.try_acquire());
  EXPECT_FALSE(theirs.try_acquire_for(10ms));
  ours.release();
  EXPECT_TRUE(theirs.try_acquire_for(1s));
  theirs.release(5);  // more than it has: ignored
  ours.release(1);
  EXPECT_TRUE(is_ok(theirs.acquire_permits(2, {.wait = 1s})));
}

TEST_P(permits, a_large_request_is_not_starved_by_small_ones) {
  NEEDS(fifo);
  NEEDS(listing);
  const auto a = open(), b = open();
  counting_semaphore ours{a, name(), 3}, theirs{b, name(), 3};
  auto one = ours.acquire_permits(1);
  auto all = later([&] { return theirs.acquire_permits(3, {.wait = patience}); });
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  EXPECT_TRUE(fails_with(ours.acquire_permits(1, {.wait = 0s}), errc::busy));
  ASSERT_TRUE(is_ok(one->release()));
  EXPECT_TRUE(is_ok(all.get()));
}

}  // namespace
}  // namespace holdfast::testing

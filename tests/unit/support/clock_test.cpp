#include <holdfast/clock.hpp>

#include <gtest/gtest.h>

#include <time.h>

namespace holdfast {
namespace {

using namespace std::chrono_literals;

nanoseconds read(clockid_t which) {
  timespec at{};
  clock_gettime(which, &at);
  return std::chrono::seconds{at.tv_sec} + nanoseconds{at.tv_nsec};
}

TEST(clock_test, counts_the_time_in_which_the_machine_was_suspended) {
  const auto& counting = system_clock();
  const auto boot = read(CLOCK_BOOTTIME);
  const auto ours = counting.now().time_since_epoch();
  // Nobody can suspend a machine from a test: but whatever boot time does, ours does.
  const auto offset = boot - ours;
  for (int i = 0; i < 100; ++i) {
    const auto before = read(CLOCK_BOOTTIME);
    const auto now = counting.now().time_since_epoch();
    const auto after = read(CLOCK_BOOTTIME);
    EXPECT_GE(now + offset, before - 1ms);
    EXPECT_LE(now + offset, after + 1ms);
  }
}

TEST(clock_test, is_never_ahead_of_the_steady_clock_without_a_suspend) {
  for (int i = 0; i < 100; ++i) {
    const auto ours = system_clock().now();
    EXPECT_LE(ours, std::chrono::steady_clock::now());
  }
}

TEST(clock_test, local_sibling_is_the_steady_clock) {
  const auto& local = system_clock().local();
  const auto before = std::chrono::steady_clock::now();
  const auto now = local.now();
  EXPECT_LE(before, now);
  EXPECT_LE(now, std::chrono::steady_clock::now());
  EXPECT_LE(local.recent(), local.now());
  EXPECT_EQ(&local.local(), &local);
}

}  // namespace
}  // namespace holdfast

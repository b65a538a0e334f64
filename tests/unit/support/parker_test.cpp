#include "support/parker.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace holdfast::support {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

TEST(parker_test, value_set_before_the_wait_is_found) {
  parker bed;
  bed.set(3);
  EXPECT_EQ(bed.wait(clock::time_point::max()), 3U);
}

TEST(parker_test, only_the_first_value_counts) {
  parker bed;
  bed.set(1);
  bed.set(2);
  EXPECT_EQ(bed.wait(clock::time_point::max()), 1U);
}

TEST(parker_test, deadline_ends_the_wait_and_a_later_value_is_still_found) {
  parker bed;
  EXPECT_EQ(bed.wait(clock::now() + 5ms), 0U);
  bed.set(4);
  EXPECT_EQ(bed.wait(clock::time_point::max()), 4U);
}

TEST(parker_test, sleeper_is_woken_by_another_thread) {
  for (int round = 0; round < 200; ++round) {
    parker bed;
    std::thread other{[&] { bed.set(9); }};
    EXPECT_EQ(bed.wait(clock::time_point::max(), round % 2 == 0 ? 10us : 0us), 9U);
    other.join();
  }
}

}  // namespace
}  // namespace holdfast::support

// The barrier's one number.
#include "locks/barrier_state.hpp"

#include <gtest/gtest.h>

namespace holdfast::locks {
namespace {

TEST(barrier_state_test, packs_and_unpacks_every_field) {
  const barrier_state s{0x7fff, 4095, 4094, 4093, 4092};
  const auto back = barrier_state::unpack(s.pack());
  EXPECT_GE(s.pack(), 0);
  EXPECT_EQ(back.phase, s.phase);
  EXPECT_EQ(back.total, s.total);
  EXPECT_EQ(back.expected, s.expected);
  EXPECT_EQ(back.arrived, s.arrived);
  EXPECT_EQ(back.dropped, s.dropped);
}

TEST(barrier_state_test, last_arrival_starts_the_next_phase) {
  auto s = barrier_state::fresh(2);
  s = barrier_state::arrived_one(s);
  EXPECT_EQ(s.phase, 0U);
  s = barrier_state::arrived_one(s);
  EXPECT_EQ(s.phase, 1U);
  EXPECT_EQ(s.arrived, 0U);
}

TEST(barrier_state_test, dropping_out_counts_now_and_shrinks_the_next_phase) {
  auto s = barrier_state::fresh(3);
  s = barrier_state::dropped_one(s);
  s = barrier_state::arrived_one(s);
  EXPECT_EQ(s.phase, 0U) << "three are expected in this phase still";
  s = barrier_state::arrived_one(s);
  EXPECT_EQ(s.phase, 1U);
  EXPECT_EQ(s.expected, 2U);
  EXPECT_EQ(s.total, 3U);
}

TEST(barrier_state_test, phase_wraps) {
  barrier_state s{0x7fff, 1, 1, 0, 0};
  EXPECT_EQ(barrier_state::arrived_one(s).phase, 0U);
}

}  // namespace
}  // namespace holdfast::locks

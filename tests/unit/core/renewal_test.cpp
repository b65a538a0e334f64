// When leases are renewed and when they are given up: pure rules on made-up times.
#include "core/renewal.hpp"

#include <gtest/gtest.h>

namespace holdfast::core {
namespace {

using namespace std::chrono_literals;

const steady_time t0{std::chrono::hours{1}};

constexpr lease_times usual(steady_time from) { return {from + 9s, from + 3s, steady_time::max()}; }

TEST(renewal_test, young_lease_is_left_alone) {
  EXPECT_EQ(decide(usual(t0), t0 + 2s), upkeep::nothing);
}

TEST(renewal_test, lease_is_renewed_at_a_third_of_its_ttl) {
  EXPECT_EQ(decide(usual(t0), t0 + 3s), upkeep::renew);
}

TEST(renewal_test, passed_deadline_is_loss_even_when_a_renewal_is_due) {
  EXPECT_EQ(decide(usual(t0), t0 + 9s), upkeep::expired);
}

TEST(renewal_test, max_hold_ends_a_healthy_lease) {
  auto at = usual(t0);
  at.hold_until = t0 + 1s;
  EXPECT_EQ(decide(at, t0 + 1s), upkeep::held_too_long);
  EXPECT_EQ(next_look(at), t0 + 1s);
}

TEST(renewal_test, next_look_is_the_earliest_of_all) { EXPECT_EQ(next_look(usual(t0)), t0 + 3s); }

TEST(renewal_test, leases_half_way_to_their_renewal_go_along) {
  EXPECT_FALSE(goes_along(usual(t0), 9s, t0 + 1s));
  EXPECT_TRUE(goes_along(usual(t0), 9s, t0 + 1500ms));
}

TEST(renewal_test, failed_renewals_are_tried_many_times_before_the_end) {
  for (const nanoseconds ttl : {nanoseconds{100ms}, nanoseconds{10s}, nanoseconds{24h}}) {
    EXPECT_GE(ttl * 2 / 3 / retry_delay(ttl), 20) << ttl.count();
    EXPECT_LE(retry_delay(ttl), 200ms);
  }
}

}  // namespace
}  // namespace holdfast::core

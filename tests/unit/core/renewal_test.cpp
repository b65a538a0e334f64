// When leases are renewed and when they are given up: pure rules on made-up times.
#include "core/renewal.hpp"

#include <gtest/gtest.h>

namespace holdfast::core {
namespace {

using namespace std::chrono_literals;

const steady_time start{std::chrono::hours{1}};

constexpr lease_times usual(steady_time from) { return {from + 9s, from + 3s, steady_time::max()}; }

TEST(renewal_test, young_lease_is_left_alone) {
  EXPECT_EQ(decide(usual(start), start + 2s), upkeep::nothing);
}

TEST(renewal_test, lease_is_renewed_at_a_third_of_its_ttl) {
  EXPECT_EQ(decide(usual(start), start + 3s), upkeep::renew);
}

TEST(renewal_test, passed_deadline_is_loss_even_when_a_renewal_is_due) {
  EXPECT_EQ(decide(usual(start), start + 9s), upkeep::expired);
}

TEST(renewal_test, max_hold_ends_a_healthy_lease) {
  auto at = usual(start);
  at.hold_until = start + 1s;
  EXPECT_EQ(decide(at, start + 1s), upkeep::held_too_long);
  EXPECT_EQ(next_look(at), start + 1s);
}

TEST(renewal_test, next_look_is_the_earliest_of_all) {
  EXPECT_EQ(next_look(usual(start)), start + 3s);
}

TEST(renewal_test, leases_half_way_to_their_renewal_go_along) {
  EXPECT_FALSE(goes_along(usual(start), 9s, start + 1s));
  EXPECT_TRUE(goes_along(usual(start), 9s, start + 1500ms));
}

TEST(renewal_test, failed_renewals_are_tried_many_times_before_the_end) {
  for (const nanoseconds ttl : {nanoseconds{100ms}, nanoseconds{10s}, nanoseconds{24h}}) {
    EXPECT_GE(ttl * 2 / 3 / retry_delay(ttl), 20) << ttl.count();
    EXPECT_LE(retry_delay(ttl), 200ms);
  }
}

capabilities with_session(nanoseconds length) {
  capabilities out;
  out.longest_validity = length;
  return out;
}

grant granted_at(steady_time from, nanoseconds ttl, steady_time proven) {
  grant out;
  out.valid_from = from;
  out.ttl = ttl;
  out.session = {1, proven};
  return out;
}

TEST(renewal_test, grant_is_believed_until_its_ttl_ends_where_there_are_no_sessions) {
  EXPECT_EQ(believed_until(capabilities{}, granted_at(start, 9s, {})), start + 9s);
}

TEST(renewal_test, grant_is_believed_until_the_earlier_of_ttl_and_session) {
  const auto caps = with_session(3s);
  EXPECT_EQ(believed_until(caps, granted_at(start, 9s, start + 1s)), start + 4s);
  EXPECT_EQ(believed_until(caps, granted_at(start, 9s, start + 8s)), start + 9s);
  EXPECT_LT(believed_until(caps, granted_at(start, 9s, {})), start)
      << "never proven is not believed";
}

TEST(renewal_test, what_two_clocks_may_differ_is_taken_off_both_ends) {
  auto caps = with_session(3s);
  caps.drift_ppm = 100'000;
  caps.margin = 10ms;
  EXPECT_EQ(believed_until(caps, granted_at(start, 9s, start)), start + 3s - 300ms - 10ms);
  EXPECT_EQ(believed_until(caps, granted_at(start, 2s, start)), start + 2s - 200ms - 10ms);
}

TEST(renewal_test, next_look_is_not_later_than_the_next_proof_of_the_session) {
  auto at = usual(start);
  at.prove_at = start + 1s;
  EXPECT_EQ(next_look(at), start + 1s);
}

TEST(renewal_test, heartbeats_leave_time_for_a_pause_of_the_store) {
  auto caps = with_session(9s);
  EXPECT_EQ(heartbeat_interval(caps), 1s);
  caps.session_needs_heartbeats = true;
  EXPECT_EQ(heartbeat_interval(caps), 3s) << "a cluster pays for each";
}

TEST(renewal_test, of_two_proofs_the_later_session_counts_and_of_one_session_the_later_proof) {
  session_proof known{2, start};
  keep_later(known, {1, start + 9s});
  EXPECT_EQ(known.proven_at, start);
  keep_later(known, {2, start - 1s});
  EXPECT_EQ(known.proven_at, start);
  keep_later(known, {2, start + 1s});
  EXPECT_EQ(known.proven_at, start + 1s);
  keep_later(known, {3, start});
  EXPECT_EQ(known.number, 3U);
  EXPECT_EQ(known.proven_at, start);
}

}  // namespace
}  // namespace holdfast::core

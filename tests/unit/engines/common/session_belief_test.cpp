#include "engines/common/session_belief.hpp"

#include <gtest/gtest.h>

namespace holdfast::engines {
namespace {

using namespace std::chrono_literals;

steady_time at(std::chrono::seconds since) { return steady_time{since}; }

TEST(session_belief, without_a_session_nothing_is_proven) {
  const session_belief belief;
  EXPECT_EQ(belief.current(), 0U);
  EXPECT_EQ(belief.covering(at(100s)), 0U);
  EXPECT_EQ(belief.proven_at(0), steady_time{});
}

TEST(session_belief, proofs_raise_and_never_lower) {
  session_belief belief;
  belief.begin(1, at(10s));
  EXPECT_EQ(belief.proven_at(1), steady_time{}) << "a beginning is no proof";
  belief.proven(1, at(12s), at(13s));
  belief.proven(1, at(11s), at(14s));
  EXPECT_EQ(belief.proven_at(1), at(12s));
}

TEST(session_belief, new_session_proves_nothing_about_an_old_one) {
  session_belief belief;
  belief.begin(1, at(10s));
  belief.proven(1, at(11s), at(11s));
  belief.begin(2, at(20s));
  belief.proven(2, at(21s), at(21s));
  EXPECT_EQ(belief.proven_at(1), at(11s));
  EXPECT_EQ(belief.proven_at(2), at(21s));
}

TEST(session_belief, grant_counts_on_the_session_in_which_the_store_was_asked) {
  session_belief belief;
  belief.begin(1, at(10s));
  belief.begin(2, at(20s));
  EXPECT_EQ(belief.covering(at(9s)), 0U);
  EXPECT_EQ(belief.covering(at(19s)), 1U);
  EXPECT_EQ(belief.covering(at(20s)), 2U);
}

TEST(session_belief, answer_that_comes_before_the_session_is_announced_begins_it_when_it_came) {
  session_belief belief;
  belief.proven(3, at(5s), at(8s));
  EXPECT_EQ(belief.current(), 3U);
  EXPECT_EQ(belief.covering(at(7s)), 0U) << "what was granted while it was opened may be older";
  EXPECT_EQ(belief.covering(at(8s)), 3U);
  belief.begin(3, at(9s));
  EXPECT_EQ(belief.covering(at(8s)), 3U) << "announced twice is begun once";
}

TEST(session_belief, late_answer_of_an_old_session_counts_for_that_one) {
  session_belief belief;
  belief.begin(1, at(10s));
  belief.begin(2, at(20s));
  belief.proven(1, at(15s), at(21s));
  EXPECT_EQ(belief.current(), 2U);
  EXPECT_EQ(belief.proven_at(1), at(15s));
  belief.begin(3, at(30s));
  EXPECT_EQ(belief.proven_at(1), steady_time{}) << "too old to count";
  belief.proven(1, at(16s), at(31s));
  EXPECT_EQ(belief.proven_at(1), steady_time{});
}

TEST(session_belief, counts_as_many_sessions_as_it_was_told_to) {
  session_belief belief{3};
  for (const std::uint64_t session : {1U, 2U, 3U}) {
    belief.begin(session, at(std::chrono::seconds{session * 10}));
    belief.proven(session, at(std::chrono::seconds{session * 10 + 1}), at(100s));
  }
  EXPECT_EQ(belief.proven_at(1), at(11s));
  EXPECT_EQ(belief.covering(at(12s)), 1U);
  belief.begin(4, at(40s));
  EXPECT_EQ(belief.proven_at(1), steady_time{});
  EXPECT_EQ(belief.proven_at(2), at(21s));
  EXPECT_EQ(belief.covering(at(12s)), 0U);
}

}  // namespace
}  // namespace holdfast::engines

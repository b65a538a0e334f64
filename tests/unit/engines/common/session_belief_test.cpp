#include "engines/common/session_belief.hpp"

#include <gtest/gtest.h>

namespace holdfast::engines {
namespace {

using namespace std::chrono_literals;

steady_time at(std::chrono::seconds since) { return steady_time{since}; }

TEST(session_belief, without_a_session_nothing_is_proven) {
  const session_belief belief;
  EXPECT_EQ(belief.current(), 0U);
  EXPECT_EQ(belief.proven_at(0), steady_time{});
}

TEST(session_belief, proofs_raise_and_never_lower) {
  session_belief belief;
  belief.begin(1);
  EXPECT_EQ(belief.proven_at(1), steady_time{}) << "a beginning is no proof";
  belief.proven(1, at(12s));
  belief.proven(1, at(11s));
  EXPECT_EQ(belief.proven_at(1), at(12s));
}

TEST(session_belief, new_session_proves_nothing_about_an_old_one) {
  session_belief belief;
  belief.begin(1);
  belief.proven(1, at(11s));
  belief.begin(2);
  belief.proven(2, at(21s));
  EXPECT_EQ(belief.proven_at(1), at(11s));
  EXPECT_EQ(belief.proven_at(2), at(21s));
}

TEST(session_belief, answer_that_comes_before_the_session_is_announced_begins_it) {
  session_belief belief;
  belief.proven(3, at(5s));
  EXPECT_EQ(belief.current(), 3U);
  belief.begin(3);
  EXPECT_EQ(belief.proven_at(3), at(5s)) << "announced twice is begun once";
}

TEST(session_belief, late_answer_of_an_old_session_counts_for_that_one) {
  session_belief belief;
  belief.begin(1);
  belief.begin(2);
  belief.proven(1, at(15s));
  EXPECT_EQ(belief.current(), 2U);
  EXPECT_EQ(belief.proven_at(1), at(15s));
  belief.begin(3);
  EXPECT_EQ(belief.proven_at(1), steady_time{}) << "too old to count";
  belief.proven(1, at(16s));
  EXPECT_EQ(belief.proven_at(1), steady_time{});
}

TEST(session_belief, counts_as_many_sessions_as_it_was_told_to) {
  session_belief belief{3};
  for (const std::uint64_t session : {1U, 2U, 3U}) {
    belief.begin(session);
    belief.proven(session, at(std::chrono::seconds{session * 10 + 1}));
  }
  EXPECT_EQ(belief.proven_at(1), at(11s));
  belief.begin(4);
  EXPECT_EQ(belief.proven_at(1), steady_time{});
  EXPECT_EQ(belief.proven_at(2), at(21s));
}

}  // namespace
}  // namespace holdfast::engines

// A judge that finds nothing must be able to find something.
#include "support/judge.hpp"

#include <gtest/gtest.h>

namespace holdfast::testing {
namespace {

using namespace std::chrono_literals;

const steady_time t0{std::chrono::hours{1}};

turn writer(std::uint64_t token, nanoseconds begin, nanoseconds last, bool told = false) {
  turn out{.name = "stock"};
  out.token = {token};
  out.asked = out.begin = t0 + begin;
  out.last = t0 + last;
  out.was_told = told;
  return out;
}

turn permit(std::uint64_t token, std::uint64_t k, std::uint64_t n, nanoseconds begin,
            nanoseconds last) {
  auto out = writer(token, begin, last);
  out.weight = k;
  out.capacity = n;
  return out;
}

std::size_t complaints(std::vector<turn> turns, const leniency& mercy = {}) {
  return judge(std::move(turns), mercy).complaints.size();
}

TEST(judge_test, one_after_the_other_is_right) {
  EXPECT_EQ(complaints({writer(1, 0ms, 10ms), writer(2, 11ms, 20ms), writer(3, 21ms, 22ms)}), 0U);
}

TEST(judge_test, two_at_once_are_wrong) {
  EXPECT_EQ(complaints({writer(1, 0ms, 10ms), writer(2, 9ms, 20ms)}), 1U);
  EXPECT_EQ(complaints({writer(1, 0ms, 100ms), writer(2, 9ms, 20ms), writer(3, 30ms, 40ms)}), 2U)
      << "a long belief is seen beside all that come later";
}

TEST(judge_test, permits_share_up_to_their_number) {
  EXPECT_EQ(complaints({permit(1, 1, 3, 0ms, 9ms), permit(2, 2, 3, 1ms, 9ms)}), 0U);
  EXPECT_GT(complaints({permit(1, 2, 3, 0ms, 9ms), permit(2, 2, 3, 1ms, 9ms)}), 0U);
  EXPECT_EQ(complaints({permit(1, 2, 3, 0ms, 9ms), permit(2, 2, 3, 10ms, 19ms)}), 0U);
}

TEST(judge_test, tokens_rise_for_whoever_asks_later) {
  EXPECT_EQ(complaints({writer(2, 0ms, 10ms), writer(1, 11ms, 20ms)}), 1U);
  EXPECT_EQ(complaints({writer(2, 0ms, 10ms), writer(2, 11ms, 20ms)}), 1U) << "and differ";
  auto early = permit(1, 1, 3, 5ms, 9ms);
  early.asked = t0 - 1ms;  // it asked before the other was granted
  EXPECT_EQ(complaints({permit(2, 1, 3, 0ms, 9ms), early}), 0U);
}

TEST(judge_test, names_have_nothing_to_do_with_each_other) {
  auto other = writer(1, 0ms, 10ms);
  other.name = "other";
  EXPECT_EQ(complaints({writer(2, 0ms, 10ms), other}), 0U);
}

TEST(judge_test, mercy_is_for_few_who_were_told_and_soon) {
  const leniency mercy{1s, 20};
  std::vector<turn> turns;
  for (int i = 0; i < 20; ++i)
    turns.push_back(writer(static_cast<std::uint64_t>(i) + 1, i * 1s, i * 1s + 1ms));
  const auto with = [&](nanoseconds overlap, bool told) {
    auto all = turns;
    all.push_back(writer(30, 30s, 40s, told));
    all.push_back(writer(31, 40s - overlap, 41s));
    return complaints(all, mercy);
  };
  EXPECT_EQ(with(-1ms, false), 0U);
  EXPECT_EQ(with(10ms, true), 0U);
  EXPECT_EQ(with(10ms, false), 1U);
  EXPECT_EQ(with(2s, true), 1U);
  EXPECT_GT(complaints({writer(1, 0ms, 9ms, true), writer(2, 8ms, 9ms)}, mercy), 0U) << "1 of 2";
}

}  // namespace
}  // namespace holdfast::testing

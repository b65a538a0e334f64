// What is remembered of requests that were never answered: no server.
#include "engines/redis/late_requests.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace holdfast::engines::redis {
namespace {

using namespace std::chrono_literals;

result<void> unanswered() { return error{errc::outcome_unknown, "no answer"}; }

TEST(late_requests, are_known_until_their_owner_is_over) {
  late_requests all;
  const owner_id one{{1, 2}, 3}, other{{1, 2}, 4};
  all.note(one, unanswered());
  all.note(other, result<void>{});
  EXPECT_TRUE(all.has(one));
  EXPECT_FALSE(all.has(other)) << "it was answered";
  all.forget(one);
  EXPECT_FALSE(all.has(one));
}

// Some owners end elsewhere, at the node to which their slot has moved: here none says so.
TEST(late_requests, do_not_pile_up) {
  late_requests all;
  const auto start = std::chrono::steady_clock::now();
  const owner_id first{{1, 2}, 1};
  all.note(first, unanswered(), start);
  for (std::uint64_t i = 2; i < 100; ++i) all.note({{1, 2}, i}, unanswered(), start);
  EXPECT_EQ(all.size(), 99U);
  all.note({{1, 2}, 200}, unanswered(), start + late_requests::mark_kept);
  EXPECT_TRUE(all.has(first)) << "it may still be delivered";
  all.note({{1, 2}, 300}, unanswered(), start + 3 * late_requests::mark_kept);
  EXPECT_FALSE(all.has(first));
  EXPECT_EQ(all.size(), 2U);
}

}  // namespace
}  // namespace holdfast::engines::redis

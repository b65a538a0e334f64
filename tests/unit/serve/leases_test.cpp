#include "server/leases.hpp"

#include "support/manual_task.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace holdfast::server {
namespace {

using testing::manual_task;

// Has its turn until it is destroyed.
manual_task hold_turn(lease_ptr of) {
  lease_turn turn{of};
  co_await turn;
  co_await std::suspend_always{};
}

task<> take_turn(lease_ptr of, std::vector<int>& order, int number) {
  lease_turn turn{of};
  co_await turn;
  order.push_back(number);
}

TEST(serve_leases, a_turn_is_taken_at_once_when_nobody_has_it) {
  const auto one = std::make_shared<held_lease>();
  std::vector<int> order;
  spawn(take_turn(one, order, 1));
  EXPECT_EQ(order, std::vector{1});
  EXPECT_FALSE(one->is_in_use);
}

// Each of them ends at once, as renewals of a lease that is over do: inside one another they would fill the stack.
TEST(serve_leases, a_line_longer_than_the_stack_is_served_in_its_order) {
  constexpr int many = 200'000;
  const auto one = std::make_shared<held_lease>();
  auto first = hold_turn(one);
  first.start();
  std::vector<int> order;
  for (int i = 0; i < many; ++i) spawn(take_turn(one, order, i));
  EXPECT_TRUE(order.empty());
  first.destroy();
  ASSERT_EQ(order.size(), std::size_t{many});
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_FALSE(one->is_in_use);
}

TEST(serve_leases, who_keeps_its_turn_stops_the_line) {
  const auto one = std::make_shared<held_lease>();
  auto first = hold_turn(one), second = hold_turn(one);
  first.start(), second.start();
  std::vector<int> order;
  spawn(take_turn(one, order, 3));
  first.destroy();
  EXPECT_TRUE(order.empty());
  EXPECT_TRUE(one->is_in_use);
  second.destroy();
  EXPECT_EQ(order, std::vector{3});
}

}  // namespace
}  // namespace holdfast::server

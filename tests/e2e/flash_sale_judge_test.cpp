// The judge of a flash sale, on books that are written by hand.
#include "flash_sale/judge.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace {

using namespace holdfast::cli::flash;
using namespace std::chrono_literals;

order sold_at(instant saw, instant wrote, std::int64_t left, std::int32_t shelf = 0) {
  return {saw, saw, wrote, left, shelf, order_state::done};
}

// Two buyers in two processes.
ledger book_of(std::int64_t stock, std::int64_t left, std::vector<order> first,
               std::vector<order> second) {
  ledger out;
  out.stock = stock;
  out.left = left;
  out.orders = {std::move(first), std::move(second)};
  out.process_of = {0, 1};
  return out;
}

TEST(flash_judge, finds_nothing_wrong_in_a_sale_that_is_right) {
  const auto said = judge(book_of(3, 0, {sold_at(1, 2, 2), sold_at(5, 6, 0)}, {sold_at(3, 4, 1)}));
  EXPECT_EQ(said.sold, 3);
  EXPECT_TRUE(said.is_clean());
  EXPECT_EQ(said.unexplained, 0);
  EXPECT_EQ(said.fewest, 1);
  EXPECT_EQ(said.most, 2);
}

TEST(flash_judge, counts_orders_that_wrote_the_same_number) {
  const auto said = judge(book_of(2, 0, {sold_at(1, 3, 1), sold_at(5, 6, 0)}, {sold_at(2, 4, 1)}));
  EXPECT_EQ(said.lost_updates, 1);
  EXPECT_EQ(said.oversold, 1);
  EXPECT_EQ(said.unexplained, -1);
}

TEST(flash_judge, keeps_the_numbers_of_two_shelves_apart) {
  const auto said = judge(book_of(2, 0, {sold_at(1, 3, 0, 0)}, {sold_at(2, 4, 0, 1)}));
  EXPECT_TRUE(said.is_clean());
}

TEST(flash_judge, does_not_count_what_was_refused_or_never_answered) {
  auto refused = sold_at(1, 5, 1);
  refused.state = order_state::refused;
  auto sent = sold_at(6, 0, 1);
  sent.state = order_state::sent;
  const auto said = judge(book_of(2, 0, {refused, sent}, {sold_at(2, 3, 1)}));
  EXPECT_EQ(said.sold, 1);
  EXPECT_EQ(said.unknown, 1);
  EXPECT_EQ(said.unexplained, 1) << "the one whose buyer died may have taken it";
  EXPECT_TRUE(said.is_clean());
}

TEST(flash_judge, measures_the_standstill_until_another_process_sells) {
  auto book = book_of(9, 5, {sold_at(1, 2, 8), sold_at(101, 103, 7)}, {sold_at(150, 160, 6)});
  book.struck = fault::kill;
  book.struck_process = 0;
  book.struck_at = 100;
  book.closed = 500;
  EXPECT_EQ(judge(book).stood_still, 60ns);
  EXPECT_FALSE(judge(book).stood_for_good);
  book.orders[1].clear();
  EXPECT_EQ(judge(book).stood_still, 400ns);
  EXPECT_TRUE(judge(book).stood_for_good);
}

ledger paused_from_10_to_50() {
  auto book = book_of(9, 0, {}, {sold_at(20, 30, 7)});
  book.struck = fault::pause;
  book.struck_process = 0;
  book.struck_at = 10;
  book.resumed_at = 50;
  return book;
}

TEST(flash_judge, a_late_write_is_one_whose_number_another_had_used_up) {
  auto book = paused_from_10_to_50();
  book.orders[0] = {sold_at(5, 55, 7)};
  EXPECT_EQ(judge(book).stale_accepted, 1);
  book.orders[0][0].state = order_state::refused;
  EXPECT_EQ(judge(book).stale_accepted, 0);
  EXPECT_EQ(judge(book).stale_refused, 1);
}

TEST(flash_judge, a_write_after_a_pause_is_not_late_when_its_number_is_its_own) {
  auto book = paused_from_10_to_50();
  book.orders[0] = {sold_at(5, 55, 6)};  // a statement that subtracts by itself
  EXPECT_EQ(judge(book).stale_accepted, 0);
  book.orders[0] = {sold_at(51, 55, 7)};  // computed after the pause
  EXPECT_EQ(judge(book).stale_accepted, 0);
  book.orders[0] = {sold_at(5, 9, 7)};  // written before it
  EXPECT_EQ(judge(book).stale_accepted, 0);
}

TEST(flash_judge, waits_are_from_coming_to_having_bought) {
  std::vector<order> all;
  for (int i = 1; i <= 100; ++i) all.push_back({0, 0, i, 100 - i, 0, order_state::done});
  const auto said = judge(book_of(100, 0, all, {}));
  EXPECT_EQ(said.wait_p50, 50ns);
  EXPECT_EQ(said.wait_p99, 99ns);
}

}  // namespace

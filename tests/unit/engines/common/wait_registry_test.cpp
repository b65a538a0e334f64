#include "engines/common/wait_registry.hpp"

#include <gtest/gtest.h>

namespace holdfast::engines {
namespace {

struct no_timers {
  int at(steady_time, const std::function<void()>&) { return 0; }
  void cancel(int) {}
};

class waits_test : public ::testing::Test {
 protected:
  using room = wait_registry<int, no_timers>;
  // What it has heard by now; 0 for "look again", nothing while it waits.
  std::shared_ptr<std::optional<int>> wait(std::uint64_t number, room::judge answers = {}) {
    auto heard = std::make_shared<std::optional<int>>();
    room_.for_grant(
        number, {}, [heard](std::optional<int> news) { *heard = news.value_or(0); },
        std::move(answers));
    return heard;
  }

  no_timers timers_;
  room room_{timers_};
};

TEST_F(waits_test, news_that_came_first_is_heard_once) {
  room_.granted(7, 1);
  EXPECT_EQ(*wait(7), 1);
  EXPECT_EQ(*wait(7), std::nullopt);
}

TEST_F(waits_test, forgotten_news_is_not_heard) {
  room_.granted(7, 1);
  room_.forget(7);
  EXPECT_EQ(*wait(7), std::nullopt);
}

TEST_F(waits_test, news_of_an_earlier_attempt_is_dropped_whenever_it_comes) {
  const auto above_five = [](int news) { return news > 5; };
  room_.granted(7, 5);
  const auto heard = wait(7, above_five);
  EXPECT_EQ(*heard, std::nullopt);
  room_.granted(7, 4);
  EXPECT_EQ(*heard, std::nullopt);
  room_.granted(7, 6);
  EXPECT_EQ(*heard, 6);
  EXPECT_EQ(*wait(7), std::nullopt) << "nothing of it was kept";
}

TEST_F(waits_test, unread_news_is_bounded_and_the_oldest_goes) {
  constexpr std::uint64_t many = 50'000;
  for (std::uint64_t i = 1; i <= many; ++i) room_.granted(i, 1);
  EXPECT_EQ(*wait(1), std::nullopt);
  EXPECT_EQ(*wait(many - 20'000), std::nullopt);
  EXPECT_EQ(*wait(many), 1);
  EXPECT_EQ(*wait(many - 10'000), 1);
}

TEST_F(waits_test, newer_news_outlives_the_older_of_the_same_owner) {
  room_.granted(7, 1);
  for (std::uint64_t i = 100; i < 10'100; ++i) room_.granted(i, 1);
  room_.granted(7, 2);
  for (std::uint64_t i = 20'000; i < 30'000; ++i) room_.granted(i, 1);
  EXPECT_EQ(*wait(7), 2);
}

}  // namespace
}  // namespace holdfast::engines

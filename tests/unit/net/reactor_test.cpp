// The thread below all connections: timers and posted work.
#include "net/reactor.hpp"

#include "support/wait_until.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

namespace holdfast::testing {
namespace {

struct net_reactor : ::testing::Test {
  std::unique_ptr<net::reactor> reactor = std::move(net::reactor::start()).value();
};

TEST_F(net_reactor, timers_run_in_order_of_time_and_can_be_cancelled) {
  std::mutex guard;
  std::vector<int> ran;
  const auto note = [&](int which) {
    return [&, which] {
      std::lock_guard locked{guard};
      ran.push_back(which);
    };
  };
  const auto now = std::chrono::steady_clock::now();
  reactor->at(now + 30ms, note(3));
  const auto never = reactor->at(now + 20ms, note(2));
  reactor->at(now + 10ms, note(1));
  EXPECT_TRUE(reactor->cancel(never));
  EXPECT_FALSE(reactor->cancel(never));
  EXPECT_TRUE(wait_until([&] {
    std::lock_guard locked{guard};
    return ran.size() == 2;
  }));
  EXPECT_EQ(ran, (std::vector{1, 3}));
  EXPECT_GE(std::chrono::steady_clock::now(), now + 30ms);
}

TEST_F(net_reactor, work_that_throws_does_not_end_the_reactor) {
  std::promise<void> after;
  reactor->post([] { throw std::runtime_error("from the test"); });
  reactor->post([&] { after.set_value(); });
  EXPECT_EQ(after.get_future().wait_for(patience), std::future_status::ready);
}

TEST_F(net_reactor, the_reactor_runs_what_was_posted_before_it_ends) {
  std::atomic<int> ran{0};
  for (int i = 0; i < 100; ++i) reactor->post([&] { ++ran; });
  reactor.reset();
  EXPECT_EQ(ran, 100);
}

}  // namespace
}  // namespace holdfast::testing

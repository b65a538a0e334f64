// The thread for time of engines that have no reactor.
#include "engines/common/timer_thread.hpp"

#include "support/wait_until.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <vector>

namespace holdfast::engines {
namespace {

using namespace std::chrono_literals;
using testing::wait_until;

class common_timer_thread : public ::testing::Test {
 protected:
  static timer_thread::steady_time now() { return std::chrono::steady_clock::now(); }
  std::function<void()> note(int which) {
    return [this, which] {
      const std::lock_guard lock{guard_};
      ran_.push_back(which);
    };
  }
  std::vector<int> ran() {
    const std::lock_guard lock{guard_};
    return ran_;
  }

  std::mutex guard_;
  std::vector<int> ran_;
  timer_thread timers_;
};

TEST_F(common_timer_thread, runs_by_time_and_not_before_it) {
  const auto begin = now();
  std::atomic<timer_thread::steady_time> ran_at{begin};
  timers_.at(begin + 300ms, [&] { ran_at = now(); });
  timers_.at(begin + 300ms, note(2));  // of two at the same time the one that was asked for first
  timers_.at(begin + 300ms, note(3));
  timers_.at(begin + 100ms, note(1));  // earlier than what the thread sleeps for
  EXPECT_TRUE(wait_until([&] { return ran().size() == 3; }));
  EXPECT_EQ(ran(), (std::vector{1, 2, 3}));
  EXPECT_GE(ran_at.load(), begin + 300ms);
}

TEST_F(common_timer_thread, cancelled_is_never_run) {
  const auto begin = now();
  const auto never = timers_.at(begin + 300ms, note(1));
  timers_.at(begin + 301ms, note(2));
  timers_.cancel(never);
  timers_.cancel(never);  // nothing to do
  EXPECT_TRUE(wait_until([&] { return !ran().empty(); }));
  EXPECT_EQ(ran(), std::vector{2});
}

TEST_F(common_timer_thread, work_may_plan_and_cancel) {
  const auto never = timers_.at(now() + 1h, note(9));
  timers_.at(now(), [&] {
    timers_.cancel(never);
    timers_.at(now(), note(1));
  });
  EXPECT_TRUE(wait_until([&] { return !ran().empty(); }));
  EXPECT_EQ(ran(), std::vector{1});
}

TEST_F(common_timer_thread, nothing_is_run_after_finish) {
  timers_.at(now() + 5ms, note(1));
  timers_.at(now() + 1h, note(2));
  timers_.finish();
  const auto before = ran();
  timers_.at(now(), note(3));
  EXPECT_TRUE(testing::stays_true([&] { return ran() == before; }, 20ms));
}

}  // namespace
}  // namespace holdfast::engines

// The threads of engines whose client library blocks.
#include "engines/common/thread_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <latch>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace holdfast::engines {
namespace {

TEST(common_thread_pool, runs_in_the_order_of_the_calls) {
  std::vector<int> ran;
  thread_pool pool{1};
  for (int i = 0; i < 100; ++i) pool.post([&ran, i] { ran.push_back(i); });
  pool.finish();
  ASSERT_EQ(ran.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[static_cast<std::size_t>(i)], i);
}

TEST(common_thread_pool, begins_in_the_order_of_the_calls_on_several_threads) {
  std::mutex guard;
  std::vector<int> begun;
  std::latch both{2};
  thread_pool pool{2};
  for (int i = 0; i < 2; ++i)
    pool.post([&both] { both.arrive_and_wait(); });  // would not return with one thread
  std::promise<void> gate;
  const auto open = gate.get_future().share();
  pool.post([open] { open.wait(); });  // keeps one thread busy
  for (int i = 0; i < 50; ++i)
    pool.post([&, i] {
      const std::lock_guard lock{guard};
      begun.push_back(i);
    });
  pool.post([&gate] { gate.set_value(); });
  pool.finish();
  ASSERT_EQ(begun.size(), 50U);
  EXPECT_TRUE(std::is_sorted(begun.begin(), begun.end()));
}

TEST(common_thread_pool, has_no_more_threads_than_it_may) {
  std::mutex guard;
  std::set<std::thread::id> seen;
  std::latch three{3};
  thread_pool pool{3};
  for (int i = 0; i < 60; ++i)
    pool.post([&, i] {
      if (i < 3) three.arrive_and_wait();  // would not return with two threads
      const std::lock_guard lock{guard};
      seen.insert(std::this_thread::get_id());
    });
  pool.finish();
  EXPECT_EQ(seen.size(), 3U);
}

TEST(common_thread_pool, finish_runs_what_was_posted_and_what_that_posts) {
  std::atomic<int> ran{0};
  thread_pool pool{1};
  std::promise<void> gate;
  pool.post([opened = gate.get_future().share()] { opened.wait(); });
  for (int i = 0; i < 10; ++i)
    pool.post([&] {
      ++ran;
      pool.post([&ran] { ++ran; });
    });
  gate.set_value();
  pool.finish();
  EXPECT_EQ(ran, 20);
}

TEST(common_thread_pool, post_after_finish_runs_on_the_calling_thread) {
  thread_pool pool{2};
  std::thread::id pooled, after;
  pool.post([&] { pooled = std::this_thread::get_id(); });
  pool.finish();
  EXPECT_NE(pooled, std::this_thread::get_id());
  pool.post([&] { after = std::this_thread::get_id(); });
  EXPECT_EQ(after, std::this_thread::get_id()) << "and it has run when post() returns";
  pool.finish();  // a second time is nothing
}

}  // namespace
}  // namespace holdfast::engines

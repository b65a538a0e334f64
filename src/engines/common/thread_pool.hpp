// A few threads for what may block, in the order in which it was asked for. They are begun when there is work for them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace holdfast::engines {

class thread_pool {
 public:
  explicit thread_pool(std::size_t most) : most_(most) {}
  thread_pool(const thread_pool&) = delete;
  thread_pool& operator=(const thread_pool&) = delete;
  ~thread_pool() { finish(); }

  void post(std::function<void()> work);
  // Runs what was posted, and what that posts, and ends. From then on post() runs the work on the calling thread.
  void finish() noexcept;

 private:
  void run();

  const std::size_t most_;
  std::mutex guard_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;
  bool ending_ = false;
};

}  // namespace holdfast::engines

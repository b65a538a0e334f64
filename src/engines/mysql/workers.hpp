// The engine's own threads: a few that run what may block, in the order in which it was asked for, and one for time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace holdfast::engines::mysql {

class workers {
 public:
  explicit workers(std::size_t most) : most_(most) {}
  ~workers() { finish(); }

  void post(std::function<void()> work);
  // Runs what was posted, and what that posts, and ends. From then on post() runs the work itself.
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

class timers {
 public:
  using steady_time = std::chrono::steady_clock::time_point;
  using id = std::pair<steady_time, std::uint64_t>;

  ~timers() { finish(); }

  // The work must not block. None is run after finish().
  id at(steady_time when, std::function<void()> work);
  void cancel(const id& which);
  void finish() noexcept;

 private:
  void run();

  std::mutex guard_;
  std::condition_variable changed_;
  std::map<id, std::function<void()>> all_;
  std::uint64_t last_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace holdfast::engines::mysql

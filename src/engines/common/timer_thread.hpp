// One thread for time: runs each work when it is due. It is begun with the first timer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace holdfast::engines {

class timer_thread {
 public:
  using steady_time = std::chrono::steady_clock::time_point;
  using id = std::pair<steady_time, std::uint64_t>;

  timer_thread() = default;
  timer_thread(const timer_thread&) = delete;
  timer_thread& operator=(const timer_thread&) = delete;
  ~timer_thread() { finish(); }

  // The work must not block. None is run after finish().
  id at(steady_time when, std::function<void()> work);
  // Does not wait for a work that runs just now.
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

}  // namespace holdfast::engines

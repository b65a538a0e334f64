// Ends doubts about leases that are held: a change of mode whose answer was lost.
//
// Each doubt is an attempt that is repeated, ever less often, until it says that it is certain, or the client ends. The
// attempts block, so they have a thread of their own, which starts with the first doubt.
#pragma once

#include <holdfast/engine.hpp>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>

namespace holdfast::core {

class retry_thread {
 public:
  // True: there is no doubt any more. Must return promptly once the stop is requested.
  using attempt = std::function<bool(const std::stop_token&)>;

  retry_thread() = default;
  ~retry_thread() { stop({}); }
  retry_thread(const retry_thread&) = delete;
  retry_thread& operator=(const retry_thread&) = delete;

  void add(attempt what);
  // Ends the thread, after a last try of each doubt that is left, within this time.
  void stop(nanoseconds patience) noexcept;

 private:
  struct doubt {
    attempt what;
    nanoseconds pause;
  };
  void run(const std::stop_token& stop);

  std::mutex guard_;
  std::condition_variable_any changed_, settled_;
  bool trying_ = false;
  std::multimap<std::chrono::steady_clock::time_point, doubt> doubts_;
  bool stopped_ = false;
  std::jthread thread_;
};

}  // namespace holdfast::core

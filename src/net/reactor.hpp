// The thread of a transport: connects, reads for calls that no thread waits for, keeps streams and timers. Channels are
// made on it, to one server or to several, and must be gone before it.
#pragma once

#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include <cstdint>
#include <functional>
#include <memory>

namespace holdfast::net {

class reactor {
 public:
  static result<std::unique_ptr<reactor>>
  start();     // unavailable: no thread or no descriptor to be had
  ~reactor();  // joins
  reactor(const reactor&) = delete;
  reactor& operator=(const reactor&) = delete;

  using timer_id = std::uint64_t;
  // Runs `work` on the reactor's thread at `when` (at once when that is past).
  timer_id at(steady_time when, std::function<void()> work);
  // False: it has run, runs now, or was cancelled before.
  bool cancel(timer_id which) noexcept;
  // Runs `work` on the reactor's thread soon.
  void post(std::function<void()> work);

  class impl;
  impl& inside() noexcept { return *impl_; }

 private:
  explicit reactor(std::unique_ptr<impl> inside);
  std::unique_ptr<impl> impl_;
};

}  // namespace holdfast::net

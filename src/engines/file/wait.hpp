// How a waiter sleeps: on its own wake word and on the life words of those it monitors.
//
// The kernel marks the life word of a session that dies and wakes one waiter on it. That one wakes all the others and
// puts the shard in order. So a waiter needs no timer to learn of a death; the back-stop below is for clients that were
// killed between a change and the wake-up that belongs to it.
#pragma once

#include "engines/file/shard.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace holdfast::engines::file {

inline constexpr nanoseconds back_stop = std::chrono::milliseconds{250};
inline constexpr nanoseconds look_again = std::chrono::milliseconds{20};  // without futex_waitv

class wait_set {
 public:
  static constexpr std::size_t most = 120;  // futex_waitv takes 128

  void clear() noexcept {
    count_ = 0;
    until_ = steady_time::max();
  }
  void monitor(session& client) noexcept;
  void not_after(steady_time at) noexcept { until_ = std::min(until_, at); }
  steady_time until() const noexcept { return until_; }
  bool monitors_any() const noexcept { return count_ > 0; }

  // Until `own` is no longer `seen`, a monitored session dies, or the time comes. May return for no reason.
  void sleep(const environment& env, futex_word& own, std::uint32_t seen) noexcept;

 private:
  struct monitored {
    futex_word* life;
    std::uint32_t value;
  };
  std::array<monitored, most> monitored_;
  std::size_t count_ = 0;
  steady_time until_ = steady_time::max();
};

// What one look at the queue says.
struct look_result {
  bool done = false;  // granted, or no longer there
  std::optional<grant> granted{};
  steady_time again = steady_time::max();  // something expires then
  std::uint32_t count = 0;
  std::array<std::uint32_t, wait_set::most> sessions;  // to monitor

  std::span<const std::uint32_t> monitored() const noexcept { return {sessions.data(), count}; }
};

// Whom a waiter or watcher must monitor now: the first in the queue and watchers all holders, every other waiter the
// one before it. A client does not monitor its own session: they die together. REQUIRES: the dead were reaped just now.
void choose_monitored(locked_shard& shard, const record& in, entry& waiter, std::uint32_t self,
                      look_result& out) noexcept;

// What a stop_callback does to a sleeping thread.
struct wake_on_stop {
  entry* waiter;
  void operator()() const noexcept { wake_now(*waiter); }
};

}  // namespace holdfast::engines::file

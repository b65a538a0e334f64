// A place for one thread to sleep until it is told something, or until a deadline.
//
// The private futex that std::atomic::wait uses, plus the timeout that it lacks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace holdfast::support {

class parker {
 public:
  // Wakes the waiting thread, now or as soon as it sleeps. `value` must not be 0; only the first call counts.
  void set(std::uint32_t value) noexcept;
  // What was set, or 0 when the deadline came first. Spins for `spin` before it sleeps.
  std::uint32_t wait(std::chrono::steady_clock::time_point deadline,
                     std::chrono::nanoseconds spin = std::chrono::nanoseconds::zero()) noexcept;
  std::uint32_t peek() const noexcept { return word_.load(std::memory_order_acquire); }

 private:
  static constexpr std::uint32_t asleep = 1U << 31U;
  std::atomic<std::uint32_t> word_{0};
};

}  // namespace holdfast::support

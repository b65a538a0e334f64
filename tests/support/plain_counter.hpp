// A counter that loses updates when two bump it at once, as a plain integer would.
//
// Not a plain integer, because of the thread sanitizer: two clients of a mapped file in one process meet at two
// addresses of the same memory, and it cannot see that the lock orders them.
#pragma once

#include <atomic>
#include <cstdint>

namespace holdfast::testing {

class plain_counter {
 public:
  void bump() noexcept { set(get() + 1); }
  std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }
  void set(std::uint64_t value) noexcept { value_.store(value, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace holdfast::testing

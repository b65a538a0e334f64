#include "support/parker.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <thread>

namespace holdfast::support {

namespace {

void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Spinning helps only when the one we wait for can run meanwhile.
bool worth_spinning() noexcept {
  static const bool several = std::thread::hardware_concurrency() > 1;
  return several;
}

}  // namespace

void parker::set(std::uint32_t value) noexcept {
  std::uint32_t was = word_.load(std::memory_order_relaxed);
  do {
    if ((was & ~asleep) != 0) return;
  } while (!word_.compare_exchange_weak(was, value, std::memory_order_acq_rel));
  // The sleeping thread may be gone, and its frame with it, as soon as it sees the value: the kernel only compares
  // addresses, so a stale one costs no more than a spurious wake-up.
  if (was & asleep) syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

std::uint32_t parker::wait(std::chrono::steady_clock::time_point deadline,
                           std::chrono::nanoseconds spin) noexcept {
  using clock = std::chrono::steady_clock;
  if (spin > spin.zero() && worth_spinning()) {
    const auto until = clock::now() + spin;
    do {
      for (int i = 0; i < 32; ++i) {
        if (const auto value = peek(); value != 0) return value;
        relax();
      }
    } while (clock::now() < until);
  }
  for (;;) {
    std::uint32_t seen = 0;
    if (!word_.compare_exchange_strong(seen, asleep, std::memory_order_acq_rel) && seen != asleep)
      return seen;
    const bool bounded = deadline != clock::time_point::max();
    timespec at{};
    if (bounded) {
      const auto since = deadline.time_since_epoch();
      const auto whole = std::chrono::duration_cast<std::chrono::seconds>(since);
      at.tv_sec = whole.count();
      at.tv_nsec = std::chrono::nanoseconds(since - whole).count();
    }
    syscall(SYS_futex, &word_, FUTEX_WAIT_BITSET_PRIVATE, asleep, bounded ? &at : nullptr, nullptr,
            FUTEX_BITSET_MATCH_ANY);
    if (const auto value = peek(); value != asleep) return value;
    if (bounded && clock::now() >= deadline) {
      // Back to "not asleep"; if set() was faster, its value is our answer.
      seen = asleep;
      if (word_.compare_exchange_strong(seen, 0, std::memory_order_acq_rel)) return 0;
      return seen;
    }
  }
}

}  // namespace holdfast::support

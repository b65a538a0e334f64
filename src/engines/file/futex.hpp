// The four futex calls that the store needs, on words shared between processes.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>

namespace holdfast::engines::file {

using futex_word = std::atomic<std::uint32_t>;
static_assert(sizeof(futex_word) == 4 && futex_word::is_always_lock_free);

// Debian 12's kernel headers know futex_waitv, those of older distributions do not; the kernel's ABI is
// the same everywhere.
inline constexpr long futex_waitv_call = 449;
struct futex_waitv_item {
  std::uint64_t value, address;
  std::uint32_t flags, reserved;
};
inline constexpr std::uint32_t futex_32_bits_shared = 2;

inline std::uint64_t address_of(const futex_word& word) noexcept {
  return reinterpret_cast<std::uintptr_t>(&word);
}

inline void futex_wake(futex_word& word, int how_many) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE, how_many, nullptr, nullptr, 0);
}

// Sleeps while the word has that value, until the absolute CLOCK_MONOTONIC time at the latest.
inline void futex_wait(futex_word& word, std::uint32_t value, const timespec* until) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, value, until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

// The same on up to 128 words at once.
inline void futex_wait_any(const futex_waitv_item* items, unsigned count,
                           const timespec* until) noexcept {
  syscall(futex_waitv_call, items, count, 0, until, CLOCK_MONOTONIC);
}

// Kernels before 5.16 and some sandboxes do not have it. Zero words are an error for all the others.
inline bool has_futex_waitv() noexcept {
  return syscall(futex_waitv_call, nullptr, 0, 0, nullptr, CLOCK_MONOTONIC) == -1 &&
         errno == EINVAL;
}

}  // namespace holdfast::engines::file

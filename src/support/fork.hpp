// How often this process image was forked: the cheap way to notice "we are a forked child".
//
// A child has the parent's memory, sessions and sockets, but none of its threads and none of its locks. An object that
// holds such things remembers the generation at birth and refuses to work when it is no longer the same.
#pragma once

#include <atomic>
#include <cstdint>

namespace holdfast::support {

namespace detail {
extern std::atomic<std::uint64_t> forks;
}

// One relaxed load. The same for the life of a process, different in every forked child.
inline std::uint64_t fork_generation() noexcept {
  return detail::forks.load(std::memory_order_relaxed);
}

}  // namespace holdfast::support

#include "support/fork.hpp"

#include <pthread.h>

#include <cstdlib>

namespace holdfast::support {

namespace detail {
constinit std::atomic<std::uint64_t> forks{0};
}

namespace {

extern "C" void holdfast_count_fork() { detail::forks.fetch_add(1, std::memory_order_relaxed); }

// Registered before main, in every program that links this file: a fork that is not counted would let two processes
// share one session. The only failure is lack of memory at start-up.
[[maybe_unused]] const bool registered = [] {
  if (pthread_atfork(nullptr, nullptr, holdfast_count_fork) != 0) std::abort();
  return true;
}();

}  // namespace

}  // namespace holdfast::support

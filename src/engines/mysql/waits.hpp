// What waiters are told; engines/common/wait_registry.hpp knows the waiters.
#pragma once

#include "engines/common/session_belief.hpp"
#include "engines/common/timer_thread.hpp"
#include "engines/common/wait_registry.hpp"

namespace holdfast::engines::mysql {

// A grant as the store tells it to a waiter.
struct told_grant {
  fencing_token token;
  nanoseconds ttl{};
  nanoseconds left{};  // of it, when the server looked
  sending asked;
  lock_mode mode = lock_mode::exclusive;
  std::uint64_t weight = 0;
};

using waits = engines::wait_registry<told_grant, timer_thread>;

}  // namespace holdfast::engines::mysql

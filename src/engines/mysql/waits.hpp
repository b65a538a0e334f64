// What is told to those who wait; who they are, engines/common/wait_registry.hpp knows.
#pragma once

#include "engines/common/session_belief.hpp"
#include "engines/common/timer_thread.hpp"
#include "engines/common/wait_registry.hpp"

namespace holdfast::engines::mysql {

// A grant as the store tells it to somebody who waited.
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

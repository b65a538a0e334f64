// What waiters are told; engines/common/wait_registry.hpp knows the waiters.
#pragma once

#include "engines/common/wait_registry.hpp"
#include "net/reactor.hpp"

namespace holdfast::engines::redis {

// A grant as the message tells it.
struct pushed_grant {
  fencing_token token;
  nanoseconds ttl{};
  steady_time from{};  // not later than the store counts from; the beginning of time: not known
  lock_mode mode = lock_mode::exclusive;
  std::uint64_t weight = 0;
  std::uint64_t session = 0;  // in which it was heard
};

using waits = engines::wait_registry<pushed_grant, net::reactor>;

}  // namespace holdfast::engines::redis

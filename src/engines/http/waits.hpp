// What waiters are told; engines/common/wait_registry.hpp knows the waiters.
#pragma once

#include "engines/common/wait_registry.hpp"
#include "engines/http/messages.hpp"
#include "net/reactor.hpp"

namespace holdfast::engines::http {

// A grant as an event tells it.
struct pushed_grant {
  grant_record what;
  steady_time from;     // not later than the store counts from
  session_proof proof;  // as in a grant
};

using waits = engines::wait_registry<pushed_grant, net::reactor>;

}  // namespace holdfast::engines::http

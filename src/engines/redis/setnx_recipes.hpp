// Three ways to keep a lock in one string key, as tables: what their scripts do, and what they are worth.
//
//   setnx             SET NAME OWNER:TOKEN NX PX ttl. Shared with redsync, bsm/redislock, node-redlock,
//                     redis-semaphore, redis-py, redis-plus-plus: to all of them the value is any text.
//   setnx-expire-lua  SETNX NAME OWNER:TOKEN and EXPIRE NAME seconds in one script.
//   getset            SETNX NAME "ENDS.OWNERTOKEN", digits all; a client that finds ENDS (ms, wall clock) passed takes
//                     it with GETSET.
//
// All release only what carries their owner, and renew it by the same comparison.
#pragma once

#include "engines/redis/script.hpp"

#include <holdfast/capabilities.hpp>

#include <string>
#include <string_view>

namespace holdfast::engines::redis {

struct recipe {
  std::string_view layout;
  // KEYS the lock's key (renew: of every lock)  ARGV our wall clock (ms), then
  script enter;           // owner ttl(ms): as compat_layout.hpp says
  script settle;          // owner: the same, without taking anything
  script release;         // owner: 1, or 0 when it was not its
  script renew;           // owner ttl(ms) of every lock: a string of 1 and 0
  script inspect;         // {value, ms left}, or {}
  script revoke;          // how many were deleted
  nanoseconds grain;      // a ttl is rounded up to a multiple of it
  bool is_decimal_owner;  // the owner is written in decimal digits
  void (*describe)(capabilities& caps);
};

// Null when there is none of this name.
const recipe* recipe_of(std::string_view layout);

}  // namespace holdfast::engines::redis

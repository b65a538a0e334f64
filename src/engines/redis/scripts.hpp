// The Lua scripts of the native layout: what every verb does inside the server, atomically.
//
// Keys of a lock NAME, with the prefix "hf:" unless another was asked for:
//   hf:l:NAME  string, exists while the lock is held, awaited or observed; always with an expiry. Either
//              "xOWNER TOKEN TTL GRACE SINCE HOST PID LABEL": one exclusive holder and no waiter, the fast path; or
//              "mCAPACITY VERSION": see the next keys, which all expire together with this one
//   hf:h:NAME  hash   OWNER -> "MODE WEIGHT TOKEN TTL GRACE SINCE HOST PID LABEL"; "#" -> sum of the weights;
//                     "<OWNER" -> what an upgrade has replaced, until it is released
//   hf:e:NAME  zset   OWNER by the time (server, ms) at which its grant ends
//   hf:q:NAME  zset   the queue: "SEQUENCE OWNER" by -priority, an upgrade before all
//   hf:w:NAME  hash   OWNER -> "MODE WEIGHT TTL PRIORITY REPLACES MEMBER GRACE SINCE HOST PID LABEL" of waiters
//   hf:o:NAME  hash   CLIENT -> until when (server, ms) it wants to hear of every change of holders
// and besides them
//   hf:n:NAME  hash   "v", "g", "k": value, version and time to keep (ms) of a counter
//   hf:p:NAME  hash   CLIENT -> until when (server, ms) it wants to hear of its changes
//   hf:t       the last token given; never behind the server's clock in microseconds when a connection begins
//   hf:x:OWNER   given up while a request of it may still be on its way: that finds this, and has no effect
//   hf:a:CLIENT  written to see whether replicas follow (Sentinel with wait_replicas); means nothing
//   hf:g:CLIENT  since when (server, ms) a waiter has found that client's connection gone
//   hf:c:CLIENT  not a key but the channel to which a client listens
//
// Messages on hf:c:CLIENT: "g OWNER TOKEN TTL MICROSECONDS MODE WEIGHT" granted, "l OWNER WHY" lost, "n OWNER" ask
// again, "o NAME" holders changed, "p NAME" counter changed.
#pragma once

#include "engines/redis/script.hpp"

#include <string_view>

namespace holdfast::engines::redis::scripts {

// Each script says where it is defined what it takes and answers.

// scripts_verbs.cpp
const script& enter();
const script& enter_all();
const script& release();
const script& leave();
const script& downgrade();
const script& renew();
const script& settle();

// scripts_views.cpp
const script& inspect();
const script& revoke();
const script& count();
const script& observe();

// scripts_library.cpp
// Part of the greeting of every connection: brings hf:t up to the server's clock. Every connection is new after a
// restart or a fail-over, so no token is given from a counter that went back with the data. A server without memory for
// that loses the counter instead: the next token is then the clock's, and held locks can be renewed and given back.
extern const std::string_view lift;
// What stands in most of them, between their own parts.
extern const std::string_view library;

}  // namespace holdfast::engines::redis::scripts

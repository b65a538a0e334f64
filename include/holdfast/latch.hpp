// latch: a count that goes down to zero once, and lets all waiters through from then on.
//
//   holdfast::latch loaded{client, "import/2024-05", 3};     // three loaders, each in a process of its own
//   load_my_part();
//   loaded.count_down().value();
//   if (loaded.wait(10min)) publish();                       // a limit: a loader may have died
//
// The first handle creates the count in the store; later handles join it, whatever count they name. An opened latch
// stays open until it is set anew, removed, or unchanged for `keep`; a closed one is forgotten after that time, too.
// The count never goes below zero.
//
// It is a counter and not a lock: no holder, no lease, no token. A participant that dies does not count down: wait with
// a time limit. A handle that goes leaves the count as it is.
//
// Thread-safe; copyable, and a copy is another handle of the same latch. Calls that only read or change the count make
// one request and block for about call_timeout at most (twice that when the store is unavailable first: they try again
// for one call_timeout); they are not cancellable. Errors of every call: unsupported where capabilities().counters is
// false, misconfigured in a forked child, unavailable (nothing was changed), and what else the store says. After
// outcome_unknown of a change it may have been made: look at value() before you repeat it.
#pragma once

#include <holdfast/async.hpp>
#include <holdfast/client.hpp>
#include <holdfast/options.hpp>

#include <cstdint>
#include <string>

namespace holdfast {

class latch {
 public:
  static constexpr nanoseconds default_keep = std::chrono::hours{24};

  // Creates it with `expected` unless it exists; 0 makes an open one. Throws lock_error: misconfigured for a bad
  // name, a negative count (or one above 2^62), or keep <= 0; else the errors of every call. The time runs anew
  // with each change. Where handles give different times, the store decides which counts: the last change's, or
  // (etcd) the creator's.
  latch(const client& store, std::string name, std::int64_t expected,
        nanoseconds keep = default_keep);
  // Joins one that exists or will: until it is created, wait() waits and count_down() says not_held. Does not ask the
  // store. Throws lock_error misconfigured for a bad name. Changes made through this handle ask for default_keep.
  latch(const client& store, std::string name);

  // Takes n off and says what is left; at 0 the waiters go on. Of an open latch: 0, and no change. not_held when it
  // does not exist; misconfigured for a negative n.
  result<std::int64_t> count_down(std::int64_t n = 1);
  // Is it open? False also when it does not exist. Does not wait.
  result<bool> try_wait() const;
  // ok once it is open; at once if it is. One that does not exist, or is removed meanwhile, is waited for. timed_out
  // after `limit` (0 or less: one look), cancelled by `stop`. Neither interrupts a request that is on its way, so from
  // a store that does not answer the answer may come up to two call_timeouts later, as unavailable perhaps. A store
  // that is away for less than call_timeout on end costs nothing.
  result<void> wait(nanoseconds limit = forever, std::stop_token stop = {}) const;
  // The same for coroutines; blocks no thread (async.hpp). The handle may go while it waits.
  async<void> async_wait(nanoseconds limit = forever, std::stop_token stop = {}) const;
  // count_down(n), then wait(). An error does not say which of the two failed: after timed_out and cancelled
  // n is counted.
  result<void> arrive_and_wait(std::int64_t n = 1, nanoseconds limit = forever,
                               std::stop_token stop = {});

  // The count, 0 when it is open. not_held when it does not exist.
  result<std::int64_t> value() const;
  // Starts it anew with this count, or creates it. Waiters that have not been woken yet go on waiting. misconfigured
  // for a negative count.
  result<void> set(std::int64_t expected);
  // Forgets it; ok also when it does not exist. Waiters go on waiting for the next one of the name.
  result<void> remove();
  const std::string& name() const noexcept { return name_; }

 private:
  client store_;
  std::string name_;
  nanoseconds keep_ = default_keep;
};

}  // namespace holdfast

// barrier: `expected` participants meet, again and again.
//
//   holdfast::barrier step{client, "simulation/17", 8};      // eight workers
//   while (work_left()) {
//     compute_my_part();
//     if (!step.arrive_and_wait(1min)) return give_up();     // a limit: a worker may have died
//   }
//
// Like std::barrier, in phases: arrive() says in which phase we arrived, wait() returns when that phase is complete.
// There is no completion function, and no participant is known by name: the store counts arrivals. So a participant
// that arrives twice in a phase stands for another, and one that dies is missed by all: wait with a time limit, then
// remove() the barrier and begin anew.
//
// It is a counter and not a lock: no holder, no lease, no token. A handle that goes leaves the barrier as it is; one
// that is unchanged for `keep` is forgotten. Thread-safe; copyable, and a copy is another handle of the same barrier.
// Blocking and errors of every call as those of latch.
#pragma once

#include <holdfast/async.hpp>
#include <holdfast/client.hpp>
#include <holdfast/options.hpp>

#include <cstdint>
#include <string>

namespace holdfast {

class barrier {
 public:
  // The most participants.
  static constexpr std::int64_t max() noexcept { return 4'095; }
  // Counts phases; compare for equality only. Wraps around after 2^15: no participant can be more than one behind.
  using phase = std::uint32_t;

  // Creates it for `expected` participants unless it exists. Throws lock_error: misconfigured for a bad name,
  // unless 1 <= expected <= max(), for keep <= 0, or when it exists and was created for another number; else the
  // errors of every call.
  barrier(const client& store, std::string name, std::int64_t expected,
          nanoseconds keep = std::chrono::hours{24});

  // Counts this participant in and says in which phase; the last one to arrive begins the next phase, and the waiters
  // go on. Does not wait. Takes two requests, and two more for each participant that comes in between. not_held when
  // the barrier does not exist any more, misconfigured when all participants have dropped out. After outcome_unknown
  // the arrival may have been counted; to repeat it would count it twice.
  result<phase> arrive();
  // Waits until the phase `arrived` is over; returns at once if it is. timed_out after `limit` (0 or less: one
  // look), cancelled by `stop`, both as in latch::wait: the arrival stays counted. not_held when the barrier was
  // removed or forgotten.
  result<void> wait(phase arrived, nanoseconds limit = forever, std::stop_token stop = {}) const;
  // The same for coroutines; blocks no thread (async.hpp). The handle may go while it waits.
  async<void> async_wait(phase arrived, nanoseconds limit = forever,
                         std::stop_token stop = {}) const;
  // arrive(), then wait() for that phase. After timed_out and cancelled the arrival is counted; to wait on, keep the
  // phase: use arrive() and wait().
  result<void> arrive_and_wait(nanoseconds limit = forever, std::stop_token stop = {});
  // Arrives, and is one participant fewer from the next phase on. Does not wait. Errors as those of arrive().
  result<void> arrive_and_drop();
  // Forgets it; ok also when it does not exist. Waiters hear not_held.
  result<void> remove();
  const std::string& name() const noexcept { return name_; }

 private:
  client store_;
  std::string name_;
  nanoseconds keep_;
};

}  // namespace holdfast

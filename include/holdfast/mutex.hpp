// mutex: one holder at a time, over all processes that use the same store and name.
//
//   holdfast::mutex stock{client, "stock/sku-42"};
//   { std::scoped_lock guard{stock}; sell_one(); }            // the std face
//   auto lease = stock.acquire({.wait = 3s});                 // the explicit face: says why not, carries the token
//
// The std face meets TimedLockable, for code that is written against std::mutex: failures of the store are thrown as
// lock_error (nothing is acquired then), unlock() never throws (failures go to the observer). A guard cannot learn of
// loss: for long work prefer the explicit face, or look at held().
//
// Thread-safe like std::mutex: every member may be called from any thread at once, except that unlock() and held() are
// for the thread that has the std face locked. Not recursive: a thread that asks again for what it holds waits for
// itself (wait 0: busy). Any number of handles for one name may exist, in one process too; they exclude each other like
// those of different processes. Leases are not bound to a handle or a thread.
//
// Threads and coroutines of one client that want one name are one contender in the store; among themselves they are
// served by priority, then by arrival, and may hand the lock on without the store (client_options::handoff_limit).
//
// Loss, crash, fork: see lease.hpp and client.hpp. After a loss the std face is still to be unlocked, which changes
// nothing in the store and tells the observer (release_failed); the next lock() asks the store anew.
#pragma once

#include <holdfast/async.hpp>
#include <holdfast/client.hpp>
#include <holdfast/lease.hpp>
#include <holdfast/options.hpp>

#include <chrono>
#include <memory>
#include <string>

namespace holdfast {

namespace core {
class gate;
}

namespace detail {

// How long from now until `deadline` on its clock, read once; never negative, saturating at forever. A clock that is
// set while we wait changes nothing any more.
template <class Clock, class Duration>
nanoseconds until(const std::chrono::time_point<Clock, Duration>& deadline) {
  const auto left = deadline - Clock::now();
  if (left <= left.zero()) return nanoseconds::zero();
  if (std::chrono::duration<double>(left) >= std::chrono::duration<double>(forever)) return forever;
  return std::chrono::ceil<nanoseconds>(left);
}

// The same length, rounded up; 0 for what is negative or not a number, forever for what is longer than that.
template <class Rep, class Period>
nanoseconds saturate(const std::chrono::duration<Rep, Period>& wait) {
  if (!(wait > wait.zero())) return nanoseconds::zero();  // negative and NaN
  if (std::chrono::duration<double>(wait) >= std::chrono::duration<double>(forever)) return forever;
  return std::chrono::ceil<nanoseconds>(wait);
}

}  // namespace detail

class mutex {
 public:
  // Does not ask the store: a name exists in the store while it is in use. `defaults` serve the std face, acquire() and
  // try_acquire(). Throws lock_error: misconfigured for a bad name or bad options, unsupported for a priority where the
  // store has none.
  mutex(const client& store, std::string name, acquire_options defaults = {});
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;
  // Releases what the std face still holds, as unlock() does. Explicit leases live on. REQUIRES: no thread is in a call
  // of this object.
  ~mutex();

  // ---- std face
  // Waits as long as defaults.wait says, by default for ever. Throws lock_error with the errors of acquire(), also
  // timed_out and cancelled, if the defaults have a wait or a stop_token.
  void lock();
  // One attempt, with the other defaults. False: it is taken (also by another thread of this process), or the defaults'
  // stop_token was requested. Throws lock_error when the store fails. Blocks for about one round trip; 500 ms at most,
  // or call_timeout if that is shorter.
  bool try_lock();
  // Gives the lock back: hands it on inside the process, or sends the release without waiting for the store's answer;
  // what this client asks next about the name is served after it. The observer hears of a failure, and of a loss that
  // only the release shows. REQUIRES: the calling thread has the std face locked. While no thread has, nothing is
  // released, and the observer hears release_failed.
  void unlock() noexcept;
  // As try_lock(), waiting for at most so long (and up to 500 ms more when the store does not answer). False also when
  // the time is over. 0 or less: one attempt.
  template <class Rep, class Period>
  bool try_lock_for(const std::chrono::duration<Rep, Period>& wait) {
    return lock_within(detail::saturate(wait));
  }
  template <class Clock, class Duration>
  bool try_lock_until(const std::chrono::time_point<Clock, Duration>& deadline) {
    return lock_within(detail::until(deadline));
  }
  // The lease behind the std face, for its token and loss. REQUIRES: the calling thread has it locked; the reference is
  // good until it unlocks.
  const lease& held() const noexcept { return held_; }

  // ---- explicit face
  // Waits until the lock is ours, and gives the lease of it. `options` replace the defaults as a whole. Blocks the
  // calling thread for options.wait at most (plus 500 ms when the store does not answer); options.stop cancels.
  //   busy              it is taken, and the wait given is 0
  //   timed_out         it did not become free in time; or with wait 0 the grant came too late to be worth anything
  //   cancelled         options.stop was requested
  //   unavailable       the store could not be asked for call_timeout on end, or until the wait was over
  //   outcome_unknown   the store stopped answering half-way; what it may have granted is being given back
  //   misconfigured     bad options; the name is in use as a semaphore (where the store can tell); a forked child
  //   unsupported       a priority, and the store has none
  //   denied, protocol  as the store says
  // On every failure nothing is held.
  result<lease> acquire(const acquire_options& options);
  result<lease> acquire() { return acquire(defaults_); }
  // One attempt, with the other defaults: wait is 0.
  result<lease> try_acquire();
  // The same for coroutines: gives result<lease> when awaited, and blocks no thread (async.hpp says where the coroutine
  // goes on, and how it is cancelled). The options are copied now, the wait counts from the co_await. The handle may go
  // while it waits.
  async<lease> async_acquire(const acquire_options& options);
  HOLDFAST_NAME_THE_OPTIONS_FIRST(async<lease> async_acquire(acquire_options&&));
  async<lease> async_acquire() { return async_acquire(defaults_); }

  const std::string& name() const noexcept;

 private:
  bool lock_within(nanoseconds wait);
  acquire_options defaults_;
  std::shared_ptr<core::gate> gate_;
  lease held_;  // written only by the thread that has the std face locked
};

}  // namespace holdfast

// recursive_mutex: a mutex that its owner may take again. Re-entry is counted in the handle, without the store.
//
//   void move(item& it) { std::scoped_lock guard{shelf}; take(it); put(it); }   // holdfast::recursive_mutex shelf
//   void take(item& it) { std::scoped_lock guard{shelf}; ... }                  // on its own, or inside move()
//
// The owner is a thread, as with std::recursive_mutex, in both faces, and re-entry goes by handle: the same thread with
// another handle of the same name (also a mutex) waits like any other. So share one handle among the functions that
// call each other. Each acquire needs its release; the lock goes back to the store with the last one. All leases of one
// ownership share one grant and one token, and are lost together.
//
// Thread-safe like std::recursive_mutex. For coroutines that may change threads take a plain mutex and pass the lease
// on. To other threads and processes it is the lock that a mutex of that name is. Loss, crash, fork: see lease.hpp and
// client.hpp. After a loss the next entry takes the lock anew, with a new token, although outer entries are still open:
// they hold nothing any more.
#pragma once

#include <holdfast/mutex.hpp>

#include <memory>
#include <string>

namespace holdfast {

namespace core {
class reentrant;
}

class recursive_mutex {
 public:
  // As that of mutex.
  recursive_mutex(const client& store, std::string name, acquire_options defaults = {});
  recursive_mutex(const recursive_mutex&) = delete;
  recursive_mutex& operator=(const recursive_mutex&) = delete;
  // Explicit leases live on. REQUIRES: no thread has the std face locked. Unlike mutex it does not release that: the
  // grant would stay until its ttl or the session ends, or, while other handles of the name live in this client, for as
  // long as they do.
  ~recursive_mutex();

  // ---- std face; blocking, results and exceptions as those of mutex. A re-entry succeeds at once, without a look at
  // the store or at the validity of the lease.
  void lock();
  bool try_lock();
  // Undoes one entry of the calling thread, and with the last one gives the lock back without waiting for
  // the store's answer. REQUIRES: the calling thread owns it. Without that nothing is released, and the
  // observer hears release_failed.
  void unlock() noexcept;
  template <class Rep, class Period>
  bool try_lock_for(const std::chrono::duration<Rep, Period>& wait) {
    return lock_within(detail::saturate(wait));
  }
  template <class Clock, class Duration>
  bool try_lock_until(const std::chrono::time_point<Clock, Duration>& deadline) {
    return lock_within(detail::until(deadline));
  }

  // ---- explicit face; blocking, cancellation and errors as those of mutex
  // A lease that counts: releasing (or dropping) it undoes one entry, on whatever thread that is done. A re-entry is
  // immediate and takes nothing from the options but that they are valid: ttl, max_hold and label stay those of the
  // first entry. It does not ask whether the lease is still valid; valid() does.
  result<lease> acquire(const acquire_options& options);
  result<lease> acquire() { return acquire(defaults_); }
  result<lease> try_acquire();
  // Whether it is a re-entry is decided by the thread that calls this. If it is not, the owner becomes the thread
  // on which the coroutine goes on with the lease: the awaiting one when the answer is there at once, else the one
  // that resumes it.
  async<lease> async_acquire(const acquire_options& options);
  HOLDFAST_NAME_THE_OPTIONS_FIRST(async<lease> async_acquire(acquire_options&&));
  async<lease> async_acquire() { return async_acquire(defaults_); }

  // How many entries the calling thread has open through this handle; 0 when it does not own the lock, or has lost it.
  unsigned depth() const noexcept;
  const std::string& name() const noexcept;

 private:
  bool lock_within(nanoseconds wait);
  acquire_options defaults_;
  std::shared_ptr<core::reentrant> state_;
};

}  // namespace holdfast

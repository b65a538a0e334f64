// recursive_mutex: a mutex that its owner may take again. Re-entry is counted here and asks nobody.
//
// The owner is the calling thread, as with std::recursive_mutex, in both faces. Each acquire needs its
// release; the lock goes back to the store with the last one. All leases of one ownership share one grant and
// one token, and are lost together. A coroutine that may change threads should take a plain mutex and pass
// the lease on.
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
  recursive_mutex(const client& store, std::string name, acquire_options defaults = {});
  recursive_mutex(const recursive_mutex&) = delete;
  recursive_mutex& operator=(const recursive_mutex&) = delete;
  ~recursive_mutex();

  void lock();
  bool try_lock();
  void unlock() noexcept;
  template <class Rep, class Period>
  bool try_lock_for(const std::chrono::duration<Rep, Period>& wait) {
    return lock_within(detail::saturate(wait));
  }
  template <class Clock, class Duration>
  bool try_lock_until(const std::chrono::time_point<Clock, Duration>& deadline) {
    return lock_within(detail::until(deadline));
  }

  // A lease that counts: releasing (or dropping) it undoes one entry.
  result<lease> acquire(const acquire_options& options);
  result<lease> acquire() { return acquire(defaults_); }
  result<lease> try_acquire();
  // The owner is the thread that starts the acquire.
  async<lease> async_acquire(const acquire_options& options);
  HOLDFAST_REFUSE_TEMPORARY(async<lease> async_acquire(acquire_options&&));
  async<lease> async_acquire() { return async_acquire(defaults_); }

  unsigned depth() const noexcept;  // of the calling thread; 0 when it does not own the lock
  const std::string& name() const noexcept;

 private:
  bool lock_within(nanoseconds wait);
  acquire_options defaults_;
  std::shared_ptr<core::reentrant> state_;
};

}  // namespace holdfast

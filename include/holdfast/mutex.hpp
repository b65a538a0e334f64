// mutex: one holder at a time, over all processes that use the same store and name.
//
//   holdfast::mutex stock{client, "stock/sku-42"};
//   { std::scoped_lock guard{stock}; sell_one(); }            // the std face
//   auto lease = stock.acquire({.wait = 3s});                 // the explicit face: says why not, carries the token
//
// The std face meets TimedLockable: lock() throws lock_error when the store fails (nothing is acquired
// then), try_lock() says false for busy only, unlock() never throws (failures go to the observer). A guard
// cannot learn of loss: for long work prefer the explicit face, or look at held().
// Thread-safe like std::mutex. Any number of handles for one name may exist, in one process too.
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

// How long from now until `deadline` on whatever clock, never negative, saturating.
template <class Clock, class Duration>
nanoseconds until(const std::chrono::time_point<Clock, Duration>& deadline) {
  const auto left = deadline - Clock::now();
  if (left <= left.zero()) return nanoseconds::zero();
  if (std::chrono::duration<double>(left) >= std::chrono::duration<double>(forever)) return forever;
  return std::chrono::ceil<nanoseconds>(left);
}

template <class Rep, class Period>
nanoseconds saturate(const std::chrono::duration<Rep, Period>& wait) {
  if (!(wait > wait.zero())) return nanoseconds::zero();  // negative and NaN
  if (std::chrono::duration<double>(wait) >= std::chrono::duration<double>(forever)) return forever;
  return std::chrono::ceil<nanoseconds>(wait);
}

}  // namespace detail

class mutex {
 public:
  // Throws lock_error misconfigured for a bad name or bad options. `defaults` serve the std face.
  mutex(const client& store, std::string name, acquire_options defaults = {});
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;
  ~mutex();  // releases what the std face still holds

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
  // The lease behind the std face, for its token and loss. REQUIRES: the calling thread has it locked.
  const lease& held() const noexcept { return held_; }

  result<lease> acquire(const acquire_options& options);
  result<lease> acquire() { return acquire(defaults_); }
  result<lease> try_acquire();  // one attempt, no wait
  async<lease> async_acquire(const acquire_options& options);
  HOLDFAST_REFUSE_TEMPORARY(async<lease> async_acquire(acquire_options&&));
  async<lease> async_acquire() { return async_acquire(defaults_); }

  const std::string& name() const noexcept;

 private:
  bool lock_within(nanoseconds wait);
  acquire_options defaults_;
  std::shared_ptr<core::gate> gate_;
  lease held_;  // written only by the thread that has the std face locked
};

}  // namespace holdfast

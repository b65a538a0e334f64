// counting_semaphore: at most n permits out at a time, over all processes.
//
//   holdfast::counting_semaphore downloads{client, "downloads", 3};
//   downloads.acquire();  fetch(url);  downloads.release();            // the std face: one permit
//   auto pair = downloads.acquire_permits(2, {.wait = 1s});            // the explicit face: a lease of two
//
// Unlike std::counting_semaphore, permits belong to the holder that took them: a holder that dies or is cut off loses
// its permits to the others, and only a holder can release. n is part of the lock: all users of a name must agree on it
// while it is in use (misconfigured otherwise). Do not give a mutex the same name.
//
// In fifo order a waiter for many permits holds back later ones that want few, so it gets its turn. Thread-safe; what
// the std face has taken belongs to the handle, so any thread may release it. A permit taken by the std face can be
// lost without notice; the explicit face has valid() and lost(). Loss, crash, fork: see lease.hpp and client.hpp.
#pragma once

#include <holdfast/mutex.hpp>

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace holdfast {

class counting_semaphore {
 public:
  static constexpr std::size_t max() noexcept { return 1'000'000; }

  // Does not ask the store: a disagreement about `permits` shows when one is acquired. `defaults` serve the std face
  // and what is called without options. Throws lock_error: misconfigured for a bad name or bad options, or unless 1 <=
  // permits <= max(); unsupported where the store has no semaphores (or no priorities). What the std face still has is
  // released by the destructor.
  counting_semaphore(const client& store, std::string name, std::size_t permits,
                     acquire_options defaults = {});
  counting_semaphore(const counting_semaphore&) = delete;
  counting_semaphore& operator=(const counting_semaphore&) = delete;

  // ---- std face: takes and gives one permit, with the defaults; the handle keeps the leases
  // Waits as long as defaults.wait says, by default for ever. Throws lock_error with the errors of mutex::acquire, also
  // timed_out and cancelled, if the defaults have a wait or a stop_token.
  void acquire();
  // One attempt. False: all are out, or the defaults' stop_token was requested. Throws lock_error when the store fails.
  bool try_acquire();
  // False also when the time is over. The time may be exceeded by up to 500 ms when the store does not answer.
  template <class Rep, class Period>
  bool try_acquire_for(const std::chrono::duration<Rep, Period>& wait) {
    return acquire_within(detail::saturate(wait));
  }
  template <class Clock, class Duration>
  bool try_acquire_until(const std::chrono::time_point<Clock, Duration>& deadline) {
    return acquire_within(detail::until(deadline));
  }
  // Gives back `update` permits taken through this handle's std face, by whatever thread; valid ones first, and then
  // lost ones. Sends the releases without waiting for the store. REQUIRES: that many are out. More are ignored, and the
  // observer hears release_failed with not_held; 0 or less does nothing.
  void release(std::ptrdiff_t update = 1) noexcept;

  // ---- explicit face: one lease for k permits, all or nothing: two half-served waiters cannot block each other
  // Blocking, cancellation and errors as those of mutex::acquire; also misconfigured unless 1 <= k <= permits(), or
  // when the name is in use with another number of permits. Without options they use the defaults
  // of this handle.
  result<lease> acquire_permits(std::size_t k, const acquire_options& options);
  result<lease> acquire_permits(std::size_t k) { return acquire_permits(k, defaults_); }
  async<lease> async_acquire_permits(std::size_t k, const acquire_options& options);
  HOLDFAST_NAME_THE_OPTIONS_FIRST(async<lease> async_acquire_permits(std::size_t k,
                                                                     acquire_options&&));
  async<lease> async_acquire_permits(std::size_t k) { return async_acquire_permits(k, defaults_); }

  std::size_t permits() const noexcept { return permits_; }
  const std::string& name() const noexcept { return name_; }

 private:
  bool acquire_within(nanoseconds wait);
  client store_;
  std::string name_;
  std::size_t permits_;
  acquire_options defaults_;
  std::mutex guard_;
  std::vector<lease> taken_;
};

}  // namespace holdfast

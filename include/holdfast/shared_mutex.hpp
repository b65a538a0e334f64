// shared_mutex: many readers or one writer.
//
// In fifo order a waiting writer holds back later readers, so writers do not starve. Readers of the std face
// are counted per handle; each explicit lease is a holder of its own.
//
// downgrade turns a writer into a reader with no gap in between. An upgradeable read (one at a time, beside
// any number of plain readers) may become the writer by upgrade, ahead of everybody who waits: so
// two upgraders cannot deadlock, and nobody writes between its read and its write. Upgrading gives
// a new, larger token.
#pragma once

#include <holdfast/mutex.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace holdfast {

class shared_mutex {
 public:
  // Throws lock_error misconfigured for a bad name, unsupported where the store has no shared mode.
  shared_mutex(const client& store, std::string name, acquire_options defaults = {});
  shared_mutex(const shared_mutex&) = delete;
  shared_mutex& operator=(const shared_mutex&) = delete;
  ~shared_mutex();

  void lock() { writer_.lock(); }
  bool try_lock() { return writer_.try_lock(); }
  void unlock() noexcept { writer_.unlock(); }
  void lock_shared();
  bool try_lock_shared();
  void unlock_shared() noexcept;
  template <class Rep, class Period>
  bool try_lock_for(const std::chrono::duration<Rep, Period>& wait) {
    return writer_.try_lock_for(wait);
  }
  template <class Clock, class Duration>
  bool try_lock_until(const std::chrono::time_point<Clock, Duration>& deadline) {
    return writer_.try_lock_until(deadline);
  }
  template <class Rep, class Period>
  bool try_lock_shared_for(const std::chrono::duration<Rep, Period>& wait) {
    return lock_shared_within(detail::saturate(wait));
  }
  template <class Clock, class Duration>
  bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration>& deadline) {
    return lock_shared_within(detail::until(deadline));
  }

  result<lease> acquire(const acquire_options& options = {}) { return writer_.acquire(options); }
  async<lease> async_acquire(const acquire_options& options) {
    return writer_.async_acquire(options);
  }
  HOLDFAST_REFUSE_TEMPORARY(async<lease> async_acquire(acquire_options&&));
  async<lease> async_acquire() { return writer_.async_acquire(); }
  result<lease> acquire_shared(const acquire_options& options = {});
  async<lease> async_acquire_shared(const acquire_options& options);
  HOLDFAST_REFUSE_TEMPORARY(async<lease> async_acquire_shared(acquire_options&&));
  async<lease> async_acquire_shared() { return async_acquire_shared(defaults_); }
  result<lease> acquire_upgradeable(const acquire_options& options = {});
  async<lease> async_acquire_upgradeable(const acquire_options& options);
  HOLDFAST_REFUSE_TEMPORARY(async<lease> async_acquire_upgradeable(acquire_options&&));
  async<lease> async_acquire_upgradeable() { return async_acquire_upgradeable(defaults_); }

  // `held` is a lease of this lock: exclusive -> shared or upgradeable, upgradeable -> shared. On
  // failure it is what it was (or lost), except for outcome_unknown: then it counts as what it should be, and the store
  // is asked in the background until it agrees.
  result<void> downgrade(lease& held, lock_mode to = lock_mode::shared);
  // upgradeable -> exclusive, waiting for the readers to leave. On failure it is upgradeable still (or lost), also when
  // the store's answer was lost: what it may have granted is taken back in the background, and until that is done
  // another upgrade is refused as unavailable.
  result<void> upgrade(lease& held, const acquire_options& options = {});
  async<void> async_upgrade(lease& held, const acquire_options& options);
  HOLDFAST_REFUSE_TEMPORARY(async<void> async_upgrade(lease& held, acquire_options&&));
  async<void> async_upgrade(lease& held) { return async_upgrade(held, defaults_); }

  const std::string& name() const noexcept { return writer_.name(); }

 private:
  bool lock_shared_within(nanoseconds wait);
  client store_;
  acquire_options defaults_;
  mutex writer_;
  std::mutex guard_;            // of readers_
  std::vector<lease> readers_;  // of the std face; unlock_shared ends a valid one if there is one
};

}  // namespace holdfast

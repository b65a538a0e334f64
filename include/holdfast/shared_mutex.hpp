// shared_mutex: many readers or one writer.
//
//   holdfast::shared_mutex catalogue{client, "catalogue"};
//   { std::shared_lock guard{catalogue}; look_up(); }                  // the std face, SharedTimedLockable
//   auto lease = catalogue.acquire_upgradeable({.wait = 3s}).value();  // read now, perhaps write later
//   if (is_stale(lease) && catalogue.upgrade(lease)) rewrite(lease.token());
//
// In fifo order a waiting writer holds back later readers, so writers do not starve. Each reader is a holder of its own
// in the store, with a round trip of its own. Readers of the std face are counted per handle, so any thread may end
// what another began.
//
// downgrade turns a writer into a reader with no gap in between. An upgradeable read (one at a time, beside any
// number of plain readers) may become the writer by upgrade, ahead of all waiters: so two upgraders cannot deadlock,
// and no other client writes between its read and its write. A plain reader cannot be upgraded. Upgrading gives a
// new, larger token.
//
// Thread-safe like std::shared_mutex; a lease that is passed to upgrade or downgrade belongs to that call until
// it returns. To a mutex of the same name the writer is a holder like any other. Loss, crash, fork: see
// lease.hpp and client.hpp.
#pragma once

#include <holdfast/mutex.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace holdfast {

class shared_mutex {
 public:
  // Does not ask the store. `defaults` serve the std face and all functions without options. Throws lock_error:
  // misconfigured for a bad name or bad options, unsupported where the store has no shared mode (or no priorities).
  shared_mutex(const client& store, std::string name, acquire_options defaults = {});
  shared_mutex(const shared_mutex&) = delete;
  shared_mutex& operator=(const shared_mutex&) = delete;
  // Releases what the std face still holds, writer and readers, without waiting for the store. REQUIRES: no thread is
  // in a call of this object.
  ~shared_mutex();

  // ---- std face, with the defaults; blocking, results and exceptions as those of mutex
  void lock() { writer_.lock(); }
  bool try_lock() { return writer_.try_lock(); }
  void unlock() noexcept { writer_.unlock(); }
  void lock_shared();
  bool try_lock_shared();
  // Ends one read that was begun through this handle, by whatever thread: a valid one if there is one, so that reads
  // that were lost do not stand for those that are over. Sends the release without waiting for the answer; the
  // observer hears of a failure. REQUIRES: such a read is open. Without one it does nothing, and the observer does not
  // hear of it.
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

  // ---- explicit face; blocking, cancellation and errors as those of mutex::acquire. Without options
  // they use the defaults of this handle.
  //
  // The writer.
  result<lease> acquire(const acquire_options& options) { return writer_.acquire(options); }
  result<lease> acquire() { return writer_.acquire(); }
  async<lease> async_acquire(const acquire_options& options) {
    return writer_.async_acquire(options);
  }
  HOLDFAST_NAME_THE_OPTIONS_FIRST(async<lease> async_acquire(acquire_options&&));
  async<lease> async_acquire() { return writer_.async_acquire(); }
  // One of many readers: a holder of its own, with a token of its own.
  result<lease> acquire_shared(const acquire_options& options);
  result<lease> acquire_shared() { return acquire_shared(defaults_); }
  async<lease> async_acquire_shared(const acquire_options& options);
  HOLDFAST_NAME_THE_OPTIONS_FIRST(async<lease> async_acquire_shared(acquire_options&&));
  async<lease> async_acquire_shared() { return async_acquire_shared(defaults_); }
  // The one reader that may become the writer. Also unsupported, where capabilities().upgrade is false.
  result<lease> acquire_upgradeable(const acquire_options& options);
  result<lease> acquire_upgradeable() { return acquire_upgradeable(defaults_); }
  async<lease> async_acquire_upgradeable(const acquire_options& options);
  HOLDFAST_NAME_THE_OPTIONS_FIRST(async<lease> async_acquire_upgradeable(acquire_options&&));
  async<lease> async_acquire_upgradeable() { return async_acquire_upgradeable(defaults_); }

  // exclusive -> shared or upgradeable, upgradeable -> shared, with the same token, ttl and max_hold; waiters that fit
  // now are let in. Tokens of lost() stay good. Blocks for call_timeout at most, twice that when the first answer is
  // lost; not cancellable. On failure the lease is what it was (or lost), except for outcome_unknown: then it counts as
  // what it should be, and the store is asked in the background until it agrees.
  //   not_held        `held` is empty                lost         it was lost, or the store says so now
  //   misconfigured   it is of another lock, or its mode cannot shrink to `to`; a forked child
  //   unavailable     the store is away, or an earlier change of mode is still being cleared up
  //   unsupported     `to` is upgradeable, and the store has no such reads
  result<void> downgrade(lease& held, lock_mode to = lock_mode::shared);
  // upgradeable -> exclusive, waiting for the readers to leave; new readers wait meanwhile. Of the options the wait and
  // the stop_token matter; the lease keeps its ttl and max_hold. Blocks and is cancelled like an acquire. On success
  // token() is new. On failure it is upgradeable still (or lost), also when the store's answer was lost: what it may
  // have granted is taken back in the background, and until that is done another change of mode is refused as
  // unavailable. Errors: those of acquire, and not_held, lost and misconfigured as for downgrade.
  result<void> upgrade(lease& held, const acquire_options& options);
  result<void> upgrade(lease& held) { return upgrade(held, defaults_); }
  // The same for coroutines. `held` must live until the coroutine goes on; a suspended coroutine that is destroyed may
  // take it along. Then an upgrade that was granted is taken back.
  async<void> async_upgrade(lease& held, const acquire_options& options);
  HOLDFAST_NAME_THE_OPTIONS_FIRST(async<void> async_upgrade(lease& held, acquire_options&&));
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

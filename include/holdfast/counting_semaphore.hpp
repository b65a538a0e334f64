// counting_semaphore: at most n permits out at a time, over all processes.
//
// Unlike std::counting_semaphore, permits belong to whoever took them: a holder that dies gives its
// permits back, and only a holder can release. n is part of the lock: all users of a name must
// agree on it while it is in use (misconfigured otherwise).
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

  // Throws lock_error misconfigured unless 1 <= permits <= max(), unsupported where the store has none.
  counting_semaphore(const client& store, std::string name, std::size_t permits,
                     acquire_options defaults = {});
  counting_semaphore(const counting_semaphore&) = delete;
  counting_semaphore& operator=(const counting_semaphore&) = delete;

  // The std face takes and gives one permit; the handle keeps the leases. acquire() throws lock_error.
  void acquire();
  bool try_acquire();
  template <class Rep, class Period>
  bool try_acquire_for(const std::chrono::duration<Rep, Period>& wait) {
    return acquire_within(detail::saturate(wait));
  }
  template <class Clock, class Duration>
  bool try_acquire_until(const std::chrono::time_point<Clock, Duration>& deadline) {
    return acquire_within(detail::until(deadline));
  }
  // Gives back `update` permits taken through this handle's std face. REQUIRES: that many are out;
  // more are ignored and reported to the observer.
  void release(std::ptrdiff_t update = 1) noexcept;

  // The explicit face: one lease for k permits, all or nothing. misconfigured unless 1 <= k <= permits().
  result<lease> acquire_permits(std::size_t k, const acquire_options& options = {});
  async<lease> async_acquire_permits(std::size_t k, const acquire_options& options);
  HOLDFAST_REFUSE_TEMPORARY(async<lease> async_acquire_permits(std::size_t k, acquire_options&&));
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

// How the service's steady clock relates to ours, from requests and their answers. Pure. Thread-safe.
//
// "We sent at s, and it handled that at r" says that at r of its clock it was s or later by ours, and that at s of ours
// it was r or earlier by its own. Of all such pairs the one counts that says most, with a hundredth for the difference
// in speed (server_drift_ppm) for each moment that has passed since. Good for one session: another may be with another
// service.
#pragma once

#include "engines/common/server_clock.hpp"

#include <holdfast/types.hpp>

#include <cstdint>
#include <mutex>

namespace holdfast::engines::http {

constexpr nanoseconds drift_over(nanoseconds length) noexcept {
  const auto some = length / 1'000'000 * static_cast<std::int64_t>(server_drift_ppm);
  return some < nanoseconds::zero() ? -some : some;
}

// An instant of ours that is not later than what the service says lies so long before it got what we sent.
constexpr steady_time before(steady_time sent, nanoseconds age) noexcept {
  return sent - age - drift_over(age);
}

class service_clock {
 public:
  // Another service, perhaps: what was known is forgotten for this first pair.
  void begin(steady_time sent, nanoseconds received) {
    const std::lock_guard lock{guard_};
    is_known_ = true;
    sent_ = sent;
    received_ = received;
  }
  void note(steady_time sent, nanoseconds received) {
    const std::lock_guard lock{guard_};
    if (is_known_ && sent < in_our_time(received)) return;
    is_known_ = true;
    sent_ = sent;
    received_ = received;
  }
  // Not later than that instant of its clock. The beginning of time as long as nothing is known.
  steady_time ours(nanoseconds instant) const {
    const std::lock_guard lock{guard_};
    return is_known_ ? in_our_time(instant) : steady_time{};
  }
  // Not earlier than that instant of ours.
  nanoseconds its(steady_time instant) const {
    const std::lock_guard lock{guard_};
    if (!is_known_) return nanoseconds::max();
    const auto passed = instant - sent_;
    return received_ + passed + drift_over(passed);
  }

 private:
  steady_time in_our_time(nanoseconds instant) const noexcept {
    const auto passed = instant - received_;
    return sent_ + passed - drift_over(passed);
  }

  mutable std::mutex guard_;
  bool is_known_ = false;
  steady_time sent_;
  nanoseconds received_{};
};

}  // namespace holdfast::engines::http

// A clock that stands still until a test moves it.
#pragma once

#include <holdfast/clock.hpp>

#include <atomic>

namespace holdfast::testing {

class fake_clock final : public clock {
 public:
  steady_time now() const noexcept override { return steady_time{nanoseconds{now_.load()}}; }
  void advance(nanoseconds by) noexcept { now_ += by.count(); }

 private:
  // Not at zero: "so long ago" must be a valid time as well.
  std::atomic<std::int64_t> now_{nanoseconds{std::chrono::hours{1000}}.count()};
};

}  // namespace holdfast::testing

// The machine's steady clock.
#include <holdfast/clock.hpp>

#include <time.h>

namespace holdfast {

namespace {

#ifdef CLOCK_MONOTONIC_COARSE

steady_time read_coarse() noexcept {
  timespec at{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &at);
  return steady_time{std::chrono::seconds{at.tv_sec} + nanoseconds{at.tv_nsec}};
}

// Linux reads both clocks from one page, and the coarse one is the value at the last timer tick, so
// it is never ahead. Sandboxes and emulators that make up their own clocks have been seen to
// disagree with themselves; a coarse clock that is ahead, or stands still for longer than any tick,
// would bend every lease, so it is not used then.
bool coarse_is_sane() noexcept {
  timespec resolution{};
  if (clock_getres(CLOCK_MONOTONIC_COARSE, &resolution) != 0) return false;
  for (int i = 0; i < 64; ++i) {
    const auto coarse = read_coarse();
    const auto fine = std::chrono::steady_clock::now();
    if (coarse > fine || fine - coarse > std::chrono::seconds{1}) return false;
  }
  return true;
}

#endif

class local_clock final : public clock {
 public:
  steady_time now() const noexcept override { return std::chrono::steady_clock::now(); }
#ifdef CLOCK_MONOTONIC_COARSE
  steady_time recent() const noexcept override { return coarse_ ? read_coarse() : now(); }

 private:
  bool coarse_ = coarse_is_sane();
#endif
};

steady_time read(clockid_t which) noexcept {
  timespec at{};
  clock_gettime(which, &at);
  return steady_time{std::chrono::seconds{at.tv_sec} + nanoseconds{at.tv_nsec}};
}

class machine_clock final : public clock {
 public:
  steady_time now() const noexcept override {
#ifdef CLOCK_BOOTTIME
    return read(CLOCK_BOOTTIME) - asleep_before_;
#else
    return local_.now();
#endif
  }
  const clock& local() const noexcept override { return local_; }

 private:
  local_clock local_;
#ifdef CLOCK_BOOTTIME
  // What the machine slept before this process began. The steady clock is read first, so the difference is not too
  // small and we are never ahead of it without a suspend.
  const nanoseconds asleep_before_ = [] {
    const auto awake = std::chrono::steady_clock::now();
    return nanoseconds{read(CLOCK_BOOTTIME) - awake};
  }();
#endif
};

}  // namespace

const clock& system_clock() noexcept {
  // Never destroyed: background threads may ask for the time while the program ends.
  static const clock& the = *new machine_clock;
  return the;
}

}  // namespace holdfast

#include "engines/memory/waits.hpp"

#include <algorithm>
#include <condition_variable>
#include <optional>

namespace holdfast::engines::memory {

ticket_moved::ticket_moved(store& in, const ticket& place)
    : store_(in),
      place_(place),
      about_{topic::what::ticket, std::string{place.name}, place.owner} {}

bool ticket_moved::met(steady_time now) {
  const auto state = store_.settle(place_.name, place_.owner, now);
  if (state.what == entered::kind::waiting) return now >= place_.recheck_at;
  outcome.is_granted = state.what == entered::kind::granted;
  outcome.granted = state.granted;
  return true;
}

steady_time ticket_moved::look_again_at() const {
  return std::min(place_.recheck_at, store_.next_change(watch_kind::lock, place_.name));
}

version_changed::version_changed(store& in, watch_kind kind, std::string_view name,
                                 std::uint64_t seen)
    : store_(in), kind_(kind), seen_(seen) {
  about_.about = kind == watch_kind::lock ? topic::what::lock : topic::what::counter;
  about_.name = name;
}

bool version_changed::met(steady_time now) {
  return store_.version(kind_, about_.name, now) != seen_;
}

steady_time version_changed::look_again_at() const {
  return store_.next_change(kind_, about_.name);
}

steady_time real_wake_up(const class clock& time, steady_time due) {
  if (&time == &system_clock()) return due;
  return std::chrono::steady_clock::now() + fake_clock_look;
}

namespace {

class blocked_thread final : public subscriber {
 public:
  void wake() override {
    woken_ = true;
    changed_.notify_one();
  }
  void sleep(std::unique_lock<std::mutex>& guard, steady_time until) {
    if (until == steady_time::max()) {
      changed_.wait(guard, [this] { return woken_; });
    } else {
      changed_.wait_until(guard, until, [this] { return woken_; });
    }
    woken_ = false;
  }

 private:
  std::condition_variable changed_;
  bool woken_ = false;
};

}  // namespace

void block_until(condition& what, store& in, const class clock& time, const call& limits) {
  blocked_thread self;
  // Outside the guard: it runs at once when stop was requested already, and takes the guard.
  const std::stop_callback on_stop{limits.stop, [&] {
                                     const std::lock_guard guard{in.guard()};
                                     self.wake();
                                   }};
  std::unique_lock guard{in.guard()};
  in.subscribe(what.about(), self);
  for (;;) {
    const auto now = time.now();
    if (what.met(now) || now >= limits.deadline || limits.stop.stop_requested()) break;
    self.sleep(guard, real_wake_up(time, std::min(limits.deadline, what.look_again_at())));
  }
  in.unsubscribe(what.about(), self);
}

}  // namespace holdfast::engines::memory

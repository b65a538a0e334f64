#include "engines/memory/session_thread.hpp"

#include <algorithm>
#include <optional>

namespace holdfast::engines::memory {

struct session_thread::wait final : subscriber {
  session_thread& self;
  std::unique_ptr<condition> what;
  steady_time deadline;
  std::stop_token stop;
  std::function<void()> finish;
  steady_time next_look = steady_time::min();  // its key in the schedule
  std::optional<std::stop_callback<wake_on_stop>> on_stop{};

  wait(session_thread& owner, std::unique_ptr<condition> condition, const call& limits,
       std::function<void()> then)
      : self(owner),
        what(std::move(condition)),
        deadline(limits.deadline),
        stop(limits.stop),
        finish(std::move(then)) {}

  void wake() override { look_at(steady_time::min()); }

  void look_at(steady_time when) {
    auto place = self.waits_.extract({next_look, this});
    next_look = when;
    if (place.empty()) return;  // not scheduled (any more)
    place.value().first = when;
    self.waits_.insert(std::move(place));
    if (when == steady_time::min()) {
      self.woken_ = true;
      self.changed_.notify_one();
    }
  }
};

void session_thread::wake_on_stop::operator()() const noexcept {
  const std::lock_guard guard{self->store_->guard()};
  what->wake();
}

session_thread::session_thread(std::shared_ptr<store> in, const engine_config& config)
    : store_(std::move(in)),
      clock_(config.clock.local()),
      listener_(config.listener),
      host_(config.host),
      pid_(config.pid) {}

void session_thread::start(std::unique_ptr<condition> what, const call& limits,
                           std::function<void()> finish) {
  auto added = std::make_unique<wait>(*this, std::move(what), limits, std::move(finish));
  bool over = false;
  {
    const std::lock_guard guard{store_->guard()};
    over = ending_ || is_over(*added, clock_.now());
  }
  if (over) return added->finish();
  // Before it is scheduled, because from then on the session thread may finish and delete it at any time. Runs at once
  // when stop was requested just now; the wake-up is not lost, since next_look stays at the smallest time.
  if (added->stop.stop_possible())
    added->on_stop.emplace(added->stop, wake_on_stop{this, added.get()});
  {
    const std::lock_guard guard{store_->guard()};
    if (!ending_) {
      need_thread();
      store_->subscribe(added->what->about(), *added);
      waits_.emplace(added->next_look, added.get());
      static_cast<void>(added.release());  // the schedule owns it
      woken_ = true;
      changed_.notify_one();
      return;
    }
  }
  added->on_stop.reset();
  added->finish();
}

void session_thread::end() {
  std::unique_lock guard{store_->guard()};
  ending_ = true;
  woken_ = true;
  changed_.notify_one();
  auto thread = std::move(thread_);
  guard.unlock();
  if (thread.joinable()) {
    // A completion may drop the last client; then the thread that would be joined is the one we are on.
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
  guard.lock();
  store_->end(*this, clock_.now());
}

void session_thread::lost(const owner_id& owner, std::string_view why) {
  if (ending_) return;
  need_thread();
  losses_.push_back({owner, std::string{why}});
  woken_ = true;
  changed_.notify_one();
}

void session_thread::need_thread() {
  if (thread_.joinable() || ending_) return;
  thread_ = std::thread{[self = shared_from_this()] { self->run(); }};
}

void session_thread::run() {
  std::unique_lock guard{store_->guard()};
  for (;;) {
    const bool last_round = ending_;
    std::vector<std::unique_ptr<wait>> over;
    if (last_round) {
      while (!waits_.empty()) over.push_back(take(*waits_.begin()->second));
    } else {
      look_at_due(clock_.now(), over);
    }
    const auto losses = std::exchange(losses_, {});

    guard.unlock();
    for (const auto& [owner, why] : losses) {
      if (!last_round) listener_.on_lost(owner, why);
    }
    for (auto& ended : over) {
      ended->on_stop
          .reset();  // waits for a wake_on_stop that is running; hence not under the guard
      const auto finish = std::move(ended->finish);
      finish();
    }
    guard.lock();

    if (last_round) return;
    sleep(guard);
  }
}

// The schedule is in order of time, and one that is not over goes back with a later time.
void session_thread::look_at_due(steady_time now, std::vector<std::unique_ptr<wait>>& over) {
  const bool fake = &clock_ != &system_clock();
  std::vector<wait*> due;
  for (const auto& [when, pending] : waits_) {
    if (when > now && !fake) break;
    due.push_back(pending);
  }
  for (wait* pending : due) {
    if (is_over(*pending, now)) {
      over.push_back(take(*pending));
    } else {
      pending->look_at(std::min(pending->deadline, pending->what->look_again_at()));
    }
  }
}

bool session_thread::is_over(wait& pending, steady_time now) {
  return pending.what->met(now) || now >= pending.deadline || pending.stop.stop_requested();
}

std::unique_ptr<session_thread::wait> session_thread::take(wait& ended) {
  store_->unsubscribe(ended.what->about(), ended);
  waits_.erase({ended.next_look, &ended});
  return std::unique_ptr<wait>{&ended};
}

void session_thread::sleep(std::unique_lock<std::mutex>& guard) {
  const auto due = waits_.empty() ? steady_time::max() : waits_.begin()->first;
  const bool for_ever = waits_.empty() || real_wake_up(clock_, due) == steady_time::max();
  if (for_ever) {
    changed_.wait(guard, [this] { return woken_; });
  } else {
    changed_.wait_until(guard, real_wake_up(clock_, due), [this] { return woken_; });
  }
  woken_ = false;
}

}  // namespace holdfast::engines::memory

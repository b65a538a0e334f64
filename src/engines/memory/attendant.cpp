#include "engines/memory/attendant.hpp"

#include <algorithm>
#include <optional>

namespace holdfast::engines::memory {

struct attendant::wait final : subscriber {
  attendant& self;
  std::unique_ptr<condition> what;
  steady_time deadline;
  std::stop_token stop;
  std::function<void()> finish;
  steady_time next_look = steady_time::min();  // its key in the schedule
  std::optional<std::stop_callback<stop_note>> on_stop{};

  wait(attendant& owner, std::unique_ptr<condition> condition, const call& limits,
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
      self.noted_ = true;
      self.changed_.notify_one();
    }
  }
};

void attendant::stop_note::operator()() const noexcept {
  const std::lock_guard guard{self->in_->guard()};
  what->wake();
}

attendant::attendant(std::shared_ptr<store> in, const engine_config& config)
    : in_(std::move(in)),
      clock_(config.clock.local()),
      listener_(config.listener),
      host_(config.host),
      pid_(config.pid) {}

void attendant::start(std::unique_ptr<condition> what, const call& limits,
                      std::function<void()> finish) {
  auto one = std::make_unique<wait>(*this, std::move(what), limits, std::move(finish));
  bool over = false;
  {
    const std::lock_guard guard{in_->guard()};
    over = ending_ || is_over(*one, clock_.now());
  }
  if (over) return one->finish();
  // Before it is scheduled, because from then on the attendant may finish and delete it at any
  // time. Runs at once when stop was requested just now; the note is not lost, since next_look
  // stays at the smallest time.
  if (one->stop.stop_possible()) one->on_stop.emplace(one->stop, stop_note{this, one.get()});
  {
    const std::lock_guard guard{in_->guard()};
    if (!ending_) {
      need_thread();
      in_->subscribe(one->what->about(), *one);
      waits_.emplace(one->next_look, one.get());
      static_cast<void>(one.release());  // the schedule owns it
      noted_ = true;
      changed_.notify_one();
      return;
    }
  }
  one->on_stop.reset();
  one->finish();
}

void attendant::end() {
  std::unique_lock guard{in_->guard()};
  ending_ = true;
  noted_ = true;
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
  in_->end(*this, clock_.now());
}

void attendant::lost(const owner_id& owner, std::string_view why) {
  if (ending_) return;
  need_thread();
  losses_.push_back({owner, std::string{why}});
  noted_ = true;
  changed_.notify_one();
}

void attendant::need_thread() {
  if (thread_.joinable() || ending_) return;
  thread_ = std::thread{[self = shared_from_this()] { self->run(); }};
}

void attendant::run() {
  std::unique_lock guard{in_->guard()};
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
    for (auto& one : over) {
      one->on_stop.reset();  // waits for a stop_note that is running; hence not under the guard
      const auto finish = std::move(one->finish);
      finish();
    }
    guard.lock();

    if (last_round) return;
    sleep(guard);
  }
}

// The schedule is in order of time, and one that is not over goes back with a later time.
void attendant::look_at_due(steady_time now, std::vector<std::unique_ptr<wait>>& over) {
  const bool fake = &clock_ != &system_clock();
  std::vector<wait*> due;
  for (const auto& [when, one] : waits_) {
    if (when > now && !fake) break;
    due.push_back(one);
  }
  for (wait* one : due) {
    if (is_over(*one, now)) {
      over.push_back(take(*one));
    } else {
      one->look_at(std::min(one->deadline, one->what->look_again_at()));
    }
  }
}

bool attendant::is_over(wait& one, steady_time now) {
  return one.what->met(now) || now >= one.deadline || one.stop.stop_requested();
}

std::unique_ptr<attendant::wait> attendant::take(wait& one) {
  in_->unsubscribe(one.what->about(), one);
  waits_.erase({one.next_look, &one});
  return std::unique_ptr<wait>{&one};
}

void attendant::sleep(std::unique_lock<std::mutex>& guard) {
  const auto due = waits_.empty() ? steady_time::max() : waits_.begin()->first;
  const bool for_ever = waits_.empty() || real_wake_up(clock_, due) == steady_time::max();
  if (for_ever) {
    changed_.wait(guard, [this] { return noted_; });
  } else {
    changed_.wait_until(guard, real_wake_up(clock_, due), [this] { return noted_; });
  }
  noted_ = false;
}

}  // namespace holdfast::engines::memory

// One watch under way: ready to hear, then looks, then sleeps until it hears or for a while; and again, until what it
// watches has changed. What changes between listening and looking finds us ready, so nothing is missed.
//
// Made with new; deletes itself when its time is over and then completes.
#pragma once

#include <holdfast/engine.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

namespace holdfast::engines {

class watch_loop {
 public:
  struct sight {
    bool changed = false;
    steady_time again = steady_time::max();  // to be looked at again although nothing was heard
  };

  void begin() { look_again(); }

 protected:
  watch_loop(const class clock& time, const call& limits, completion<void>& done)
      : clock_(time.local()), limits_(limits), done_(done) {}
  watch_loop(const watch_loop&) = delete;
  watch_loop& operator=(const watch_loop&) = delete;
  virtual ~watch_loop() = default;

  // Leads to one call of heard(), at until.deadline at the latest.
  virtual void listen(const call& until) = 0;
  // Leads to one call of saw(). An unknown outcome means that it is asked again: the question changes nothing.
  virtual void look(const call& until) = 0;
  // heard() shall come now, or then.
  virtual void wake() = 0;
  virtual void wake_at(steady_time when) = 0;
  // Where a look may block: calls look_again() elsewhere.
  virtual void go_on() { look_again(); }
  virtual bool is_ending() const { return false; }  // the engine; then there is no further look

  // Both come, in either order, on any thread.
  void heard() { step(); }
  void saw(const result<sight>& what) {
    // A look that is cut short by the end of our own time is no failure.
    if (!what && what.error().code() != errc::outcome_unknown && !is_over())
      failure_ = what.error();
    changed_ = what && what->changed;
    if (changed_ || failure_) {
      wake();
    } else if (what && what->again != steady_time::max()) {
      wake_at(what->again);
    }
    step();
  }
  void look_again() {
    if (is_over()) return finish({});
    call until = limits_;
    until.deadline = std::min(limits_.deadline, clock_.now() + longest_look);
    listen(until);
    look(until);
  }

  const class clock& clock_;  // of deadlines and timers, which do not count a suspended machine

 private:
  static constexpr std::chrono::seconds longest_look{5};

  bool is_over() const {
    return is_ending() || limits_.stop.stop_requested() || clock_.now() >= limits_.deadline;
  }

  void step() {
    if (steps_.fetch_add(1) % 2 == 0) return;  // the other one is still to come
    if (failure_) return finish(*failure_);
    if (changed_) return finish({});
    go_on();
  }
  void finish(result<void> outcome) {
    auto& done = done_;
    delete this;
    done.complete(std::move(outcome));
  }

  const call& limits_;
  completion<void>& done_;
  std::optional<error> failure_;
  bool changed_ = false;
  std::atomic<unsigned> steps_{0};
};

}  // namespace holdfast::engines

// The one acquire loop, as a machine without I/O: events in, the next step out (DESIGN 5).
//
// A thread drives it by calling the engine's plain verbs, a coroutine by the start_ verbs; unit tests
// drive it with made-up answers and times. It knows deadlines, stop, patience with an unavailable store
// and how to settle a request that was never answered. It knows no engine.
//
//   enter -> granted                          done
//         -> waiting -> await -> granted      done
//                             -> changed      enter (idempotent by owner: asks where we stand)
//                             -> time, stop   leave, done
//         -> unavailable -> pause             enter again, while patience lasts
//         -> outcome unknown -> settle        adopt / go on waiting / enter again
#pragma once

#include <holdfast/engine.hpp>

#include <optional>

namespace holdfast::core {

// A grant must be worth something when it arrives: how much of the ttl we may believe in.
inline nanoseconds usable(const capabilities& caps, nanoseconds ttl) noexcept {
  nanoseconds margin = caps.margin;
  // ttl / 1e6 * ppm loses less than a microsecond and cannot overflow.
  if (caps.drift_ppm != 0) margin += ttl / 1'000'000 * static_cast<std::int64_t>(caps.drift_ppm);
  return ttl - margin;
}

// cancelled or timed_out, as a sentence.
error gave_up(std::string_view name, bool cancelled);
steady_time deadline_after(steady_time since, nanoseconds wait) noexcept;  // saturating

class acquire_machine {
 public:
  enum class step { enter, await, leave, settle, give_back, pause, done };

  struct limits {
    steady_time deadline;      // of the whole acquire
    nanoseconds call_timeout;  // of one round trip; also our patience with an unavailable store
  };

  acquire_machine(const request& ask, const capabilities& caps, limits bounds,
                  std::stop_token stop);

  step start(steady_time now);
  step on_entered(result<entered> answer, steady_time now);  // after enter
  step on_settled(result<entered> answer, steady_time now);  // after settle
  step on_progress(result<progress> answer, steady_time now);
  step on_left(result<void> answer, steady_time now);
  step on_given_back(const result<void>& answer, steady_time now);
  step on_resumed(steady_time now);  // after pause

  // What the next step works with.
  call next_call(steady_time now) const;
  const ticket& place() const noexcept { return place_; }  // await, leave
  const grant& stale() const noexcept { return grant_; }   // give_back
  steady_time pause_until() const noexcept { return pause_until_; }

  // When done.
  bool succeeded() const noexcept { return !failure_; }
  const grant& granted() const noexcept { return grant_; }
  const error& failure() const noexcept { return *failure_; }
  bool waited() const noexcept { return waited_; }
  unsigned settled() const noexcept { return settled_; }
  // The store may still know this owner: somebody must clear it up before the client ends.
  bool orphaned() const noexcept { return orphaned_; }

 private:
  step take(const grant& arrived, steady_time now);
  step wait_or_leave(steady_time now);
  step fail(error why);
  step pause(error why, step after, steady_time now);
  bool out_of_time(steady_time now) const { return now >= bounds_.deadline; }
  error stopped_error(steady_time now) const;

  const request& ask_;
  const capabilities& caps_;
  limits bounds_;
  std::stop_token stop_;

  ticket place_;
  grant grant_;
  std::optional<error> failure_;
  step after_pause_ = step::enter;
  step call_for_ = step::enter;
  steady_time pause_until_{};
  steady_time patience_ends_{};  // zero while the store answers
  nanoseconds pause_length_{};
  bool queued_ = false;
  bool waited_ = false;
  bool orphaned_ = false;
  unsigned settled_ = 0;
};

}  // namespace holdfast::core

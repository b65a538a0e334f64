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
//         -> in doubt -> settle               adopt / go on waiting / enter again as a new owner
//         -> refused for good                 leave if queued, settle if in doubt, done
//
// Two rules keep late requests and late messages harmless. An owner id is used for one attempt: once it was given back
// or settled as "nothing" the machine goes on as a new owner. And whatever the end, an owner the store may still know
// is named in left_behind(), for the driver to clear up.
//
// An upgrade (request::replaces) is never given back: that would take along what it replaced. Its end is either
// certain, or in_doubt().
#pragma once

#include <holdfast/engine.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

namespace holdfast::core {

// How much longer than its wait a caller may have to wait for the last answers when the store is mute.
inline nanoseconds overtime(nanoseconds call_timeout) noexcept {
  return std::min<nanoseconds>(call_timeout, std::chrono::milliseconds{500});
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
  using owner_source = std::function<owner_id()>;

  // `fresh` gives owner ids that were never used.
  acquire_machine(const request& ask, const capabilities& caps, limits bounds, std::stop_token stop,
                  owner_source fresh);

  step start(steady_time now);
  step on_entered(result<entered> answer, steady_time now);  // after enter
  step on_settled(result<entered> answer, steady_time now);  // after settle
  step on_progress(result<progress> answer, steady_time now);
  step on_left(result<void> answer, steady_time now);
  step on_given_back(const result<void>& answer, steady_time now);
  step on_resumed(steady_time now);  // after pause

  // What the next step works with.
  const request& ask() const noexcept { return ask_; }
  // The caller's wait bounds every call, plus overtime() for the last answers; clearing up goes on behind its back.
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
  // Owners that the store may still know, as holder or waiter: they must be cleared up before the client ends.
  const std::vector<owner_id>& left_behind() const noexcept { return left_behind_; }
  // Of an upgrade that failed: it may have happened all the same, or may still happen.
  bool in_doubt() const noexcept { return in_doubt_; }

 private:
  step take(const grant& arrived, steady_time now);
  step wait_or_leave(steady_time now);
  step again(steady_time now);
  step end(error why);
  step finish();
  step give_up();
  step fail(error why);
  step pause(error why, step after, steady_time now);
  step doubt(error why, steady_time now);
  bool is_upgrade() const noexcept { return ask_.replaces != nullptr; }
  bool out_of_time(steady_time now) const { return now >= bounds_.deadline; }
  bool is_over(steady_time now) const { return stop_.stop_requested() || out_of_time(now); }
  steady_time answer_by(steady_time now) const;
  error stopped_error(steady_time now) const;
  error unanswered(const error& why, steady_time now) const;

  request ask_;
  const capabilities& caps_;
  limits bounds_;
  std::stop_token stop_;
  owner_source fresh_;

  ticket place_;
  grant grant_;
  std::optional<error> failure_;
  std::vector<owner_id> left_behind_;
  step after_pause_ = step::enter;
  step call_for_ = step::enter;
  steady_time pause_until_{};
  steady_time patience_ends_{};  // zero while the store answers
  nanoseconds pause_length_{};
  bool queued_ = false;
  bool waited_ = false;
  bool ending_ = false;  // failure_ is known; what is left of us is being cleared up
  bool in_doubt_ = false;
  bool left_ = false;
  unsigned settled_ = 0;
};

}  // namespace holdfast::core

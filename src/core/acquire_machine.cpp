#include "core/acquire_machine.hpp"

#include "core/renewal.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::core {

namespace {

constexpr nanoseconds first_pause = std::chrono::milliseconds{5};
constexpr nanoseconds longest_pause = std::chrono::milliseconds{500};

// Spreads clients that saw the same fault, without a random source: owners are random already.
nanoseconds jittered(nanoseconds length, const owner_id& owner) {
  const auto spread = (owner.client[0] ^ owner.sequence * 0x9e3779b97f4a7c15U) >> 56U;  // 0..255
  return length * static_cast<std::int64_t>(192 + spread / 2) / 256;  // 0.75 .. 1.25
}

}  // namespace

error gave_up(std::string_view name, bool cancelled) {
  if (cancelled)
    return {errc::cancelled, fmt::format("the wait for lock '{}' was cancelled", name)};
  return {errc::timed_out, fmt::format("lock '{}' did not become free in the time given", name)};
}

steady_time deadline_after(steady_time since, nanoseconds wait) noexcept {
  return wait >= steady_time::max() - since ? steady_time::max() : since + wait;
}

acquire_machine::acquire_machine(const request& ask, const capabilities& caps, limits bounds,
                                 std::stop_token stop, owner_source fresh)
    : ask_(ask), caps_(caps), bounds_(bounds), stop_(std::move(stop)), fresh_(std::move(fresh)) {}

acquire_machine::step acquire_machine::start(steady_time now) {
  if (stop_.stop_requested()) return fail(stopped_error(now));
  return step::enter;
}

steady_time acquire_machine::answer_by(steady_time now) const {
  const auto last = stop_.stop_requested() ? now : bounds_.deadline;
  return std::min(deadline_after(now, bounds_.call_timeout),
                  deadline_after(last, overtime(bounds_.call_timeout)));
}

call acquire_machine::next_call(steady_time now) const {
  // Leaving and settling must happen even when the caller's time is up or it has been told to stop.
  const bool clearing_up =
      call_for_ == step::leave || call_for_ == step::settle || call_for_ == step::give_back;
  call out;
  out.deadline =
      call_for_ == step::await ? std::min(bounds_.deadline, place_.recheck_at) : answer_by(now);
  if (!clearing_up) out.stop = stop_;
  return out;
}

acquire_machine::step acquire_machine::on_entered(result<entered> answer, steady_time now) {
  if (answer) {
    patience_ends_ = {};
    switch (answer->what) {
      case entered::kind::granted:
        return take(answer->granted, now);
      case entered::kind::waiting:
        place_ = answer->waiting;
        place_.replacing = is_upgrade();
        queued_ = waited_ = true;
        return wait_or_leave(now);
      case entered::kind::busy:
        queued_ = false;
        return fail(
            {errc::busy, fmt::format("lock '{}' is held by another owner, and the wait given is 0",
                                     ask_.name)});
    }
  }
  auto why = std::move(answer).error();
  if (why.code() == errc::outcome_unknown) return doubt(std::move(why), now);
  if (why.is_owner_over()) {
    queued_ = false;
    ask_.owner = fresh_();
  }
  if (why.code() == errc::unavailable) return pause(std::move(why), step::enter, now);
  return end(std::move(why));
}

acquire_machine::step acquire_machine::on_settled(result<entered> answer, steady_time now) {
  if (!answer) {
    const auto code = answer.error().code();
    if (!ending_ && (code == errc::unavailable || code == errc::outcome_unknown))
      return pause(std::move(answer).error(), step::settle, now);
    if (!failure_) failure_ = std::move(answer).error();
    return give_up();
  }
  ++settled_;
  patience_ends_ = {};
  if (answer->what == entered::kind::busy) {
    // The store knows nothing of this owner, and will not learn of it later.
    queued_ = false;
    return ending_ ? finish() : again(now);
  }
  // An upgrade that went through after all is what its caller wanted.
  if (!ending_ || (is_upgrade() && answer->what == entered::kind::granted))
    return on_entered(std::move(answer), now);
  if (answer->what == entered::kind::granted) {
    grant_ = answer->granted;
    return call_for_ = step::give_back;
  }
  if (left_) return give_up();  // it says that we left, and lists us
  place_ = answer->waiting;
  place_.replacing = is_upgrade();
  return call_for_ = step::leave;
}

acquire_machine::step acquire_machine::on_progress(result<progress> answer, steady_time now) {
  if (answer) {
    if (answer->is_granted) return take(answer->granted, now);
    if (is_over(now)) return wait_or_leave(now);
    return call_for_ = step::enter;  // where do we stand?
  }
  auto why = std::move(answer).error();
  if (why.code() == errc::unavailable || why.code() == errc::outcome_unknown)
    return pause(std::move(why), step::enter, now);
  return end(std::move(why));
}

// A grant that is no longer worth anything (we were paused, or the reply was late) is not taken: by the
// time we returned it would be a lie. Give it back and go on. An upgrade is taken in any case: what it replaced is
// gone, and the lease finds out by itself that it is over.
acquire_machine::step acquire_machine::take(const grant& arrived, steady_time now) {
  grant_ = arrived;
  queued_ = false;
  if (is_upgrade() || now < believed_until(caps_, arrived)) {
    failure_.reset();
    return call_for_ = step::done;
  }
  return call_for_ = step::give_back;
}

acquire_machine::step acquire_machine::on_given_back(const result<void>& answer, steady_time now) {
  if (!answer && answer.error().code() != errc::not_held) left_behind_.push_back(ask_.owner);
  return ending_ ? finish() : again(now);
}

// From the start, as a new owner: a message or a request of the old one that is still on its way must not be taken for
// an answer to this attempt.
acquire_machine::step acquire_machine::again(steady_time now) {
  if (is_over(now)) return fail(stopped_error(now));
  ask_.owner = fresh_();
  return call_for_ = step::enter;
}

acquire_machine::step acquire_machine::wait_or_leave(steady_time now) {
  if (!is_over(now)) return call_for_ = step::await;
  return end(stopped_error(now));
}

acquire_machine::step acquire_machine::on_left(result<void> answer, steady_time now) {
  // The failure to report is the one that made us leave; a leave that may not have arrived is cleared up
  // in the background.
  if (!answer) return give_up();
  queued_ = false;
  left_ = true;
  // Only the place was given up: was the upgrade granted before?
  if (!is_upgrade()) return finish();
  if (now >= answer_by(now)) return give_up();
  return call_for_ = step::settle;
}

acquire_machine::step acquire_machine::pause(error why, step after, steady_time now) {
  if (patience_ends_ == steady_time{}) {
    patience_ends_ = now + bounds_.call_timeout;
    pause_length_ = first_pause;
  } else {
    pause_length_ = std::min(pause_length_ * 2, longest_pause);
  }
  const bool stopping = stop_.stop_requested();
  const auto end = std::min(patience_ends_, bounds_.deadline);
  if (stopping || now >= end) {
    const bool known = queued_ || after == step::settle;
    // Whose wait is over has timed out: that the store was away just then is no other answer.
    const bool timed_out = waited_ && out_of_time(now);
    failure_ =
        stopping || timed_out || after == step::settle ? unanswered(why, now) : std::move(why);
    return known ? give_up() : finish();
  }
  after_pause_ = after;
  pause_until_ = std::min(now + jittered(pause_length_, ask_.owner), end);
  return call_for_ = step::pause;
}

acquire_machine::step acquire_machine::on_resumed(steady_time) { return call_for_ = after_pause_; }

// A request may have been carried out, or may still be. While there is time the store is asked.
acquire_machine::step acquire_machine::doubt(error why, steady_time now) {
  if (now < answer_by(now)) return call_for_ = step::settle;
  failure_ = unanswered(why, now);
  return give_up();
}

// Refused for good, or out of time: with what is left of us in the store cleared up, if there may be anything.
acquire_machine::step acquire_machine::end(error why) {
  const bool certain = why.is_not_done();
  failure_ = std::move(why);
  ending_ = true;
  if (queued_) return call_for_ = step::leave;
  if (certain) return finish();
  return call_for_ = step::settle;
}

acquire_machine::step acquire_machine::finish() { return call_for_ = step::done; }

acquire_machine::step acquire_machine::give_up() {
  if (is_upgrade()) {
    in_doubt_ = true;
  } else {
    left_behind_.push_back(ask_.owner);
  }
  return finish();
}

acquire_machine::step acquire_machine::fail(error why) {
  failure_ = std::move(why);
  return finish();
}

error acquire_machine::stopped_error(steady_time now) const {
  return gave_up(ask_.name, stop_.stop_requested() || !out_of_time(now));
}

error acquire_machine::unanswered(const error& why, steady_time now) const {
  if (stop_.stop_requested() || (waited_ && out_of_time(now))) return stopped_error(now);
  return {
      errc::outcome_unknown,
      fmt::format("no answer came about lock '{}', and the store could not be asked again (what "
                  "it may have granted is being given back): {}",
                  ask_.name, why.message())};
}

}  // namespace holdfast::core

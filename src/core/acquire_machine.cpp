#include "core/acquire_machine.hpp"

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
                                 std::stop_token stop)
    : ask_(ask), caps_(caps), bounds_(bounds), stop_(std::move(stop)) {}

acquire_machine::step acquire_machine::start(steady_time now) {
  if (stop_.stop_requested()) return fail(stopped_error(now));
  return step::enter;
}

call acquire_machine::next_call(steady_time now) const {
  // Leaving and settling must happen even when the caller's time is up or it has been told to stop.
  const bool clearing_up =
      call_for_ == step::leave || call_for_ == step::settle || call_for_ == step::give_back;
  call out;
  out.deadline = call_for_ == step::await
                     ? std::min(bounds_.deadline, place_.recheck_at)
                     : now + std::min(bounds_.call_timeout, steady_time::max() - now);
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
        queued_ = waited_ = true;
        return wait_or_leave(now);
      case entered::kind::busy:
        queued_ = false;
        return fail(
            {errc::busy, fmt::format("lock '{}' is held by somebody else, and the wait given is 0",
                                     ask_.name)});
    }
  }
  switch (answer.error().code()) {
    case errc::outcome_unknown:
      return call_for_ = step::settle;
    case errc::unavailable:
      // An engine that says unavailable has not sent the request, or knows that it had no effect.
      return pause(std::move(answer).error(), step::enter, now);
    default:
      return fail(std::move(answer).error());
  }
}

acquire_machine::step acquire_machine::on_settled(result<entered> answer, steady_time now) {
  if (!answer) {
    if (answer.error().code() == errc::unavailable ||
        answer.error().code() == errc::outcome_unknown)
      return pause(std::move(answer).error(), step::settle, now);
    orphaned_ = true;
    return fail(std::move(answer).error());
  }
  ++settled_;
  patience_ends_ = {};
  if (answer->what != entered::kind::busy) return on_entered(std::move(answer), now);
  // Nothing is known of us: the request never arrived.
  queued_ = false;
  if (stop_.stop_requested() || out_of_time(now)) return fail(stopped_error(now));
  return call_for_ = step::enter;
}

acquire_machine::step acquire_machine::on_progress(result<progress> answer, steady_time now) {
  if (answer) {
    if (answer->is_granted) return take(answer->granted, now);
    if (stop_.stop_requested() || out_of_time(now)) return wait_or_leave(now);
    return call_for_ = step::enter;  // where do we stand?
  }
  if (answer.error().code() == errc::unavailable || answer.error().code() == errc::outcome_unknown)
    return pause(std::move(answer).error(), step::enter, now);
  failure_ = std::move(answer).error();
  return call_for_ = step::leave;
}

// A grant that is no longer worth anything (we were paused, or the reply was late) is not taken: by the
// time we returned it would be a lie. Give it back and go on.
acquire_machine::step acquire_machine::take(const grant& arrived, steady_time now) {
  grant_ = arrived;
  queued_ = false;
  if (now < arrived.valid_from + usable(caps_, arrived.ttl)) {
    failure_.reset();
    orphaned_ = false;  // what was left of this owner is what we hold
    return call_for_ = step::done;
  }
  return call_for_ = step::give_back;
}

acquire_machine::step acquire_machine::on_given_back(const result<void>& answer, steady_time now) {
  orphaned_ = orphaned_ || (!answer && answer.error().code() != errc::not_held);
  if (stop_.stop_requested() || out_of_time(now)) return fail(stopped_error(now));
  return call_for_ = step::enter;
}

acquire_machine::step acquire_machine::wait_or_leave(steady_time now) {
  if (!stop_.stop_requested() && !out_of_time(now)) return call_for_ = step::await;
  failure_ = stopped_error(now);
  return call_for_ = step::leave;
}

acquire_machine::step acquire_machine::on_left(result<void> answer, steady_time) {
  queued_ = false;
  // The failure to report is the one that made us leave; a leave that may not have arrived is cleared up
  // in the background.
  if (!answer) orphaned_ = true;
  return call_for_ = step::done;
}

acquire_machine::step acquire_machine::pause(error why, step after, steady_time now) {
  if (patience_ends_ == steady_time{}) {
    patience_ends_ = now + bounds_.call_timeout;
    pause_length_ = first_pause;
  } else {
    pause_length_ = std::min(pause_length_ * 2, longest_pause);
  }
  const bool stopping = stop_.stop_requested();
  const auto until = now + jittered(pause_length_, ask_.owner);
  if (stopping || until >= std::min(patience_ends_, bounds_.deadline)) {
    orphaned_ = orphaned_ || queued_ || after == step::settle;
    if (stopping) return fail(stopped_error(now));
    if (after != step::settle) return fail(std::move(why));
    return fail(
        {errc::outcome_unknown,
         fmt::format("no answer came about lock '{}', and the store could not be asked again: {}",
                     ask_.name, why.message())});
  }
  after_pause_ = after;
  pause_until_ = until;
  return call_for_ = step::pause;
}

acquire_machine::step acquire_machine::on_resumed(steady_time) { return call_for_ = after_pause_; }

acquire_machine::step acquire_machine::fail(error why) {
  failure_ = std::move(why);
  return call_for_ = step::done;
}

error acquire_machine::stopped_error(steady_time now) const {
  return gave_up(ask_.name, stop_.stop_requested() || !out_of_time(now));
}

}  // namespace holdfast::core

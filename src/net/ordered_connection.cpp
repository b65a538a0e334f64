#include "net/ordered_connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace holdfast::net {

ordered_connection::ordered_connection(reactor::impl& loop,
                                       std::shared_ptr<const channel_options> options,
                                       const std::shared_ptr<ordered_connection_owner>& owner)
    : connection(loop,
                 {.where = options->where,
                  .description = options->description,
                  .connect_timeout = options->connect_timeout,
                  .spin = options->spin,
                  .keep_open = options->keep_open},
                 owner),
      options_(std::move(options)),
      owner_(owner),
      framing_(options_->make_framing()) {
  framing_->reset();
}

// ---- Calls -----------------------------------------------------------------------------------------------------

std::optional<result<std::uint64_t>> ordered_connection::exchange(std::string_view request,
                                                                  unsigned replies,
                                                                  const limits& until,
                                                                  std::string& into) {
  const counted_call counted;
  into.clear();
  blocked_exchange self{into};
  const auto interrupt = [this, &self] { stop(self); };
  std::optional<std::stop_callback<decltype(interrupt)>>
      on_stop;  // goes before `self`, without the mutex
  if (until.stop.stop_possible()) on_stop.emplace(until.stop, interrupt);

  lock locked{guard_};
  if (phase_ == phase::dead) return std::nullopt;
  if (auto no = refusal(until, pending_.unsent())) return std::move(*no);
  self.number = pending_.add(
      {.missing = replies, .caller = &self, .since = std::chrono::steady_clock::now()}, request);
  wait_for_answer(locked, self, until.deadline);
  if (self.failure) return std::move(*self.failure);
  return generation_;
}

bool ordered_connection::send(std::string_view request, unsigned replies, const limits& until,
                              reply_handler& done, writer by) noexcept {
  const bool at_once = by == writer::caller;
  lock locked{guard_};
  if (phase_ == phase::dead) return false;
  if (auto no = refusal(until, pending_.unsent())) {
    callbacks_.failure(done, std::move(*no));
    post_delivery();
    return true;
  }
  const auto number = pending_.add({.missing = replies,
                                    .urgent = !at_once,
                                    .handler = &done,
                                    .since = std::chrono::steady_clock::now(),
                                    .deadline = until.deadline},
                                   request);
  if (until.stop.stop_possible()) {
    auto give_up =
        later<ordered_connection>([number](ordered_connection& self) { self.cancel(number); });
    pending_.find(number)->on_stop = std::make_unique<stop_watch>(
        until.stop, [&loop = loop_, work = std::move(give_up)] { loop.post(work); });
  }
  plan_check(until.deadline);
  push_out(locked, at_once);
  return true;
}

void ordered_connection::cancel(std::uint64_t number) noexcept {
  {
    lock locked{guard_};
    auto* const which = pending_.find(number);
    if (which == nullptr || which->handler == nullptr) return;
    give_up(*which, true);
  }
  deliver();
}

// ---- Giving up -------------------------------------------------------------------------------------------------

void ordered_connection::give_up(blocked_call& self) {
  auto& mine = *pending_.find(static_cast<blocked_exchange&>(self).number);
  self.failure = abandon(mine, self.stopped);
}

void ordered_connection::give_up(pending_reply& which, bool stopped) {
  auto& handler = *which.handler;
  callbacks_.failure(handler, abandon(which, stopped));
}

error ordered_connection::abandon(pending_reply& which, bool stopped) {
  const auto& server = options_->description;
  if (pending_.abandon(which)) {
    return {errc::unavailable,
            stopped ? fmt::format("the call to {} was cancelled before it was sent", server)
                    : fmt::format("nothing could be sent to {} within {} ms", server,
                                  milliseconds_since(which.since))};
  }
  const auto now = std::chrono::steady_clock::now();
  if (pending_.abandoned() == 1) {
    silent_since_ = now;
    received_at_silence_ = received_;
    patience_ = options_->longest_silence;
  }
  patience_ = std::max<nanoseconds>(patience_, 3 * (now - which.since));
  plan_check(silent_since_ + patience_);
  return {errc::outcome_unknown,
          stopped ? fmt::format("the call to {} was cancelled before it was answered", server)
                  : fmt::format("{} did not answer within {} ms", server,
                                milliseconds_since(which.since))};
}

steady_time ordered_connection::check(steady_time now, wake_list& woken) {
  auto next = steady_time::max();
  for (auto& which : pending_.all()) {
    if (which.handler == nullptr) continue;
    if (which.deadline <= now) {
      give_up(which, false);
    } else {
      next = std::min(next, which.deadline);
    }
  }
  if (pending_.abandoned() > 0) next = std::min(next, check_silence(now, woken));
  return next;
}

// When to look again.
steady_time ordered_connection::check_silence(steady_time now, wake_list& woken) {
  if (received_ != received_at_silence_) {
    silent_since_ = now;
    received_at_silence_ = received_;
  }
  const auto end = silent_since_ + patience_;
  if (now < end) return end;
  fail_all(
      {errc::unavailable, fmt::format("{} has sent nothing for {} ms although answers are due, and "
                                      "the connection was given up",
                                      options_->description, milliseconds_since(silent_since_))},
      woken);
  return steady_time::max();
}

// ---- The end ---------------------------------------------------------------------------------------------------

error ordered_connection::fate(const pending_reply& which, const error& why, bool was_ready) const {
  if (!was_ready) return why;
  if (!pending_.maybe_sent(which))
    return {errc::unavailable, fmt::format("{} before the request was sent", why.message())};
  // What made no sense was the answer to the first call, if to any.
  if (why.code() == errc::protocol && which.begin == pending_.front().begin) return why;
  return {errc::outcome_unknown, fmt::format("{} before it answered", why.message())};
}

void ordered_connection::fail_calls(const error& why, bool was_ready, wake_list& woken) {
  for (auto& which : pending_.all()) {
    if (which.handler != nullptr) callbacks_.failure(*which.handler, fate(which, why, was_ready));
    if (which.caller == nullptr) continue;
    which.caller->failure = fate(which, why, was_ready);
    complete(*which.caller, woken);
  }
  pending_.clear();
  if (was_ready) callbacks_.down(why);
}

void ordered_connection::run_callbacks(lock& locked) {
  callback_queue batch;
  std::swap(batch, running_);  // for its memory
  while (!callbacks_.empty()) {
    std::swap(batch, callbacks_);
    locked.unlock();
    batch.run([this] {
      const auto owner = owner_.lock();
      return owner ? owner->listener() : nullptr;
    });
    batch.clear();
    locked.lock();
  }
  std::swap(batch, running_);
}

}  // namespace holdfast::net

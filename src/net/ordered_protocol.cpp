#include "net/ordered_protocol.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace holdfast::net {

ordered_protocol::ordered_protocol(std::shared_ptr<const channel_options> options,
                                   std::shared_ptr<const std::atomic<channel_listener*>> listener)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      framing_(options_->make_framing()) {}

// ---- Calls -----------------------------------------------------------------------------------------------------

std::optional<error> ordered_protocol::refuse(const request& what) const {
  if (what.until.only_over != 0 && what.until.only_over != generation_)
    return error{errc::unavailable,
                 fmt::format("nothing was sent to {}, because the connection that the request "
                             "counts on is gone",
                             server())};
  return refusal(server(), what.until, what.backlog + pending_.unsent());
}

void ordered_protocol::begin(const request& what, blocked_exchange& self, protocol_events& out) {
  if (auto no = refuse(what)) {
    self.failure = std::move(*no);
    return out.done(self);
  }
  self.number = pending_.add(
      {.missing = what.replies, .caller = &self, .since = std::chrono::steady_clock::now()},
      what.bytes);
}

std::optional<std::uint64_t> ordered_protocol::begin(const request& what, reply_handler& done,
                                                     bool urgent, protocol_events& out) {
  if (auto no = refuse(what)) {
    callbacks_.failure(done, std::move(*no));
    out.callbacks(protocol_events::urgency::now);
    return std::nullopt;
  }
  out.check_by(what.until.deadline);
  return pending_.add({.missing = what.replies,
                       .urgent = urgent,
                       .handler = &done,
                       .since = std::chrono::steady_clock::now(),
                       .deadline = what.until.deadline},
                      what.bytes);
}

void ordered_protocol::keep(std::uint64_t number, std::unique_ptr<stop_watch> stop) {
  if (auto* const which = pending_.find(number)) which->on_stop = std::move(stop);
}

void ordered_protocol::take_output(std::string& chunk, protocol_events& out) {
  static_cast<void>(out);
  if (std::exchange(greeting_taken_, true)) return pending_.take_output(chunk);
  chunk = options_->make_greeting ? options_->make_greeting() : options_->greeting;
}

// Calls that expect no answer are done when they have left and everything before them is answered.
void ordered_protocol::on_written(std::size_t unsent, protocol_events& out) {
  pending_.certainly_unsent(unsent);
  if (unsent == 0) finish_front(out);
}

// ---- Giving up -------------------------------------------------------------------------------------------------

void ordered_protocol::abandon(blocked_call& call, protocol_events& out) {
  auto& mine = *pending_.find(static_cast<blocked_exchange&>(call).number);
  call.failure = give_up(mine, call.stopped, out);
}

void ordered_protocol::cancel(std::uint64_t number, protocol_events& out) noexcept {
  auto* const which = pending_.find(number);
  if (which == nullptr || which->handler == nullptr) return;
  auto& handler = *which->handler;
  callbacks_.failure(handler, give_up(*which, true, out));
}

error ordered_protocol::give_up(pending_reply& which, bool stopped, protocol_events& out) {
  if (pending_.abandon(which)) {
    return {errc::unavailable,
            stopped ? fmt::format("the call to {} was cancelled before it was sent", server())
                    : fmt::format("nothing could be sent to {} within {} ms", server(),
                                  milliseconds_since(which.since))};
  }
  const auto now = std::chrono::steady_clock::now();
  if (pending_.abandoned() == 1) {
    silent_since_ = now;
    received_at_silence_ = received_;
    patience_ = options_->longest_silence;
  }
  patience_ = std::max<nanoseconds>(patience_, 3 * (now - which.since));
  out.check_by(silent_since_ + patience_);
  return {errc::outcome_unknown,
          stopped ? fmt::format("the call to {} was cancelled before it was answered", server())
                  : fmt::format("{} did not answer within {} ms", server(),
                                milliseconds_since(which.since))};
}

void ordered_protocol::on_time(steady_time now, protocol_events& out) {
  for (auto& which : pending_.all()) {
    if (which.handler == nullptr) continue;
    if (which.deadline <= now) {
      auto& handler = *which.handler;
      callbacks_.failure(handler, give_up(which, false, out));
    } else {
      out.check_by(which.deadline);
    }
  }
  if (pending_.abandoned() > 0) check_silence(now, out);
}

void ordered_protocol::check_silence(steady_time now, protocol_events& out) {
  if (received_ != received_at_silence_) {
    silent_since_ = now;
    received_at_silence_ = received_;
  }
  const auto end = silent_since_ + patience_;
  if (now < end) return out.check_by(end);
  out.failure = error{errc::unavailable,
                      fmt::format("{} has sent nothing for {} ms although answers are due, "
                                  "and the connection was given up",
                                  server(), milliseconds_since(silent_since_))};
}

// ---- The end ---------------------------------------------------------------------------------------------------

error ordered_protocol::fate(const pending_reply& which, const error& why, bool was_up) const {
  if (!was_up) return why;
  if (!pending_.maybe_sent(which))
    return {errc::unavailable, fmt::format("{} before the request was sent", why.message())};
  // What made no sense was the answer to the first call, if to any.
  if (why.code() == errc::protocol && which.begin == pending_.front().begin) return why;
  return {errc::outcome_unknown, fmt::format("{} before it answered", why.message())};
}

void ordered_protocol::on_lost(const error& why, bool was_up, protocol_events& out) {
  for (auto& which : pending_.all()) {
    if (which.handler != nullptr) callbacks_.failure(*which.handler, fate(which, why, was_up));
    if (which.caller == nullptr) continue;
    which.caller->failure = fate(which, why, was_up);
    out.done(*which.caller);
  }
  pending_.clear();
  if (was_up) callbacks_.down(why);
}

void ordered_protocol::run_callbacks(std::unique_lock<std::mutex>& locked) noexcept {
  callback_queue batch;
  std::swap(batch, running_);
  while (!callbacks_.empty()) {
    std::swap(batch, callbacks_);
    locked.unlock();
    batch.run([this] { return listener_->load(); });
    batch.clear();
    locked.lock();
  }
  std::swap(batch, running_);
}

}  // namespace holdfast::net

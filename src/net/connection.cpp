#include "net/connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace holdfast::net {

connection::connection(reactor::impl& loop, std::shared_ptr<const channel_options> options,
                       const std::shared_ptr<connection_owner>& owner)
    : conduit(loop,
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

std::optional<result<std::uint64_t>> connection::exchange(std::string_view request,
                                                          unsigned replies, const limits& until,
                                                          std::string& into) {
  const one_more_call counted;
  into.clear();
  exchange_caller self{into};
  const auto interrupt = [this, &self] { stop(self); };
  std::optional<std::stop_callback<decltype(interrupt)>>
      on_stop;  // goes before `self`, without the mutex
  if (until.stop.stop_possible()) on_stop.emplace(until.stop, interrupt);

  lock locked{guard_};
  if (phase_ == phase::dead) return std::nullopt;
  if (auto no = refusal(until, order_.unsent())) return std::move(*no);
  self.number = order_.add(
      {.missing = replies, .caller = &self, .since = std::chrono::steady_clock::now()}, request);
  see_through(locked, self, until.deadline);
  if (self.failure) return std::move(*self.failure);
  return generation_;
}

bool connection::send(std::string_view request, unsigned replies, const limits& until,
                      reply_handler& done, pace how) noexcept {
  const bool at_once = how == pace::caller_sends;
  lock locked{guard_};
  if (phase_ == phase::dead) return false;
  if (auto no = refusal(until, order_.unsent())) {
    outbox_.failure(done, std::move(*no));
    post_delivery();
    return true;
  }
  const auto number = order_.add({.missing = replies,
                                  .urgent = !at_once,
                                  .handler = &done,
                                  .since = std::chrono::steady_clock::now(),
                                  .deadline = until.deadline},
                                 request);
  if (until.stop.stop_possible()) {
    auto give_up = later<connection>([number](connection& self) { self.cancel(number); });
    order_.find(number)->on_stop = std::make_unique<stop_watch>(
        until.stop, [&loop = loop_, work = std::move(give_up)] { loop.post(work); });
  }
  plan_check(until.deadline);
  push_out(locked, at_once);
  return true;
}

void connection::cancel(std::uint64_t number) noexcept {
  {
    lock locked{guard_};
    auto* const which = order_.find(number);
    if (which == nullptr || which->handler == nullptr) return;
    give_up(*which, true);
  }
  deliver();
}

// ---- Giving up -------------------------------------------------------------------------------------------------

void connection::give_up(caller& self) {
  auto& mine = *order_.find(static_cast<exchange_caller&>(self).number);
  self.failure = make_hole(mine, self.stopped);
}

void connection::give_up(place& which, bool stopped) {
  auto& handler = *which.handler;
  outbox_.failure(handler, make_hole(which, stopped));
}

error connection::make_hole(place& which, bool stopped) {
  const auto& server = options_->description;
  if (order_.give_up(which)) {
    return {errc::unavailable,
            stopped ? fmt::format("the call to {} was cancelled before it was sent", server)
                    : fmt::format("nothing could be sent to {} within {} ms", server,
                                  milliseconds_since(which.since))};
  }
  const auto now = std::chrono::steady_clock::now();
  if (order_.holes() == 1) {
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

steady_time connection::check(steady_time now, callers& woken) {
  auto next = steady_time::max();
  for (auto& which : order_.all()) {
    if (which.handler == nullptr) continue;
    if (which.deadline <= now) {
      give_up(which, false);
    } else {
      next = std::min(next, which.deadline);
    }
  }
  if (order_.holes() > 0) next = std::min(next, check_silence(now, woken));
  return next;
}

// When to look again.
steady_time connection::check_silence(steady_time now, callers& woken) {
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

error connection::fate(const place& which, const error& why, bool was_ready) const {
  if (!was_ready) return why;
  if (!order_.touched(which))
    return {errc::unavailable, fmt::format("{} before the request was sent", why.message())};
  // What made no sense was the answer to the first call, if to any.
  if (why.code() == errc::protocol && which.begin == order_.front().begin) return why;
  return {errc::outcome_unknown, fmt::format("{} before it answered", why.message())};
}

void connection::fail_calls(const error& why, bool was_ready, callers& woken) {
  for (auto& which : order_.all()) {
    if (which.handler != nullptr) outbox_.failure(*which.handler, fate(which, why, was_ready));
    if (which.caller == nullptr) continue;
    which.caller->failure = fate(which, why, was_ready);
    complete(*which.caller, woken);
  }
  order_.clear();
  if (was_ready) outbox_.down(why);
}

void connection::tell(lock& locked) {
  outbox batch;
  std::swap(batch, telling_);  // for its memory
  while (!outbox_.empty()) {
    std::swap(batch, outbox_);
    locked.unlock();
    batch.tell([this] {
      const auto owner = owner_.lock();
      return owner ? owner->listener() : nullptr;
    });
    batch.clear();
    locked.lock();
  }
  std::swap(batch, telling_);
}

}  // namespace holdfast::net

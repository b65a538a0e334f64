#include "net/connection.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace holdfast::net {

namespace {

// Unsent bytes that a server which has stopped reading may cost us.
constexpr std::size_t most_unsent = std::size_t{64} << 20U;

bool passed(steady_time deadline) {
  return deadline != steady_time::max() && deadline <= std::chrono::steady_clock::now();
}

long milliseconds_since(steady_time then) {
  return std::chrono::round<std::chrono::milliseconds>(std::chrono::steady_clock::now() - then)
      .count();
}

}  // namespace

connection::connection(reactor::impl& loop, std::shared_ptr<const channel_options> options,
                       std::weak_ptr<connection_owner> owner)
    : loop_(loop),
      options_(std::move(options)),
      owner_(std::move(owner)),
      interrupt_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

connection::~connection() {
  if (interrupt_ >= 0) ::close(interrupt_);
}

// ---- Calls of threads ------------------------------------------------------------------------------------------

std::optional<result<std::uint64_t>> connection::exchange(std::string_view request,
                                                          unsigned replies, const limits& until,
                                                          std::string& into) {
  const one_more_call counted;
  into.clear();
  caller self{.into = into};
  const auto interrupt = [this, &self] { stop(self); };
  std::optional<std::stop_callback<decltype(interrupt)>>
      on_stop;  // goes before `self`, without the mutex
  if (until.stop.stop_possible()) on_stop.emplace(until.stop, interrupt);

  lock locked{guard_};
  if (phase_ == phase::dead) return std::nullopt;
  if (auto no = refusal(until)) return std::move(*no);
  self.number = order_.add(
      {.missing = replies, .caller = &self, .since = std::chrono::steady_clock::now()}, request);
  ++calls_;
  if (may_lead()) {
    take_lead(self);
  } else if (!self.stopped) {
    waiting_.add(self);
  }
  if (may_write()) write_out(locked);

  while (!self.done) {
    if (self.stopped || passed(until.deadline)) {
      give_up(self);
    } else if (lead_ == &self) {
      lead(locked, self, until.deadline);
    } else {
      locked.unlock();
      if (self.wake.wait(until.deadline) == answered_it) return outcome(self);
      locked.lock();
    }
  }
  callers woken;
  if (lead_ == &self) pass_lead(woken);
  const bool called = self.called;
  locked.unlock();
  wake(woken);
  if (called) self.wake.wait(steady_time::max());  // see caller::called
  return outcome(self);
}

result<std::uint64_t> connection::outcome(caller& self) const {
  if (self.failure) return std::move(*self.failure);
  return generation_;
}

// From the stop token of a caller, on the thread that requests the stop.
void connection::stop(caller& who) noexcept {
  {
    lock locked{guard_};
    who.stopped = true;
    waiting_.remove(who);
    if (lead_ == &who) {
      interrupt_leader();
      return;
    }
    if (who.called) return;
    who.called = true;
  }
  who.wake.set(look);
}

void connection::interrupt_leader() const noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(interrupt_, &one, sizeof one));
}

void connection::wake(const callers& some) noexcept {
  for (const auto& [who, value] : some) who->wake.set(value);
}

std::optional<error> connection::refusal(const limits& until) const {
  if (until.stop.stop_requested() || passed(until.deadline)) {
    return error{errc::unavailable,
                 fmt::format("nothing was sent to {}, because the call was {} before it began",
                             options_->description,
                             until.stop.stop_requested() ? "cancelled" : "out of time")};
  }
  // Both what waits for a writer and what the writer could not get rid of yet.
  const auto unsent = order_.unsent() + chunk_.size() - chunk_at_;
  if (unsent > most_unsent) {
    return error{errc::unavailable,
                 fmt::format("{} does not read: {} MiB of requests are still to be sent",
                             options_->description, unsent >> 20U)};
  }
  return std::nullopt;
}

// ---- Calls that nobody waits for -------------------------------------------------------------------------------

bool connection::send(std::string_view request, unsigned replies, const limits& until,
                      reply_handler& done, pace how) noexcept {
  const bool at_once = how == pace::caller_sends;
  lock locked{guard_};
  if (phase_ == phase::dead) return false;
  if (auto no = refusal(until)) {
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
    order_.find(number)->on_stop =
        std::make_unique<stop_watch>(until.stop, [&loop = loop_, weak = weak_from_this(), number] {
          loop.post([weak, number] {
            if (const auto self = weak.lock()) self->cancel(number);
          });
        });
  }
  ++calls_;
  plan_check(until.deadline);
  if (phase_ != phase::ready) return true;  // it goes out when the greeting is accepted
  if (at_once) {
    // When the reactor is about to write anyway (coroutines at work), one write does for all.
    if (may_write() && !flush_posted_) write_out(locked);
    if (phase_ == phase::ready && reader_ == reader::nobody) plan_tick();
  } else {
    post_flush();
  }
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
  auto& mine = *order_.find(self.number);
  waiting_.remove(self);
  self.failure = make_hole(mine, self.stopped);
  self.done = true;
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

// One timer for all calls that nobody waits for, and for silence: at the earliest time something may be due.
void connection::plan_check(steady_time when) {
  if (when >= check_at_) return;
  check_at_ = when;
  loop_.at(when, later([](connection& self) { self.check(); }));
}

void connection::check() noexcept {
  callers woken;
  {
    lock locked{guard_};
    check_at_ = steady_time::max();
    if (phase_ == phase::dead) return;
    const auto now = std::chrono::steady_clock::now();
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
    if (phase_ != phase::dead) plan_check(next);
  }
  wake(woken);
  deliver();
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

void connection::lose(const error& why) noexcept {
  callers woken;
  {
    lock locked{guard_};
    fail_all(why, woken);
  }
  wake(woken);
}

error connection::fate(const place& which, const error& why, bool was_ready) const {
  if (!was_ready) return why;
  if (!order_.touched(which))
    return {errc::unavailable, fmt::format("{} before the request was sent", why.message())};
  // What made no sense was the answer to the first call, if to any.
  if (why.code() == errc::protocol && which.begin == order_.front().begin) return why;
  return {errc::outcome_unknown, fmt::format("{} before it answered", why.message())};
}

void connection::fail_all(const error& why, callers& woken) {
  if (phase_ == phase::dead) return;
  const bool was_ready = phase_ == phase::ready;
  phase_ = phase::dead;
  for (auto& which : order_.all()) {
    if (which.handler != nullptr) outbox_.failure(*which.handler, fate(which, why, was_ready));
    if (which.caller == nullptr) continue;
    which.caller->failure = fate(which, why, was_ready);
    complete(*which.caller, woken);
  }
  order_.clear();
  if (was_ready) outbox_.down(why);
  if (const auto owner = owner_.lock()) owner->lost(*this, why);
  if (io_)
    io_->shut();  // whoever polls wakes up; the descriptor is closed when the last of them has let go
  loop_.post([self = shared_from_this()] { self->clean_up(); });
}

void connection::clean_up() noexcept {
  loop_.cancel(opening_timer_);
  loop_.cancel(endpoint_timer_);
  if (io_) loop_.unwatch(io_->descriptor(), watch_);
  deliver();
}

// ---- What the reactor's thread tells ---------------------------------------------------------------------------

void connection::complete(caller& who, callers& woken) {
  waiting_.remove(who);
  who.done = true;
  if (lead_ == &who || std::exchange(who.called, true)) return;
  woken.push_back({&who, answered_it});
}

void connection::post_delivery() {
  if (std::exchange(delivery_posted_, true)) return;
  loop_.post([self = shared_from_this()] { self->deliver(); });
}

void connection::deliver() noexcept {
  outbox batch;
  lock locked{guard_};
  delivery_posted_ = false;
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

// Answers to send_now() and an idle connection can wait for a few milliseconds, so that a thread that locks and unlocks
// in a loop does not wake the reactor for each unlock. The tick hands out what a leader has collected; when no call has
// come since the last one, the reactor watches the input itself and the ticking ends.
void connection::plan_tick() {
  constexpr auto length = std::chrono::microseconds{2500};
  if (std::exchange(tick_planned_, true)) return;
  loop_.at(std::chrono::steady_clock::now() + length, later([](connection& self) { self.tick(); }));
}

void connection::tick() noexcept {
  deliver();
  lock locked{guard_};
  tick_planned_ = false;
  if (phase_ != phase::ready) return;
  if (std::exchange(calls_at_tick_, calls_) != calls_) {
    plan_tick();
  } else if (reader_ == reader::nobody) {
    watch_input();
  }  // else the reader plans the next one when it leaves
}

}  // namespace holdfast::net

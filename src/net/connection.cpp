// Callers, their deadlines, and the end.
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

}  // namespace

bool passed(steady_time deadline) {
  return deadline != steady_time::max() && deadline <= std::chrono::steady_clock::now();
}

long milliseconds_since(steady_time then) {
  return std::chrono::round<std::chrono::milliseconds>(std::chrono::steady_clock::now() - then)
      .count();
}

connection::connection(reactor::impl& loop, connection_settings settings,
                       std::weak_ptr<connection_owner> owner)
    : loop_(loop),
      settings_(std::move(settings)),
      owner_(std::move(owner)),
      interrupt_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

connection::~connection() {
  if (interrupt_ >= 0) ::close(interrupt_);
}

// ---- Calls of threads ------------------------------------------------------------------------------------------

void connection::wait_for_answer(lock& locked, blocked_call& self, steady_time deadline) {
  ++calls_;
  if (may_lead()) {
    take_lead(self);
  } else if (!self.stopped) {
    followers_.add(self);
  }
  if (may_write()) write_out(locked);

  while (!self.done) {
    if (self.stopped || passed(deadline)) {
      followers_.remove(self);
      give_up(self);
      self.done = true;
      write_owed(locked);
    } else if (lead_ == &self) {
      lead(locked, self, deadline);
    } else {
      locked.unlock();
      if (self.wake.wait(deadline) == answered_it) return;
      locked.lock();
    }
  }
  wake_list woken;
  if (lead_ == &self) pass_lead(woken);
  const bool called = self.wake_claimed;
  locked.unlock();
  wake(woken);
  if (called) self.wake.wait(steady_time::max());  // see blocked_call::wake_claimed
}

void connection::stop(blocked_call& call) noexcept {
  {
    lock locked{guard_};
    call.stopped = true;
    followers_.remove(call);
    if (lead_ == &call) {
      interrupt_leader();
      return;
    }
    if (call.wake_claimed) return;
    call.wake_claimed = true;
  }
  call.wake.set(look);
}

void connection::interrupt_leader() const noexcept {
  const std::uint64_t count = 1;
  static_cast<void>(!::write(interrupt_, &count, sizeof count));
}

void connection::wake(const wake_list& some) noexcept {
  for (const auto& [call, value] : some) call->wake.set(value);
}

void connection::complete(blocked_call& call, wake_list& woken) {
  followers_.remove(call);
  call.done = true;
  if (lead_ == &call || std::exchange(call.wake_claimed, true)) return;
  woken.push_back({&call, answered_it});
}

std::optional<error> connection::refusal(const limits& until, std::size_t unsent) const {
  if (until.stop.stop_requested() || passed(until.deadline)) {
    return error{
        errc::unavailable,
        fmt::format("nothing was sent to {}, because the call was {} before it began",
                    description(), until.stop.stop_requested() ? "cancelled" : "out of time")};
  }
  // Both what waits for a writer and what the writer could not get rid of yet.
  unsent += taken_unsent();
  if (unsent > most_unsent) {
    return error{errc::unavailable,
                 fmt::format("{} does not read: {} MiB of requests are still to be sent",
                             description(), unsent >> 20U)};
  }
  return std::nullopt;
}

void connection::push_out(lock& locked, bool at_once) {
  ++calls_;
  if (phase_ != phase::ready) return;  // it goes out when the greeting is accepted
  if (at_once) {
    // When the reactor is about to write anyway (coroutines at work), one write does for all.
    if (may_write() && !flush_posted_) write_out(locked);
    if (phase_ == phase::ready && reader_ == reader::none) plan_tick();
  } else {
    post_flush();
  }
}

// ---- The end ---------------------------------------------------------------------------------------------------

void connection::lose(const error& why) noexcept {
  wake_list woken;
  {
    lock locked{guard_};
    fail_all(why, woken);
  }
  wake(woken);
}

void connection::fail_all(const error& why, wake_list& woken) {
  if (phase_ == phase::dead) return;
  const bool was_ready = phase_ == phase::ready;
  phase_ = phase::dead;
  fail_calls(why, was_ready, woken);
  if (const auto owner = owner_.lock()) owner->lost(*this, why);
  if (io_)
    io_->shutdown();  // a polling thread wakes up; the descriptor is closed when the last one has let go
  loop_.post([self = shared_from_this()] { self->clean_up(); });
}

void connection::clean_up() noexcept {
  loop_.cancel(opening_timer_);
  loop_.cancel(endpoint_timer_);
  if (io_) loop_.unwatch(io_->descriptor(), watch_);
  deliver();
}

// ---- What the reactor's thread tells ---------------------------------------------------------------------------

void connection::post_delivery() {
  if (std::exchange(delivery_posted_, true)) return;
  loop_.post([self = shared_from_this()] { self->deliver(); });
}

void connection::deliver() noexcept {
  lock locked{guard_};
  delivery_posted_ = false;
  run_callbacks(locked);
}

// Answers to send_now() and an idle connection can wait for a few milliseconds, so that a thread that locks and unlocks
// in a loop does not wake the reactor for each unlock. The tick hands out what a leader has collected; when no call has
// come since the last one, the reactor watches the input itself and the ticking ends.
void connection::plan_tick() {
  constexpr auto length = std::chrono::microseconds{2500};
  if (std::exchange(tick_planned_, true)) return;
  loop_.at(std::chrono::steady_clock::now() + length,
           later<connection>([](connection& self) { self.tick(); }));
}

void connection::tick() noexcept {
  deliver();
  lock locked{guard_};
  tick_planned_ = false;
  if (phase_ != phase::ready) return;
  if (std::exchange(calls_at_tick_, calls_) != calls_) {
    plan_tick();
  } else if (reader_ == reader::none) {
    watch_input();
  }  // else the reader plans the next one when it leaves
}

void connection::plan_check(steady_time when) {
  if (when >= check_at_) return;
  loop_.cancel(check_timer_);
  check_at_ = when;
  check_timer_ = loop_.at(when, later<connection>([](connection& self) { self.run_check(); }));
}

void connection::run_check() noexcept {
  wake_list woken;
  {
    lock locked{guard_};
    loop_.cancel(check_timer_);  // one that was planned while this one was on its way
    check_at_ = steady_time::max();
    if (phase_ == phase::dead) return;
    const auto next = check(std::chrono::steady_clock::now(), woken);
    if (phase_ != phase::dead) {
      plan_check(next);
      write_owed(locked);
    }
  }
  wake(woken);
  deliver();
}

}  // namespace holdfast::net

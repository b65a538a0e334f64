// Callers, their deadlines, and the end.
#include "net/conduit.hpp"

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

conduit::conduit(reactor::impl& loop, conduit_settings settings, std::weak_ptr<conduit_owner> owner)
    : loop_(loop),
      settings_(std::move(settings)),
      owner_(std::move(owner)),
      interrupt_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

conduit::~conduit() {
  if (interrupt_ >= 0) ::close(interrupt_);
}

// ---- Calls of threads ------------------------------------------------------------------------------------------

void conduit::see_through(lock& locked, caller& self, steady_time deadline) {
  ++calls_;
  if (may_lead()) {
    take_lead(self);
  } else if (!self.stopped) {
    waiting_.add(self);
  }
  if (may_write()) write_out(locked);

  while (!self.done) {
    if (self.stopped || passed(deadline)) {
      waiting_.remove(self);
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
  callers woken;
  if (lead_ == &self) pass_lead(woken);
  const bool called = self.called;
  locked.unlock();
  wake(woken);
  if (called) self.wake.wait(steady_time::max());  // see caller::called
}

void conduit::stop(caller& who) noexcept {
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

void conduit::interrupt_leader() const noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(interrupt_, &one, sizeof one));
}

void conduit::wake(const callers& some) noexcept {
  for (const auto& [who, value] : some) who->wake.set(value);
}

void conduit::complete(caller& who, callers& woken) {
  waiting_.remove(who);
  who.done = true;
  if (lead_ == &who || std::exchange(who.called, true)) return;
  woken.push_back({&who, answered_it});
}

std::optional<error> conduit::refusal(const limits& until, std::size_t unsent) const {
  if (until.stop.stop_requested() || passed(until.deadline)) {
    return error{
        errc::unavailable,
        fmt::format("nothing was sent to {}, because the call was {} before it began",
                    description(), until.stop.stop_requested() ? "cancelled" : "out of time")};
  }
  // Both what waits for a writer and what the writer could not get rid of yet.
  unsent += picked_up_unsent();
  if (unsent > most_unsent) {
    return error{errc::unavailable,
                 fmt::format("{} does not read: {} MiB of requests are still to be sent",
                             description(), unsent >> 20U)};
  }
  return std::nullopt;
}

void conduit::push_out(lock& locked, bool at_once) {
  ++calls_;
  if (phase_ != phase::ready) return;  // it goes out when the greeting is accepted
  if (at_once) {
    // When the reactor is about to write anyway (coroutines at work), one write does for all.
    if (may_write() && !flush_posted_) write_out(locked);
    if (phase_ == phase::ready && reader_ == reader::nobody) plan_tick();
  } else {
    post_flush();
  }
}

// ---- The end ---------------------------------------------------------------------------------------------------

void conduit::lose(const error& why) noexcept {
  callers woken;
  {
    lock locked{guard_};
    fail_all(why, woken);
  }
  wake(woken);
}

void conduit::fail_all(const error& why, callers& woken) {
  if (phase_ == phase::dead) return;
  const bool was_ready = phase_ == phase::ready;
  phase_ = phase::dead;
  fail_calls(why, was_ready, woken);
  if (const auto owner = owner_.lock()) owner->lost(*this, why);
  if (io_)
    io_->shut();  // whoever polls wakes up; the descriptor is closed when the last of them has let go
  loop_.post([self = shared_from_this()] { self->clean_up(); });
}

void conduit::clean_up() noexcept {
  loop_.cancel(opening_timer_);
  loop_.cancel(endpoint_timer_);
  if (io_) loop_.unwatch(io_->descriptor(), watch_);
  deliver();
}

// ---- What the reactor's thread tells ---------------------------------------------------------------------------

void conduit::post_delivery() {
  if (std::exchange(delivery_posted_, true)) return;
  loop_.post([self = shared_from_this()] { self->deliver(); });
}

void conduit::deliver() noexcept {
  lock locked{guard_};
  delivery_posted_ = false;
  tell(locked);
}

// Answers to send_now() and an idle connection can wait for a few milliseconds, so that a thread that locks and unlocks
// in a loop does not wake the reactor for each unlock. The tick hands out what a leader has collected; when no call has
// come since the last one, the reactor watches the input itself and the ticking ends.
void conduit::plan_tick() {
  constexpr auto length = std::chrono::microseconds{2500};
  if (std::exchange(tick_planned_, true)) return;
  loop_.at(std::chrono::steady_clock::now() + length,
           later<conduit>([](conduit& self) { self.tick(); }));
}

void conduit::tick() noexcept {
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

void conduit::plan_check(steady_time when) {
  if (when >= check_at_) return;
  loop_.cancel(check_timer_);
  check_at_ = when;
  check_timer_ = loop_.at(when, later<conduit>([](conduit& self) { self.run_check(); }));
}

void conduit::run_check() noexcept {
  callers woken;
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

// Calls, their deadlines, and the end.
#include "net/connection.hpp"

#include "net/reconnector.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace holdfast::net {

connection::connection(reactor::impl& loop, std::shared_ptr<const connection_settings> settings,
                       std::unique_ptr<protocol> speaks, std::weak_ptr<reconnector> owner,
                       std::uint32_t serial)
    : loop_(loop),
      settings_(std::move(settings)),
      owner_(std::move(owner)),
      serial_(serial),
      interrupt_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      protocol_(std::move(speaks)) {}

connection::~connection() {
  if (interrupt_ >= 0) ::close(interrupt_);
}

// ---- Calls -----------------------------------------------------------------------------------------------------

// Of a blocking call whose request has been queued: writes, leads or waits, until it is done.
void connection::wait_for_answer(lock& locked, blocked_call& self, steady_time deadline) {
  ++calls_;
  if (!self.done && may_lead()) {
    take_lead(self);
  } else if (!self.done && !self.stopped) {
    followers_.add(self);
  }
  if (may_write()) write_out(locked);

  wake_list woken;
  while (!self.done) {
    if (self.stopped || passed(deadline)) {
      followers_.remove(self);
      protocol_events out;
      protocol_->abandon(self, out);
      self.done = true;
      apply(out, woken);
      write_owed(locked);
    } else if (lead_ == &self) {
      lead(locked, self, deadline);
    } else {
      locked.unlock();
      if (self.wake.wait(deadline) == answered_it) return;
      locked.lock();
    }
  }
  if (lead_ == &self) pass_lead(woken);
  const bool claimed = self.wake_claimed;
  locked.unlock();
  wake(woken);
  if (claimed) self.wake.wait(steady_time::max());  // see blocked_call::wake_claimed
}

// From the stop token of a blocking call, on the thread that requests the stop.
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

void connection::wake_unlocked(lock& locked, const wake_list& some) noexcept {
  if (some.empty()) return;
  locked.unlock();
  wake(some);
  locked.lock();
}

void connection::complete(blocked_call& call, wake_list& woken) {
  followers_.remove(call);
  call.done = true;
  if (lead_ == &call || std::exchange(call.wake_claimed, true)) return;
  woken.push_back({&call, answered_it});
}

// What the protocol wants done.
void connection::apply(protocol_events& out, wake_list& woken) {
  while (auto* const call = out.take_done()) complete(*call, woken);
  // When the reactor reads, it runs them next.
  const auto due = out.take_callbacks();
  if (phase_ != phase::ready || reader_ != reader::reactor) {
    if (due == protocol_events::urgency::now) post_delivery();
    if (due == protocol_events::urgency::soon) plan_tick();
  }
  plan_check(out.check_at);
  write_soon_ = write_soon_ || out.has_output;
  if (out.is_retired && !std::exchange(is_retired_, true)) {
    if (const auto owner = owner_.lock()) owner->note_retired(*this);
  }
  if (out.failure) fail_all(*out.failure, woken);
}

// After a request of start() has been queued.
void connection::push_out(lock& locked, writer by) {
  ++calls_;
  if (phase_ != phase::ready) return;  // it goes out when the greeting is accepted
  if (by == writer::reactor) return post_flush();
  // When the reactor is about to write anyway (coroutines at work), one write does for all.
  if (may_write() && !flush_posted_) write_out(locked);
  if (phase_ != phase::ready || reader_ != reader::none) return;
  if (protocol_->is_urgent()) {
    watch_input();
  } else {
    plan_tick();
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
  const bool was_up = phase_ == phase::ready;
  phase_ = phase::dead;
  protocol_events out;
  protocol_->on_lost(why, was_up, out);
  while (auto* const call = out.take_done()) complete(*call, woken);
  // Before the channel forgets this connection: what ends with the channel is posted behind it, so all handlers are
  // told by then.
  loop_.post([self = shared_from_this()] { self->clean_up(); });
  if (const auto owner = owner_.lock()) owner->note_lost(*this, why);
  if (io_)
    io_->shutdown();  // a polling thread wakes up; the descriptor is closed when the last one has let go
}

void connection::clean_up() noexcept {
  loop_.cancel(opening_timer_);
  loop_.cancel(endpoint_timer_);
  if (io_) loop_.unwatch(io_->descriptor(), watch_);
  deliver();
}

// ---- What the reactor's thread does ----------------------------------------------------------------------------

void connection::post_delivery() {
  if (std::exchange(delivery_posted_, true)) return;
  loop_.post([self = shared_from_this()] { self->deliver(); });
}

void connection::deliver() noexcept {
  lock locked{guard_};
  delivery_posted_ = false;
  protocol_->run_callbacks(locked);
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
  {
    lock locked{guard_};
    tick_planned_ = false;  // first: what a leader collects from now on plans the next one
  }
  deliver();
  lock locked{guard_};
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
  check_timer_ = loop_.at(when, later([](connection& self) { self.run_check(); }));
}

void connection::run_check() noexcept {
  wake_list woken;
  {
    lock locked{guard_};
    loop_.cancel(check_timer_);  // one that was planned while this one was on its way
    check_at_ = steady_time::max();
    if (phase_ == phase::dead) return;
    protocol_events out;
    protocol_->on_time(std::chrono::steady_clock::now(), out);
    static_cast<void>(out.take_callbacks());  // deliver() runs them
    apply(out, woken);
    write_owed(locked);
  }
  wake(woken);
  deliver();
}

}  // namespace holdfast::net

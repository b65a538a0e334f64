#include "engines/file/session_thread.hpp"

#include <algorithm>
#include <climits>
#include <future>
#include <system_error>

namespace holdfast::engines::file {

namespace {

// A wait whose predecessor is in this same process is always told; the others might miss a message when its
// sender is killed.
constexpr nanoseconds async_back_stop = std::chrono::seconds{1};

}  // namespace

result<void> session_thread::start() {
  std::promise<result<void>> started;
  auto outcome = started.get_future();
  const auto life = [this, &started] {
    auto begun = begin_session(env_.store, config_);
    if (begun) {
      env_.self = *begun;
      env_.prefix = fast_prefix(begun->session, begun->generation);
      messages_read_ = env_.store.session_at(begun->session).ring_head.load();
      started.set_value({});
      run();
    } else {
      started.set_value(begun.error());
    }
  };
  try {
    thread_ = std::thread{life};
  } catch (const std::system_error& failure) {
    return error{errc::unavailable,
                 std::string{"No thread can be started for the session: "} + failure.what() + "."};
  }
  return outcome.get();
}

void session_thread::stop() {
  {
    const std::lock_guard lock{guard_};
    closing_ = true;
  }
  if (!thread_.joinable()) return;
  wake();
  thread_.join();
}

void session_thread::abandon() noexcept {
  if (thread_.joinable()) thread_.detach();
}

void session_thread::wake() noexcept {
  session& own = env_.store.session_at(env_.self.session);
  own.wake.fetch_add(1, std::memory_order_acq_rel);
  futex_wake(own.wake, 1);
}

void session_thread::add(std::unique_ptr<async_wait> wait) {
  {
    const std::lock_guard lock{guard_};
    added_.push_back(std::move(wait));
  }
  wake();
}

void session_thread::ask_to_stop(std::uint32_t cookie) noexcept {
  {
    const std::lock_guard lock{guard_};
    stopped_.push_back(cookie);
  }
  wake();
}

void session_thread::run() noexcept {
  session& own = env_.store.session_at(env_.self.session);
  wait_set waiting_on;
  for (;;) {
    const std::uint32_t seen = own.wake.load(std::memory_order_acquire);
    if (!take_inbox()) break;
    take_messages();
    take_deaths();
    take_timers();
    waiting_on.clear();
    for (const auto& [session, cookies] : monitors_)
      waiting_on.monitor(env_.store.session_at(session));
    waiting_on.not_after(timers_.empty() ? env_.time.now() + std::chrono::hours{1}
                                         : timers_.begin()->first);
    waiting_on.sleep(env_, own.wake, seen);
  }
  close();
  end_session(env_.store, env_.self);
}

bool session_thread::take_inbox() {
  std::vector<std::unique_ptr<async_wait>> added;
  std::vector<std::uint32_t> stopped;
  {
    const std::lock_guard lock{guard_};
    if (closing_) return false;
    added.swap(added_);
    stopped.swap(stopped_);
  }
  for (auto& wait : added) {
    do last_cookie_ = (last_cookie_ + 1) % lost_revoked;
    while (last_cookie_ == 0 || waits_.contains(last_cookie_));
    const auto cookie = last_cookie_;
    const std::stop_token stop = wait->stop;
    pending_wait& added_wait = waits_[cookie];
    added_wait.wait = std::move(wait);
    if (stop.stop_possible()) added_wait.on_stop.emplace(stop, canceller{this, cookie});
    look(cookie);
  }
  for (const auto cookie : stopped) give_up(cookie);
  return true;
}

void session_thread::take_messages() {
  session& own = env_.store.session_at(env_.self.session);
  bool missed = false;
  for (;;) {
    const std::uint32_t head = own.ring_head.load(std::memory_order_acquire);
    if (messages_read_ == head) break;
    if (head - messages_read_ > ring_size) {
      missed = true;
      messages_read_ = head - static_cast<std::uint32_t>(ring_size);
    }
    const ring_slot& slot = own.ring[messages_read_ % ring_size];
    const std::uint64_t stamp = slot.stamp.load(std::memory_order_acquire);
    const std::uint64_t payload = slot.payload.get();
    // Overwritten while we read it, or its writer was killed, or is about to write it: look at everything.
    const bool whole = stamp >> 32 == std::uint64_t{messages_read_} + 1 &&
                       own.ring_head.load(std::memory_order_acquire) - messages_read_ <= ring_size;
    ++messages_read_;
    const auto cookie = static_cast<std::uint32_t>(stamp);
    if (!whole) {
      missed = true;
    } else if ((cookie & lost_cookie) == 0) {
      look(cookie);
    } else if ((cookie & (lost_revoked - 1)) == (env_.self.generation & (lost_revoked - 1))) {
      const bool revoked = (cookie & lost_revoked) != 0;
      config_.listener.on_lost({config_.client, payload}, revoked
                                                              ? "it was revoked by an operator"
                                                              : "its ttl passed without a renewal");
    }
  }
  if (missed) look_at_all();
}

void session_thread::take_deaths() {
  std::vector<std::uint32_t> concerned;
  for (const auto& [number, cookies] : monitors_) {
    session& monitored = env_.store.session_at(number);
    if (says_alive(life_word(monitored).load(std::memory_order_acquire))) continue;
    futex_wake(life_word(monitored), INT_MAX);  // the kernel woke only us
    concerned.insert(concerned.end(), cookies.begin(), cookies.end());
  }
  for (const auto cookie : concerned) look(cookie);
}

void session_thread::take_timers() {
  const auto now = env_.time.now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const auto cookie = timers_.begin()->second;
    pending_wait& pending = waits_.at(cookie);
    if (pending.wait->deadline <= now) {
      give_up(cookie);
    } else {
      look(cookie);
    }
  }
}

// ---- one wait

void session_thread::look(std::uint32_t cookie) {
  const auto found = waits_.find(cookie);
  if (found == waits_.end()) return;
  pending_wait& pending = found->second;
  forget(cookie, pending);
  const auto now = env_.time.now();
  look_result out;
  if (pending.wait->look(cookie, out)) {
    finish(cookie);
    return;
  }
  if (pending.wait->deadline <= now) {
    give_up(cookie);
    return;
  }
  pending.monitored.assign(out.monitored().begin(), out.monitored().end());
  for (const auto session : pending.monitored) monitors_[session].insert(cookie);
  pending.due = std::min(out.again, pending.wait->deadline);
  if (!pending.monitored.empty()) {
    pending.due = std::min(pending.due, now + (env_.can_wait_any ? async_back_stop : look_again));
  }
  // Whatever the clock says: no busy loop.
  pending.due = std::max(pending.due, now + std::chrono::microseconds{100});
  timers_.emplace(pending.due, cookie);
}

void session_thread::forget(std::uint32_t cookie, pending_wait& pending) {
  timers_.erase({pending.due, cookie});
  for (const auto session : pending.monitored) {
    const auto found = monitors_.find(session);
    if (found == monitors_.end()) continue;
    found->second.erase(cookie);
    if (found->second.empty()) monitors_.erase(found);
  }
  pending.monitored.clear();
}

void session_thread::finish(std::uint32_t cookie) {
  auto node = waits_.extract(cookie);
  forget(cookie, node.mapped());
  node.mapped().on_stop.reset();
  node.mapped().wait->complete();
}

void session_thread::give_up(std::uint32_t cookie) {
  const auto found = waits_.find(cookie);
  if (found == waits_.end()) return;
  found->second.wait->give_up();
  finish(cookie);
}

void session_thread::look_at_all() {
  std::vector<std::uint32_t> moved;
  for (const auto& [cookie, pending] : waits_) {
    if (pending.wait->may_have_moved()) moved.push_back(cookie);
  }
  for (const auto cookie : moved) look(cookie);
}

void session_thread::close() {
  while (!waits_.empty()) {
    const auto cookie = waits_.begin()->first;
    waits_.begin()->second.wait->cancel();
    finish(cookie);
  }
  std::vector<std::unique_ptr<async_wait>> added;
  {
    const std::lock_guard lock{guard_};
    added.swap(added_);
  }
  for (auto& wait : added) {
    wait->cancel();
    wait->complete();
  }
}

}  // namespace holdfast::engines::file

#include "core/driver.hpp"

#include "core/client_core.hpp"
#include "core/renewal.hpp"

#include <algorithm>
#include <new>

namespace holdfast::core {

using namespace hold_word;

namespace {

constexpr nanoseconds orphan_retry = std::chrono::milliseconds{100};

lease_times times_of(const hold& h) noexcept {
  return {from_ns(h.valid_until.load(std::memory_order_relaxed)),
          from_ns(h.renew_at.load(std::memory_order_relaxed)),
          from_ns(h.hold_until.load(std::memory_order_relaxed))};
}

void end(hold& h, std::uint64_t born, std::string_view why) {
  if (const auto current = h.current_grant(born)) h.lose(born, current->owner, why);
}

}  // namespace

driver::~driver() {
  {
    std::lock_guard locked{guard_};
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void driver::start() {
  thread_ = std::thread{[this] { run(); }};
}

void driver::poke() noexcept {
  {
    std::lock_guard locked{guard_};
    poked_ = true;
  }
  changed_.notify_one();
}

void driver::at(steady_time when, std::function<void()> work) {
  {
    std::lock_guard locked{guard_};
    timers_.emplace(when, std::move(work));
  }
  due_at(to_ns(when));
}

void driver::clear_up(std::string name, const owner_id& owner, lock_mode mode) {
  {
    std::lock_guard locked{guard_};
    orphans_.push_back({std::move(name), owner, mode});
  }
  poke();
}

void driver::run() {
  const background_thread mark;
  for (bool stopping = false; !stopping;) {
    // Announced before we look: whoever takes a lease that is due earlier than this, while we look or
    // sleep, wakes us (see hold::publish for the other half).
    auto next = core_.clock().now() + core_.shortest_ttl() / 6;
    planned_.store(to_ns(next), std::memory_order_seq_cst);
    try {
      if (!pass(next)) {
        // Nothing is held. Say that we mean to sleep for good, and look once more.
        planned_.store(INT64_MAX, std::memory_order_seq_cst);
        auto later = steady_time::max();
        if (!pass(later)) next = later;
      }
    } catch (const std::bad_alloc&) {
      // Leases that could not be looked at are tried again at `next`; validity needs no memory.
    }
    // A poke (0) that comes in between is not lost: it has set poked_ too.
    if (planned_.load() != 0) planned_.store(to_ns(next), std::memory_order_seq_cst);
    stopping = sleep_until(next);
  }
}

bool driver::sleep_until(steady_time next) {
  std::unique_lock locked{guard_};
  const auto woken = [this] { return poked_ || stopping_; };
  if (!core_.real_time()) {
    // A test's clock moves by hand: look at it often.
    changed_.wait_for(locked, std::chrono::milliseconds{1}, woken);
  } else if (next == steady_time::max()) {
    changed_.wait(locked, woken);
  } else {
    changed_.wait_until(locked, next, woken);
  }
  poked_ = false;
  return stopping_;
}

// One look at everything. Returns whether anything is held; lowers `next` to the earliest thing to come.
bool driver::pass(steady_time& next) {
  run_timers(core_.clock().now(), next);

  core_.live_holds(scratch_);
  const auto now = core_.clock().now();
  bool held_any = false;
  bool any_due = false;
  for (const auto& h : scratch_) {
    const auto w = h->word.load(std::memory_order_seq_cst);
    if (state_of(w) != held) continue;
    held_any = true;
    switch (const auto at = times_of(*h); decide(at, now)) {
      case upkeep::expired:
        end(*h, generation(w), "no renewal was confirmed before its validity ended");
        break;
      case upkeep::held_too_long:
        end(*h, generation(w), "it was held for max_hold");
        break;
      case upkeep::renew:
        any_due = true;
        break;
      case upkeep::nothing:
        next = std::min(next, next_look(at));
        break;
    }
  }
  if (any_due) {
    renew(scratch_, now);
    for (const auto& h : scratch_)
      if (h && state_of(h->word.load(std::memory_order_relaxed)) == held)
        next = std::min(next, next_look(times_of(*h)));
  }
  scratch_.clear();
  clear_orphans(next);  // last: it may take round trips, and nobody's lease may wait for them
  return held_any;
}

void driver::renew(std::vector<std::shared_ptr<hold>>& all, steady_time now) {
  struct item {
    hold* who;
    std::uint64_t generation;
    grant copy;
  };
  std::vector<item> items;
  auto deadline = now + core_.options().call_timeout;
  for (const auto& h : all) {
    const auto w = h->word.load(std::memory_order_acquire);
    const auto at = times_of(*h);
    if (state_of(w) != held) continue;
    deadline = std::min(deadline, at.valid_until);
    const auto current = h->current_grant(generation(w));
    if (current && goes_along(at, current->ttl, now))
      items.push_back({h.get(), generation(w), *current});
  }
  std::vector<renewal> batch(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) batch[i].held = &items[i].copy;
  const auto answer = core_.store().renew(batch, call{deadline, {}});
  core_.note_renewal(answer, items.size(), core_.clock().now() - now);
  for (std::size_t i = 0; i < items.size(); ++i) {
    auto& [who, born, copy] = items[i];
    auto verdict = answer ? batch[i].answer : renewal::verdict::unknown;
    if (verdict == renewal::verdict::lost && who->changing.load())
      verdict = renewal::verdict::unknown;
    if (verdict == renewal::verdict::held) {
      who->prolong(born, copy.owner, batch[i].valid_from);
    } else if (verdict == renewal::verdict::lost) {
      who->lose(born, copy.owner, "the store no longer lists it as ours");
    } else {
      who->renew_at.store(to_ns(core_.clock().now() + retry_delay(copy.ttl)),
                          std::memory_order_relaxed);
    }
  }
}

void driver::run_timers(steady_time now, steady_time& next) {
  for (;;) {
    std::function<void()> work;
    {
      std::lock_guard locked{guard_};
      if (timers_.empty()) return;
      if (timers_.begin()->first > now) {
        next = std::min(next, timers_.begin()->first);
        return;
      }
      work = std::move(timers_.extract(timers_.begin()).mapped());
    }
    work();
  }
}

void driver::clear_orphans(steady_time& next) {
  std::vector<orphan> todo;
  {
    std::lock_guard locked{guard_};
    todo.swap(orphans_);
  }
  std::erase_if(todo, [this](const orphan& left) { return clear_one(left); });
  if (todo.empty()) return;
  next = std::min(next, core_.clock().now() + orphan_retry);
  std::lock_guard locked{guard_};
  std::move(todo.begin(), todo.end(), std::back_inserter(orphans_));
}

bool driver::clear_one(const orphan& left) const {
  request ask;
  ask.name = left.name;
  ask.owner = left.owner;
  ask.mode = left.mode;
  auto found = core_.store().settle(ask, core_.bounded_call());
  if (!found) return false;
  switch (found->what) {
    case entered::kind::granted: {
      const auto gone = core_.store().release(found->granted, core_.bounded_call());
      return gone || gone.error().code() == errc::not_held;
    }
    case entered::kind::waiting:
      return core_.store().leave(found->waiting, core_.bounded_call()).has_value();
    case entered::kind::busy:
      return true;
  }
  return true;
}

}  // namespace holdfast::core

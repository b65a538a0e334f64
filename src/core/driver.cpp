#include "core/driver.hpp"

#include "core/client_core.hpp"
#include "core/renewal.hpp"

#include <algorithm>
#include <new>
#include <optional>

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

// One call of renew for all leases that are due, with copies of what it is about. It is not waited for: a store that
// does not answer must not delay the announcement that a lease is lost.
class driver::flight final : public completion<void> {
 public:
  struct item {
    std::shared_ptr<hold> who;
    std::uint64_t generation;
    grant copy;
  };

  flight(driver& from, std::vector<item> about, call limits, steady_time now)
      : items(std::move(about)),
        batch(items.size()),
        since(now),
        from_(from),
        limits_(std::move(limits)) {
    for (std::size_t i = 0; i < items.size(); ++i) batch[i].held = &items[i].copy;
  }
  void start() { from_.core_.store().start_renew(batch, limits_, *this); }

  const std::vector<item> items;
  std::vector<renewal> batch;
  const steady_time since;
  std::optional<result<void>> answer;  // under the driver's guard

 private:
  // The driver may delete this as soon as the answer is there.
  void complete(result<void> outcome) noexcept override {
    const background_thread mark;
    auto& from = from_;
    {
      std::lock_guard locked{from.guard_};
      answer.emplace(std::move(outcome));
    }
    from.poke();
  }
  driver& from_;
  const call limits_;
};

// What does the store know about this owner? Whatever it is: away with it.
class driver::clearing final : public completion<entered>, public completion<void> {
 public:
  clearing(driver& from, orphan about) : left(std::move(about)), from_(from) {
    ask_.name = left.name;
    ask_.owner = left.owner;
    ask_.mode = left.mode;
  }
  void start() {
    limits_ = from_.core_.bounded_call();
    from_.core_.store().start_settle(ask_, limits_, *this);
  }
  const orphan left;
  std::optional<bool> gone;  // under the driver's guard

 private:
  void complete(result<entered> outcome) noexcept override {
    const background_thread mark;
    if (!outcome) return finish(false);
    found_ = *outcome;
    if (found_.what == entered::kind::busy) return finish(true);
    auto& from = from_;
    if (!from.begin_asking()) return finish(false);
    auto& store = from.core_.store();
    if (found_.what == entered::kind::granted) {
      store.start_release(found_.granted, limits_, *this);
    } else {
      store.start_leave(found_.waiting, limits_, *this);
    }
    from.end_asking();  // *this may be gone
  }
  void complete(result<void> outcome) noexcept override {
    const background_thread mark;
    finish(outcome || outcome.error().code() == errc::not_held);
  }
  // The last thing: the driver may delete this at once.
  void finish(bool is_gone) noexcept {
    auto& from = from_;
    {
      std::lock_guard locked{from.guard_};
      gone = is_gone;
    }
    from.poke();
  }

  driver& from_;
  request ask_;
  call limits_;
  entered found_;
};

driver::driver(client_core& owner) : core_(owner) {}

driver::~driver() { stop(); }

void driver::stop() noexcept {
  {
    std::lock_guard locked{guard_};
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  std::unique_lock locked{guard_};
  changed_.wait(locked, [this] { return asking_ == 0; });
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

  land();
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
  if (any_due && !flight_) {
    renew(scratch_, now);
    land();
  }
  if (any_due)
    for (const auto& h : scratch_)
      if (state_of(h->word.load(std::memory_order_relaxed)) == held) {
        const auto at = times_of(*h);
        // What waits for a renewal in flight is looked at when that lands, or when it is too late.
        next = std::min(next, flight_ ? std::min(at.valid_until, at.hold_until) : next_look(at));
      }
  scratch_.clear();
  clear_orphans(next);
  return held_any;
}

void driver::renew(const std::vector<std::shared_ptr<hold>>& all, steady_time now) {
  std::vector<flight::item> items;
  auto deadline = now + core_.options().call_timeout;
  for (const auto& h : all) {
    const auto w = h->word.load(std::memory_order_acquire);
    const auto at = times_of(*h);
    if (state_of(w) != held) continue;
    deadline = std::min(deadline, at.valid_until);
    const auto current = h->current_grant(generation(w));
    if (current && goes_along(at, current->ttl, now)) items.push_back({h, generation(w), *current});
  }
  flight_ = std::make_unique<flight>(*this, std::move(items), call{deadline, {}}, now);
  flight_->start();
}

// Writes the answers down, if they have come.
void driver::land() {
  if (!flight_) return;
  {
    std::lock_guard locked{guard_};
    if (!flight_->answer) return;
  }
  const auto done = std::move(flight_);
  const auto& answer = *done->answer;
  core_.note_renewal(answer, done->items.size(), core_.clock().now() - done->since);
  for (std::size_t i = 0; i < done->items.size(); ++i) {
    const auto& [who, born, copy] = done->items[i];
    auto verdict = answer ? done->batch[i].answer : renewal::verdict::unknown;
    if (verdict == renewal::verdict::lost && who->changing.load())
      verdict = renewal::verdict::unknown;
    if (verdict == renewal::verdict::held) {
      who->prolong(born, copy.owner, done->batch[i].valid_from);
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

// Nothing here waits: the answers wake us. What could not be cleared up is tried again after a while.
void driver::clear_orphans(steady_time& next) {
  const auto now = core_.clock().now();
  std::vector<std::unique_ptr<clearing>> done;
  std::vector<clearing*> fresh;
  {
    std::lock_guard locked{guard_};
    const auto finished = std::partition(clearing_.begin(), clearing_.end(),
                                         [](const auto& one) { return !one->gone; });
    std::move(finished, clearing_.end(), std::back_inserter(done));
    clearing_.erase(finished, clearing_.end());
    for (const auto& one : done) {
      if (*one->gone) continue;
      orphans_.push_back(one->left);
      orphans_at_ = now + orphan_retry;
    }
    if (now >= orphans_at_) {
      for (auto& left : orphans_)
        fresh.push_back(
            clearing_.emplace_back(std::make_unique<clearing>(*this, std::move(left))).get());
      orphans_.clear();
    } else if (!orphans_.empty()) {
      next = std::min(next, orphans_at_);
    }
  }
  for (auto* one : fresh) one->start();
}

}  // namespace holdfast::core

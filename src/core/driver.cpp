#include "core/driver.hpp"

#include "core/acquire_machine.hpp"
#include "core/client_core.hpp"
#include "core/renewal.hpp"

#include <algorithm>
#include <new>
#include <optional>

namespace holdfast::core {

using namespace hold_word;

namespace {

constexpr nanoseconds first_orphan_pause = std::chrono::milliseconds{100};
constexpr nanoseconds longest_pause_away = std::chrono::seconds{1};  // the store cannot be asked
constexpr nanoseconds longest_pause_refused = std::chrono::seconds{30};  // it refuses to say
constexpr nanoseconds orphan_kept = std::chrono::minutes{10};            // although it refuses

}  // namespace

struct renewal_item {
  std::weak_ptr<hold> of;
  std::string name;  // the copy refers to it
  grant copy;
};

// One call of renew for all leases that are due, with copies of what it is about. It is not waited for: a store that
// does not answer must not delay the announcement that a lease is lost, nor the renewal of others. It keeps no lease
// alive: the last handle of a client waits for the client to end, and must not wait for a mute server. Without any
// lease it is a heartbeat.
class driver::flight final : public completion<session_proof> {
 public:
  flight(driver& from, std::vector<renewal_item> about, call limits, steady_time now)
      : items(std::move(about)),
        batch(items.size()),
        since(now),
        from_(from),
        limits_(std::move(limits)) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      items[i].copy.name = items[i].name;
      batch[i].held = &items[i].copy;
    }
  }
  void start() { from_.core_.store().start_renew(batch, limits_, *this); }

  std::vector<renewal_item> items;
  std::vector<renewal> batch;
  const steady_time since;
  std::optional<result<session_proof>> answer;  // under the driver's guard

 private:
  // The driver may delete this as soon as the answer is there.
  void complete(result<session_proof> outcome) noexcept override {
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
  orphan left;
  enum class verdict : std::uint8_t { gone, away, refused };
  std::optional<verdict> found;  // under the driver's guard

 private:
  static verdict verdict_of(const error& why) noexcept {
    if (why.code() == errc::not_held) return verdict::gone;
    return why.code() == errc::unavailable || why.code() == errc::outcome_unknown
               ? verdict::away
               : verdict::refused;
  }
  void complete(result<entered> outcome) noexcept override {
    const background_thread mark;
    if (!outcome) return finish(verdict_of(outcome.error()));
    there_ = *outcome;
    if (there_.what == entered::kind::busy) return finish(verdict::gone);
    auto& from = from_;
    if (!from.begin_asking()) return finish(verdict::away);
    auto& store = from.core_.store();
    if (there_.what == entered::kind::granted) {
      store.start_release(there_.granted, limits_, *this);
    } else {
      store.start_leave(there_.waiting, limits_, *this);
    }
    from.end_asking();  // *this may be gone
  }
  void complete(result<void> outcome) noexcept override {
    const background_thread mark;
    finish(outcome ? verdict::gone : verdict_of(outcome.error()));
  }
  // The last thing: the driver may delete this at once.
  void finish(verdict what) noexcept {
    auto& from = from_;
    {
      std::lock_guard locked{from.guard_};
      found = what;
    }
    from.poke();
  }

  driver& from_;
  request ask_;
  call limits_;
  entered there_;
};

driver::driver(client_core& owner) : core_(owner) {}

driver::~driver() { stop(); }

void driver::stop() noexcept {
  {
    std::unique_lock locked{guard_};
    // All at once, those that rest between two tries included.
    decltype(orphans_) now;
    for (auto& [when, left] : orphans_) now.emplace(steady_time{}, std::move(left));
    orphans_ = std::move(now);
    poked_ = true;
    changed_.notify_one();
    if (thread_.joinable())
      cleared_.wait_for(locked, overtime(core_.options().call_timeout),
                        [this] { return orphans_.empty() && clearing_.empty(); });
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

driver::timer driver::at(steady_time when, std::function<void()> work) {
  timer planned{when, 0};
  {
    std::lock_guard locked{guard_};
    planned.second = ++last_timer_;
    timers_.emplace(planned, std::move(work));
  }
  due_at(to_ns(when));
  return planned;
}

void driver::cancel(const timer& planned) noexcept {
  std::function<void()> dropped;  // outside the guard: it may own what calls us back
  std::lock_guard locked{guard_};
  if (const auto at = timers_.find(planned); at != timers_.end())
    dropped = std::move(timers_.extract(at).mapped());
}

void driver::clear_up(std::string name, const owner_id& owner, lock_mode mode) {
  const auto now = core_.clock().now();
  {
    std::lock_guard locked{guard_};
    orphans_.emplace(now, orphan{std::move(name), owner, mode, now, first_orphan_pause});
  }
  poke();
}

void driver::run() {
  const background_thread mark;
  if (core_.caps().session_needs_heartbeats)
    prove_by_ = core_.clock().now() + heartbeat_interval(core_.caps());
  for (bool stopping = false; !stopping;) {
    // Announced before we look: a thread that takes a lease that is due earlier than this, while we look or
    // sleep, wakes us (see hold::publish for the other half).
    auto next = core_.clock().now() + core_.shortest_ttl() / 6;
    planned_.store(to_ns(next), std::memory_order_seq_cst);
    try {
      if (!pass(next)) {
        // Nothing is held. Say that we mean to sleep for good, and look once more.
        planned_.store(INT64_MAX, std::memory_order_seq_cst);
        auto later = steady_time::max();
        next = pass(later) ? std::min(next, later) : later;
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
    changed_.wait_until(locked, core_.on_steady_clock(next), woken);
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
  const auto [must_renew, must_prove] = look(scratch_, now);
  if (must_renew) renew(scratch_, now);
  if (must_prove) prove_session(now);
  if (must_renew || must_prove) land();
  held_any_ = false;
  next = std::min(next, std::max(prove_by_, prove_not_before_));
  for (const auto& h : scratch_) {
    if (state_of(h->word.load(std::memory_order_seq_cst)) != held) continue;
    held_any_ = true;
    next = std::min(next, next_look(times_of(*h)));
  }
  scratch_.clear();
  clear_orphans(next);
  // A session that must be heard of counts as something held.
  return held_any_ || prove_by_ != steady_time::max();
}

lease_times driver::times_of(const hold& h) const noexcept {
  return {from_ns(h.valid_until.load(std::memory_order_relaxed)),
          from_ns(h.renew_at.load(std::memory_order_relaxed)),
          from_ns(h.hold_until.load(std::memory_order_relaxed)),
          std::max(prove_not_before_, from_ns(h.prove_at.load(std::memory_order_relaxed)))};
}

// Announces what is over. Returns what must be asked of the store.
driver::due driver::look(const std::vector<std::shared_ptr<hold>>& all, steady_time now) {
  due out;
  out.proof = now >= std::max(prove_by_, prove_not_before_);
  for (const auto& h : all) {
    const auto w = h->word.load(std::memory_order_seq_cst);
    if (state_of(w) != held) continue;
    const auto at = times_of(*h);
    out.proof = out.proof || now >= at.prove_at;
    switch (decide(at, now)) {
      case upkeep::expired:
        if (const auto current = h->current_grant(generation(w)))
          h->lose(current->owner, core_.why_it_ended());
        break;
      case upkeep::held_too_long:
        h->lose_lease(generation(w), "it was held for max_hold");
        break;
      case upkeep::renew:
        out.renewal = true;
        break;
      case upkeep::nothing:
        break;
    }
  }
  return out;
}

// Those that end soon and those that do not go in calls of their own: the deadline of a call is the last moment at
// which its answer is of use to any of them.
void driver::renew(const std::vector<std::shared_ptr<hold>>& all, steady_time now) {
  std::vector<renewal_item> soon, later;
  const auto patience = now + core_.options().call_timeout;
  auto last = now;
  for (const auto& h : all) {
    const auto w = h->word.load(std::memory_order_acquire);
    const auto at = times_of(*h);
    if (state_of(w) != held) continue;
    const auto current = h->current_grant(generation(w));
    if (!current || !goes_along(at, current->ttl, now)) continue;
    h->renewal_sent(current->owner, now);
    auto& to = at.valid_until < patience ? soon : later;
    if (&to == &soon) last = std::max(last, at.valid_until);
    to.push_back({h, h->name, *current});
  }
  if (!soon.empty()) ask(std::move(soon), last, now);
  if (!later.empty()) ask(std::move(later), patience, now);
}

// A heartbeat, which does not wait for renewals: they may prove nothing, and a lease of 300 ms is always being renewed.
// One that hangs is repeated after a quarter of the session.
void driver::prove_session(steady_time now) {
  const auto& caps = core_.caps();
  prove_not_before_ = now + caps.longest_validity / 4;
  if (caps.session_needs_heartbeats) prove_by_ = now + heartbeat_interval(caps);
  ask({}, now + caps.longest_validity, now);
}

void driver::ask(std::vector<renewal_item> items, steady_time deadline, steady_time now) {
  deadline = std::min(deadline, now + core_.options().call_timeout);
  auto& sent = flights_.emplace_back(std::make_unique<flight>(
      *this, std::move(items), call{core_.on_steady_clock(deadline), {}}, now));
  sent->start();
}

// Writes the answers down that have come.
void driver::land() {
  std::vector<std::unique_ptr<flight>> done;
  {
    std::lock_guard locked{guard_};
    const auto landed = std::stable_partition(flights_.begin(), flights_.end(),
                                              [](const auto& sent) { return !sent->answer; });
    std::move(landed, flights_.end(), std::back_inserter(done));
    flights_.erase(landed, flights_.end());
  }
  for (const auto& landed : done) {
    write_down(*landed);
    note_proof(*landed);
  }
}

// A proof counts for every grant of its session, asked about or not.
void driver::note_proof(const flight& done) {
  const auto& caps = core_.caps();
  if (!has_sessions(caps)) return;
  const auto now = core_.clock().now();
  const auto& proof = *done.answer;
  if (done.items.empty()) {
    prove_not_before_ =
        proof ? done.since + heartbeat_interval(caps) : now + retry_delay(caps.longest_validity);
    if (!proof && caps.session_needs_heartbeats) prove_by_ = std::min(prove_by_, prove_not_before_);
  }
  if (!proof || !core_.note_proof(*proof)) return;
  std::vector<std::shared_ptr<hold>> all;
  core_.live_holds(all);
  for (const auto& h : all) h->session_proven(*proof, now);
}

// For those who watch: how many were renewed, or that nothing could be found out. Of heartbeats only that they fail
// while something depends on them.
void driver::count(const flight& done) {
  const auto& answer = *done.answer;
  const auto took = core_.clock().now() - done.since;
  const auto known = std::ranges::count_if(
      done.batch, [](const renewal& asked) { return asked.answer != renewal::verdict::unknown; });
  if (!answer) {
    if (!done.items.empty() || held_any_) core_.note_renewal_failed(answer.error(), took);
  } else if (known > 0) {
    core_.note_renewed(static_cast<std::size_t>(known), took);
  } else if (!done.items.empty()) {
    core_.note_renewal_failed(core_.could_not_say(done.items.front().name), took);
  }
}

void driver::write_down(const flight& done) {
  const auto& answer = *done.answer;
  count(done);
  for (std::size_t i = 0; i < done.items.size(); ++i) {
    const auto& [weak, name, copy] = done.items[i];
    const auto target = weak.lock();
    if (!target) continue;
    auto verdict = answer ? done.batch[i].answer : renewal::verdict::unknown;
    if (verdict == renewal::verdict::lost && target->changing.load())
      verdict = renewal::verdict::unknown;
    if (verdict == renewal::verdict::held) {
      target->prolong(copy.owner, done.batch[i]);
    } else if (verdict == renewal::verdict::lost) {
      target->lose(copy.owner, let_go_by_the_store);
    } else {
      target->renew_again(copy.owner, core_.clock().now() + retry_delay(copy.ttl));
    }
  }
}

void driver::run_timers(steady_time now, steady_time& next) {
  for (;;) {
    std::function<void()> work;
    {
      std::lock_guard locked{guard_};
      if (timers_.empty()) return;
      if (const auto when = timers_.begin()->first.first; when > now) {
        next = std::min(next, when);
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
                                         [](const auto& asked) { return !asked->found; });
    std::move(finished, clearing_.end(), std::back_inserter(done));
    clearing_.erase(finished, clearing_.end());
    for (const auto& asked : done) {
      if (*asked->found == clearing::verdict::gone) continue;
      const bool refused = *asked->found == clearing::verdict::refused;
      auto left = std::move(asked->left);
      if (refused && now - left.since > orphan_kept) continue;
      const auto when = now + left.pause;
      left.pause = std::min(left.pause * 2, refused ? longest_pause_refused : longest_pause_away);
      orphans_.emplace(when, std::move(left));
    }
    while (!orphans_.empty() && orphans_.begin()->first <= now) {
      auto left = std::move(orphans_.extract(orphans_.begin()).mapped());
      fresh.push_back(
          clearing_.emplace_back(std::make_unique<clearing>(*this, std::move(left))).get());
    }
    if (!orphans_.empty()) next = std::min(next, orphans_.begin()->first);
    if (orphans_.empty() && clearing_.empty()) cleared_.notify_all();
  }
  for (auto* asked : fresh) asked->start();
}

}  // namespace holdfast::core

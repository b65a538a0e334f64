#include "core/gate.hpp"

#include "core/blocking.hpp"
#include "core/client_core.hpp"
#include "support/parker.hpp"

#include <fmt/format.h>

#include <iterator>
#include <limits>
#include <utility>

namespace holdfast::core {

using namespace hold_word;

namespace {

// Long enough to catch a holder that is about to finish, short enough not to matter when it is not.
constexpr nanoseconds local_spin = std::chrono::microseconds{20};

class blocked_thread final : public gate::waiter {
 public:
  void served(news what) noexcept override { bed_.set(static_cast<std::uint32_t>(what)); }
  // Nothing when the deadline came first.
  std::optional<news> sleep(steady_time deadline, nanoseconds spin) noexcept {
    const auto told = bed_.wait(deadline, spin);
    if (told == 0) return std::nullopt;
    return static_cast<news>(told);
  }

 private:
  support::parker bed_;
};

}  // namespace

gate::gate(std::shared_ptr<client_core> client, std::string lock_name)
    : hold(std::move(client), std::move(lock_name)) {
  ask_.name = name;
  ask_.owner.client = core->nonce();
  ask_.memo = &memo_;
}

const request& gate::make_request(const acquire_options& options) {
  ask_.owner.sequence = next_owner();
  copy_options(options, ask_);
  ask_.has_readers = has_readers_.load(std::memory_order_relaxed);
  return ask_;
}

result<tenure> gate::acquire(const acquire_options& options) {
  if (!core->usable_here()) return core->forked_error();
  std::uint64_t generation = 0;
  if (quick_begin(generation)) return lead(options, generation, {});
  return queue_up(options);
}

bool gate::quick_begin(std::uint64_t& generation) noexcept {
  auto now = word.load(std::memory_order_relaxed);
  if (!is_free(now) || (now & (waiters | hold_word::pinned)) != 0) return false;
  generation = hold_word::generation(now) + 1;
  if (!word.compare_exchange_strong(now, make(generation, acquiring), std::memory_order_acquire))
    return false;
  if (loss) {
    std::lock_guard locked{guard};
    loss.reset();
  }
  return true;
}

// Could the answer have come too late to be worth anything? Then the slow road gives the grant back.
bool gate::in_time(const grant& arrived) const noexcept {
  return core->caps().immediate || core->clock().now() < believed_until(core->caps(), arrived);
}

result<tenure> gate::lead(const acquire_options& options, std::uint64_t generation,
                          steady_time since) {
  try {
    return ask_store(options, generation, since);
  } catch (...) {
    // No memory: the gate must not stay shut for good. What the store may have granted is not renewed, so it ends.
    lead_failed(generation);
    throw;
  }
}

// The store's part. With `since` unset there was no wait so far, and the clock is read only for one in sixteen.
result<tenure> gate::ask_store(const acquire_options& options, std::uint64_t generation,
                               steady_time since) {
  if (since == steady_time{} && (generation % timed_one_in == 0 || core->watching_pairs()))
    since = core->clock().now();
  const auto& ask = make_request(options);
  if (options.stop.stop_requested())
    return lead_slowly(options, generation, since, ask, std::nullopt);
  auto& store = core->store();
  const bool immediate = core->caps().immediate;
  // The wait began when the caller came, whether or not it is timed.
  const auto began = since == steady_time{} && !immediate ? core->clock().now() : since;
  auto first =
      immediate
          ? store.enter(ask, client_core::unbounded)
          : store.enter(ask, core->call_until(deadline_after(began, options.wait), options.stop));
  if (first && first->what == entered::kind::granted && in_time(first->granted)) {
    won(first->granted, options, since);
    return tenure{generation, first->granted.token};
  }
  return lead_slowly(options, generation, began, ask, std::move(first));
}

// It is held elsewhere, or something is wrong: the whole loop.
result<tenure> gate::lead_slowly(const acquire_options& options, std::uint64_t generation,
                                 steady_time since, const request& ask,
                                 std::optional<result<entered>> first) {
  if (since == steady_time{}) since = core->clock().now();
  const acquire_machine::limits bounds{deadline_after(since, options.wait),
                                       core->options().call_timeout};
  acquire_machine machine{ask, core->caps(), bounds, options.stop, [this] { return new_owner(); }};
  auto answer = drive(*core, machine, std::move(first));
  if (answer) {
    won(*answer, options, since);
    return tenure{generation, answer->token};
  }
  lead_failed(generation);
  return core->note_failure(std::move(answer).error());
}

result<tenure> gate::queue_up(const acquire_options& options) {
  const auto since = core->clock().now();
  const auto deadline = deadline_after(since, options.wait);
  blocked_thread me;
  me.priority = options.priority;
  me.ttl = *options.ttl;
  me.max_hold = options.max_hold;
  me.own_token = options.own_token || options.outlives_client;
  me.label = options.label;
  std::uint64_t generation = 0;
  switch (begin(generation, options.wait > nanoseconds::zero() ? &me : nullptr)) {
    case begun::lead:
      return lead(options, generation, since);
    case begun::busy:
      return core->note_failure(
          {errc::busy, fmt::format("lock '{}' is held by another thread of this process", name)});
    case begun::queued:
      break;
  }
  std::optional<waiter::news> told;
  {
    // The thread that takes us out of the queue tells us; if we were too late to withdraw, other news is coming.
    std::stop_callback cancel{options.stop, [&] {
                                if (withdraw(me)) me.served(waiter::news::withdrawn);
                              }};
    told = me.sleep(core->on_steady_clock(deadline), local_spin);
    if (!told && !withdraw(me)) told = me.sleep(steady_time::max(), {});
  }
  if (told == waiter::news::handed) {
    note_handed(me.token, since);
    return tenure{me.generation, me.token};
  }
  if (told == waiter::news::lead) return lead(options, me.generation, since);
  return core->note_failure(gave_up(name, told == waiter::news::withdrawn));
}

gate::begun gate::begin(std::uint64_t& generation, waiter* asking) {
  if (quick_begin(generation)) return begun::lead;
  std::lock_guard locked{guard};
  auto now = word.load(std::memory_order_acquire);
  for (;;) {
    if (is_free(now) && queue_.empty()) {
      generation = hold_word::generation(now) + 1;
      if (!word.compare_exchange_weak(now, make(generation, acquiring), std::memory_order_acquire))
        continue;
      loss.reset();
      return begun::lead;
    }
    if (asking == nullptr) return begun::busy;
    // The flag makes the owner's quick release fail, so it will find us.
    if (word.compare_exchange_weak(now, now | waiters, std::memory_order_acq_rel)) break;
  }
  // From the back: nearly all have one priority, and the queue may be long.
  auto behind = queue_.end();
  while (behind != queue_.begin() && (*std::prev(behind))->priority < asking->priority) --behind;
  asking->place = queue_.insert(behind, asking);
  asking->queued = true;
  return begun::queued;
}

bool gate::withdraw(waiter& leaving) noexcept {
  std::lock_guard locked{guard};
  if (!leaving.queued) return false;
  queue_.erase(leaving.place);
  leaving.queued = false;
  if (queue_.empty()) word.fetch_and(~waiters, std::memory_order_acq_rel);
  return true;
}

gate::waiter* gate::pop() noexcept {
  auto* next = queue_.front();
  queue_.pop_front();
  next->queued = false;
  return next;
}

// A coroutine that is served may be refused by the store at once and make room for the next, which is served in turn:
// one after the other on this thread, not one inside the other, since the queue may be longer than the stack.
void gate::serve(waiter& next, waiter::news what) noexcept {
  thread_local waiter *first = nullptr, *last = nullptr;
  next.to_tell = what;
  next.after = nullptr;
  (first == nullptr ? first : last->after) = &next;
  last = &next;
  if (is_serving()) return;
  is_serving() = true;
  while (first != nullptr) {
    auto& now = *std::exchange(first, first->after);
    now.served(now.to_tell);  // it may be gone afterwards
  }
  is_serving() = false;
}

bool& gate::is_serving() noexcept {
  thread_local bool now = false;
  return now;
}

void gate::lead_failed(std::uint64_t generation) noexcept { let_go(generation, acquiring); }

void gate::won(const grant& arrived, const acquire_options& options, steady_time since) noexcept {
  acquired.add();
  handoffs_ = 0;
  if (label_ != options.label) label_ = options.label;
  asked_ttl = *options.ttl;
  outlives_client.store(options.outlives_client, std::memory_order_relaxed);
  timed = since != steady_time{};
  granted_at_ = arrived.valid_from;
  nanoseconds waited{0};
  if (timed) {
    granted_at_ = acquired_at = core->clock().now();
    waited = acquired_at - since;
    core->numbers().wait.add(waited);
  }
  publish(arrived, options.max_hold);
  if (core->watching_pairs())
    core->tell(
        [name = name, token = arrived.token, waited](auto& o) { o.acquired(name, token, waited); });
  look_for_early_loss(arrived);
}

void gate::note_handed(fencing_token token, steady_time since) noexcept {
  const auto waited = core->clock().now() - since;
  core->numbers().wait.add(waited);
  if (core->watching_pairs())
    core->tell([name = name, token, waited](auto& o) { o.acquired(name, token, waited); });
}

// The word is free, guard is held: the first of the queue becomes the leader.
void gate::pass_on(std::unique_lock<std::mutex>& locked) noexcept {
  auto now = word.load(std::memory_order_relaxed);
  if (queue_.empty() || !is_free(now)) return;
  auto* next = pop();
  next->generation = hold_word::generation(now) + 1;
  loss.reset();
  // With the waiters flag set no other thread can have begun, and flags change only under guard.
  word.store(make(next->generation, acquiring) | (queue_.empty() ? 0 : waiters),
             std::memory_order_release);
  locked.unlock();
  serve(*next, waiter::news::lead);
}

bool gate::may_hand_off(const waiter& next, steady_time now) const noexcept {
  // The store goes on showing the grant as it was made, so only the like can be passed on.
  if (next.own_token || outlives_client || next.ttl != asked_ttl || next.label != label_)
    return false;
  if (ask_.has_readers != has_readers_.load(std::memory_order_relaxed)) return false;
  // What is handed on must be worth something: its validity goes on counting.
  const auto left = from_ns(valid_until.load(std::memory_order_relaxed)) - now;
  if (left < longest_belief(core->caps(), granted.ttl) / 3) return false;
  const auto& limits = core->options();
  if (limits.handoff_limit == 0) return false;
  if (handoffs_ < limits.handoff_limit && now - granted_at_ < limits.handoff_time) return true;
  return !core->store().contended(granted);
}

// The word is held, guard is held: the next lease is the next generation of the same grant.
bool gate::hand_off(std::unique_lock<std::mutex>& locked) {
  if (queue_.empty()) return false;
  const auto now = core->clock().now();
  if (!may_hand_off(*queue_.front(), now)) return false;
  auto* next = pop();
  ++handoffs_;
  note_release();
  loss.reset();
  timed = true;
  acquired_at = now;
  // Each lease has its own limit, counted from its own beginning.
  auto limit = std::numeric_limits<std::int64_t>::max();
  if (next->max_hold > nanoseconds::zero())
    limit = to_ns(now) + std::min(next->max_hold.count(), limit - to_ns(now));
  hold_until.store(limit, std::memory_order_relaxed);
  core->due_at(limit);
  core->numbers().handed_off.fetch_add(1, std::memory_order_relaxed);
  const auto w = word.load(std::memory_order_relaxed);
  next->generation = hold_word::generation(w) + 1;
  next->token = granted.token;
  word.store(make(next->generation, held) | (queue_.empty() ? 0 : waiters),
             std::memory_order_release);
  locked.unlock();
  serve(*next, waiter::news::handed);
  return true;
}

}  // namespace holdfast::core

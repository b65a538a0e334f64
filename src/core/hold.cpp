#include "core/hold.hpp"

#include "core/acquire_machine.hpp"
#include "core/client_core.hpp"
#include "core/renewal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace holdfast::core {

using namespace hold_word;

hold::hold(std::shared_ptr<client_core> client, std::string lock_name)
    : core(std::move(client)), name(std::move(lock_name)) {}

hold::~hold() { core->forget(*this); }

void hold::take_sequences() { std::tie(next_sequence, last_sequence) = core->take_sequences(); }

owner_id hold::new_owner() { return {core->nonce(), next_owner()}; }

void hold::publish(const grant& won, nanoseconds max_hold) noexcept {
  granted = won;
  granted.name = name;
  core->freshen(granted.session);
  entries.store(0, std::memory_order_relaxed);
  // Released, so that a thread that sees it sees the word of an earlier generation as over (valid_at).
  valid_until.store(to_ns(believed_until(core->caps(), granted)), std::memory_order_release);
  const auto due = plan_upkeep();
  auto limit = std::numeric_limits<std::int64_t>::max();
  if (max_hold.count() > 0) {
    // From the fine clock: valid_from may be some milliseconds old.
    const auto now = to_ns(core->clock().now());
    limit = now + std::min(max_hold.count(), limit - now);
  }
  hold_until.store(limit, std::memory_order_relaxed);
  // seq_cst with the driver's announcement of when it will look next: either it sees us held, or we see that
  // it means to sleep too long and wake it.
  word.fetch_add(held - acquiring, std::memory_order_seq_cst);
  core->due_at(std::min(due, limit));
}

// Of the granted grant; says when the first of it is due.
std::int64_t hold::plan_upkeep() noexcept {
  const auto renew = to_ns(granted.valid_from) + granted.ttl.count() / 3;
  renew_at.store(renew, std::memory_order_relaxed);
  if (!has_sessions(core->caps())) return renew;
  asked_in_session = granted.session.number;
  const auto prove = to_ns(granted.session.proven_at + heartbeat_interval(core->caps()));
  prove_at.store(prove, std::memory_order_relaxed);
  return std::min(renew, prove);
}

void hold::won_alone(const grant& won, const acquire_options& options, steady_time since) noexcept {
  acquired.add();
  timed = true;
  asked_ttl = *options.ttl;
  outlives_client.store(options.outlives_client, std::memory_order_relaxed);
  acquired_at = core->clock().now();
  const auto waited = acquired_at - since;
  core->numbers().wait.add(waited);
  publish(won, options.max_hold);
  if (core->watching_pairs())
    core->tell(
        [name = name, token = won.token, waited](auto& o) { o.acquired(name, token, waited); });
  look_for_early_loss(won);
}

bool hold::look_for_early_loss(const grant& won) noexcept {
  auto why = core->losses_told_early().take(won.owner);
  if (!why) why = core->losses_told_early().of_session(won.session.number);
  if (why) lose(won.owner, *why);
  return why.has_value();
}

bool hold::valid_at(std::uint64_t generation, steady_time instant) const noexcept {
  if (!is_current(generation)) return false;
  // Read between two looks at the generation, so it is this lease's own and not its successor's.
  const auto until = valid_until.load(std::memory_order_acquire);
  return is_current(generation) && to_ns(instant) < until;
}

result<void> hold::release(std::uint64_t generation, confirmation how, on_answered answered) {
  if (!core->usable_here()) return core->forked_error();
  const auto begun = begin_release(generation);
  if (begun == release_begun::ask_store)
    return finish_release(generation, how, std::move(answered));
  if (answered) answered();
  return begun == release_begun::done ? result<void>{} : lost_before_release();
}

hold::release_begun hold::begin_release(std::uint64_t generation) {
  auto expected = make(generation, held);
  if (entries.load(std::memory_order_relaxed) != 0 ||
      !word.compare_exchange_strong(expected, make(generation, releasing),
                                    std::memory_order_acq_rel))
    return begin_release_slowly(generation);
  released.add();
  return release_begun::ask_store;
}

// The word was pinned, or a local waiter is queued, or it is not ours any more.
hold::release_begun hold::begin_release_slowly(std::uint64_t generation) {
  std::unique_lock locked{guard};
  auto now = word.load(std::memory_order_acquire);
  if (hold_word::generation(now) != generation || state_of(now) != held) return release_begun::lost;
  if (entries.load(std::memory_order_relaxed) != 0) {
    entries.fetch_sub(1, std::memory_order_relaxed);
    return release_begun::done;
  }
  if ((now & waiters) != 0 && hand_off(locked)) return release_begun::done;
  // No thread unpins or takes it from held without the guard, only new flags may appear.
  while (!word.compare_exchange_weak(now, with_state(now, releasing), std::memory_order_acq_rel)) {
  }
  released.add();
  return release_begun::ask_store;
}

result<void> hold::finish_release(std::uint64_t generation, confirmation how,
                                  on_answered answered) {
  if (how == confirmation::awaited || core->caps().immediate) {
    auto outcome = end_release(generation, tell_store());
    if (answered) answered();
    return outcome;
  }
  note_release();
  // With a change of mode in doubt the store is asked first what there is to release.
  if (changing.load()) {
    core->clear_up(name, granted.owner, granted.mode);
    if (answered) answered();
  } else {
    core->send_release(name, granted, take_loss(), std::move(answered));
  }
  let_go(generation, releasing);
  return {};
}

result<void> hold::end_release(std::uint64_t generation, result<void> answer) {
  if (!answer && answer.error().code() == errc::not_held) {
    // The store had let go of what we held: the holder must hear of that.
    answer = error{errc::lost, fmt::format("lock '{}' on {} was lost before it was released: {}",
                                           name, core->url(), let_go_by_the_store)};
    core->announce_loss(take_loss(), name, granted.token, let_go_by_the_store);
  } else {
    // No client may find it held for longer than it takes to ask again.
    if (!answer) core->clear_up(name, granted.owner, granted.mode);
    note_release();
  }
  let_go(generation, releasing);
  return answer;
}

error hold::lost_error() const {
  return {errc::lost, fmt::format("lock '{}' on {} was lost", name, core->url())};
}

error hold::lost_before_release() const {
  return {errc::lost,
          fmt::format("lock '{}' on {} was lost before it was released", name, core->url())};
}

error hold::release_unconfirmed() const {
  return {errc::outcome_unknown,
          fmt::format("lock '{}' on {} is being given back; the store has not confirmed it yet",
                      name, core->url())};
}

result<void> hold::tell_store() {
  if (changing.load()) return release_what_is_there();
  if (core->caps().immediate) return core->store().release(granted, client_core::unbounded);
  return core->store().release(granted, core->bounded_call());
}

// A change of mode is in doubt, so the store is asked first what it holds for this owner. If it knows nothing, what
// replaced the grant is released by the thread that clears up that doubt (upgrade.cpp).
result<void> hold::release_what_is_there() {
  auto found = core->store().settle(settle_request(), core->bounded_call());
  if (found && found->what == entered::kind::busy) return {};
  if (found && found->what == entered::kind::granted) {
    auto answer = core->store().release(found->granted, core->bounded_call());
    if (answer || answer.error().code() == errc::not_held) return {};
  }
  return release_unconfirmed();
}

request hold::settle_request() const {
  request ask;
  ask.name = name;
  ask.owner = granted.owner;
  ask.mode = granted.mode;
  return ask;
}

std::unique_ptr<std::stop_source> hold::take_loss() noexcept {
  std::lock_guard locked{guard};
  return std::move(loss);
}

bool hold::let_go(std::uint64_t generation, hold_word::state from) noexcept {
  auto expected = make(generation, from);
  if (word.compare_exchange_strong(expected, make(generation, idle), std::memory_order_acq_rel))
    return true;
  std::unique_lock locked{guard};
  auto now = word.load(std::memory_order_relaxed);
  do {
    if (hold_word::generation(now) != generation || state_of(now) != from) return false;
  } while (!word.compare_exchange_weak(now, with_state(now, idle), std::memory_order_acq_rel));
  pass_on(locked);
  return true;
}

void hold::note_release() noexcept {
  if (timed) core->note_hold(core->clock().now() - acquired_at);
  if (core->watching_pairs())
    core->tell([name = name, token = granted.token](auto& o) { o.released(name, token); });
}

bool hold::surrender(std::uint64_t generation,
                     std::unique_ptr<std::stop_source>& its_loss) noexcept {
  std::unique_lock locked{guard};
  auto now = word.load(std::memory_order_acquire);
  if (hold_word::generation(now) != generation || state_of(now) != held) return false;
  its_loss = std::move(loss);
  // No thread takes it from held without the guard, only new flags may appear.
  while (!word.compare_exchange_weak(now, with_state(now, idle), std::memory_order_acq_rel)) {
  }
  pass_on(locked);
  return true;
}

bool hold::lose(const owner_id& owner, std::string_view why) noexcept {
  return lose_pinned(std::nullopt, &owner, why);
}

bool hold::lose_lease(std::uint64_t generation, std::string_view why) noexcept {
  return lose_pinned(generation, nullptr, why);
}

bool hold::lose_pinned(std::optional<std::uint64_t> which, const owner_id* owner,
                       std::string_view why) noexcept {
  std::unique_ptr<std::stop_source> announced;
  grant gone;
  std::uint64_t generation = 0;
  {
    pin look{*this, which};
    if (!look || (owner != nullptr && granted.owner != *owner)) return false;
    generation = look.generation();
    gone = granted;
    announced = std::move(loss);
    word.fetch_add(lost - held, std::memory_order_acq_rel);
  }
  core->announce_loss(std::move(announced), name, gone.token, why);
  // The store may still list the grant (we were starved, or it is a session store): it must not stay behind.
  core->clear_up(name, gone.owner, gone.mode);
  std::unique_lock locked{guard};
  const auto now = word.load(std::memory_order_relaxed);
  if (hold_word::generation(now) == generation && state_of(now) == lost) pass_on(locked);
  return true;
}

bool hold::prolong(const owner_id& owner, const renewal& answer) noexcept {
  pin look{*this, std::nullopt};
  if (!look || granted.owner != owner || !is_in_time()) return false;
  keep_later(granted.session, answer.session);
  asked_in_session = std::max(asked_in_session, granted.session.number);
  if (answer.valid_from >=
      granted.valid_from) {  // else overtaken by the answer to a later question
    granted.valid_from = answer.valid_from;
    renew_at.store(to_ns(granted.valid_from) + core->jittered(granted.ttl / 3).count(),
                   std::memory_order_relaxed);
  }
  believe();
  return true;
}

void hold::session_proven(const session_proof& proof, steady_time now) noexcept {
  pin look{*this, std::nullopt};
  if (!look || !is_in_time()) return;
  if (granted.session.number == proof.number) {
    granted.session.proven_at = std::max(granted.session.proven_at, proof.proven_at);
    believe();
  } else if (asked_in_session < proof.number) {  // once: after that it is retried as any renewal is
    asked_in_session = proof.number;
    renew_at.store(to_ns(now), std::memory_order_relaxed);
  }
}

// valid() may have said no already, and no must stay no. The driver will announce the loss.
bool hold::is_in_time() const noexcept {
  return to_ns(core->clock().now()) < valid_until.load(std::memory_order_relaxed);
}

// What was believed stays believed: a later proof adds to it.
void hold::believe() noexcept {
  const auto until = to_ns(believed_until(core->caps(), granted));
  if (until > valid_until.load(std::memory_order_relaxed))
    valid_until.store(until, std::memory_order_relaxed);
  if (has_sessions(core->caps()))
    prove_at.store(to_ns(granted.session.proven_at + heartbeat_interval(core->caps())),
                   std::memory_order_relaxed);
}

void hold::renewal_sent(const owner_id& owner, steady_time now) noexcept {
  pin look{*this, std::nullopt};
  if (!look || granted.owner != owner) return;
  const bool is_hurried = asked_in_session > granted.session.number;
  const auto lasts = is_hurried ? longest_belief(core->caps(), granted.ttl) : granted.ttl;
  renew_at.store(to_ns(now + lasts / 4), std::memory_order_relaxed);
}

void hold::renew_again(const owner_id& owner, steady_time when) noexcept {
  pin look{*this, std::nullopt};
  if (look && granted.owner == owner) renew_at.store(to_ns(when), std::memory_order_relaxed);
}

bool hold::replace(std::uint64_t generation, const grant& with) noexcept {
  {
    pin look{*this, generation};
    if (!look) return false;
    if (!is_in_time()) return false;
    const auto before = granted;
    granted = with;
    granted.name = name;
    // The answer may be older than what was heard since about the same grant.
    if (before.owner == with.owner) {
      keep_later(granted.session, before.session);
      granted.valid_from = std::max(granted.valid_from, before.valid_from);
    }
    core->freshen(granted.session);
    valid_until.store(to_ns(believed_until(core->caps(), granted)), std::memory_order_relaxed);
    core->due_at(plan_upkeep());
  }
  return !look_for_early_loss(with);
}

std::optional<tenure> hold::reenter(std::uint64_t generation) noexcept {
  pin look{*this, generation};
  if (!look) return std::nullopt;
  entries.fetch_add(1, std::memory_order_relaxed);
  core->numbers().reentered.fetch_add(1, std::memory_order_relaxed);
  return tenure{generation, granted.token};
}

std::optional<grant> hold::current_grant(std::optional<std::uint64_t> generation) {
  pin look{*this, generation};
  if (!look) return std::nullopt;
  return granted;
}

std::stop_token hold::loss_token(std::uint64_t generation) {
  {
    std::lock_guard locked{guard};
    if (is_current(generation)) {
      if (!loss) loss = std::make_unique<std::stop_source>();
      return loss->get_token();
    }
  }
  std::stop_source gone;
  gone.request_stop();
  return gone.get_token();
}

bool hold::hand_off(std::unique_lock<std::mutex>&) { return false; }

void hold::pass_on(std::unique_lock<std::mutex>&) noexcept {}

pin::pin(hold& target, std::optional<std::uint64_t> generation)
    : target_(target), locked_(target.guard) {
  // seq_cst with publish(): see client_core::on_lost.
  auto now = target_.word.load(std::memory_order_seq_cst);
  while (hold_word::generation(now) == generation.value_or(hold_word::generation(now)) &&
         state_of(now) == held && !pinned_)
    pinned_ =
        target_.word.compare_exchange_weak(now, now | hold_word::pinned, std::memory_order_acq_rel);
  generation_ = hold_word::generation(now);
}

pin::~pin() {
  if (pinned_) target_.word.fetch_and(~hold_word::pinned, std::memory_order_acq_rel);
}

}  // namespace holdfast::core

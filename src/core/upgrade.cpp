#include "core/upgrade.hpp"

#include "core/gate.hpp"
#include "core/renewal.hpp"

#include <fmt/format.h>

namespace holdfast::core {

namespace {

error wrong_mode(const hold& state, std::string_view what, lock_mode mode) {
  return {errc::misconfigured, fmt::format("lock '{}': {} cannot start from a lease that is {}",
                                           state.name, what, to_string(mode))};
}

// A lease of another lock here is a slip of the pen that must not change that other lock.
result<void> check_ours(const lease& held, std::string_view name) {
  if (!lease_access::state(held))
    return error{errc::not_held, "an empty lease cannot change its mode"};
  if (held.name() == name) return {};
  return error{errc::misconfigured,
               fmt::format("the lease is of lock '{}', not of '{}'", held.name(), name)};
}

// The store has nothing of the upgrade that was asked for, and what it would have replaced may be there again. A
// release of the lease that looked while neither seemed to be there went away with nothing, so it is looked again.
void end_change(client_core& core, const std::string& name, const std::shared_ptr<hold>& state,
                std::uint64_t generation, const owner_id& base) {
  // As long as it is changing, a release asks the store what there is, and nobody leaves it to a successor.
  const bool is_over = !state || !state->is_current(generation);
  if (state) state->changing = false;
  if (is_over) core.clear_up(name, base, lock_mode::upgradeable);
}

// A doubt about an upgrade. What became of the request of `wanted`, and of the lease, decides what to do about it.
class upgrade_doubt {
 public:
  upgrade_doubt(hold& state, std::uint64_t generation, const owner_id& wanted, const owner_id& base)
      : core_(*state.core),
        name_(state.name),
        who_(state.weak_from_this()),
        generation_(generation),
        wanted_(wanted),
        base_(base) {}

  bool operator()(const std::stop_token& stop) const {
    request ask;
    ask.name = name_;
    ask.owner = wanted_;
    const grant none;
    ask.replaces = &none;
    auto found = core_.store().settle(ask, core_.bounded_call(stop));
    if (!found) return false;
    // The hold is kept for a moment only: it keeps the client, and its last handle would wait for our calls.
    switch (found->what) {
      case entered::kind::busy:
        end_change(core_, name_, who_.lock(), generation_, base_);
        return true;
      case entered::kind::waiting:
        found->waiting.replacing = true;
        static_cast<void>(core_.store().leave(found->waiting, core_.bounded_call(stop)));
        return false;  // it may have been granted before it left
      case entered::kind::granted:
        break;
    }
    if (is_wanted()) return take_back(found->granted, stop);
    const auto gone = core_.store().release(found->granted, core_.bounded_call(stop));
    return gone || gone.error().code() == errc::not_held;
  }

 private:
  bool is_wanted() const {
    const auto state = who_.lock();
    return state && state->is_current(generation_);
  }
  bool take_back(const grant& won, const std::stop_token& stop) const {
    const auto back =
        core_.store().downgrade(won, lock_mode::upgradeable, core_.bounded_call(stop));
    if (!back) return false;
    const auto state = who_.lock();
    if (!state || !state->replace(generation_, *back)) return false;  // over: now it is released
    state->changing = false;
    return true;
  }

  client_core& core_;  // ends its retry_thread before itself
  std::string name_;
  std::weak_ptr<hold> who_;
  std::uint64_t generation_;
  owner_id wanted_, base_;
};

// A doubt about a downgrade: it is repeated until the store agrees, or the lease is over.
class downgrade_doubt {
 public:
  downgrade_doubt(hold& state, std::uint64_t generation, const grant& old, lock_mode to)
      : core_(*state.core),
        name_(state.name),
        who_(state.weak_from_this()),
        generation_(generation),
        old_(old),
        to_(to) {}

  bool operator()(const std::stop_token& stop) const {
    auto old = old_;
    old.name = name_;
    {
      const auto state = who_.lock();
      if (!state || !state->is_current(generation_))
        return true;  // its release looked what there was
    }
    const auto answer = core_.store().downgrade(old, to_, core_.bounded_call(stop));
    const bool gone = !answer && answer.error().code() == errc::not_held;
    if (!answer && !gone) return false;
    const auto state = who_.lock();
    if (!state) return true;
    if (gone) {
      state->lose(old.owner, let_go_by_the_store);
    } else {
      state->replace(generation_, *answer);
    }
    state->changing = false;
    return true;
  }

 private:
  client_core& core_;  // ends its retry_thread before itself
  std::string name_;
  std::weak_ptr<hold> who_;
  std::uint64_t generation_;
  grant old_;
  lock_mode to_;
};

bool shrinks(lock_mode from, lock_mode to) noexcept {
  return (from == lock_mode::exclusive &&
          (to == lock_mode::shared || to == lock_mode::upgradeable)) ||
         (from == lock_mode::upgradeable && to == lock_mode::shared);
}

// The gate is for exclusive holders: a lease that is shared now moves to a hold of its own, and others of this process
// may queue for the lock again. Tokens of loss that were handed out go along. False: it was lost before it could move;
// a loss that is told while it is in neither hold is kept for it (client_core::on_lost).
bool move_out_of_the_gate(lease& held, grant shrunk, bool in_doubt) {
  const auto state = lease_access::state(held);
  // The answer may be older than what was heard since.
  if (const auto known = state->current_grant(lease_access::generation(held)))
    keep_later(shrunk.session, known->session);
  auto fresh = state->core->new_hold(state->name);
  const auto born = begin_alone(*fresh);
  const auto limit = state->hold_until.load();
  const auto asked_ttl = state->asked_ttl;
  const bool outlives = state->outlives_client.load();
  const auto token = held.token();
  std::unique_ptr<std::stop_source> loss;
  if (!state->surrender(lease_access::generation(held), loss)) return false;
  {
    std::lock_guard locked{fresh->guard};
    fresh->loss = std::move(loss);
  }
  fresh->asked_ttl = asked_ttl;
  fresh->outlives_client = outlives;
  fresh->changing = in_doubt;
  fresh->publish(shrunk, nanoseconds::zero());
  fresh->hold_until.store(limit);
  fresh->look_for_early_loss(shrunk);
  state->core->due_at(limit);
  lease_access::take(held);
  held = lease_access::make(std::move(fresh), {born, token});
  return true;
}

}  // namespace

error still_changing(const hold& state) {
  return {
      errc::unavailable,
      fmt::format("an earlier change of lock '{}' on {} is still being cleared up; try again in "
                  "a moment",
                  state.name, state.core->url())};
}

result<upgrade_plan> prepare_upgrade(const lease& held, std::string_view name,
                                     const acquire_options& asked) {
  if (auto ours = check_ours(held, name); !ours) return std::move(ours).error();
  const auto& state = lease_access::state(held);
  if (!state->core->usable_here()) return state->core->forked_error();
  auto options = asked;
  const bool is_changing =
      state->changing.load();  // before the grant is read: it may end meanwhile
  const auto old = state->current_grant(lease_access::generation(held));
  if (!old) return state->lost_error();
  if (is_changing) return still_changing(*state);
  if (old->mode != lock_mode::upgradeable) return wrong_mode(*state, "an upgrade", old->mode);
  options.ttl = state->asked_ttl;
  auto checked = state->core->checked(std::move(options));
  if (!checked) return std::move(checked).error();
  return upgrade_plan{*old, std::move(*checked)};
}

request upgrade_request(hold& state, const grant& old, const acquire_options& options) {
  auto ask = make_request(state, {lock_mode::exclusive, rw_capacity, rw_capacity}, options);
  ask.replaces = &old;
  state.changing = true;
  return ask;
}

result<void> adopt_upgrade(hold& state, std::uint64_t generation, const grant& won) {
  const bool replaced = state.replace(generation, won);
  state.changing = false;
  if (replaced && state.valid_at(generation, state.core->clock().now())) return {};
  // Lost meanwhile. This may be the reactor's thread, so the store is told in the background.
  if (!replaced) state.core->clear_up(state.name, won.owner, won.mode);
  return state.lost_error();
}

void end_upgrade(hold& state, std::uint64_t generation, const acquire_machine& machine) {
  const auto& base = machine.ask().replaces->owner;
  if (machine.in_doubt()) {
    undo_upgrade(state, generation, machine.ask().owner, base);
  } else {
    end_change(*state.core, state.name, state.shared_from_this(), generation, base);
  }
}

void undo_upgrade(hold& state, std::uint64_t generation, const owner_id& owner,
                  const owner_id& base) {
  state.changing = true;
  state.core->retry_until_certain(upgrade_doubt{state, generation, owner, base});
}

result<void> upgrade(lease& held, std::string_view name, const acquire_options& asked) {
  auto plan = prepare_upgrade(held, name, asked);
  if (!plan) return std::move(plan).error();
  const auto state = lease_access::state(held);
  const auto generation = lease_access::generation(held);
  auto& core = *state->core;
  const auto ask = upgrade_request(*state, plan->old, plan->options);
  acquire_machine machine{
      ask,
      core.caps(),
      {deadline_after(core.clock().now(), plan->options.wait), core.options().call_timeout},
      plan->options.stop,
      [&] { return state->new_owner(); }};
  auto answer = drive(core, machine);
  if (!answer) {
    end_upgrade(*state, generation, machine);
    return core.note_failure(std::move(answer).error());
  }
  if (auto done = adopt_upgrade(*state, generation, *answer); !done) return done;
  lease_access::refill(held, {generation, answer->token});
  return {};
}

result<void> downgrade(lease& held, std::string_view name, lock_mode to) {
  if (auto ours = check_ours(held, name); !ours) return ours;
  const auto state = lease_access::state(held);
  if (!state->core->usable_here()) return state->core->forked_error();
  const auto generation = lease_access::generation(held);
  const bool is_changing =
      state->changing.load();  // before the grant is read: it may end meanwhile
  const auto old = state->current_grant(generation);
  if (!old) return state->lost_error();
  // One doubt at a time: the earlier change, repeated after this one, would undo it.
  if (is_changing) return still_changing(*state);
  if (!shrinks(old->mode, to))
    return wrong_mode(*state, fmt::format("a downgrade to {}", to_string(to)), old->mode);
  auto& store = state->core->store();
  auto answer = store.downgrade(*old, to, state->core->bounded_call());
  const bool first_in_doubt = !answer && answer.error().code() == errc::outcome_unknown;
  if (first_in_doubt)
    answer = store.downgrade(*old, to, state->core->bounded_call());  // idempotent
  if (!answer && answer.error().code() == errc::not_held) {
    state->lose(old->owner, let_go_by_the_store);
    return state->lost_error();
  }
  // That the second request was not carried out says nothing about the first.
  if (!answer && !first_in_doubt && answer.error().is_not_done()) return std::move(answer).error();
  // In doubt the lease counts as the lesser: others may be in already.
  const bool in_doubt = !answer;
  auto shrunk = in_doubt ? *old : *answer;
  shrunk.mode = to;
  shrunk.weight = to == lock_mode::shared ? 1 : upgradeable_weight;
  if (dynamic_cast<gate*>(state.get()) != nullptr) {
    if (!move_out_of_the_gate(held, shrunk, in_doubt)) return state->lost_error();
  } else {
    state->changing = in_doubt;
    if (!state->replace(generation, shrunk)) return state->lost_error();
  }
  if (!in_doubt) return {};
  const auto& now = lease_access::state(held);
  now->core->retry_until_certain(downgrade_doubt{*now, lease_access::generation(held), *old, to});
  return error{errc::outcome_unknown,
               fmt::format("lock '{}' on {} counts as {} from now on, but the store has not "
                           "confirmed it yet: {}",
                           now->name, now->core->url(), to_string(to), answer.error().message())};
}

}  // namespace holdfast::core

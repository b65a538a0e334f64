#include "core/upgrade.hpp"

#include "core/gate.hpp"

#include <fmt/format.h>

namespace holdfast::core {

namespace {

error lost_error(const hold& state) {
  return {errc::lost, fmt::format("lock '{}' on {} was lost", state.name, state.core->url())};
}

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

}  // namespace

result<upgrade_plan> prepare_upgrade(const lease& held, std::string_view name,
                                     const acquire_options& asked) {
  if (auto ours = check_ours(held, name); !ours) return std::move(ours).error();
  const auto& state = lease_access::state(held);
  if (!state->core->usable_here()) return state->core->forked_error();
  auto options = asked;
  const auto old = state->current_grant(lease_access::generation(held));
  if (!old) return lost_error(*state);
  if (old->mode != lock_mode::upgradeable) return wrong_mode(*state, "an upgrade", old->mode);
  options.ttl = state->asked_ttl;
  auto checked = state->core->checked(std::move(options));
  if (!checked) return std::move(checked).error();
  return upgrade_plan{*old, std::move(*checked)};
}

request upgrade_request(const lease& held, const grant& old, const acquire_options& options) {
  auto& state = *lease_access::state(held);
  auto ask = make_request(state, {lock_mode::exclusive, rw_capacity, rw_capacity}, options);
  ask.replaces = &old;
  state.changing = true;
  return ask;
}

result<void> finish_upgrade(lease& held, const grant& won) {
  const auto& state = lease_access::state(held);
  const bool replaced = state->replace(lease_access::generation(held), won);
  state->changing = false;
  if (replaced) {
    lease_access::refill(held, lease_access::generation(held));
    return {};
  }
  (void)state->core->store().release(won, state->core->bounded_call());
  return lost_error(*state);
}

result<void> upgrade(lease& held, std::string_view name, const acquire_options& asked) {
  auto plan = prepare_upgrade(held, name, asked);
  if (!plan) return std::move(plan).error();
  auto& core = *lease_access::state(held)->core;
  const auto ask = upgrade_request(held, plan->old, plan->options);
  acquire_machine machine{
      ask,
      core.caps(),
      {deadline_after(core.clock().now(), plan->options.wait), core.options().call_timeout},
      plan->options.stop};
  auto answer = drive(core, machine, ask);
  if (answer) return finish_upgrade(held, *answer);
  lease_access::state(held)->changing = false;
  return core.note_failure(std::move(answer).error());
}

result<void> downgrade(lease& held, std::string_view name, lock_mode to) {
  if (auto ours = check_ours(held, name); !ours) return ours;
  const auto state = lease_access::state(held);
  if (!state->core->usable_here()) return state->core->forked_error();
  const auto generation = lease_access::generation(held);
  const auto old = state->current_grant(generation);
  if (!old) return lost_error(*state);
  const bool shrinks = (old->mode == lock_mode::exclusive &&
                        (to == lock_mode::shared || to == lock_mode::upgradeable)) ||
                       (old->mode == lock_mode::upgradeable && to == lock_mode::shared);
  if (!shrinks)
    return wrong_mode(*state, fmt::format("a downgrade to {}", to_string(to)), old->mode);
  auto answer = state->core->store().downgrade(*old, to, state->core->bounded_call());
  if (!answer) return std::move(answer).error();
  if (dynamic_cast<gate*>(state.get()) == nullptr) {
    if (!state->replace(generation, *answer)) return lost_error(*state);
    return {};
  }
  // The gate is for exclusive holders: the lease moves to a hold of its own, and others of this process may
  // queue for the lock again. Tokens of loss that were handed out go along.
  auto fresh = state->core->new_hold(state->name);
  const auto born = begin_alone(*fresh);
  {
    std::scoped_lock both{state->guard, fresh->guard};
    fresh->loss = std::move(state->loss);
  }
  const auto limit = state->hold_until.load();
  fresh->asked_ttl = state->asked_ttl;
  fresh->publish(*answer, nanoseconds::zero());
  fresh->hold_until.store(limit);
  state->core->due_at(limit);
  state->surrender(lease_access::take(held));
  held = lease_access::make(std::move(fresh), born);
  return {};
}

}  // namespace holdfast::core

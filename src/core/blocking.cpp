#include "core/blocking.hpp"

#include "core/async_lease.hpp"
#include "core/upgrade.hpp"
#include "support/parker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace holdfast::core {

namespace {

void sleep_until(steady_time until, const std::stop_token& stop) {
  support::parker bed;
  std::stop_callback wake{stop, [&] { bed.set(1); }};
  bed.wait(until);
}

}  // namespace

result<grant> drive(client_core& core, acquire_machine& machine,
                    std::optional<result<entered>> first) {
  using step = acquire_machine::step;
  const auto now = [&] { return core.clock().now(); };
  auto& store = core.store();
  auto next = first ? machine.on_entered(std::move(*first), now()) : machine.start(now());
  // The time that counts is the one after the call, so it is read in a statement of its own.
  while (next != step::done) {
    auto limits = machine.next_call(now());
    limits.deadline = core.on_steady_clock(limits.deadline);
    switch (next) {
      case step::enter: {
        core.losses_told_early().take(machine.ask().owner);  // not about what this brings
        auto answer = store.enter(machine.ask(), limits);
        next = machine.on_entered(std::move(answer), now());
        break;
      }
      case step::await: {
        auto answer = store.await(machine.place(), limits);
        next = machine.on_progress(std::move(answer), now());
        break;
      }
      case step::leave: {
        auto answer = store.leave(machine.place(), limits);
        next = machine.on_left(std::move(answer), now());
        break;
      }
      case step::settle: {
        auto answer = store.settle(machine.ask(), limits);
        next = machine.on_settled(std::move(answer), now());
        break;
      }
      case step::give_back: {
        const auto answer = store.release(machine.stale(), limits);
        next = machine.on_given_back(answer, now());
        break;
      }
      case step::pause:
        sleep_until(core.on_steady_clock(machine.pause_until()), limits.stop);
        next = machine.on_resumed(now());
        break;
      case step::done:
        break;
    }
  }
  return core.conclude(machine);
}

request make_request(hold& target, const share& kind, const acquire_options& options) {
  request ask;
  ask.name = target.name;
  ask.mode = kind.mode;
  ask.weight = kind.weight;
  ask.capacity = kind.capacity;
  ask.owner = target.new_owner();
  copy_options(options, ask);
  return ask;
}

void copy_options(const acquire_options& from, request& to) noexcept {
  to.ttl = *from.ttl;
  to.order = from.order;
  to.priority = from.priority;
  to.label = from.label;
  to.label_is_value = from.label_is_value;
  to.outlives_client = from.outlives_client;
  to.wait = from.wait > nanoseconds::zero();
}

lease take_one(std::vector<lease>& from) noexcept {
  const auto valid =
      std::find_if(from.rbegin(), from.rend(), [](auto& held) { return held.valid(); });
  const auto which = valid == from.rend() ? std::prev(from.end()) : std::prev(valid.base());
  auto out = std::move(*which);
  from.erase(which);
  return out;
}

std::uint64_t begin_alone(hold& target) noexcept {
  target.word.store(hold_word::make(1, hold_word::acquiring), std::memory_order_relaxed);
  return 1;
}

result<lease> acquire_share(const std::shared_ptr<client_core>& core, const std::string& name,
                            const share& kind, const acquire_options& asked) {
  if (!core->usable_here()) return core->forked_error();
  auto options = core->checked(asked);
  if (!options) return std::move(options).error();
  const auto since = core->clock().now();
  auto target = core->new_hold(name);
  const auto ask = make_request(*target, kind, *options);
  acquire_machine machine{ask,
                          core->caps(),
                          {deadline_after(since, options->wait), core->options().call_timeout},
                          options->stop,
                          [&] { return target->new_owner(); }};
  auto answer = drive(*core, machine);
  if (!answer) return core->note_failure(std::move(answer).error());
  const auto generation = begin_alone(*target);
  target->won_alone(*answer, *options, since);
  return lease_access::make(std::move(target), {generation, answer->token});
}

result<lease> adopt(const std::shared_ptr<client_core>& core, const std::string& name,
                    const owner_id& owner) {
  if (owner.client != core->nonce())
    return error{errc::misconfigured,
                 fmt::format("{} is no owner of the client that this client of {} succeeds",
                             to_string(owner), core->url())};
  const auto since = core->clock().now();
  auto target = core->new_hold(name);
  request ask;
  ask.name = target->name;
  ask.owner = owner;
  // Two leases on one grant would be two holders: the first that is released lets others in.
  const auto begun = core->begin_adoption(owner);
  if (begun == client_core::adoption::ours)
    return error{errc::misconfigured,
                 fmt::format("lock '{}' on {}: {} is an owner that this client has already", name,
                             core->url(), to_string(owner))};
  if (begun == client_core::adoption::under_way)
    return error{errc::unavailable, fmt::format("lock '{}' on {}: {} is just being adopted", name,
                                                core->url(), to_string(owner))};
  auto there = core->store().settle(ask, core->bounded_call());
  if (!there || there->what != entered::kind::granted) core->end_adoption(owner);
  if (!there) return std::move(there).error();
  if (there->what != entered::kind::granted)
    return error{errc::not_held, fmt::format("lock '{}' on {} is not held by {} any more", name,
                                             core->url(), to_string(owner))};
  acquire_options options;
  options.ttl = there->granted.ttl;
  options.outlives_client = true;
  core->note_adopted(owner);
  core->note_ttl(*options.ttl);
  const auto generation = begin_alone(*target);
  target->won_alone(there->granted, options, since);
  return lease_access::make(std::move(target), {generation, there->granted.token});
}

result<owner_id> leave_behind(lease& held) {
  if (lease_access::generation(held) == 0) return nothing_held();
  const auto state = lease_access::state(held);
  if (!state->core->usable_here()) return state->core->forked_error();
  const auto generation = lease_access::generation(held);
  const bool is_changing =
      state->changing.load();  // before the grant is read: it may end meanwhile
  const auto granted = state->current_grant(generation);
  if (!granted) return state->lost_error();
  // What is there to be left behind is not known.
  if (is_changing) return still_changing(*state);
  if (state->entries.load() != 0)
    return error{
        errc::unsupported,
        fmt::format("lock '{}' on {} is held more than once here (recursive_mutex), so it cannot "
                    "be left behind; release the others first",
                    state->name, state->core->url())};
  if (!state->outlives_client.load(std::memory_order_relaxed))
    return error{
        errc::unsupported,
        fmt::format("lock '{}' on {} was acquired without outlives_client, so it cannot be "
                    "left behind",
                    state->name, state->core->url())};
  std::unique_ptr<std::stop_source> loss;
  if (!state->surrender(generation, loss)) return state->lost_error();
  state->core->end_adoption(granted->owner);
  lease_access::take(held);
  lease_access::take_state(
      held);  // an empty lease keeps no client alive: the successor waits for its end
  return granted->owner;
}

}  // namespace holdfast::core

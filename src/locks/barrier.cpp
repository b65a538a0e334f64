#include <holdfast/barrier.hpp>

#include "core/counters.hpp"
#include "locks/barrier_state.hpp"

#include <fmt/format.h>

#include <functional>

namespace holdfast {

namespace {

using locks::barrier_state;

error no_such_barrier(const std::string& name) {
  return {errc::not_held, fmt::format("barrier '{}' does not exist any more", name)};
}

// Changes the state by compare-and-exchange until no other client came in between; gives the state before the change.
result<barrier_state> change(core::client_core& core, const std::string& name, nanoseconds keep,
                             barrier_state (*step)(barrier_state)) {
  for (;;) {
    auto now = core::count(core, {name, counter_op::read, 0, 0, keep});
    if (!now) return std::move(now).error();
    if (!now->exists) return no_such_barrier(name);
    const auto before = barrier_state::unpack(now->value);
    if (before.expected == 0)
      return error{errc::misconfigured,
                   fmt::format("everybody has dropped out of barrier '{}'", name)};
    auto done = core::count(
        core, {name, counter_op::compare_exchange, step(before).pack(), now->value, keep});
    if (!done) return std::move(done).error();
    if (done->applied) return before;
  }
}

core::counter_wait until_past(const std::string& name, barrier::phase arrived, nanoseconds limit,
                              std::stop_token stop) {
  auto past = [name, arrived](const counter& now) -> result<bool> {
    if (!now.exists) return no_such_barrier(name);
    return barrier_state::unpack(now.value).phase != arrived;
  };
  return {name, std::move(past), limit, std::move(stop)};
}

}  // namespace

barrier::barrier(const client& store, std::string name, std::int64_t expected, nanoseconds keep)
    : store_(store), name_(std::move(name)), keep_(keep) {
  check_name(name_).value();
  if (expected < 1 || expected > max())
    throw lock_error({errc::misconfigured,
                      fmt::format("barrier '{}' was given {} participants; it takes 1 to {}", name_,
                                  expected, max())});
  if (keep <= nanoseconds::zero())
    throw lock_error(
        {errc::misconfigured, fmt::format("barrier '{}' must be kept for more than 0", name_)});
  const auto fresh = barrier_state::fresh(static_cast<std::uint32_t>(expected));
  const auto now =
      core::count(*store_.core(), {name_, counter_op::create, fresh.pack(), 0, keep_}).value();
  if (const auto known = barrier_state::unpack(now.value); known.total != expected)
    throw lock_error({errc::misconfigured,
                      fmt::format("barrier '{}' exists already, for {} participants and not {}",
                                  name_, known.total, expected)});
}

result<barrier::phase> barrier::arrive() {
  auto before = change(*store_.core(), name_, keep_, &barrier_state::arrived_one);
  if (!before) return std::move(before).error();
  return before->phase;
}

result<void> barrier::arrive_and_drop() {
  auto before = change(*store_.core(), name_, keep_, &barrier_state::dropped_one);
  if (!before) return std::move(before).error();
  return {};
}

result<void> barrier::wait(phase arrived, nanoseconds limit, std::stop_token stop) const {
  return core::wait_for(*store_.core(), until_past(name_, arrived, limit, std::move(stop)));
}

async<void> barrier::async_wait(phase arrived, nanoseconds limit, std::stop_token stop) const {
  return core::async_wait_for(store_.core(), until_past(name_, arrived, limit, std::move(stop)));
}

result<void> barrier::arrive_and_wait(nanoseconds limit, std::stop_token stop) {
  auto arrived = arrive();
  if (!arrived) return std::move(arrived).error();
  return wait(*arrived, limit, std::move(stop));
}

result<void> barrier::remove() {
  auto now = core::count(*store_.core(), {name_, counter_op::erase, 0, 0, keep_});
  if (!now) return std::move(now).error();
  return {};
}

}  // namespace holdfast

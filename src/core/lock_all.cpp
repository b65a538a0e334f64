#include <holdfast/lock_all.hpp>

#include "core/async_acquire.hpp"
#include "core/blocking.hpp"
#include "core/gate.hpp"

#include <algorithm>

namespace holdfast {

namespace {

struct plan {
  std::vector<std::string> order;
  acquire_options options;
  steady_time deadline;
};

// Sorted, each once: whoever takes several names takes them in this order, so no circle of waiters can close.
result<plan> make_plan(core::client_core& core, std::span<const std::string> names,
                       const acquire_options& asked) {
  for (const auto& name : names)
    if (auto ok = check_name(name); !ok) return std::move(ok).error();
  auto options = core.checked(asked);
  if (!options) return std::move(options).error();
  plan out{{names.begin(), names.end()}, std::move(*options), {}};
  std::ranges::sort(out.order);
  out.order.erase(std::unique(out.order.begin(), out.order.end()), out.order.end());
  out.deadline = core::deadline_after(core.clock().now(), out.options.wait);
  return out;
}

// The wait bounds the whole, so the next one gets what is left.
void spend(plan& todo, const core::client_core& core) {
  if (todo.options.wait > nanoseconds::zero() && todo.deadline != steady_time::max())
    todo.options.wait = std::max(todo.deadline - core.clock().now(), nanoseconds{1});
}

// The first may have been lost while we waited for the last.
result<std::vector<lease>> all_still_held(std::vector<lease> held) {
  for (const auto& one : held)
    if (!one.valid())
      return error{errc::lost,
                   "lock '" + one.name() + "' was lost while the others were being acquired"};
  return held;
}

task<result<std::vector<lease>>> take_all(std::shared_ptr<core::client_core> core,
                                          result<plan> todo) {
  if (!todo) co_return std::move(todo).error();
  std::vector<lease> held;
  for (const auto& name : todo->order) {
    auto pending = core::async_exclusive(core->gate_for(name), todo->options);
    auto got = co_await pending;
    if (!got) co_return std::move(got).error();  // what is in `held` is released
    held.push_back(std::move(*got));
    spend(*todo, *core);
  }
  co_return all_still_held(std::move(held));
}

}  // namespace

result<std::vector<lease>> lock_all(const client& store, std::span<const std::string> names,
                                    const acquire_options& asked) {
  const auto& core = store.core();
  auto todo = make_plan(*core, names, asked);
  if (!todo) return std::move(todo).error();
  std::vector<lease> held;
  held.reserve(todo->order.size());
  for (const auto& name : todo->order) {
    const auto gate = core->gate_for(name);
    auto got = gate->acquire(todo->options);
    if (!got) return std::move(got).error();  // what is in `held` is released
    held.push_back(core::lease_access::make(gate, *got));
    spend(*todo, *core);
  }
  return all_still_held(std::move(held));
}

task<result<std::vector<lease>>> async_lock_all(const client& store,
                                                std::span<const std::string> names,
                                                const acquire_options& options) {
  return take_all(store.core(), make_plan(*store.core(), names, options));
}

}  // namespace holdfast

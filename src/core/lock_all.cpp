#include <holdfast/lock_all.hpp>

#include "core/blocking.hpp"
#include "core/gate.hpp"

#include <algorithm>

namespace holdfast {

result<std::vector<lease>> lock_all(const client& store, std::span<const std::string> names,
                                    const acquire_options& asked) {
  const auto& core = store.core();
  for (const auto& name : names)
    if (auto ok = check_name(name); !ok) return std::move(ok).error();
  auto options = core->checked(asked);
  if (!options) return std::move(options).error();

  // Sorted, each once: whoever takes several names takes them in this order, so no circle of
  // waiters can close.
  std::vector<std::string> order{names.begin(), names.end()};
  std::ranges::sort(order);
  order.erase(std::ranges::unique(order).begin(), order.end());

  const auto deadline = core::deadline_after(core->clock().now(), options->wait);
  std::vector<lease> held;
  held.reserve(order.size());
  for (const auto& name : order) {
    const auto gate = core->gate_for(name);
    auto got = gate->acquire(*options);
    if (!got) return std::move(got).error();  // what is in `held` is released
    held.push_back(core::lease_access::make(gate, *got));
    if (options->wait > nanoseconds::zero() && deadline != steady_time::max())
      options->wait = std::max(deadline - core->clock().now(), nanoseconds{1});
  }
  // The first may have been lost while we waited for the last.
  for (const auto& one : held)
    if (!one.valid())
      return error{errc::lost,
                   "lock '" + one.name() + "' was lost while the others were being acquired"};
  return held;
}

}  // namespace holdfast

#include <holdfast/client.hpp>

#include "core/blocking.hpp"
#include "core/client_core.hpp"
#include "locks/barrier_state.hpp"

#include <limits>

namespace holdfast {

namespace {

result<void> ready(const core::client_core& core, std::string_view name) {
  if (!core.usable_here()) return core.forked_error();
  return check_name(name);
}

std::size_t doubled(std::size_t n) {
  constexpr auto largest = std::numeric_limits<std::size_t>::max();
  return n > largest / 2 ? largest : 2 * n;
}

}  // namespace

client client::open(std::string_view url, client_options options) {
  return try_open(url, std::move(options)).value();
}

result<client> client::try_open_with(const engine_factory& make, std::string_view url,
                                     client_options options) {
  auto core = core::client_core::open(make, url, std::move(options));
  if (!core) return std::move(core).error();
  return client{std::move(*core)};
}

const holdfast::capabilities& client::capabilities() const noexcept { return core_->caps(); }

std::string client::url() const { return core_->url(); }

holdfast::metrics client::metrics() const { return core_->snapshot(); }

result<std::vector<lock_info>> client::list(std::string_view prefix, std::size_t limit) const {
  if (!core_->usable_here()) return core_->forked_error();
  return core_->store().list(prefix, limit, core_->bounded_call());
}

// The store's limit counts barriers, too: while they take the places of latches, more is asked for.
result<std::vector<latch_info>> client::latches(std::string_view prefix, std::size_t limit) const {
  if (!core_->usable_here()) return core_->forked_error();
  const auto limits = core_->bounded_call();
  std::vector<latch_info> out;
  for (std::size_t most = limit;; most = doubled(most)) {
    auto found = core_->store().list_counters(prefix, most, limits);
    if (!found) return std::move(found).error();
    out.clear();
    for (auto& [name, value, forgotten_in] : *found)
      if (out.size() < limit && value < locks::barrier_state::smallest)
        out.push_back({std::move(name), value, forgotten_in});
    if (out.size() == limit || found->size() < most) return out;
  }
}

result<lock_info> client::inspect(std::string_view name) const {
  if (auto ok = ready(*core_, name); !ok) return std::move(ok).error();
  return core_->store().inspect(name, core_->bounded_call());
}

result<std::size_t> client::revoke(std::string_view name) const {
  if (auto ok = ready(*core_, name); !ok) return std::move(ok).error();
  return core_->store().revoke(name, core_->bounded_call());
}

result<std::vector<finding>> client::diagnose() const {
  if (!core_->usable_here()) return core_->forked_error();
  return core_->store().diagnose(core_->bounded_call());
}

result<lease> client::adopt(std::string_view name, const owner_id& owner) const {
  if (auto ok = ready(*core_, name); !ok) return std::move(ok).error();
  if (!core_->caps().outlives_client) return core_->nothing_outlives();
  return core::adopt(core_, std::string{name}, owner);
}

}  // namespace holdfast

#include <holdfast/client.hpp>

#include "core/client_core.hpp"

namespace holdfast {

namespace {

result<void> ready(const core::client_core& core, std::string_view name) {
  if (!core.usable_here()) return core.forked_error();
  return check_name(name);
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

}  // namespace holdfast

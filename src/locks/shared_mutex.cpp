#include <holdfast/shared_mutex.hpp>

#include "core/async_acquire.hpp"
#include "core/upgrade.hpp"
#include "locks/checks.hpp"

namespace holdfast {

namespace {

constexpr core::share reader{lock_mode::shared, 1, rw_capacity};
constexpr core::share upgrader{lock_mode::upgradeable, upgradeable_weight, rw_capacity};

error no_upgrades(const client& store) {
  return {errc::unsupported, store.url() + " has no upgradeable reads; its capabilities say so"};
}

}  // namespace

shared_mutex::shared_mutex(const client& store, std::string name, acquire_options defaults)
    : store_(store),
      defaults_(locks::checked_or_throw(store, name, defaults)),
      writer_(store, std::move(name), std::move(defaults)) {
  locks::require(store.capabilities().shared, store, "shared mode");
  store.core()->gate_for(writer_.name())->note_readers();
}

shared_mutex::~shared_mutex() = default;

void shared_mutex::lock_shared() {
  auto got = acquire_shared(defaults_).value();
  std::lock_guard locked{guard_};
  readers_.push_back(std::move(got));
}

bool shared_mutex::try_lock_shared() { return lock_shared_within(nanoseconds::zero()); }

bool shared_mutex::lock_shared_within(nanoseconds wait) {
  auto options = defaults_;
  options.wait = wait;
  auto got = acquire_shared(options);
  if (!got) {
    if (locks::is_no(got.error().code())) return false;
    throw lock_error(got.error());
  }
  std::lock_guard locked{guard_};
  readers_.push_back(std::move(*got));
  return true;
}

void shared_mutex::unlock_shared() noexcept {
  lease last;
  {
    std::lock_guard locked{guard_};
    if (readers_.empty()) return;
    last = core::take_one(readers_);
  }
  // Outside the guard: releasing may take a round trip. Its destructor reports a failure to the observer.
}

result<lease> shared_mutex::acquire_shared(const acquire_options& options) {
  return core::acquire_share(store_.core(), name(), reader, options);
}

async<lease> shared_mutex::async_acquire_shared(const acquire_options& options) {
  return core::async_share(store_.core(), name(), reader, options);
}

result<lease> shared_mutex::acquire_upgradeable(const acquire_options& options) {
  if (!store_.capabilities().upgrade) return no_upgrades(store_);
  return core::acquire_share(store_.core(), name(), upgrader, options);
}

async<lease> shared_mutex::async_acquire_upgradeable(const acquire_options& options) {
  if (!store_.capabilities().upgrade) return core::ready_lease(store_.core(), no_upgrades(store_));
  return core::async_share(store_.core(), name(), upgrader, options);
}

result<void> shared_mutex::downgrade(lease& held, lock_mode to) {
  const bool from_writer = held.mode() == lock_mode::exclusive;
  if (from_writer && to == lock_mode::upgradeable && !store_.capabilities().upgrade)
    return no_upgrades(store_);
  return core::downgrade(held, name(), to);
}

result<void> shared_mutex::upgrade(lease& held, const acquire_options& options) {
  return core::upgrade(held, name(), options);
}

async<void> shared_mutex::async_upgrade(lease& held, const acquire_options& options) {
  return core::async_upgrade(store_.core(), held, name(), options);
}

}  // namespace holdfast

#include <holdfast/mutex.hpp>

#include "core/async_acquire.hpp"
#include "locks/checks.hpp"

namespace holdfast {

using core::lease_access;

mutex::mutex(const client& store, std::string name, acquire_options defaults)
    : defaults_(locks::checked_or_throw(store, name, std::move(defaults))),
      gate_(store.core()->gate_for(name)) {
  lease_access::prepare(held_, gate_);
}

mutex::~mutex() = default;

const std::string& mutex::name() const noexcept { return gate_->name; }

void mutex::lock() {
  auto got = gate_->acquire(defaults_);
  if (!got) throw lock_error(got.error());
  lease_access::refill(held_, *got);
}

bool mutex::try_lock() { return lock_within(nanoseconds::zero()); }

bool mutex::lock_within(nanoseconds wait) {
  auto options = defaults_;
  options.wait = wait;
  auto got = gate_->acquire(options);
  if (got) {
    lease_access::refill(held_, *got);
    return true;
  }
  if (locks::is_no(got.error().code())) return false;
  throw lock_error(got.error());
}

void mutex::unlock() noexcept {
  const auto answer =
      gate_->release(lease_access::take(held_), core::hold::confirmation::not_awaited);
  if (!answer) gate_->core->tell_release_failed(gate_->name, answer.error());
}

result<lease> mutex::acquire(const acquire_options& asked) {
  auto options = gate_->core->checked(asked);
  if (!options) return std::move(options).error();
  auto got = gate_->acquire(*options);
  if (!got) return std::move(got).error();
  return lease_access::make(gate_, *got);
}

result<lease> mutex::try_acquire() {
  auto options = defaults_;
  options.wait = nanoseconds::zero();
  return acquire(options);
}

async<lease> mutex::async_acquire(const acquire_options& options) {
  return core::async_exclusive(gate_, options);
}

}  // namespace holdfast

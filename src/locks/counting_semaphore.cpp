#include <holdfast/counting_semaphore.hpp>

#include "core/async_acquire.hpp"
#include "locks/checks.hpp"

#include <fmt/format.h>

namespace holdfast {

namespace {

core::share part(std::size_t k, std::size_t n) { return {lock_mode::permits, k, n}; }

error bad_count(const std::string& name, std::size_t k, std::size_t n) {
  return {errc::misconfigured,
          fmt::format("semaphore '{}' has {} permits, {} cannot be taken at once", name, n, k)};
}

}  // namespace

counting_semaphore::counting_semaphore(const client& store, std::string name, std::size_t permits,
                                       acquire_options defaults)
    : store_(store),
      name_(std::move(name)),
      permits_(permits),
      defaults_(locks::checked_or_throw(store, name_, std::move(defaults))) {
  locks::require(store.capabilities().permits, store, "semaphores");
  if (permits < 1 || permits > max())
    throw lock_error(
        {errc::misconfigured, fmt::format("semaphore '{}' was given {} permits; it takes 1 to {}",
                                          name_, permits, max())});
}

void counting_semaphore::acquire() {
  auto got = acquire_permits(1, defaults_).value();
  std::lock_guard locked{guard_};
  taken_.push_back(std::move(got));
}

bool counting_semaphore::try_acquire() { return acquire_within(nanoseconds::zero()); }

bool counting_semaphore::acquire_within(nanoseconds wait) {
  auto options = defaults_;
  options.wait = wait;
  auto got = acquire_permits(1, options);
  if (!got) {
    if (locks::is_no(got.error().code())) return false;
    throw lock_error(got.error());
  }
  std::lock_guard locked{guard_};
  taken_.push_back(std::move(*got));
  return true;
}

void counting_semaphore::release(std::ptrdiff_t update) noexcept {
  for (; update > 0; --update) {
    lease last;
    {
      std::lock_guard locked{guard_};
      if (taken_.empty()) break;
      last = core::take_one(taken_);
    }
  }
  if (update <= 0) return;
  store_.core()->tell_release_failed(
      name_,
      {errc::not_held,
       fmt::format("semaphore '{}': {} more permits were given back than this handle had taken",
                   name_, update)});
}

result<lease> counting_semaphore::acquire_permits(std::size_t k, const acquire_options& options) {
  if (k < 1 || k > permits_) return bad_count(name_, k, permits_);
  return core::acquire_share(store_.core(), name_, part(k, permits_), options);
}

async<lease> counting_semaphore::async_acquire_permits(std::size_t k,
                                                       const acquire_options& options) {
  if (k < 1 || k > permits_) return core::ready_lease(store_.core(), bad_count(name_, k, permits_));
  return core::async_share(store_.core(), name_, part(k, permits_), options);
}

}  // namespace holdfast

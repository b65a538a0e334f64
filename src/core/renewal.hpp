// When to renew, and when to give up: pure rules, so that tests need neither threads nor time.
#pragma once

#include <holdfast/types.hpp>

#include <algorithm>
#include <cstdint>

namespace holdfast::core {

enum class upkeep : std::uint8_t { nothing, renew, expired, held_too_long };

struct lease_times {
  steady_time valid_until;
  steady_time renew_at;
  steady_time hold_until;
};

// Loss first: a lease whose deadline has passed is lost even if its renewal was due as well, or the
// renewal would bring back to life what others may already hold.
constexpr upkeep decide(const lease_times& at, steady_time now) noexcept {
  if (now >= at.valid_until) return upkeep::expired;
  if (now >= at.hold_until) return upkeep::held_too_long;
  if (now >= at.renew_at) return upkeep::renew;
  return upkeep::nothing;
}

constexpr steady_time next_look(const lease_times& at) noexcept {
  return std::min({at.valid_until, at.renew_at, at.hold_until});
}

// Once one lease must be renewed, all that are at least half-way to it go along: so a client with ten
// thousand locks falls into step and makes one call per ttl/3, not ten thousand.
constexpr bool goes_along(const lease_times& at, nanoseconds ttl, steady_time now) noexcept {
  return now >= at.renew_at - ttl / 6;
}

// After a failed renewal: again at once, then ever less often, but many times before the lease ends.
constexpr nanoseconds retry_delay(nanoseconds ttl) noexcept {
  return std::clamp<nanoseconds>(ttl / 50, std::chrono::milliseconds{1},
                                 std::chrono::milliseconds{200});
}

}  // namespace holdfast::core

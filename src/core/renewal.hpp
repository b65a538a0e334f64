// When to renew, and when to give up: pure rules, so that tests need neither threads nor time.
#pragma once

#include <holdfast/engine.hpp>

#include <algorithm>
#include <cstdint>

namespace holdfast::core {

// How much of this length we may believe in: less what our clock and the store's may differ.
inline nanoseconds usable(const capabilities& caps, nanoseconds length) noexcept {
  nanoseconds margin = caps.margin;
  // length / 1e6 * ppm loses less than a microsecond and cannot overflow.
  if (caps.drift_ppm != 0) margin += length / 1'000'000 * static_cast<std::int64_t>(caps.drift_ppm);
  return length - margin;
}

inline bool has_sessions(const capabilities& caps) noexcept {
  return caps.longest_validity > nanoseconds::zero();
}

// The whole rule: until its ttl ends, or its session has been silent for too long.
inline steady_time believed_until(const capabilities& caps, const grant& held) noexcept {
  const auto by_ttl = held.valid_from + usable(caps, held.ttl);
  if (!has_sessions(caps)) return by_ttl;
  return std::min(by_ttl, held.session.proven_at + usable(caps, caps.longest_validity));
}

// For how long a grant is believed when all goes well.
inline nanoseconds longest_belief(const capabilities& caps, nanoseconds ttl) noexcept {
  return has_sessions(caps) ? std::min(ttl, caps.longest_validity) : ttl;
}

// So often a session is proven. Where it is a connection that the store watches, a proof is one small question, and a
// store that stands still for eight ninths of a session costs no lease. A session that lives by its heartbeats is kept
// by all members of a cluster: every third of it, as a ttl is.
inline nanoseconds heartbeat_interval(const capabilities& caps) noexcept {
  return caps.longest_validity / (caps.session_needs_heartbeats ? 3 : 9);
}

// Two proofs about one grant: the later session counts, and of one session the later proof.
inline void keep_later(session_proof& known, const session_proof& other) noexcept {
  if (other.number > known.number) {
    known = other;
  } else if (other.number == known.number) {
    known.proven_at = std::max(known.proven_at, other.proven_at);
  }
}

enum class upkeep : std::uint8_t { nothing, renew, expired, held_too_long };

struct lease_times {
  steady_time valid_until;
  steady_time renew_at;
  steady_time hold_until;
  steady_time prove_at = steady_time::max();  // its session, where it counts on one
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
  return std::min({at.valid_until, at.renew_at, at.hold_until, at.prove_at});
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

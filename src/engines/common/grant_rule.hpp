// The one grant rule (DESIGN 4). Every mode is a weight against a capacity:
// writer = capacity, reader = 1, upgradeable reader = capacity/2 + 1, permits = k of n.
//
// In fifo order no entry overtakes: it enters when none waits ahead of it and its weight fits beside
// the holders. (The weights of earlier waiters need no sum: an entry that waits did not fit, so neither would the
// sum.) A barging newcomer looks at the holders only. No entry bypasses an upgrade: it already holds the
// lock, and everyone else is waiting for it to finish.
#pragma once

#include <holdfast/types.hpp>

#include <cstdint>

namespace holdfast::engines {

struct queue_state {
  std::uint64_t capacity = 0;
  std::uint64_t used = 0;        // sum of the holders' weights
  bool waiters_ahead = false;    // of the entry in question
  bool upgrade_waiting = false;  // an upgrade is at the head of the queue
};

constexpr bool fits(const queue_state& at, std::uint64_t weight) noexcept {
  return at.used <= at.capacity && weight <= at.capacity - at.used;
}

// A newcomer. `replaced` is the weight that an upgrade gives back as it enters; 0 for anybody else.
constexpr bool may_enter(queue_state at, std::uint64_t weight, queue_order order,
                         std::uint64_t replaced = 0) noexcept {
  at.used -= replaced;
  if (!fits(at, weight)) return false;
  if (replaced != 0) return true;
  if (at.upgrade_waiting) return false;
  return order == queue_order::barging || !at.waiters_ahead;
}

}  // namespace holdfast::engines

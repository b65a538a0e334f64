// The small vocabulary shared by the public API and the engine contract. Plain values: copy them, compare them, share
// them between threads as you would an int.
#pragma once

#include <holdfast/language.hpp>

#include <array>
#include <chrono>
#include <compare>
#include <cstdint>
#include <string>

namespace holdfast {

// All local time is steady: wall clocks step, and a step must never lengthen a lease. Instants that a client gives out
// (lease::valid_until) are of its clock (clock.hpp). With a server's locks that clock goes on while the machine is
// suspended: it agrees with std::chrono::steady_clock until the first suspend in the life of the process, and is ahead
// of it afterwards.
using steady_time = std::chrono::steady_clock::time_point;
using nanoseconds = std::chrono::nanoseconds;

// A number that comes with a grant: strictly rising per lock name, unique per grant, as far as capabilities().fencing
// promises (strict: always; best_effort: unless the store loses data or its clock steps back). Show it to the resource
// that the lock protects, at the first touch (reads included), and let that refuse anything older than the newest it
// has seen (fence.hpp). Leases that are handed on or re-entered inside one process share their grant, and so its token.
// 0 belongs to no grant.
struct fencing_token {
  std::uint64_t value = 0;
  friend auto operator<=>(const fencing_token&, const fencing_token&) = default;
};

// What the store knows an attempt to acquire by: the client's 128 random bits (unguessable) and a running number. Never
// used for a second attempt. A supervisor that knows it and can reach the store can give the grant of a dead process
// back (give_back.hpp). All zero: no owner.
struct owner_id {
  std::array<std::uint64_t, 2> client{};
  std::uint64_t sequence = 0;
  friend auto operator<=>(const owner_id&, const owner_id&) = default;
};

// 32 hex digits of the client, a dash, and the sequence in hex. For logs; nothing here parses it.
std::string to_string(const owner_id& owner);

// What a holder allows beside itself. A mutex is exclusive, a shared_mutex uses the first three, a semaphore the last.
//
//   exclusive    nothing else
//   shared       other shared holders, and one upgradeable
//   upgradeable  shared holders; may become exclusive ahead of the queue (shared_mutex::upgrade)
//   permits      other holders, as long as all permits together fit the semaphore
enum class lock_mode : std::uint8_t { exclusive, shared, upgradeable, permits };

// The enumerator's name. Static storage.
const char* to_string(lock_mode mode) noexcept;

// How a newcomer treats the store's queue when it finds the lock free and others waiting.
//
//   fifo     it queues behind them: first come, first served, where capabilities().fifo
//   barging  it takes the lock: faster for short holds, but a stream of newcomers can overtake the waiters for long
//
// A barging request that finds the lock held queues like any other. Inside one client all requests for an exclusive
// lock queue by priority, then by arrival, whatever is said here; and nothing overtakes an upgrade.
enum class queue_order : std::uint8_t { fifo, barging };

}  // namespace holdfast

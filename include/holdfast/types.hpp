// The small vocabulary shared by the public API and the engine contract.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstdint>
#include <string>

namespace holdfast {

// All local time is steady: wall clocks step, and a step must never lengthen a lease.
using steady_time = std::chrono::steady_clock::time_point;
using nanoseconds = std::chrono::nanoseconds;

// Strictly rising per lock name, unique per grant. Show it to whatever the lock protects, at the first
// touch (reads included), and let that refuse anything older than the newest it has seen.
struct fencing_token {
  std::uint64_t value = 0;
  friend auto operator<=>(const fencing_token&, const fencing_token&) = default;
};

// Who asks. Unique per acquisition: the client's 128 random bits (unguessable) and a running number.
struct owner_id {
  std::array<std::uint64_t, 2> client{};
  std::uint64_t sequence = 0;
  friend auto operator<=>(const owner_id&, const owner_id&) = default;
};

// 32 hex digits of the client, a dash, and the sequence in hex.
std::string to_string(const owner_id& owner);

// What a holder may do beside others. A shared_mutex uses the first three, a semaphore the last.
enum class lock_mode : std::uint8_t { exclusive, shared, upgradeable, permits };

const char* to_string(lock_mode mode) noexcept;

// fifo: first come, first served, where the store can. barging: whoever asks while it is free gets it,
// which is faster for short holds and lets a stream of newcomers overtake those who sleep.
enum class queue_order : std::uint8_t { fifo, barging };

}  // namespace holdfast

// A barrier in one counter: phase 15 bits, then 12 bits each of participants at the start, expected
// in this phase, arrived, and dropped out (which counts from the next phase on). Pure, so that its
// steps can be tested alone.
#pragma once

#include <cstdint>

namespace holdfast::locks {

struct barrier_state {
  std::uint32_t phase = 0;
  std::uint32_t total = 0, expected = 0, arrived = 0, dropped = 0;

  // No barrier is a smaller number than this, whatever becomes of it: there was a participant at the start. A counter
  // below it is a latch.
  static constexpr std::int64_t smallest = std::int64_t{1} << 36U;

  static constexpr barrier_state fresh(std::uint32_t participants) noexcept {
    return {0, participants, participants, 0, 0};
  }

  // No party can be more than one phase behind (the phase cannot end without them), so wrapping is harmless.
  static constexpr barrier_state arrived_one(barrier_state s) noexcept {
    if (++s.arrived < s.expected) return s;
    return {(s.phase + 1) & 0x7fffU, s.total, s.expected - s.dropped, 0, 0};
  }
  static constexpr barrier_state dropped_one(barrier_state s) noexcept {
    ++s.dropped;
    return arrived_one(s);
  }

  constexpr std::int64_t pack() const noexcept {
    const auto wide = std::uint64_t{phase} << 48U | std::uint64_t{total} << 36U |
                      std::uint64_t{expected} << 24U | std::uint64_t{arrived} << 12U |
                      std::uint64_t{dropped};
    return static_cast<std::int64_t>(wide);
  }
  static constexpr barrier_state unpack(std::int64_t packed) noexcept {
    const auto wide = static_cast<std::uint64_t>(packed);
    const auto part = [wide](unsigned shift) {
      return static_cast<std::uint32_t>(wide >> shift & 0xfffU);
    };
    return {static_cast<std::uint32_t>(wide >> 48U & 0x7fffU), part(36), part(24), part(12),
            part(0)};
  }
};

}  // namespace holdfast::locks

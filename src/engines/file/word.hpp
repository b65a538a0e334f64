// The lock word: all that an uncontended lock is, in 64 bits, so that one compare-and-swap takes it or gives it back.
// Pure packing; which value is written when is told in README.md.
//
//   closed  0                                                    the record is on the free list
//   free    incarnation:32                                :tag   not held
//   fast    expires:32  sequence:14  generation:4  session:12 :tag   one exclusive holder, no waiter
//   slow                                                  :tag   the truth is in the entries
#pragma once

#include <cstdint>

namespace holdfast::engines::file {

// closed is 0 because fresh chunks are: a record that was never opened needs no initialising.
enum class word_tag : std::uint64_t { closed = 0, free = 1, fast = 2, slow = 3 };

inline constexpr unsigned session_bits = 12;
inline constexpr unsigned generation_bits = 4;
inline constexpr unsigned sequence_bits = 14;
// 4.2 ms: coarse enough that 32 bits reach over 208 days.
inline constexpr unsigned expiry_shift = 22;

inline constexpr std::uint64_t slow_word = static_cast<std::uint64_t>(word_tag::slow);
inline constexpr std::uint64_t closed_word = static_cast<std::uint64_t>(word_tag::closed);

constexpr std::uint64_t low_bits(std::uint64_t value, unsigned bits) noexcept {
  return value & ((std::uint64_t{1} << bits) - 1);
}

constexpr word_tag tag_of(std::uint64_t word) noexcept {
  return static_cast<word_tag>(low_bits(word, 2));
}

constexpr std::uint64_t free_word(std::uint32_t incarnation) noexcept {
  return static_cast<std::uint64_t>(word_tag::free) | std::uint64_t{incarnation} << 2;
}

// The part of a fast word that is the same for all grants of one session.
constexpr std::uint64_t fast_prefix(std::uint32_t session, std::uint32_t generation) noexcept {
  return static_cast<std::uint64_t>(word_tag::fast) | low_bits(session, session_bits) << 2 |
         low_bits(generation, generation_bits) << (2 + session_bits);
}

// The last moment of a grant in units of the word, rounded down: the store never promises more than it
// was asked for, and the holder takes over the rounded value.
constexpr std::uint32_t expiry_units(std::int64_t nanoseconds) noexcept {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(nanoseconds) >> expiry_shift);
}

constexpr std::int64_t rounded_expiry(std::int64_t nanoseconds) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(nanoseconds) >> expiry_shift
                                                                                  << expiry_shift);
}

constexpr std::uint64_t fast_word(std::uint64_t prefix, std::uint64_t sequence,
                                  std::int64_t expires) noexcept {
  return prefix | low_bits(sequence, sequence_bits) << (2 + session_bits + generation_bits) |
         std::uint64_t{expiry_units(expires)} << 32;
}

struct fast_holder {
  std::uint32_t session = 0;
  std::uint32_t generation = 0;  // its low bits
  std::uint32_t sequence = 0;    // its low bits
};

constexpr fast_holder holder_of(std::uint64_t word) noexcept {
  return {static_cast<std::uint32_t>(low_bits(word >> 2, session_bits)),
          static_cast<std::uint32_t>(low_bits(word >> (2 + session_bits), generation_bits)),
          static_cast<std::uint32_t>(
              low_bits(word >> (2 + session_bits + generation_bits), sequence_bits))};
}

// When a fast grant ends. The word keeps the time modulo 2^32 units; the value nearest to `now` is meant. A word that
// was not touched for a hundred days would come out in the future: nothing may end later than `longest` from now, so
// such a word ended long ago.
constexpr std::int64_t expiry_of(std::uint64_t word, std::int64_t now,
                                 std::int64_t longest) noexcept {
  const auto units = static_cast<std::uint32_t>(word >> 32);
  const auto ahead = static_cast<std::int32_t>(units - expiry_units(now));
  const std::int64_t expires = ((now >> expiry_shift) + ahead) * (std::int64_t{1} << expiry_shift);
  return expires > now + longest ? 0 : expires;
}

// Ties the holder's notes (sequence, token) to the word they belong to. A holder that was paused between taking the
// word and writing its notes may write them over a later holder's; a reader then finds that the signature does not fit,
// and takes them for missing.
constexpr std::uint64_t signature(std::uint64_t word, std::uint64_t sequence,
                                  std::uint64_t token) noexcept {
  const std::uint64_t mixed = sequence * 0x9E3779B97F4A7C15U + token * 0xC2B2AE3D27D4EB4FU;
  return word ^ mixed ^ mixed >> 29;
}

}  // namespace holdfast::engines::file

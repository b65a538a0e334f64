// What the parts of a book share among themselves: book.cpp, book_end.cpp, book_enter.cpp.
#pragma once

#include "engines/mysql/book.hpp"

#include <charconv>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace holdfast::engines::mysql {

inline constexpr std::int64_t turn_of_upgrade = std::numeric_limits<std::int64_t>::min();

inline microseconds_count in_us(nanoseconds length) {
  return static_cast<microseconds_count>(
      std::chrono::ceil<std::chrono::microseconds>(length).count());
}

inline bool is_same(const book::entry& one, std::string_view client, std::uint64_t seq) {
  return one.seq == seq && one.client == client;
}

// "SEQ" of an upgrade that waits, "SEQ TOKEN TTL" of one that has arrived.
struct replaced {
  std::uint64_t seq = 0, token = 0, ttl = 0;
};

inline std::optional<replaced> read_replaced(std::string_view text) {
  if (text.empty()) return std::nullopt;
  replaced out;
  const auto* at = text.data();
  const auto* const end = at + text.size();
  for (auto* into : {&out.seq, &out.token, &out.ttl}) {
    at = std::from_chars(at, end, *into).ptr;
    if (at != end) ++at;
  }
  return out;
}

}  // namespace holdfast::engines::mysql

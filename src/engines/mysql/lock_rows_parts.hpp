// What the parts of lock_rows share among themselves: lock_rows.cpp, lock_rows_end.cpp, lock_rows_enter.cpp.
#pragma once

#include "engines/mysql/lock_rows.hpp"

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

inline bool is_same(const lock_rows::entry& which, std::string_view client, std::uint64_t seq) {
  return which.seq == seq && which.client == client;
}

// The number of the grant that a waiting upgrade replaces.
inline std::optional<std::uint64_t> read_replaced(std::string_view text) {
  std::uint64_t out = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), out).ec != std::errc{})
    return std::nullopt;
  return out;
}

}  // namespace holdfast::engines::mysql

// Text that came from outside: check it before use, and never print it raw.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace holdfast::support {

struct code_point {
  char32_t value = 0;
  std::size_t bytes = 0;
};

// The first code point of a non-empty text, or nothing where it is not UTF-8 (over-long forms, surrogates and
// values beyond U+10FFFF are not).
std::optional<code_point> next_code_point(std::string_view text) noexcept;

bool is_utf8(std::string_view text) noexcept;

// C0, DEL and C1.
constexpr bool is_control(char32_t c) noexcept { return c < 0x20 || (c >= 0x7f && c <= 0x9f); }

bool has_control(std::string_view text) noexcept;

// In double quotes, for messages: what could move a cursor, forge a line or turn the reading
// direction is written as an escape, and what is longer than `most` bytes is cut.
std::string quoted(std::string_view text, std::size_t most = 80);

// %XX in place of everything but unreserved characters and those in `keep`.
std::string percent_encode(std::string_view text, std::string_view keep = "/");

// Nothing for a % without two hex digits.
std::optional<std::string> percent_decode(std::string_view text);

}  // namespace holdfast::support

#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace holdfast::cli {

namespace {

struct range {
  char32_t first, last;
};

// East Asian Wide and Fullwidth (Unicode TR 11), and emoji, rounded to blocks.
constexpr std::array wide{
    range{0x1100, 0x115F},   range{0x2E80, 0x303E},   range{0x3041, 0x33FF},
    range{0x3400, 0x4DBF},   range{0x4E00, 0x9FFF},   range{0xA000, 0xA4CF},
    range{0xAC00, 0xD7A3},   range{0xF900, 0xFAFF},   range{0xFE30, 0xFE6F},
    range{0xFF00, 0xFF60},   range{0xFFE0, 0xFFE6},   range{0x1F300, 0x1F64F},
    range{0x1F680, 0x1F6FF}, range{0x1F900, 0x1F9FF}, range{0x20000, 0x3FFFD},
};
constexpr std::array zero_width{
    range{0x0300, 0x036F}, range{0x0483, 0x0489}, range{0x0591, 0x05BD}, range{0x064B, 0x065F},
    range{0x1AB0, 0x1AFF}, range{0x1DC0, 0x1DFF}, range{0x200B, 0x200D}, range{0x20D0, 0x20FF},
    range{0xFE00, 0xFE0F}, range{0xFE20, 0xFE2F},
};
// What can change how the text around it is shown.
constexpr std::array unsafe{
    range{0x0000, 0x001F}, range{0x007F, 0x009F}, range{0x061C, 0x061C},
    range{0x200E, 0x200F}, range{0x2028, 0x202E}, range{0x2060, 0x206F},
    range{0xFEFF, 0xFEFF}, range{0xFFF9, 0xFFFB}, range{0xE0000, 0xE007F},
};

template <std::size_t N>
bool in(const std::array<range, N>& ranges, char32_t c) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [c](const range& r) { return r.first <= c && c <= r.last; });
}

struct code_point {
  char32_t value;
  std::size_t length;
  bool valid;
};

// REQUIRES: text is not empty. Refuses overlong forms, surrogates and what is beyond Unicode.
code_point first_code_point(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
  if (length == 0 || lead > 0xF4 || text.size() < length) return {lead, 1, false};
  auto value = static_cast<char32_t>(lead & (0xFFU >> (length + 1)));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {lead, 1, false};
    value = (value << 6U) | (byte(i) & 0x3FU);
  }
  constexpr std::array<char32_t, 5> smallest{0, 0, 0x80, 0x800, 0x10000};
  if (value < smallest[length] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
    return {lead, 1, false};
  return {value, length, true};
}

std::size_t columns_of(const code_point& c) {
  if (!c.valid) return 1;
  if (in(zero_width, c.value)) return 0;
  return in(wide, c.value) ? 2 : 1;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto c = first_code_point(text);
    const auto bytes = text.substr(0, c.length);
    text.remove_prefix(c.length);
    if (c.valid && !in(unsafe, c.value)) {
      out += bytes;
      continue;
    }
    for (const char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return out;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto c = first_code_point(text);
    if (!c.valid) return false;
    text.remove_prefix(c.length);
  }
  return true;
}

std::size_t display_width(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const auto c = first_code_point(text);
    columns += columns_of(c);
    text.remove_prefix(c.length);
  }
  return columns;
}

std::string shortened(std::string_view text, std::size_t columns) {
  if (display_width(text) <= columns) return std::string{text};
  std::string out;
  std::size_t used = 1;  // the ellipsis
  while (!text.empty()) {
    const auto c = first_code_point(text);
    used += columns_of(c);
    if (used > columns) break;
    out += text.substr(0, c.length);
    text.remove_prefix(c.length);
  }
  return out + "…";
}

std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent) {
  std::string out;
  std::size_t used = indent;
  while (!text.empty()) {
    const auto word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    const auto width = display_width(word);
    if (used > indent && used + 1 + width > columns) {
      out += '\n' + std::string(indent, ' ');
      used = indent;
    } else if (!out.empty()) {
      out += ' ';
      ++used;
    }
    out += word;
    used += width;
  }
  return out;
}

std::string brief(std::chrono::nanoseconds duration) {
  if (duration == std::chrono::nanoseconds::max()) return "never";  // no_expiry
  if (duration == std::chrono::nanoseconds::min()) return "-";      // unknown_time
  const double ns = static_cast<double>(duration.count());
  if (ns < 0) return "-" + brief(-duration);
  const auto with_unit = [](double value, const char* unit) {
    return fmt::format("{:.{}f}{}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, unit);
  };
  if (ns < 1e3) return fmt::format("{}ns", duration.count());
  if (ns < 999.5e3) return with_unit(ns / 1e3, "us");
  if (ns < 999.5e6) return with_unit(ns / 1e6, "ms");
  if (ns < 59.95e9) return with_unit(ns / 1e9, "s");
  const auto seconds = static_cast<std::int64_t>(std::llround(ns / 1e9));
  if (seconds < 3600) return fmt::format("{}m{:02}s", seconds / 60, seconds % 60);
  if (seconds < 86400) return fmt::format("{}h{:02}m", seconds / 3600, seconds % 3600 / 60);
  return fmt::format("{}d{:02}h", seconds / 86400, seconds % 86400 / 3600);
}

std::string grouped(double number) {
  auto digits = fmt::format("{:.0f}", number);
  const std::size_t sign = digits.starts_with('-') ? 1 : 0;
  for (std::size_t at = digits.size(); at > sign + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string without_secrets(std::string_view text) {
  std::string out;
  for (;;) {
    const auto slashes = text.find("//");
    if (slashes == std::string_view::npos) return out + std::string{text};
    out += text.substr(0, slashes + 2);
    text.remove_prefix(slashes + 2);
    // The last @ before a blank: a password may itself contain @ or /.
    const auto word = text.substr(0, text.find_first_of(" \t\n\""));
    const auto at = word.rfind('@');
    const auto colon = word.find(':');
    if (at == std::string_view::npos || colon > at) continue;
    out += text.substr(0, colon + 1);
    out += "***";
    text.remove_prefix(at);
  }
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = i;
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const auto replaced = diagonal + (a[i] == b[j] ? 0U : 1U);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace holdfast::cli

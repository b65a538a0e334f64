#include "support/text.hpp"

#include <fmt/format.h>

#include <cctype>
#include <iterator>

namespace holdfast::support {

namespace {

// Characters that print as nothing, break a line, or change the order in which the rest is shown.
constexpr bool is_deceptive(char32_t c) noexcept {
  return is_control(c) || c == 0x2028 || c == 0x2029 || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x202a && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

constexpr bool is_unreserved(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

constexpr int hex_value(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

constexpr unsigned byte(char c) noexcept { return static_cast<unsigned char>(c); }

}  // namespace

std::optional<code_point> next_code_point(std::string_view text) noexcept {
  const unsigned lead = byte(text.front());
  if (lead < 0x80) return code_point{lead, 1};
  std::size_t bytes = 0;
  char32_t smallest = 0;  // anything below was spelt longer than needed
  char32_t value = 0;
  if ((lead & 0xe0) == 0xc0) {
    bytes = 2, smallest = 0x80, value = lead & 0x1f;
  } else if ((lead & 0xf0) == 0xe0) {
    bytes = 3, smallest = 0x800, value = lead & 0x0f;
  } else if ((lead & 0xf8) == 0xf0) {
    bytes = 4, smallest = 0x10000, value = lead & 0x07;
  } else {
    return std::nullopt;
  }
  if (text.size() < bytes) return std::nullopt;
  for (const char c : text.substr(1, bytes - 1)) {
    if ((byte(c) & 0xc0) != 0x80) return std::nullopt;
    value = (value << 6) | (byte(c) & 0x3f);
  }
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < smallest || value > 0x10ffff || surrogate) return std::nullopt;
  return code_point{value, bytes};
}

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const auto at = next_code_point(text);
    if (!at) return false;
    text.remove_prefix(at->bytes);
  }
  return true;
}

bool has_control(std::string_view text) noexcept {
  while (!text.empty()) {
    const auto at = next_code_point(text);
    if (at && is_control(at->value)) return true;
    text.remove_prefix(at ? at->bytes : 1);
  }
  return false;
}

std::string quoted(std::string_view text, std::size_t most) {
  std::string out{'"'};
  std::size_t taken = 0;
  while (!text.empty()) {
    const auto at = next_code_point(text);
    const std::size_t bytes = at ? at->bytes : 1;
    taken += bytes;
    if (taken > most) {
      out += "...";
      break;
    }
    if (!at) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte(text.front()));
    } else if (is_deceptive(at->value)) {
      fmt::format_to(std::back_inserter(out), "\\u{{{:x}}}", static_cast<unsigned>(at->value));
    } else {
      if (at->value == '"' || at->value == '\\') out += '\\';
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  out += '"';
  return out;
}

std::string percent_encode(std::string_view text, std::string_view keep) {
  std::string out;
  for (const char c : text) {
    if (is_unreserved(c) || keep.find(c) != std::string_view::npos) {
      out += c;
    } else {
      fmt::format_to(std::back_inserter(out), "%{:02X}", byte(c));
    }
  }
  return out;
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const int high = hex_value(text[i + 1]);
    const int low = hex_value(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

}  // namespace holdfast::support

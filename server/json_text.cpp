#include "json_text.hpp"

#include <fmt/format.h>

#include <cmath>

namespace holdfast::server {

namespace {

constexpr char32_t replacement = 0xFFFD;

// Of the sequence at the front, which is taken off; `replacement` for what is none (one byte is taken off then).
char32_t next_code_point(std::string_view& text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const auto first = byte(0);
  const std::size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  char32_t value = length == 1 ? first : first & (0xFFU >> (length + 1));
  constexpr char32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  bool good = length == 1 || (first >= 0xC2 && first <= 0xF4 && text.size() >= length);
  for (std::size_t i = 1; good && i < length; ++i) {
    good = (byte(i) & 0xC0U) == 0x80U;
    value = (value << 6U) | (byte(i) & 0x3FU);
  }
  good =
      good && value >= smallest[length] && value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF);
  text.remove_prefix(good ? length : 1);
  return good ? value : replacement;
}

void append_escaped(std::string& out, char32_t point) {
  if (point >= 0x10000) {
    point -= 0x10000;
    fmt::format_to(std::back_inserter(out), "\\u{:04x}\\u{:04x}",
                   0xD800U + static_cast<unsigned>(point >> 10U),
                   0xDC00U + static_cast<unsigned>(point & 0x3FFU));
    return;
  }
  fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(point));
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out{'"'};
  out.reserve(text.size() + 2);
  while (!text.empty()) {
    const char c = text.front();
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
      text.remove_prefix(1);
    } else if (c >= ' ' && c < 0x7F) {
      out += c;
      text.remove_prefix(1);
    } else {
      append_escaped(out, next_code_point(text));
    }
  }
  return out += '"';
}

json_object& json_object::add(std::string_view name, std::string_view value) {
  return add_json(name, json_string(value));
}

json_object& json_object::add(std::string_view name, bool value) {
  return add_json(name, value ? "true" : "false");
}

json_object& json_object::add(std::string_view name, double value) {
  return add_json(name, std::isfinite(value) ? fmt::format("{}", value) : "null");
}

json_object& json_object::add_json(std::string_view name, std::string_view json) {
  text_ += text_.empty() ? '{' : ',';
  text_ += json_string(name);
  text_ += ':';
  text_ += json;
  return *this;
}

json_array& json_array::add_json(std::string_view json) {
  text_ += text_.empty() ? '[' : ',';
  text_ += json;
  return *this;
}

}  // namespace holdfast::server

// What a parsed store address answers: its options, checked, and itself, redacted.
#include <chrono>

#include <holdfast/url.hpp>

#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

namespace holdfast {

namespace {

error bad_option(std::string message) {
  return {errc::misconfigured, "The store address is wrong: " + std::move(message)};
}

// Options whose value is a secret, whichever engine takes them.
bool is_secret_key(std::string_view key) {
  constexpr std::array<std::string_view, 5> words{"pass", "pwd", "secret", "token", "auth"};
  // password_file=, password_env=: where it is, and not what it is.
  if (key.ends_with("_file") || key.ends_with("_env")) return false;
  return std::any_of(words.begin(), words.end(),
                     [&](auto word) { return key.find(word) != std::string_view::npos; });
}

std::string shown_value(std::string_view key, std::string_view value) {
  return is_secret_key(key) ? std::string{"***"} : support::quoted(value);
}

}  // namespace

const std::string* store_url::find(std::string_view key) const {
  const auto found = query_.find(key);
  return found == query_.end() ? nullptr : &found->second;
}

result<std::int64_t> store_url::integer(std::string_view key, std::int64_t fallback,
                                        std::int64_t low, std::int64_t high) const {
  const std::string* text = find(key);
  if (text == nullptr) return fallback;
  std::int64_t value = 0;
  const auto end = text->data() + text->size();
  const auto read = std::from_chars(text->data(), end, value);
  const bool out_of_int64 = read.ec == std::errc::result_out_of_range;
  if (!out_of_int64 && (read.ec != std::errc{} || read.ptr != end)) {
    return bad_option(fmt::format("the option {} is {}, which is not a whole number.", key,
                                  shown_value(key, *text)));
  }
  if (out_of_int64 || value < low || value > high) {
    return bad_option(fmt::format("the option {} is {}; it must be from {} to {}.", key,
                                  shown_value(key, *text), low, high));
  }
  return value;
}

result<std::chrono::nanoseconds> store_url::duration(std::string_view key,
                                                     std::chrono::nanoseconds fallback,
                                                     std::chrono::nanoseconds low,
                                                     std::chrono::nanoseconds high) const {
  const std::string* text = find(key);
  if (text == nullptr) return fallback;
  auto value = parse_duration(*text);
  if (!value) {
    return bad_option(
        fmt::format("the option {} is no duration. {}", key, value.error().message()));
  }
  if (*value < low || *value > high) {
    return bad_option(fmt::format("the option {} is {}; it must be from {} to {}.", key,
                                  shown_value(key, *text), format_duration(low),
                                  format_duration(high)));
  }
  return *value;
}

result<void> store_url::allow_only(std::initializer_list<std::string_view> known) const {
  for (const auto& [key, value] : query_) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    if (known.size() == 0) {
      return bad_option(fmt::format("{}: takes no options, but {} is given; remove it.", scheme_,
                                    support::quoted(key)));
    }
    return bad_option(fmt::format("{}: has no option {}; it has {}.", scheme_, support::quoted(key),
                                  fmt::join(known, ", ")));
  }
  return {};
}

std::string store_url::str() const {
  std::string out = scheme_ + ":";
  auto to = std::back_inserter(out);
  if (!endpoints_.empty()) {
    out += "//" + support::percent_encode(user_, "");
    if (has_secret()) out += ":***";
    if (has_secret() || !user_.empty()) out += '@';
    std::string_view comma;
    for (const auto& [host, port] : endpoints_) {
      out += comma;
      comma = ",";
      out += host.find(':') == std::string::npos ? host : "[" + host + "]";
      if (port) fmt::format_to(to, ":{}", *port);
    }
  }
  // Escaped as little as possible, for people; what would be read differently stays escaped.
  out += support::percent_encode(path_, "/@:,+= ");
  char joint = '?';
  for (const auto& [key, value] : query_) {
    out += joint;
    joint = '&';
    out += key + '=' + (is_secret_key(key) ? "***" : support::percent_encode(value, "/:,+ "));
  }
  return out;
}

}  // namespace holdfast

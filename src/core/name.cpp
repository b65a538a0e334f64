// The one rule for lock names, the same for every store.
#include <chrono>

#include <holdfast/url.hpp>

#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast {

namespace {

constexpr std::size_t longest_name = 255;

error bad_name(std::string_view name, std::string_view why) {
  return {errc::misconfigured, fmt::format("The lock name {} {}", support::quoted(name), why)};
}

}  // namespace

result<void> check_name(std::string_view name) {
  if (name.empty()) {
    return error{errc::misconfigured, "The lock name is empty; give it 1 to 255 bytes of UTF-8."};
  }
  if (name.size() > longest_name) {
    return bad_name(name, fmt::format("is {} bytes long; at most {} are allowed, so shorten it.",
                                      name.size(), longest_name));
  }
  if (!support::is_utf8(name)) return bad_name(name, "is not valid UTF-8; encode it as UTF-8.");
  if (support::has_control(name)) {
    return bad_name(name, "contains a control character; remove it.");
  }
  if (name.front() == ' ' || name.back() == ' ') {
    return bad_name(name, "begins or ends with a space; remove it.");
  }
  for (std::size_t begin = 0; begin <= name.size();) {
    const auto end = std::min(name.find('/', begin), name.size());
    const auto segment = name.substr(begin, end - begin);
    if (segment.empty()) {
      return bad_name(name,
                      "has an empty segment; it must not begin or end with a slash, nor have "
                      "two in a row.");
    }
    if (segment == "." || segment == "..") {
      return bad_name(name, "has a \".\" or \"..\" between its slashes; use other words there.");
    }
    begin = end + 1;
  }
  return {};
}

}  // namespace holdfast

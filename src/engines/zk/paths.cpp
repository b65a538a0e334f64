#include "engines/zk/paths.hpp"

#include "support/text.hpp"

#include <array>
#include <cctype>

namespace holdfast::engines::zk {

namespace {

constexpr char escape = '~';

void append_escaped(std::string& to, char byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  const auto value = static_cast<unsigned char>(byte);
  to.push_back(escape);
  to.push_back(digits[value >> 4U]);
  to.push_back(digits[value & 15U]);
}

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A') + 10;
  return std::nullopt;
}

// ZooKeeper judges the 16-bit units of Java: everything from the surrogates to the end of the private use area, and
// the last few.
bool is_refused(char32_t c) { return c > 0xFFFF || (c >= 0xD800 && c <= 0xF8FF) || c >= 0xFFF0; }

bool looks_sequential(std::string_view segment) {
  if (segment.size() < 10) return false;
  for (const char c : segment.substr(segment.size() - 9))
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) return false;
  const char first = segment[segment.size() - 10];
  return first == '-' || std::isdigit(static_cast<unsigned char>(first)) != 0;
}

bool has_own_meaning(std::string_view segment, bool is_first) {
  if (is_first) return segment == "zookeeper";
  return segment == "locks" || segment == "leases";
}

void append_segment(std::string& to, std::string_view segment, bool is_first) {
  const bool sequential = looks_sequential(segment);
  const bool is_early = static_cast<unsigned char>(segment.front()) <= '0';
  const bool shifted = is_early || has_own_meaning(segment, is_first);
  bool begun = false;
  while (!segment.empty()) {
    const auto character = support::next_code_point(segment);
    const auto length = character ? character->bytes : 1;
    const char c = segment.front();
    const bool whole = character && !is_refused(character->value);
    const bool hidden =
        c == escape || c == '/' || (!begun && shifted) || (sequential && (c == '-' || c == '_'));
    for (const char byte : segment.substr(0, length)) {
      if (whole && !hidden) {
        to.push_back(byte);
      } else {
        append_escaped(to, byte);
      }
    }
    begun = true;
    segment.remove_prefix(length);
  }
}

}  // namespace

std::string path_of(std::string_view root, std::string_view name) {
  std::string out{root};
  bool first = true;
  while (true) {
    const auto end = name.find('/');
    out.push_back('/');
    append_segment(out, name.substr(0, end), first);
    first = false;
    if (end == std::string_view::npos) return out;
    name.remove_prefix(end + 1);
  }
}

std::string flat_path_of(std::string_view root, std::string_view name) {
  std::string out{root};
  out.push_back('/');
  append_segment(out, name, true);
  return out;
}

std::string counter_path(std::string_view root, std::string_view name) {
  return flat_path_of(counters_root(root), name);
}

std::string kept_path(std::string_view root, std::string_view name) {
  return flat_path_of(kept_root(root), name);
}

std::optional<std::string> decoded(std::string_view path) {
  std::string out;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] != escape) {
      out.push_back(path[i]);
      continue;
    }
    if (i + 2 >= path.size()) return std::nullopt;
    const auto high = hex_digit(path[i + 1]), low = hex_digit(path[i + 2]);
    if (!high || !low) return std::nullopt;
    out.push_back(static_cast<char>(*high << 4U | *low));
    i += 2;
  }
  return out;
}

}  // namespace holdfast::engines::zk

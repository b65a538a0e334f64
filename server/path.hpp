// The target of a request, taken apart: path and query, percent-decoded once.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace holdfast::server {

// Nothing for a % without two hexadecimal digits behind it.
std::optional<std::string> percent_decoded(std::string_view text);

// "?ttl=10s&name=a%2Fb". Throws refused for what cannot be decoded, and for a parameter given twice. `+` is a plus.
class query {
 public:
  query() = default;
  explicit query(std::string_view text);
  const std::string* find(std::string_view name) const;
  bool empty() const noexcept { return all_.empty(); }
  // Throws refused for a parameter that is not among them.
  void allow_only(std::initializer_list<std::string_view> names) const;

 private:
  std::vector<std::pair<std::string, std::string>> all_;
};

struct target_parts {
  std::string_view path;   // not decoded
  std::string_view query;  // without its question mark
};
target_parts split_target(std::string_view target);

// "a:b:acquire" is the name "a:b", not decoded, and the verb "acquire".
struct verb_parts {
  std::string_view name;
  std::string_view verb;  // empty: there is none
};
verb_parts split_verb(std::string_view path);

}  // namespace holdfast::server

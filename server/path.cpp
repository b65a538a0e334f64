#include "path.hpp"

#include "problems.hpp"

#include <algorithm>
#include <initializer_list>

namespace holdfast::server {

namespace {

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
  return std::nullopt;
}

std::string decoded_or_refused(std::string_view text) {
  auto out = percent_decoded(text);
  if (!out)
    throw refused(bad_request("the query has a % without two hexadecimal digits behind it"));
  return std::move(*out);
}

}  // namespace

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const auto high = hex_digit(text[i + 1]);
    const auto low = hex_digit(text[i + 2]);
    if (!high || !low) return std::nullopt;
    out += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return out;
}

query::query(std::string_view text) {
  while (!text.empty()) {
    const auto end = std::min(text.find('&'), text.size());
    const auto pair = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (pair.empty()) continue;
    const auto equals = std::min(pair.find('='), pair.size());
    auto name = decoded_or_refused(pair.substr(0, equals));
    if (find(name) != nullptr) throw refused(bad_request("the query has a parameter twice"));
    all_.emplace_back(std::move(name),
                      decoded_or_refused(pair.substr(std::min(equals + 1, pair.size()))));
  }
}

const std::string* query::find(std::string_view name) const {
  const auto it =
      std::find_if(all_.begin(), all_.end(), [&](const auto& pair) { return pair.first == name; });
  return it == all_.end() ? nullptr : &it->second;
}

void query::allow_only(std::initializer_list<std::string_view> names) const {
  for (const auto& pair : all_)
    if (std::find(names.begin(), names.end(), pair.first) == names.end())
      throw refused(bad_request("the query has a parameter that is not known here"));
}

target_parts split_target(std::string_view target) {
  const auto mark = target.find('?');
  if (mark == std::string_view::npos) return {target, {}};
  return {target.substr(0, mark), target.substr(mark + 1)};
}

verb_parts split_verb(std::string_view path) {
  const auto colon = path.rfind(':');
  if (colon == std::string_view::npos) return {path, {}};
  return {path.substr(0, colon), path.substr(colon + 1)};
}

}  // namespace holdfast::server

#include "engines/redis/sighting.hpp"

#include <charconv>
#include <string_view>

namespace holdfast::engines::redis {

namespace {

std::string_view field(const resp::value& of, std::string_view name) {
  for (std::size_t i = 0; i + 1 < of.items.size(); i += 2)
    if (of.items[i].text == name) return of.items[i + 1].text;
  return {};
}

template <class N>
void read_number(std::string_view digits, N& into) {
  std::from_chars(digits.data(), digits.data() + digits.size(), into);
}

}  // namespace

std::optional<sighting> read_sighting(const resp::value& fields, const resp::value& address) {
  sighting out;
  if (address.items.size() != 2) return std::nullopt;
  out.host = address.items[0].text;
  read_number(address.items[1].text, out.port);
  read_number(field(fields, "config-epoch"), out.epoch);
  read_number(field(fields, "quorum"), out.quorum);
  read_number(field(fields, "num-slaves"), out.replicas);
  read_number(field(fields, "num-other-sentinels"), out.others);
  return out.host.empty() || out.port == 0 ? std::nullopt : std::optional{std::move(out)};
}

}  // namespace holdfast::engines::redis

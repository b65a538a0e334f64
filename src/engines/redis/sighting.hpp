// What a sentinel says of a master. Pure.
#pragma once

#include "resp/resp.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace holdfast::engines::redis {

struct sighting {
  std::string host;
  std::uint16_t port = 0;
  std::uint64_t epoch = 0;
  std::int64_t quorum = 0, replicas = 0, others = 0;
};

// The answers to SENTINEL MASTER (names of fields, each before its value) and then to SENTINEL GET-MASTER-ADDR-BY-NAME.
// Nothing: they do not say where the master is.
//
// The address is that of the second. In the first, the sentinel that carries out a fail-over names the old master
// beside the new epoch until the other replicas follow the new one, which may take minutes; in the second it names
// the new one as soon as it has the new epoch. Asked in this order, no answer puts an old address beside a new epoch.
std::optional<sighting> read_sighting(const resp::value& fields, const resp::value& address);

}  // namespace holdfast::engines::redis

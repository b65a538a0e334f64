// Any bytes as what nodes of a cluster and sentinels say of others. What must hold: what is taken from them is a place
// that can be connected to, and slots and masters that there are.
#include "fuzz/require.hpp"

#include "engines/redis/cluster_map.hpp"
#include "engines/redis/sighting.hpp"
#include "resp/resp.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace {

using namespace holdfast::engines::redis;

void check_view(const std::vector<node_view>& view) {
  for (const auto& node : view) {
    REQUIRE(!node.where.host.empty() && node.where.port != 0);
    REQUIRE(node.is_master || node.slots.empty());
    for (const auto& [from, to] : node.slots) REQUIRE(from <= to && to < slot_count);
  }
}

// Some of the slots: to look at all of them takes a while.
void check_map(const cluster_map& map) {
  REQUIRE(std::ranges::is_sorted(map.nodes()));
  for (unsigned slot = 0; slot < slot_count; slot += 61) {
    const auto master = map.master_of(slot);
    REQUIRE(!master || *master < map.masters().size());
    REQUIRE(master || map.epoch_of(slot) == 0);
  }
  REQUIRE(map.slots_without_master() < slot_count || map.masters().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  const auto whole = read_nodes(bytes, "asked");
  check_view(whole);
  // As the views of two nodes.
  const auto half = read_nodes(bytes.substr(0, size / 2), "other");
  check_view(half);
  check_map(cluster_map{{whole, half}});

  auto rest = bytes;
  if (const auto fields = holdfast::resp::take(rest))
    if (const auto address = holdfast::resp::take(rest))
      if (const auto seen = read_sighting(*fields, *address))
        REQUIRE(!seen->host.empty() && seen->port != 0);
  return 0;
}

// Redis Cluster: which master has which slot, as the nodes tell it. Pure.
//
// Every node has a view of its own, and that of one which was cut off is old. So several are asked, and for each slot
// the claim with the highest epoch counts: a replica that takes over does so with a higher one.
#pragma once

#include "engines/redis/slots.hpp"

#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace holdfast::engines::redis {

// Where a node says that it is.
struct node_address {
  std::string host;
  std::uint16_t port = 0;
  auto operator<=>(const node_address&) const = default;
};

struct node_view {
  node_address where;
  std::string host_name;  // if it has announced one
  bool is_master = false;
  bool has_failed = false;
  std::uint64_t epoch = 0;
  std::vector<std::pair<unsigned, unsigned>> slots;  // from, to
};

// The answer to CLUSTER NODES. `asked`: the host that answered, for a node that does not know its own yet. Lines that
// are not understood, and nodes without an address, are left out.
std::vector<node_view> read_nodes(std::string_view text, const std::string& asked);

class cluster_map {
 public:
  // The views of several nodes.
  explicit cluster_map(const std::vector<std::vector<node_view>>& views);

  const std::vector<node_view>& masters() const noexcept { return masters_; }  // that have slots
  const std::vector<node_address>& nodes() const noexcept { return nodes_; }   // all, sorted
  // Which of the masters; nothing: none has it.
  std::optional<std::size_t> master_of(unsigned slot) const noexcept;
  // Of the claim to this slot that counts; 0: there is none.
  std::uint64_t epoch_of(unsigned slot) const noexcept { return epochs_[slot]; }
  std::size_t slots_without_master() const noexcept;
  std::vector<unsigned> tags_of(std::size_t master) const;

 private:
  static constexpr std::uint16_t nobody = 0xffff;
  void drop_masters_without_slots();
  std::vector<node_view> masters_;
  std::vector<node_address> nodes_;
  std::array<std::uint16_t, slot_count> owners_{};
  std::array<std::uint64_t, slot_count> epochs_{};
};

// The epochs of what was believed last. When only nodes answer that were cut off, their map is older than that.
class known_epochs {
 public:
  // True: it is older, and not believed. Not for ever: a cluster may have been set up anew. Else it is noted.
  bool refuses(const cluster_map& map, steady_time now);

 private:
  std::array<std::uint64_t, slot_count> of_slot_{};
  std::optional<steady_time> older_since_;
};

}  // namespace holdfast::engines::redis

// A Redis Cluster: masters that share the slots evenly, each with a replica.
//
//   redis_cluster store;
//   client::open(store.url());
//   const auto at = store.master_of_lock("stock");    // of the native layout
//   store.node(at).kill();                            // its replica takes over
//   ASSERT_TRUE(store.has_taken_over(at));
#pragma once

#include "support/network_lab.hpp"
#include "support/redis_server.hpp"
#include "support/reserved_port.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::testing {

class redis_cluster {
 public:
  struct options {
    std::size_t masters = 3;
    redis_server::options each{};
    const network_lab* network = nullptr;  // node i is at place i; null: all on the loopback
  };
  static availability available() { return redis_server::available(); }

  // Returns when all nodes know each other, and every replica is in step.
  redis_cluster() : redis_cluster(options{}) {}
  explicit redis_cluster(const options& how);

  // First the masters of the beginning, then their replicas in the same order.
  redis_server& node(std::size_t i) { return *nodes_[i]; }
  std::size_t size() const noexcept { return nodes_.size(); }
  std::size_t masters() const noexcept { return nodes_.size() / 2; }
  std::size_t replica_of(std::size_t master) const noexcept { return masters() + master; }
  // redis+cluster://127.0.0.1:PORT,... of the masters.
  std::string url(const std::string& query = {}) const;

  // Which node serves this slot now, by the word of one that lives.
  std::optional<std::size_t> master_of(unsigned slot) const;
  // The slot, and the node, of a lock of the native layout.
  static unsigned slot_of_lock(std::string_view name);
  std::optional<std::size_t> master_of_lock(std::string_view name) const {
    return master_of(slot_of_lock(name));
  }
  // Waits until the replica of this master has its slots.
  bool has_taken_over(std::size_t master) const;
  // Waits until every node that lives calls the cluster well.
  bool is_well() const;
  // Moves a slot, as redis-cli does it: `half_way` is called when its keys are still to be moved.
  template <class HalfWay>
  void move_slot(unsigned slot, std::size_t from, std::size_t to, HalfWay half_way) {
    begin_move(slot, from, to);
    half_way();
    end_move(slot, from, to);
  }

 private:
  std::string id_of(std::size_t i) const;
  void begin_move(unsigned slot, std::size_t from, std::size_t to) const;
  void end_move(unsigned slot, std::size_t from, std::size_t to) const;
  std::optional<std::size_t> owner_in(const std::string& nodes, unsigned slot) const;

  std::vector<std::unique_ptr<reserved_port>> buses_;
  std::vector<std::unique_ptr<redis_server>> nodes_;
};

// For all tests of this process. Ask on the main thread.
redis_cluster& shared_redis_cluster();

}  // namespace holdfast::testing

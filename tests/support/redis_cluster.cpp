#include "support/redis_cluster.hpp"

#include "engines/redis/cluster_map.hpp"
#include "support/shared_server.hpp"
#include "support/wait_until.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace holdfast::testing {

namespace {

using namespace std::chrono_literals;
using engines::redis::slot_count;

void must(const redis_server& server, const std::vector<std::string_view>& words) {
  const auto said = server.command(words);
  if (said != "OK") throw std::runtime_error(fmt::format("{}: {}", fmt::join(words, " "), said));
}

bool has(const redis_server& server, std::string_view section, std::string_view line) {
  return server.try_command({"INFO", section}).find(line) != std::string::npos;
}

}  // namespace

redis_cluster::redis_cluster(const options& how) {
  for (std::size_t i = 0; i < 2 * how.masters; ++i) {
    buses_.push_back(std::make_unique<reserved_port>());
    auto each = how.each;
    each.network = how.network;
    each.place = i;
    for (const auto* line :
         {"cluster-enabled yes", "cluster-config-file nodes.conf", "cluster-node-timeout 1000",
          "cluster-require-full-coverage no", "cluster-replica-validity-factor 0",
          "cluster-allow-replica-migration no"})
      each.config.emplace_back(line);
    each.config.push_back(fmt::format("cluster-port {}", buses_.back()->number()));
    if (!each.password.empty()) each.config.push_back("masterauth " + each.password);
    nodes_.push_back(std::make_unique<redis_server>(each));
  }
  for (std::size_t i = 0; i < how.masters; ++i) {
    const auto from = std::to_string(i * slot_count / how.masters);
    const auto to = std::to_string((i + 1) * slot_count / how.masters - 1);
    must(*nodes_[i], {"CLUSTER", "ADDSLOTSRANGE", from, to});
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    must(*nodes_[i], {"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
    if (i == 0) continue;
    must(*nodes_[0], {"CLUSTER", "MEET", nodes_[i]->host(), std::to_string(nodes_[i]->port()),
                      std::to_string(buses_[i]->number())});
  }
  const auto known = fmt::format("cluster_known_nodes:{}", nodes_.size());
  if (!wait_until(
          [&] {
            return std::ranges::all_of(nodes_, [&](const auto& node) {
              return node->try_command({"CLUSTER", "INFO"}).find(known) != std::string::npos;
            });
          },
          3 * patience))
    throw std::runtime_error("the nodes of the cluster do not meet");
  for (std::size_t i = 0; i < how.masters; ++i) {
    const auto master = id_of(i);
    // It may not have heard yet that that one is a master.
    if (!wait_until([&] {
          return nodes_[replica_of(i)]->try_command({"CLUSTER", "REPLICATE", master}) == "OK";
        }))
      throw std::runtime_error("a node does not become a replica");
  }
  for (std::size_t i = 0; i < how.masters; ++i)
    if (!wait_until([&] { return has(*nodes_[i], "replication", "state=online"); }, 2 * patience))
      throw std::runtime_error("a replica does not come in step");
  if (!is_well()) throw std::runtime_error("the cluster does not become well");
}

std::string redis_cluster::url(const std::string& query) const {
  std::string out;
  for (std::size_t i = 0; i < masters(); ++i)
    out += fmt::format("{}{}:{}", i == 0 ? "redis+cluster://" : ",", nodes_[i]->host(),
                       nodes_[i]->port());
  return out + query;
}

std::string redis_cluster::id_of(std::size_t i) const {
  return nodes_[i]->command({"CLUSTER", "MYID"});
}

unsigned redis_cluster::slot_of_lock(std::string_view name) {
  return engines::redis::slot_of_tag(engines::redis::tag_of(name));
}

std::optional<std::size_t> redis_cluster::owner_in(const std::string& nodes, unsigned slot) const {
  const engines::redis::cluster_map map{{engines::redis::read_nodes(nodes, "127.0.0.1")}};
  const auto master = map.master_of(slot);
  if (!master) return std::nullopt;
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i]->port() == map.masters()[*master].where.port) return i;
  return std::nullopt;
}

std::optional<std::size_t> redis_cluster::master_of(unsigned slot) const {
  for (const auto& node : nodes_)
    if (const auto said = node->try_command({"CLUSTER", "NODES"}); !said.empty())
      return owner_in(said, slot);
  return std::nullopt;
}

bool redis_cluster::has_taken_over(std::size_t master) const {
  const auto& replica = *nodes_[replica_of(master)];
  return wait_until(
      [&] {
        return replica.try_command({"ROLE"}).starts_with("[master") &&
               replica.try_command({"CLUSTER", "INFO"}).find("cluster_state:ok") !=
                   std::string::npos;
      },
      3 * patience);
}

bool redis_cluster::is_well() const {
  return wait_until(
      [&] {
        return std::ranges::all_of(nodes_, [&](const auto& node) {
          const auto said = node->try_command({"CLUSTER", "INFO"});
          return said.empty() || (said.find("cluster_state:ok") != std::string::npos &&
                                  said.find("cluster_slots_ok:16384") != std::string::npos);
        });
      },
      3 * patience);
}

void redis_cluster::begin_move(unsigned slot, std::size_t from, std::size_t to) const {
  const auto number = std::to_string(slot);
  must(*nodes_[to], {"CLUSTER", "SETSLOT", number, "IMPORTING", id_of(from)});
  must(*nodes_[from], {"CLUSTER", "SETSLOT", number, "MIGRATING", id_of(to)});
}

void redis_cluster::end_move(unsigned slot, std::size_t from, std::size_t to) const {
  const auto number = std::to_string(slot);
  const auto port = std::to_string(nodes_[to]->port());
  for (;;) {
    auto keys = nodes_[from]->command({"CLUSTER", "GETKEYSINSLOT", number, "1"});
    if (keys == "[]") break;
    const auto key = keys.substr(1, keys.size() - 2);
    must(*nodes_[from], {"MIGRATE", nodes_[to]->host(), port, key, "0", "5000"});
  }
  const auto id = id_of(to);
  for (const auto i : {to, from}) must(*nodes_[i], {"CLUSTER", "SETSLOT", number, "NODE", id});
  for (std::size_t i = 0; i < masters(); ++i)
    if (i != to && i != from) must(*nodes_[i], {"CLUSTER", "SETSLOT", number, "NODE", id});
}

redis_cluster& shared_redis_cluster() {
  static shared_server<redis_cluster> single;
  return *single;
}

}  // namespace holdfast::testing

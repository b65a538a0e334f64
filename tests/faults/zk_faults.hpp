// What the bad days of the ZooKeeper engine share. Locks lie in Curator's layout, directly below the root: the
// contenders of "stock" are ephemeral nodes below /stock.
//
//   HOLDFAST_REQUIRE_ENGINES=zk   a missing ZooKeeper fails instead of skipping (CI sets it; "all" is all)
#pragma once

#include "faults/faults.hpp"

#include "support/zookeeper_hand.hpp"
#include "support/zookeeper_server.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <sstream>
#include <stdexcept>

namespace holdfast::testing {

class zk_faults : public ::testing::Test {
 protected:
  void SetUp() override { need(zookeeper_server::available(), "zk"); }
};

// The same store by way of a bad network.
inline std::string zk_url(const fault_proxy& through, std::string_view options = {}) {
  return fmt::format("{}{}{}", through.url("zk"), options.empty() ? "" : "?", options);
}

// ---- the server's view

// A node that serves, as soon as one does; in an ensemble it may be a moment behind.
inline std::size_t running_node(const zookeeper_server& server) {
  std::size_t found = 0;
  const auto serves = [&] {
    for (found = 0; found < server.nodes(); ++found)
      if (server.is_up(found) && server.is_healthy(found)) return true;
    return false;
  };
  if (!wait_until(serves, 2 * patience)) throw std::runtime_error("no node serves");
  return found;
}

struct ephemeral_node {
  std::string path;
  std::int64_t session = 0;
};

// All of them, by the operator's question `dump`, which needs no session: "0x1000:", then its paths, one to a line.
inline std::vector<ephemeral_node> ephemerals(const zookeeper_server& server,
                                              std::string_view below = "/") {
  std::vector<ephemeral_node> out;
  std::istringstream lines{server.four_letter(running_node(server), "dump")};
  std::int64_t session = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("0x")) {
      session = static_cast<std::int64_t>(std::stoull(line, nullptr, 16));
    } else if (line.starts_with("\t") && line.substr(1).starts_with(below)) {
      out.push_back({line.substr(1), session});
    }
  }
  return out;
}

// Those of one lock, in the order of their turns. (No test of these wraps the sequence.)
inline std::vector<ephemeral_node> contenders(const zookeeper_server& server,
                                              const std::string& name) {
  auto out = ephemerals(server, "/" + name + "/");
  std::ranges::sort(out, {}, [](const auto& node) {
    return node.path.substr(node.path.size() - std::min<std::size_t>(node.path.size(), 10));
  });
  return out;
}

inline bool wait_for_nodes(const zookeeper_server& server, const std::string& name,
                           std::size_t count, nanoseconds within = patience) {
  return wait_until([&] { return contenders(server, name).size() == count; }, within);
}

// Behind the holder.
inline bool one_waits(const zookeeper_server& server, const std::string& name) {
  return wait_for_nodes(server, name, 2);
}

inline bool is_locked(const zookeeper_server& server, const std::string& name) {
  return !contenders(server, name).empty();
}

// All that is anybody's. The folders of locks are not: they go when they were idle for a while.
inline std::string left_behind(const zookeeper_server& server) {
  std::string out;
  for (const auto& node : ephemerals(server)) out += node.path + " ";
  return out;
}

inline bool leaves_nothing(const zookeeper_server& server, nanoseconds within = patience) {
  return wait_until([&] { return ephemerals(server).empty(); }, within);
}

// What is claimed is in the store: the first node, made by the transaction that is the token.
inline ::testing::AssertionResult is_proven(const zookeeper_server& server, const lease& held) {
  zookeeper_hand hand{server, {.node = running_node(server)}};
  std::string first;
  std::uint64_t token = 0;
  for (const auto& name : hand.children("/" + held.name())) {
    const auto found = hand.stat(fmt::format("/{}/{}", held.name(), name));
    const auto turn = name.substr(name.size() - std::min<std::size_t>(name.size(), 10));
    if (!found || found->ephemeral_owner == 0 || (token != 0 && turn > first)) continue;
    first = turn;
    token = static_cast<std::uint64_t>(found->czxid);
  }
  if (token == held.token().value) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "the first node, ..." << first << ", is of zxid " << token
                                       << ", the token is " << held.token().value;
}

}  // namespace holdfast::testing

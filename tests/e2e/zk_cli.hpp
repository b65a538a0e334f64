// The command against real ZooKeeper servers.
#pragma once

#include "e2e/store_cli.hpp"
#include "support/zookeeper_hand.hpp"
#include "support/zookeeper_server.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace e2e {

using holdfast::testing::zookeeper_hand;
using holdfast::testing::zookeeper_server;

class zk_cli : public store_cli<zookeeper_server> {
 protected:
  void SetUp() override { need(zookeeper_server::available(), "zk"); }
  // And the operator's hand is in it.
  zookeeper_server& start(zookeeper_server::options how = {}) {
    hand_.reset();
    auto& servers = store_cli::start(std::move(how));
    hand_.emplace(servers);
    return servers;
  }
  zookeeper_hand& hand() { return *hand_; }
  using words = std::vector<std::string>;

  // The nodes of those that hold the lock of this folder or wait for it.
  words nodes(const std::string& folder) {
    return hand().stat(folder) ? hand().children(folder) : words{};
  }
  bool queued(const std::string& folder, std::size_t count) {
    return eventually([&] { return nodes(folder).size() == count; });
  }
  // Words for `holdfast`: a command that says where it is and stays there.
  static words staying(words line, const std::string& file = "pid") {
    line.insert(line.end(), {"--", "sh", "-c", "echo $$ > " + file + "; exec sleep 60"});
    return line;
  }

 private:
  std::optional<zookeeper_hand> hand_;
};

}  // namespace e2e

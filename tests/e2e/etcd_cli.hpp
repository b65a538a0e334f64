// The command against real etcd servers.
#pragma once

#include "e2e/store_cli.hpp"
#include "support/etcd_server.hpp"

#include <string>
#include <utility>

namespace e2e {

using holdfast::testing::etcd_server;

class etcd_cli : public store_cli<etcd_server> {
 protected:
  void SetUp() override { need(etcd_server::available(), "etcd"); }
  // And etcdctl uses these servers, too.
  etcd_server& start(etcd_server::options how = {}) {
    auto& servers = store_cli::start(std::move(how));
    box.set("ETCDCTL_API", "3");
    box.set("ETCDCTL_ENDPOINTS", "127.0.0.1:" + std::to_string(servers.port()));
    return servers;
  }
  bool queued(const std::string& name, std::size_t count) const {
    return eventually([&] { return running().keys(name + "/").size() == count; });
  }
};

}  // namespace e2e

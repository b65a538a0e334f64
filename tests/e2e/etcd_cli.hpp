// The command against real etcd servers.
#pragma once

#include "e2e/shell.hpp"
#include "support/etcd_server.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace e2e {

using holdfast::testing::etcd_server;

class etcd_cli : public ::testing::Test {
 protected:
  void SetUp() override { need(etcd_server::available(), "etcd"); }
  // Everything from now on uses these servers.
  etcd_server& start(etcd_server::options how = {}) {
    server_ = std::make_unique<etcd_server>(std::move(how));
    box.set("HOLDFAST_STORE", server_->url());
    box.set("ETCDCTL_API", "3");
    box.set("ETCDCTL_ENDPOINTS", "127.0.0.1:" + std::to_string(server_->port()));
    return *server_;
  }
  bool queued(const std::string& name, std::size_t count) const {
    return eventually([&] { return server_->keys(name + "/").size() == count; });
  }

  sandbox box;  // looks for processes that are left behind, so the servers must be gone before it

 private:
  std::unique_ptr<etcd_server> server_;
};

}  // namespace e2e

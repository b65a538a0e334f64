// The command against real Consul servers.
#pragma once

#include "e2e/store_cli.hpp"
#include "support/consul_server.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace e2e {

using holdfast::testing::consul_server;

class consul_cli : public store_cli<consul_server> {
 protected:
  void SetUp() override { need(consul_server::available(), "consul"); }
  // Locks lie below locks/, so the lock "job" is what `consul lock locks/job` uses. In lines of shell $CONSUL is the
  // program, and uses these servers, too.
  consul_server& start(consul_server::options how = {}) {
    auto& servers = store_cli::start(std::move(how));
    box.set("HOLDFAST_STORE", servers.url() + "/locks?lock_delay=0s");
    box.set("CONSUL", consul_server::program());
    box.set("SHELL", "/bin/sh");  // which `consul lock` runs its command with
    box.set("CONSUL_HTTP_ADDR", fmt::format("http://127.0.0.1:{}", servers.plain_port()));
    return servers;
  }
  static std::string lock_key(const std::string& name) { return "locks/" + name + "/.lock"; }
  bool is_locked(const std::string& name) const {
    const auto key = running().find(lock_key(name));
    return key && !key->session.empty();
  }
  using words = std::vector<std::string>;
  // Words for `holdfast`: a command that says where it is and stays there.
  static words staying(words line, const std::string& file = "pid") {
    line.insert(line.end(), {"--", "sh", "-c", "echo $$ > " + file + "; exec sleep 60"});
    return line;
  }
};

}  // namespace e2e

// Several independent redis-servers, for locks over a majority of them.
#pragma once

#include "support/redis_server.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace holdfast::testing {

class redlock_servers {
 public:
  struct options {
    std::size_t nodes = 5;
    redis_server::options each{};
    std::vector<std::vector<std::string>> environments{};  // by node
    const network_lab* network = nullptr;  // node i is at place i; null: all on the loopback
  };
  explicit redlock_servers(const options& how) {
    for (std::size_t i = 0; i < how.nodes; ++i) {
      auto each = how.each;
      if (i < how.environments.size()) each.environment = how.environments[i];
      each.network = how.network;
      each.place = i;
      all_.push_back(std::make_unique<redis_server>(each));
    }
  }

  std::size_t size() const noexcept { return all_.size(); }
  redis_server& operator[](std::size_t i) { return *all_[i]; }
  // redlock://HOST:PORT,... Servers of a test are young, so its options say that they may vote at once.
  std::string url(const std::string& query = "?quarantine=0") const {
    std::string out;
    for (const auto& one : all_)
      out += (out.empty() ? "redlock://" : ",") + one->host() + ':' + std::to_string(one->port());
    return out + query;
  }

 private:
  std::vector<std::unique_ptr<redis_server>> all_;
};

// For all tests of this process. Ask on the main thread.
redlock_servers& shared_redlock(std::size_t nodes);

}  // namespace holdfast::testing

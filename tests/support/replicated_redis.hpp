// A Redis master with replicas, and the sentinels that watch it.
//
//   replicated_redis store{{.config = {"min-replicas-to-write 1"}}};
//   client::open(store.url());
//   const auto old = store.master();
//   store.server(old).kill();                       // the sentinels make another one the master
//   ASSERT_TRUE(store.has_master_other_than(old));
#pragma once

#include "support/network_lab.hpp"
#include "support/redis_server.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::testing {

class replicated_redis {
 public:
  struct options {
    std::size_t replicas = 2;
    std::size_t sentinels = 3;
    redis_server::options each{};     // every server
    redis_server::options watcher{};  // every sentinel
    std::vector<std::string>
        watched_with{};  // more lines of sentinel.conf, with NAME for "mymaster"
    // The sentinels keep their own times: ten seconds between two looks at a master, and two between two words to each
    // other. Else these would be spent waiting, so they are made shorter.
    bool usual_times = false;
    // Server i and sentinel i are at place i; null: all on the loopback.
    const network_lab* network = nullptr;
  };
  static availability available() { return redis_server::available(); }

  // Returns when every sentinel knows the master, all replicas and all other sentinels.
  replicated_redis() : replicated_redis(options{}) {}
  explicit replicated_redis(const options& how);

  std::size_t size() const noexcept { return servers_.size(); }
  redis_server& server(std::size_t i) { return *servers_[i]; }
  redis_server& sentinel(std::size_t i) { return *sentinels_[i]; }
  std::size_t sentinels() const noexcept { return sentinels_.size(); }
  // redis+sentinel://HOST:PORT,.../mymaster, beginning with that sentinel.
  std::string url(const std::string& query = {}, std::size_t first = 0) const;

  // What a majority of the sentinels that answer says, by the number of the server.
  std::optional<std::size_t> master() const;
  // What this one says, in its answer to SENTINEL MASTER.
  std::optional<std::size_t> master_by(const redis_server& sentinel) const;
  // Waits for a fail-over: all sentinels that live name a server that is not this one, and it calls itself master.
  bool has_master_other_than(std::size_t old) const;
  // Waits until the master has this many replicas in step.
  bool has_replicas(std::size_t count) const;

 private:
  bool is_ready() const;

  std::vector<std::unique_ptr<redis_server>> servers_, sentinels_;
};

// For all tests of this process. Ask on the main thread.
replicated_redis& shared_replicated_redis();

}  // namespace holdfast::testing

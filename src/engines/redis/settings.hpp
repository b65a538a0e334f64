// What a redis: address says, checked.
//
//   redis://[user[:password]@]host[:port][/db][?options]      rediss:// the same over TLS
// unix:/path/to/socket[?options]
//
//   layout=native|setnx|redisson|setnx-expire-lua|getset      how locks look in the store
//   prefix=hf:          of every key (native), or of lock names (the other layouts, where it is empty unless given)
//   semaphore=expirable|plain   of the layout redisson: permits with an owner and a ttl, or without (RSemaphore)
//   db=0                also as the path
// of the layout native only:
//   grace=3s            how long a client's connection may be gone before others may take its locks; 0: never before
//                       the ttl
//   wait_replicas=0     a lock counts as taken only when so many replicas have it ...
//   wait_timeout=1s     ... within this time
//   redis+sentinel://[user[:password]@]host[:port],.../NAME[?options]      rediss+sentinel:// the same over TLS
// the master that these sentinels call NAME; besides the options above
//   sentinel_user= sentinel_password_file= sentinel_password_env=    the login to the sentinels
//   sentinel_tls=yes|no                 TLS to the sentinels (as to the servers unless given)
//   redis+cluster://[user[:password]@]host[:port],...[?options]      rediss+cluster:// the same over TLS
// a Redis Cluster, by some of its nodes
// of all:
//   connections=4       for commands, besides the one for messages and renewals (1 with TLS)
//   password_file= password_env=        where the password is
//   ca_file= cert_file= key_file= server_name=    TLS: the authority to trust, our certificate
//                       and key, the name expected of the server
#pragma once

#include "net/address_provider.hpp"
#include "net/reactor.hpp"
#include "net/stream.hpp"

#include <holdfast/url.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace holdfast::engines::redis {

// What the engine of one shard is given by its cluster (cluster.hpp).
struct cluster_place {
  net::reactor* reactor = nullptr;
  net::address_provider find_address;
  std::function<void()> on_redirected;  // a node has said that a slot is elsewhere; from any thread
  std::vector<unsigned> tags;           // of the shard, to begin with (slots.hpp)
};

struct settings {
  net::address where;
  std::string url;  // safe to print
  std::string user, password;
  int db = 0;
  std::string layout;
  std::string prefix;
  bool plain_semaphores = false;
  std::chrono::nanoseconds grace{};
  unsigned connections = 4;
  unsigned wait_replicas = 0;
  std::chrono::milliseconds wait_timeout{};
  // The servers that know where the master is, and its name there; `where` then says only how it is reached.
  std::vector<settings> sentinels{};
  std::string master{};

  // Nodes of a cluster to begin with; and, of the engine of one shard, its place in it.
  std::vector<settings> seeds{};
  std::shared_ptr<const cluster_place> in_cluster{};

  bool has_sentinels() const noexcept { return !sentinels.empty(); }
  bool is_cluster() const noexcept { return !seeds.empty() || in_cluster; }
};

// Rounded up: a grant must not end before it was asked to.
inline std::int64_t in_ms(std::chrono::nanoseconds length) {
  return std::chrono::ceil<std::chrono::milliseconds>(length).count();
}

result<settings> read_settings(const store_url& url);

// What stands in front of the layout's name in capabilities, and what a fail-over may cost.
std::string store_kind(const settings& how);
std::string failover_words(const settings& how);

}  // namespace holdfast::engines::redis

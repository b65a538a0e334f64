#include "conformance/conformance.hpp"

#include "support/consul_server.hpp"
#include "support/etcd_server.hpp"
#include "support/mariadb_server.hpp"
#include "support/redis_cluster.hpp"
#include "support/redis_server.hpp"
#include "support/redlock_servers.hpp"
#include "support/replicated_redis.hpp"
#include "support/required.hpp"
#include "support/serve_process.hpp"
#include "support/zookeeper_hand.hpp"
#include "support/zookeeper_server.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <random>

namespace holdfast::testing {

namespace {

std::string memory_store(const temp_dir&) {
  static std::atomic<int> number{0};
  return "memory:conformance-" + std::to_string(++number);
}

std::string file_store(const temp_dir& dir) { return "file:" + dir.file("store"); }

// Why there is none; empty when there is one.
template <class Server>
std::string missing() {
  return Server::available().why;
}

std::string redis_store(const temp_dir&) { return shared_redis().url(); }

std::string patient_redis_store(const temp_dir&) { return shared_redis().url() + "?grace=0"; }

std::string redis_with(std::string_view layout) {
  return shared_redis().url() + "?layout=" + std::string{layout};
}
std::string setnx_store(const temp_dir&) { return redis_with("setnx"); }
std::string expire_lua_store(const temp_dir&) { return redis_with("setnx-expire-lua"); }
std::string getset_store(const temp_dir&) { return redis_with("getset"); }
std::string redisson_store(const temp_dir&) { return redis_with("redisson"); }

std::string redlock3_store(const temp_dir&) {
  return shared_redlock(3).url("?quarantine=0&longest_ttl=1h");
}
std::string redlock5_store(const temp_dir&) {
  return shared_redlock(5).url("?quarantine=0&longest_ttl=1h");
}

std::string sentinel_store(const temp_dir&) { return shared_replicated_redis().url(); }

std::string cluster_store(const temp_dir&) { return shared_redis_cluster().url(); }

std::string mysql_store(const temp_dir&) { return shared_mariadb().url(); }

// A short session, because some scenarios wait until a dead client's is over.
std::string etcd_store(const temp_dir&) { return shared_etcd().url() + "?session=3s"; }
std::string etcd3_store(const temp_dir&) { return shared_etcd3().url() + "?session=3s"; }

// The shortest session that Consul has. What others leave there ends after twice that, so each test has its own prefix.
std::string consul_with_prefix(const consul_server& server) {
  static std::atomic<int> number{0};
  return server.url() + "/conformance-" + std::to_string(++number) + "?session=10s&lock_delay=0s";
}
std::string consul_store(const temp_dir&) { return consul_with_prefix(shared_consul()); }
std::string consul3_store(const temp_dir&) { return consul_with_prefix(shared_consul3()); }

std::string zk_store(const temp_dir&) { return shared_zookeeper().url() + "?session=3s"; }
std::string zk3_store(const temp_dir&) { return shared_zookeeper3().url() + "?session=3s"; }
std::string zk_with(std::string_view layout) {
  return shared_zookeeper().url() + "?session=3s&layout=" + std::string{layout};
}
std::string zk_kazoo_store(const temp_dir&) { return zk_with("kazoo"); }
std::string zk_go_store(const temp_dir&) { return zk_with("go-zk"); }
// Apart from the others, whose nodes would be in its way.
std::string zk_exclusive_store(const temp_dir&) {
  static const std::string chroot = [] {
    zookeeper_hand{shared_zookeeper()}.create({.path = "/plain"});
    return "/plain";
  }();
  return shared_zookeeper().url() + chroot + "?session=3s&layout=exclusive";
}

// Over a store of its own, which is file:.
std::string http_store(const temp_dir&) { return shared_serve().url(); }

std::optional<std::string> given_url(std::string engine) {
  std::ranges::transform(engine, engine.begin(), [](unsigned char c) { return std::toupper(c); });
  const char* url = std::getenv(("HOLDFAST_TEST_URL_" + engine).c_str());
  if (url == nullptr) return std::nullopt;
  return url;
}

}  // namespace

const std::vector<engine_row>& engine_table() {
  static const std::vector<engine_row> table{
      {"memory", "memory", memory_store},
      {"file", "file", file_store},
      {"redis", "redis", redis_store, missing<redis_server>},
      {"redis_grace0", "redis", patient_redis_store, missing<redis_server>},
      {"redis_setnx", "redis", setnx_store, missing<redis_server>},
      {"redis_setnx_expire_lua", "redis", expire_lua_store, missing<redis_server>},
      {"redis_getset", "redis", getset_store, missing<redis_server>},
      {"redis_redisson", "redis", redisson_store, missing<redis_server>},
      {"redlock3", "redlock", redlock3_store, missing<redis_server>},
      {"redlock5", "redlock", redlock5_store, missing<redis_server>},
      {"sentinel", "redis+sentinel", sentinel_store, missing<redis_server>},
      {"cluster", "redis+cluster", cluster_store, missing<redis_server>},
      {"etcd", "etcd", etcd_store, missing<etcd_server>},
      {"etcd3", "etcd", etcd3_store, missing<etcd_server>},
      {"consul", "consul", consul_store, missing<consul_server>},
      {"consul3", "consul", consul3_store, missing<consul_server>},
      {"mysql", "mysql", mysql_store, missing<mariadb_server>},
      {"zk", "zk", zk_store, missing<zookeeper_server>},
      {"zk3", "zk", zk3_store, missing<zookeeper_server>},
      {"zk_kazoo", "zk", zk_kazoo_store, missing<zookeeper_server>},
      {"zk_go", "zk", zk_go_store, missing<zookeeper_server>},
      {"zk_exclusive", "zk", zk_exclusive_store, missing<zookeeper_server>},
      {"http", "http", http_store, missing<serve_process>, true},
  };
  return table;
}

void conformance::SetUp() {
  const auto& row = GetParam();
  const auto schemes = known_schemes();
  if (std::ranges::find(schemes, row.scheme) == schemes.end()) {
    ASSERT_FALSE(is_required(row.name)) << "this build has no engine for " << row.scheme << ":";
    GTEST_SKIP() << "this build has no engine for " << row.scheme << ":";
  }
  const auto given = given_url(row.name);
  const auto why = given || row.missing == nullptr ? std::string{} : row.missing();
  if (!why.empty()) {
    ASSERT_FALSE(is_required(row.name)) << why;
    GTEST_SKIP() << why;
  }
  url_ = given ? *given : row.own_store(dir_);
  auto opened = client::try_open(url_);
  if (!opened && !is_required(row.name) && opened.error().code() == errc::unavailable) {
    GTEST_SKIP() << opened.error().message();
  }
  ASSERT_TRUE(is_ok(opened));
  probe_ = *opened;
  prefix_ = "test-" + std::to_string(std::random_device{}()) + "/";
}

std::size_t conformance::waiters(const std::string& of) const {
  return probe_->inspect(of).value().waiters.size();
}

std::size_t conformance::holders(const std::string& of) const {
  return probe_->inspect(of).value().holders.size();
}

}  // namespace holdfast::testing

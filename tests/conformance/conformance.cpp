#include "conformance/conformance.hpp"

#include "support/etcd_server.hpp"
#include "support/mariadb_server.hpp"
#include "support/redis_server.hpp"
#include "support/required.hpp"

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

std::string mysql_store(const temp_dir&) { return shared_mariadb().url(); }

// A short session, because some scenarios wait until a dead client's is over.
std::string etcd_store(const temp_dir&) { return shared_etcd().url() + "?session=3s"; }
std::string etcd3_store(const temp_dir&) { return shared_etcd3().url() + "?session=3s"; }

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
      {"etcd", "etcd", etcd_store, missing<etcd_server>},
      {"etcd3", "etcd", etcd3_store, missing<etcd_server>},
      {"mysql", "mysql", mysql_store, missing<mariadb_server>},
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

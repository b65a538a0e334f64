// holdfast flash-sale on real servers: unsafe schemes are seen to fail, safe ones show nothing, fences refuse.
#include <holdfast/client.hpp>

#include "e2e/flash_sale.hpp"
#include "support/consul_server.hpp"
#include "support/etcd_server.hpp"
#include "support/mariadb_server.hpp"
#include "support/redis_server.hpp"
#include "support/redlock_servers.hpp"
#include "support/zookeeper_server.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

namespace {

using holdfast::testing::availability;
using holdfast::testing::consul_server;
using holdfast::testing::etcd_server;
using holdfast::testing::mariadb_server;
using holdfast::testing::need;
using holdfast::testing::redis_server;
using holdfast::testing::zookeeper_server;

bool has_engine(const std::string& scheme) {
  const auto all = holdfast::known_schemes();
  return std::ranges::find(all, scheme) != all.end();
}

// A sandbox takes what was there before it for no left-over; so a server that tests share is started before.
template <auto available, auto shared>
struct server_before {
  server_before() {
    if (available()) shared();
  }
};

// ---- Redis

class flash_sale_redis : server_before<&redis_server::available, &holdfast::testing::shared_redis>,
                         public e2e::flash_sale_cli {
 protected:
  void SetUp() override {
    need(redis_server::available(), "redis");
    if (!IsSkipped() && !has_engine("redis")) GTEST_SKIP() << "no engine for redis: in this build";
  }
  std::string url() const { return holdfast::testing::shared_redis().url(); }
};

TEST_F(flash_sale_redis, safe_schemes_sell_what_is_there) {
  const auto report =
      sell({.schemes = "redis-watch,setnx_expire,set_nx_px,getset,redis-fair,redis-fair-fenced,"
                       "redis-re-entrant,redis-read-write,redis-striped",
            .stores = url(),
            .stock = 200});
  EXPECT_EQ(report["schemes"].size(), 12U);
  expect_clean(report, 200);
  for (const auto& one : report["schemes"])
    EXPECT_GT(one["runs"]["none"]["commands_per_order"], 1) << one["name"];
}

TEST_F(flash_sale_redis, a_death_between_two_commands_ends_the_sale_for_good) {
  const auto run =
      run_of(sell({.schemes = "setnx-then-expire", .stores = url(), .faults = "kill"}), "kill");
  EXPECT_EQ(run["stood_for_good"], true) << run.dump();
  EXPECT_LT(run["sold"], 60);
}

TEST_F(flash_sale_redis, locks_with_an_end_outlive_a_death) {
  const auto report = sell({.schemes = "redis-watch,setnx-expire-lua,set-nx-px,getset,redis-fair",
                            .stores = url(),
                            .faults = "kill"});
  expect_clean(report, 60);
  for (const auto& one : report["schemes"])
    EXPECT_EQ(one["runs"]["kill"]["stood_for_good"], false) << one["name"];
}

TEST_F(flash_sale_redis, locks_without_a_fence_let_a_late_write_in) {
  for (const char* scheme : {"set-nx-px", "set-nx-px-del", "getset", "redis-fair"}) {
    const auto run = run_of(sell({.schemes = scheme, .stores = url(), .faults = "pause"}), "pause");
    EXPECT_EQ(run["stale_writes_accepted"], 1) << scheme << run.dump();
    EXPECT_GT(run["oversold"], 0) << scheme << run.dump();
  }
}

TEST_F(flash_sale_redis, fences_and_watch_refuse_a_late_write) {
  const auto report = sell({.schemes = "set-nx-px-fenced,redis-fair-fenced,redis-watch",
                            .stores = url(),
                            .faults = "pause"});
  expect_clean(report, 60);
  for (const auto& one : report["schemes"]) {
    EXPECT_EQ(one["runs"]["pause"]["stale_writes_accepted"], 0) << one.dump();
    EXPECT_GE(one["runs"]["pause"]["stale_writes_refused"], 1) << one.dump();
  }
}

TEST_F(flash_sale_redis, leaves_no_stock_behind) {
  sell({.schemes = "set-nx-px-fenced,redis-fair-fenced", .stores = url()});
  EXPECT_EQ(redis_command(holdfast::testing::shared_redis(), {"KEYS", "holdfast-sale:*"}), "[]");
}

// ---- MariaDB

class flash_sale_mysql
    : server_before<&mariadb_server::available, &holdfast::testing::shared_mariadb>,
      public e2e::flash_sale_cli {
 protected:
  void SetUp() override {
    need(mariadb_server::available(), "mysql");
    if (!IsSkipped() && !has_engine("mysql")) GTEST_SKIP() << "no engine for mysql: in this build";
  }
  // Its tables go again, which the rights of a lock's user do not cover.
  std::string url() const {
    auto& server = holdfast::testing::shared_mariadb();
    server.sql("GRANT DROP ON holdfast.* TO holdfast@'%'");
    return server.url();
  }
};

TEST_F(flash_sale_mysql, safe_schemes_sell_what_is_there_and_leave_no_table) {
  const auto report =
      sell({.schemes = "sql-statement,sql-for-update,optimistic-version,"
                       "optimistic-timestamp,mysql-row,mysql-lock,mysql-lock-fenced",
            .stores = url(),
            .stock = 150});
  EXPECT_EQ(report["schemes"].size(), 7U);
  expect_clean(report, 150);
  for (const auto& one : report["schemes"])
    EXPECT_GT(one["runs"]["none"]["commands_per_order"], 0.9) << one["name"];
  EXPECT_EQ(holdfast::testing::shared_mariadb().sql("SHOW TABLES LIKE 'holdfast_sale%'"), "");
}

TEST_F(flash_sale_mysql, a_time_in_seconds_oversells) {
  EXPECT_TRUE(fails_under_load("optimistic-seconds", url()));
}

TEST_F(flash_sale_mysql, the_database_and_the_fence_take_no_late_write) {
  const auto report =
      sell({.schemes = "sql-statement,sql-for-update,optimistic-version,mysql-lock-fenced",
            .stores = url(),
            .faults = "kill,pause"});
  expect_clean(report, 60);
  for (const auto& one : report["schemes"])
    EXPECT_EQ(one["runs"]["pause"]["stale_writes_accepted"], 0) << one.dump();
  EXPECT_EQ(report["schemes"][3]["runs"]["pause"]["stale_writes_refused"], 1);
}

TEST_F(flash_sale_mysql, locks_without_a_fence_let_a_late_write_in) {
  for (const char* scheme : {"mysql-row", "mysql-lock"}) {
    const auto run = run_of(sell({.schemes = scheme, .stores = url(), .faults = "pause"}), "pause");
    EXPECT_EQ(run["stale_writes_accepted"], 1) << scheme << run.dump();
    EXPECT_GT(run["oversold"], 0) << scheme << run.dump();
  }
}

// ---- the stores that keep a lock and no stock: that lies in a file where there is neither database nor Redis

struct lock_store {
  std::string name;
  std::string required_as;  // in HOLDFAST_REQUIRE_ENGINES
  std::string schemes;      // without a fence
  std::string fenced;
  availability (*available)();
  std::string (*url)();
  bool counts_commands;
};

void PrintTo(const lock_store& row, std::ostream* out) { *out << row.name; }

const lock_store lock_stores[] = {
    {"redlock", "redis", "redlock", "redlock-fenced", &redis_server::available,
     [] { return holdfast::testing::shared_redlock(3).url(); }, true},
    {"zk", "zk", "zk-exclusive,zk-sequential", "zk-sequential-fenced", &zookeeper_server::available,
     [] { return holdfast::testing::shared_zookeeper().url(); }, true},
    {"etcd", "etcd", "etcd", "etcd-fenced", &etcd_server::available,
     [] { return holdfast::testing::shared_etcd().url(); }, true},
    {"consul", "consul", "consul", "consul-fenced", &consul_server::available,
     [] { return holdfast::testing::shared_consul().url() + "?lock_delay=0s"; }, false},
};

struct lock_server_before : ::testing::WithParamInterface<lock_store> {
  lock_server_before() {
    if (GetParam().available()) GetParam().url();
  }
};

class flash_sale_locks : public lock_server_before, public e2e::flash_sale_cli {
 protected:
  void SetUp() override {
    need(GetParam().available(), GetParam().required_as);
    if (!IsSkipped() && !has_engine(GetParam().name)) GTEST_SKIP() << "no such engine here";
  }
};

TEST_P(flash_sale_locks, sell_what_is_there_and_go_on_after_a_death) {
  const auto report = sell({.schemes = GetParam().schemes + ',' + GetParam().fenced,
                            .stores = GetParam().url(),
                            .faults = "none,kill",
                            .stock = 100});
  expect_clean(report, 100);
  for (const auto& one : report["schemes"]) {
    EXPECT_EQ(one["stock_in"], "file");
    EXPECT_EQ(one["runs"]["kill"]["stood_for_good"], false) << one.dump();
    EXPECT_EQ(one["runs"]["none"]["commands_per_order"].is_number(), GetParam().counts_commands)
        << one.dump();
  }
}

TEST_P(flash_sale_locks, refuse_a_late_write_with_a_fence_only) {
  const auto without = sell(
      {.schemes = GetParam().schemes, .stores = GetParam().url(), .faults = "pause", .stock = 100});
  for (const auto& one : without["schemes"])
    EXPECT_EQ(one["runs"]["pause"]["stale_writes_accepted"], 1) << one.dump();
  const auto report = sell(
      {.schemes = GetParam().fenced, .stores = GetParam().url(), .faults = "pause", .stock = 100});
  expect_clean(report, 100);
  EXPECT_EQ(run_of(report, "pause")["stale_writes_refused"], 1);
}

INSTANTIATE_TEST_SUITE_P(all, flash_sale_locks, ::testing::ValuesIn(lock_stores),
                         [](const auto& row) { return row.param.name; });

}  // namespace

// The command on a Redis behind sentinels and on a Redis Cluster: one address, whatever server it leads to.
#include "e2e/shell.hpp"
#include "support/redis_cluster.hpp"
#include "support/redlock_servers.hpp"
#include "support/replicated_redis.hpp"
#include "support/required.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace {

using e2e::eventually;
using e2e::has;
using e2e::sandbox;
using holdfast::testing::redis_cluster;
using holdfast::testing::redis_command;
using holdfast::testing::redis_server;
using holdfast::testing::replicated_redis;
using nlohmann::json;

class sentinel_cli : public ::testing::Test {
 protected:
  void SetUp() override {
    holdfast::testing::need(redis_server::available(), "sentinel");
    if (IsSkipped() || HasFatalFailure()) return;
    store.emplace();
    box.set("HOLDFAST_STORE", store->url());
  }
  sandbox box;  // looks for processes that are left behind, so the servers must be gone before it
  std::optional<replicated_redis> store;
};

TEST_F(sentinel_cli, run_goes_on_after_a_fail_over_and_others_wait_for_it) {
  box.set("HOLDFAST_STORE", store->url("?grace=20s"));
  const auto holder = box.start(
      {"run", "job", "--ttl", "60s", "--", "sh", "-c", "echo $$ > pid; " + box.until_let_go()});
  box.pid_in("pid");
  for (const std::size_t i : {1U, 2U})
    ASSERT_TRUE(eventually([&] {
      return redis_command(store->server(i), {"EXISTS", "hf:l:job"}) == "1";
    }));
  store->server(0).kill();
  ASSERT_TRUE(store->has_master_other_than(0));
  ASSERT_TRUE(eventually([&] {
    return box.run({"run", "job", "--no-wait", "--", "true"}).code == 75;
  })) << "the new master knows the holder";
  const auto waiter = box.start({"run", "job", "--wait", "20s", "--", "true"});
  EXPECT_TRUE(box.let_go());
  EXPECT_EQ(holder->wait().code, 0);
  const auto served = waiter->wait();
  EXPECT_EQ(served.code, 0) << served.err;
}

TEST_F(sentinel_cli, explain_and_doctor_tell_what_a_fail_over_may_cost) {
  const auto told = box.run({"explain"});
  EXPECT_EQ(told.code, 0) << told.err;
  for (const auto* word : {"redis behind Sentinel", "fail-over", "min-replicas-to-write"})
    EXPECT_TRUE(has(told.out, word)) << word << " in\n" << told.out;
  const auto well = box.run({"doctor"});
  for (const auto* word : {"3 of 3 answer; 2 are needed", "the address names all of them"})
    EXPECT_TRUE(has(well.out, word)) << word << " in\n" << well.out;
  store->sentinel(1).kill();
  const auto ill = box.run({"doctor"});
  EXPECT_TRUE(has(ill.out, "2 of 3 answer; 2 are needed")) << ill.out;
  store->sentinel(2).kill();
  const auto refused = box.run({"run", "job", "--wait", "200ms", "--", "true"});
  EXPECT_EQ(refused.code, 69) << refused.err;
  EXPECT_TRUE(has(refused.err, "1 of 3 sentinels say where the master is")) << refused.err;
}

TEST_F(sentinel_cli, bench_runs) {
  const auto said = box.run({"bench", "--seconds", "0.2", "--only", "uncontended"});
  EXPECT_EQ(said.code, 0) << said.out << said.err;
}

// ---- secrets

// The address of a guarded store, and the same behind this user and password.
void shows_no_password(sandbox& box, std::string url, const std::string& canary) {
  const auto with = [&](const std::string& password) {
    auto out = url;
    return out.insert(out.find("//") + 2, ":" + password + "@");
  };
  const auto say = [&](const std::string& store, std::vector<std::string> words, int code) {
    box.set("HOLDFAST_STORE", store);
    const auto said = box.run(words);
    EXPECT_EQ(said.code, code) << store.substr(0, 20) << ' ' << words.front() << ": " << said.err;
    EXPECT_FALSE(has(said.out + said.err, canary)) << said.out << said.err;
    return said.out;
  };
  for (const auto& words : std::vector<std::vector<std::string>>{{"explain", "--json"},
                                                                 {"ls"},
                                                                 {"show", "job", "--json"},
                                                                 {"top", "--count", "1"},
                                                                 {"run", "job", "--", "env"},
                                                                 {"break", "job", "--yes"}})
    say(with(canary), words, 0);
  EXPECT_TRUE(has(say(with(canary), {"doctor"}, 0), url.substr(0, url.find("//") + 2) + ":***@"));
  say(with(canary + "-wrong"), {"ls"}, 77);
  say(url, {"ls"}, 77);
}

class ha_secrets : public ::testing::Test {
 protected:
  void SetUp() override { holdfast::testing::need(redis_server::available(), "redis"); }
  const std::string canary = "CANARY-4711";
  const redis_server::options guarded{.config = {"requirepass " + canary}, .password = canary};
  sandbox box;
};

TEST_F(ha_secrets, a_password_of_sentinels_servers_is_redacted_everywhere) {
  const replicated_redis store{{.replicas = 1, .each = guarded}};
  shows_no_password(box, store.url(), canary);
}

TEST_F(ha_secrets, a_password_of_a_cluster_is_redacted_everywhere) {
  const redis_cluster store{{.each = guarded}};
  shows_no_password(box, store.url(), canary);
}

TEST_F(ha_secrets, a_password_of_a_redlock_is_redacted_everywhere) {
  const holdfast::testing::redlock_servers store{{.nodes = 3, .each = guarded}};
  shows_no_password(box, store.url("?quarantine=0&prefix=lk:"), canary);
}

class cluster_cli : public ::testing::Test {
 protected:
  void SetUp() override {
    holdfast::testing::need(redis_server::available(), "cluster");
    if (IsSkipped() || HasFatalFailure()) return;
    store.emplace();
    box.set("HOLDFAST_STORE", store->url());
  }
  sandbox box;
  std::optional<redis_cluster> store;
};

TEST_F(cluster_cli, names_of_all_shards_are_run_listed_and_broken) {
  std::vector<decltype(box.start({}))> holders;
  for (int i = 0; i < 6; ++i) {
    const auto name = fmt::format("job-{}", i);
    holders.push_back(box.start({"run", name, "--ttl", "3s", "--", "sh", "-c",
                                 fmt::format("echo $$ > pid-{}; exec sleep 60", i)}));
    box.pid_in(fmt::format("pid-{}", i));
  }
  const auto listed = json::parse(box.run({"ls", "--json"}).out);
  ASSERT_EQ(listed.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(listed[i]["name"], fmt::format("job-{}", i));
  EXPECT_EQ(json::parse(box.run({"ls", "job-3", "--json"}).out).size(), 1U);
  EXPECT_EQ(box.run({"run", "job-0", "--no-wait", "--", "true"}).code, 75);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(box.run({"break", fmt::format("job-{}", i), "--yes"}).code, 0);
    EXPECT_EQ(holders[static_cast<std::size_t>(i)]->wait().code, 76);
  }
  EXPECT_EQ(box.run({"ls", "--json"}).out, "[]\n");
}

TEST_F(cluster_cli, latches_are_counted_and_listed) {
  for (const auto* name : {"a", "b", "c", "d"})
    EXPECT_EQ(box.run({"latch", "set", name, "1"}).code, 0);
  const auto listed = box.run({"latch", "ls"});
  for (const auto* name : {"a", "b", "c", "d"}) EXPECT_TRUE(has(listed.out, name)) << listed.out;
  const auto waiter = box.start({"latch", "wait", "c"});
  EXPECT_EQ(box.run({"latch", "down", "c"}).code, 0);
  EXPECT_EQ(waiter->wait().code, 0);
}

TEST_F(cluster_cli, explain_and_doctor_tell_of_all_shards) {
  const auto told = box.run({"explain"});
  EXPECT_EQ(told.code, 0) << told.err;
  for (const auto* word : {"redis cluster", "after their ttl", "cluster-node-timeout"})
    EXPECT_TRUE(has(told.out, word)) << word << " in\n" << told.out;
  const auto well = box.run({"doctor"});
  EXPECT_TRUE(has(well.out, "3 masters have all slots")) << well.out;
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(has(well.out, fmt::format("127.0.0.1:{}: cluster mode", store->node(i).port())))
        << well.out;
  store->node(store->replica_of(1)).kill();
  store->node(1).kill();
  EXPECT_TRUE(eventually([&] { return has(box.run({"doctor"}).out, "have failed"); }));
}

TEST_F(cluster_cli, bench_runs) {
  const auto said = box.run({"bench", "--seconds", "0.2", "--only", "uncontended"});
  EXPECT_EQ(said.code, 0) << said.out << said.err;
}

}  // namespace

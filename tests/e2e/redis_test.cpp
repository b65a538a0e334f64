// The command against a real redis-server: what it does on this store only, see stores_test.cpp.
#include "e2e/store_cli.hpp"
#include "support/redis_server.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace {

using e2e::eventually;
using holdfast::testing::redis_server;
using nlohmann::json;

class redis_cli : public e2e::store_cli<redis_server> {
 protected:
  void SetUp() override { need(redis_server::available(), "redis"); }
};

// ---- doctor

TEST_F(redis_cli, doctor_warns_of_what_a_default_server_lacks) {
  const auto& server = start();
  const auto said = box.run({"doctor"});
  EXPECT_LT(said.out.find("\nwarning "), said.out.find("\ngood ")) << "the worst comes first";

  auto found = findings(server.url());
  EXPECT_EQ(found["version"]["level"], "good");
  EXPECT_EQ(found["role"]["level"], "good");
  EXPECT_EQ(found["eviction policy"]["level"], "good");
  EXPECT_EQ(found["persistence"]["level"], "warning") << "a restart would forget the locks";
  EXPECT_EQ(found["password"]["level"], "warning");
  EXPECT_EQ(found["clock"]["level"], "good");
}

TEST_F(redis_cli, doctor_says_78_when_locks_may_be_evicted) {
  for (const char* policy : {"allkeys-lru", "volatile-ttl"}) {
    const auto& server =
        start({.config = {"maxmemory 64mb", std::string{"maxmemory-policy "} + policy}});
    const auto said = box.run({"doctor"});
    EXPECT_EQ(said.code, 78) << said.out;
    EXPECT_NE(said.out.find("\nbad      eviction policy"), std::string::npos) << said.out;
    EXPECT_NE(said.out.find("maxmemory-policy noeviction"), std::string::npos) << "no remedy";
    EXPECT_EQ(findings(server.url())["eviction policy"]["level"], "bad");
  }
}

TEST_F(redis_cli, doctor_judges_persistence_and_replicas) {
  const auto& server = start({.config = {"appendonly yes", "appendfsync everysec"}});
  const redis_server replica{{.config = {"replicaof 127.0.0.1 " + std::to_string(server.port())}}};
  ASSERT_TRUE(eventually([&] {
    return server.command({"INFO", "replication"}).find("state=online") != std::string::npos;
  }));
  EXPECT_EQ(findings(server.url())["persistence"]["level"], "good");
  EXPECT_EQ(findings(server.url())["replication"]["level"], "warning") << "nobody waits for it";
  EXPECT_EQ(findings(server.url() + "?wait_replicas=1")["replication"]["level"], "good");
  EXPECT_EQ(findings(server.url() + "?wait_replicas=2")["replication"]["level"], "bad");
}

TEST_F(redis_cli, doctor_on_a_replica_says_to_name_the_master) {
  const auto& server = start();
  const redis_server replica{{.config = {"replicaof 127.0.0.1 " + std::to_string(server.port())}}};
  // The store cannot be opened there: a client's first act is a write.
  const auto said = box.run({"doctor", "--store", replica.url()});
  EXPECT_EQ(said.code, 69) << said.out;
  EXPECT_NE(said.err.find("this is a replica; name the master"), std::string::npos) << said.err;
}

TEST_F(redis_cli, doctor_says_when_it_may_not_look) {
  // The line of docs/guides/redis.md.
  const std::string rights =
      "~hf:* &hf:c:* +ping +time +eval +evalsha +script|load +subscribe +publish +pubsub|numsub "
      "+scan +get +mget +set "
      "+del +incr +exists +pttl +pexpire +pexpireat +hset +hget +hexists +hdel +hgetall +hmget "
      "+hincrby "
      "+zadd "
      "+zrem +zrange +zrevrange +zrangebyscore +zscore +zrank";
  const auto& server = start({.config = {"user locks on >secret " + rights}});
  box.set("HOLDFAST_PASSWORD", "secret");
  const auto url = "redis://locks@127.0.0.1:" + std::to_string(server.port());
  auto found = findings(url);
  EXPECT_EQ(found["rights"]["level"], "good") << found["rights"];
  for (const char* about : {"version", "eviction policy", "persistence", "messages", "password"}) {
    EXPECT_EQ(found[about]["level"], "note") << found[about];
    EXPECT_NE(found[about]["sentence"].get<std::string>().find("Not allowed to look"),
              std::string::npos);
  }
  // And the line is enough for the work itself.
  EXPECT_EQ(box.run({"run", "a", "--store", url, "--", "true"}).code, 0);
  EXPECT_EQ(box.run({"ls", "--store", url}).code, 0);

  server.command({"ACL", "SETUSER", "locks", "-zrank", "-publish"});
  EXPECT_EQ(box.run({"doctor", "--store", url}).code, 78);
  const auto lacking = findings(url)["rights"]["sentence"].get<std::string>();
  EXPECT_NE(lacking.find("PUBLISH hf:c:*"), std::string::npos) << lacking;
  EXPECT_NE(lacking.find("ZRANK hf:q:*"), std::string::npos) << lacking;

  server.command({"ACL", "SETUSER", "locks", "-time"});
  const auto denied = box.run({"run", "a", "--store", url, "--", "true"});
  EXPECT_EQ(denied.code, 77) << denied.err;
}

// ---- the other commands

TEST_F(redis_cli, explain_prints_the_bounds_of_the_grace) {
  const auto url = start().url();
  const auto text = box.run({"explain", "--store", url + "?grace=2s"}).out;
  EXPECT_NE(text.find("at most 2s after"), std::string::npos) << text;
  EXPECT_NE(text.find("Others have the lock within 2.75s"), std::string::npos) << text;
  const auto data = json::parse(box.run({"explain", "--json", "--store", url + "?grace=2s"}).out);
  EXPECT_EQ(data["longest_validity_seconds"], 2.0);
  EXPECT_EQ(data["dead_holder_bound_seconds"], 2.75);

  const auto patient = json::parse(box.run({"explain", "--json", "--store", url + "?grace=0"}).out);
  EXPECT_EQ(patient["longest_validity_seconds"], 0.0);
  EXPECT_EQ(patient["dead_holder_bound_seconds"], 0.0);
}

}  // namespace

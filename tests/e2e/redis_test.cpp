// The command against a real redis-server.
#include "e2e/shell.hpp"
#include "support/redis_server.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

namespace {

using e2e::eventually;
using e2e::sandbox;
using holdfast::testing::redis_server;
using nlohmann::json;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

class redis_cli : public ::testing::Test {
 protected:
  void SetUp() override { need(redis_server::available(), "redis"); }
  // Everything from now on uses this server.
  redis_server& start(redis_server::options how = {}) {
    server_ = std::make_unique<redis_server>(std::move(how));
    box.set("HOLDFAST_STORE", server_->url());
    return *server_;
  }
  // The findings of doctor by what they are about.
  std::map<std::string, json> findings(const std::string& url) {
    const auto said = box.run({"doctor", "--json", "--store", url});
    EXPECT_TRUE(said.code == 0 || said.code == 78) << said.err;
    std::map<std::string, json> out;
    const auto all = json::parse(said.out);
    for (const auto& one : all["findings"]) out[one["about"]] = one;
    return out;
  }

  sandbox box;  // looks for processes that are left behind, so the server must be gone before it

 private:
  std::unique_ptr<redis_server> server_;
};

// ---- doctor

TEST_F(redis_cli, doctor_finds_nothing_bad_on_a_default_server) {
  const auto& server = start();
  const auto said = box.run({"doctor"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_TRUE(said.out.starts_with(server.url() + " (redis engine)\n")) << said.out;
  EXPECT_EQ(said.out.find("\nbad "), std::string::npos) << said.out;
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

TEST_F(redis_cli, doctor_ends_like_every_command_when_the_store_cannot_be_opened) {
  const auto url = start().url();
  EXPECT_EQ(box.run({"doctor", "--store", url + "?nonsense=1"}).code, 78);
  EXPECT_EQ(box.run({"doctor", "--store", "redis://127.0.0.1:1"}).code, 69);
  const auto nothing = box.run({"doctor", "--store", box.store()});
  EXPECT_EQ(nothing.code, 0);
  EXPECT_NE(nothing.out.find("There is nothing to check"), std::string::npos) << nothing.out;
}

// ---- the other commands

TEST_F(redis_cli, run_holds_ls_and_show_tell_and_break_takes_away) {
  start();
  const auto holder = box.start(
      {"run", "job", "--label", "nightly", "--", "sh", "-c", "echo $$ > pid; exec sleep 60"});
  box.pid_in("pid");
  const auto listed = json::parse(box.run({"ls", "--json"}).out);
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0]["name"], "job");
  EXPECT_EQ(listed[0]["holders"][0]["label"], "nightly");
  EXPECT_GT(listed[0]["holders"][0]["token"].get<std::uint64_t>(), 1'000'000'000'000'000U);
  EXPECT_EQ(box.run({"run", "job", "--no-wait", "--", "true"}).code, 75);

  const auto waiter = box.start({"run", "job", "--", "sh", "-c", "echo $HOLDFAST_TOKEN"});
  ASSERT_TRUE(eventually([&] {
    return box.holders_and_waiters("job") == std::pair<std::size_t, std::size_t>{1, 1};
  }));
  EXPECT_EQ(box.run({"break", "job", "--yes"}).code, 0);
  EXPECT_EQ(holder->wait().code, 76);
  const auto done = waiter->wait();
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_GT(std::stoull(done.out), listed[0]["holders"][0]["token"].get<std::uint64_t>());
  EXPECT_EQ(box.run({"ls", "--json"}).out, "[]\n");
}

TEST_F(redis_cli, readers_permits_latches_and_elections_work) {
  start();
  const auto reader =
      box.start({"run", "table", "--shared", "--", "sh", "-c", "echo $$ > reader; exec sleep 60"});
  box.pid_in("reader");
  EXPECT_EQ(box.run({"run", "table", "--shared", "--no-wait", "--", "true"}).code, 0);
  EXPECT_EQ(box.run({"run", "table", "--no-wait", "--", "true"}).code, 75);
  reader->send(SIGTERM);
  EXPECT_EQ(reader->wait().code, 128 + SIGTERM);

  EXPECT_EQ(box.run({"run", "pool", "--permits", "2/2", "--", "holdfast", "run", "pool",
                     "--permits", "1/2", "--no-wait", "--", "true"})
                .code,
            75);

  EXPECT_EQ(box.run({"latch", "set", "tiles", "2"}).code, 0);
  const auto waiting = box.start({"latch", "wait", "tiles"});
  EXPECT_EQ(box.run({"latch", "down", "tiles"}).out, "1\n");
  EXPECT_EQ(box.run({"latch", "down", "tiles"}).out, "0\n");
  EXPECT_EQ(waiting->wait().code, 0);

  const auto led = box.run({"elect", "boss", "--value", "here", "--", "holdfast", "show", "boss"});
  EXPECT_EQ(led.code, 0) << led.err;
  EXPECT_NE(led.out.find("here"), std::string::npos) << led.out;
}

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

TEST_F(redis_cli, a_waiter_has_the_lock_of_a_killed_holder_long_before_the_ttl) {
  start();
  const auto bound =
      json::parse(box.run({"explain", "--json"}).out)["dead_holder_bound_seconds"].get<double>();
  ASSERT_GT(bound, 0);
  ASSERT_LT(bound, 3);
  const auto holder =
      box.start({"run", "job", "--ttl", "60s", "--", "sh", "-c", "echo $$ > pid; exec sleep 60"});
  const pid_t worker = box.pid_in("pid");
  const auto waiter = box.start({"run", "job", "--", "true"});
  ASSERT_TRUE(eventually([&] { return box.holders_and_waiters("job").second == 1; }));

  const auto killed = steady_clock::now();
  holder->send(SIGKILL);
  EXPECT_EQ(waiter->wait().code, 0);
  const std::chrono::duration<double> took = steady_clock::now() - killed;
  EXPECT_LT(took.count(), bound + 1)
      << "and a second for a busy machine to start and end processes";
  EXPECT_TRUE(eventually([&] { return !e2e::alive(worker); }))
      << "the command ends with its holder";
  holder->wait();
}

// ---- secrets

TEST_F(redis_cli, a_password_is_redacted_everywhere) {
  const std::string canary = "CANARY-4711";
  const auto& server = start({.config = {"requirepass " + canary}, .password = canary});
  const auto port = std::to_string(server.port());
  const auto shows_no_secret = [&](const e2e::outcome& said) {
    EXPECT_EQ((said.out + said.err).find(canary), std::string::npos) << said.out << said.err;
  };
  box.set("HOLDFAST_STORE", "redis://:" + canary + "@127.0.0.1:" + port);
  for (const auto& words : std::vector<std::vector<std::string>>{{"doctor"},
                                                                 {"doctor", "--json"},
                                                                 {"explain"},
                                                                 {"explain", "--json"},
                                                                 {"ls"},
                                                                 {"show", "job", "--json"},
                                                                 {"top", "--count", "1"},
                                                                 {"run", "job", "--", "env"},
                                                                 {"break", "job", "--yes"}}) {
    const auto said = box.run(words);
    EXPECT_EQ(said.code, 0) << words.front() << ": " << said.err;
    shows_no_secret(said);
  }
  EXPECT_NE(box.run({"doctor"}).out.find("redis://:***@"), std::string::npos);

  // A wrong one, and none at all.
  box.set("HOLDFAST_STORE", "redis://:" + canary + "-wrong@127.0.0.1:" + port);
  const auto wrong = box.run({"ls"});
  EXPECT_EQ(wrong.code, 77) << wrong.err;
  shows_no_secret(wrong);
  box.set("HOLDFAST_STORE", "redis://127.0.0.1:" + port);
  EXPECT_EQ(box.run({"ls"}).code, 77);

  // From a file, and from the environment.
  std::ofstream{box.path("password")} << canary << '\n';
  box.set("HOLDFAST_STORE", "redis://127.0.0.1:" + port + "?password_file=" + box.path("password"));
  EXPECT_EQ(box.run({"ls"}).code, 0);
  box.set("HOLDFAST_STORE", "redis://127.0.0.1:" + port + "?password_env=SECRET_OF_MINE");
  box.set("SECRET_OF_MINE", canary);
  const auto from_environment = box.run({"doctor"});
  EXPECT_EQ(from_environment.code, 0) << from_environment.err;
  shows_no_secret(from_environment);
}

}  // namespace

// The command on a Redlock: what it does, and what it says that a Redlock cannot do.
#include "e2e/shell.hpp"
#include "support/redlock_servers.hpp"
#include "support/required.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace {

using e2e::eventually;
using e2e::sandbox;
using holdfast::testing::redis_server;
using holdfast::testing::redlock_servers;
using nlohmann::json;

class redlock_cli : public ::testing::Test {
 protected:
  void SetUp() override { holdfast::testing::need(redis_server::available(), "redlock5"); }
  std::string start(const std::string& query = "?quarantine=0&prefix=rl:") {
    nodes.emplace(redlock_servers::options{.nodes = 5});
    box.set("HOLDFAST_STORE", nodes->url(query));
    return nodes->url(query);
  }
  sandbox box;  // looks for processes that are left behind, so the servers must be gone before it
  std::optional<redlock_servers> nodes;
};

TEST_F(redlock_cli, run_holds_show_tells_and_break_takes_away) {
  start();
  const auto holder =
      box.start({"run", "job", "--ttl", "2s", "--", "sh", "-c", "echo $$ > pid; exec sleep 60"});
  box.pid_in("pid");
  const auto listed = json::parse(box.run({"ls", "--json"}).out);
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0]["name"], "job");
  const auto token = listed[0]["holders"][0]["token"].get<std::uint64_t>();
  EXPECT_EQ(box.run({"run", "job", "--no-wait", "--", "true"}).code, 75);
  const auto waiter = box.start({"run", "job", "--", "sh", "-c", "echo $HOLDFAST_TOKEN"});
  EXPECT_EQ(box.run({"break", "job", "--yes"}).code, 0);
  EXPECT_EQ(holder->wait().code, 76);
  const auto done = waiter->wait();
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_GT(std::stoull(done.out), token);
  EXPECT_EQ(box.run({"ls", "--json"}).out, "[]\n");
}

TEST_F(redlock_cli, goes_on_with_three_of_five_and_says_so_with_two) {
  start();
  (*nodes)[0].kill(), (*nodes)[3].kill();
  EXPECT_EQ(box.run({"run", "job", "--", "true"}).code, 0);
  const auto said = box.run({"doctor"});
  EXPECT_NE(said.out.find("3 of 5 nodes answer"), std::string::npos) << said.out;
  (*nodes)[1].kill();
  const auto refused = box.run({"run", "job", "--wait", "200ms", "--", "true"});
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.err.find("2 of 5 nodes answer, and 3 are needed"), std::string::npos)
      << refused.err;
}

TEST_F(redlock_cli, the_guard_gives_back_what_a_killed_holdfast_held) {
  start();
  const auto holder =
      box.start({"run", "job", "--ttl", "60s", "--", "sh", "-c", "echo $$ > pid; exec sleep 60"});
  box.pid_in("pid");
  const auto waiter = box.start({"run", "job", "--wait", "20s", "--", "true"});
  holder->send(SIGKILL);
  const auto done = waiter->wait();
  EXPECT_EQ(done.code, 0) << "long before the ttl: " << done.err;
  holder->wait();
}

TEST_F(redlock_cli, explain_and_doctor_tell_what_it_is_worth) {
  start();
  const auto told = box.run({"explain"});
  EXPECT_EQ(told.code, 0) << told.err;
  for (const auto* word : {"redlock over 5 nodes", "3 of 5 nodes", "clock jumps", "Best effort"})
    EXPECT_NE(told.out.find(word), std::string::npos) << word << " in\n" << told.out;
  const auto said = box.run({"doctor"});
  EXPECT_EQ(said.code, 0) << said.out << said.err;
  EXPECT_NE(said.out.find("5 of 5 nodes answer; 3 are needed"), std::string::npos) << said.out;
  const auto shared = box.run({"run", "table", "--shared", "--", "true"});
  EXPECT_EQ(shared.code, 78);
  EXPECT_NE(shared.err.find("redlock"), std::string::npos) << shared.err;
}

TEST_F(redlock_cli, young_nodes_have_no_vote) {
  start("?longest_ttl=30s");
  const auto refused = box.run({"run", "job", "--no-wait", "--", "true"});
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.err.find("they have no vote for another"), std::string::npos) << refused.err;
  EXPECT_NE(box.run({"doctor", "--json"}).out.find("has no vote for another"), std::string::npos);
}

TEST_F(redlock_cli, bench_runs) {
  start();
  const auto said = box.run({"bench", "--seconds", "0.2", "--only", "uncontended"});
  EXPECT_EQ(said.code, 0) << said.out << said.err;
}

}  // namespace

// The command beside kazoo.
#include "e2e/zk_peers.hpp"

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>

namespace {

using nlohmann::json;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

using zk_interop_kazoo = e2e::beside<e2e::kazoo_peer>;

TEST_F(zk_interop_kazoo, what_kazoo_has_locked_is_waited_for_by_us) {
  start_both("?layout=kazoo");
  for (const auto* name : {"job", "jobs/nightly"}) expect_we_wait_for_it("lock", name);
  expect_we_wait_for_it("write", "table");
}

TEST_F(zk_interop_kazoo, what_we_have_locked_is_waited_for_by_kazoo) {
  start_both("?layout=kazoo");
  for (const auto* name : {"job", "jobs/nightly"}) expect_it_waits_for_us("lock", name);
  expect_it_waits_for_us("write", "table");
  expect_it_waits_for_us("read", "table");
}

TEST_F(zk_interop_kazoo, both_kinds_of_clients_exclude_each_other_under_load) {
  start_both("?layout=kazoo", {.nodes = 3});
  expect_no_update_lost("lock");
}

TEST_F(zk_interop_kazoo, readers_of_both_kinds_share_and_keep_writers_out) {
  start_both("?layout=kazoo");
  ASSERT_EQ(peer->ask("take a read /table"), "taken a");
  EXPECT_EQ(run_at_once("table", {"--shared"}), 0);
  EXPECT_EQ(run_at_once("table"), 75);
  EXPECT_EQ(peer->ask("give a"), "given a");
  const auto reader = box.start(staying({"run", "table", "--shared"}));
  box.pid_in("pid");
  EXPECT_EQ(peer->ask("try a read /table"), "taken a");
  EXPECT_EQ(peer->ask("give a"), "given a");
  peer->tell("take b write /table");
  ASSERT_TRUE(queued("/table", 2));
  EXPECT_EQ(peer->hear(100ms), std::nullopt);
  reader->send(SIGTERM);
  EXPECT_EQ(peer->hear(), "taken b");
  reader->wait();
  EXPECT_EQ(run_at_once("table", {"--shared"}), 75);
}

TEST_F(zk_interop_kazoo, leaders_are_known_to_both) {
  start_both("?layout=kazoo");
  const auto ours = box.start(staying({"elect", "boss", "--value", "node-7"}));
  const pid_t inside = box.pid_in("pid");
  EXPECT_EQ(peer->ask("leader election /boss"), "leader node-7");
  peer->tell("take a election /boss node-8");
  ASSERT_TRUE(queued("/boss", 2));
  EXPECT_EQ(peer->ask("participants election /boss"), "participants node-7 node-8");
  ::kill(inside, SIGTERM);
  EXPECT_EQ(peer->hear(), "taken a");
  ours->wait();
  const auto seen = json::parse(box.run({"show", "boss", "--json"}).out);
  EXPECT_EQ(seen["holders"][0]["label"], "node-8") << seen;
  const auto next = box.start({"elect", "boss", "--value", "node-9", "--", "true"});
  ASSERT_TRUE(queued("/boss", 2));
  EXPECT_EQ(peer->ask("give a"), "given a");
  EXPECT_EQ(next->wait().code, 0);
}

TEST_F(zk_interop_kazoo, the_lock_of_a_killed_python_program_is_ours_when_its_session_ends) {
  start_both("?layout=kazoo");
  peer.emplace(running().url(), 1s);
  ASSERT_EQ(peer->ask("take a lock /job"), "taken a");
  const auto waiter = box.start({"run", "job", "--", "true"});
  ASSERT_TRUE(queued("/job", 2));
  const auto killed = steady_clock::now();
  peer->kill();
  EXPECT_EQ(waiter->wait().code, 0);
  EXPECT_LT(steady_clock::now() - killed, 10s) << "a session of 1s, and a busy machine";
}

TEST_F(zk_interop_kazoo, kazoo_has_the_lock_of_a_killed_holdfast) {
  start_both("?layout=kazoo&session=60s");
  const auto holder = box.start(staying({"run", "job"}));
  box.pid_in("pid");
  peer->tell("take a lock /job");
  ASSERT_TRUE(queued("/job", 2));
  holder->send(SIGKILL);
  EXPECT_EQ(peer->hear(20s), "taken a") << "its guard gives it back";
  holder->wait();
}

TEST_F(zk_interop_kazoo, permits_are_refused_in_words) {
  start_both("?layout=kazoo");
  const auto refused = box.run({"run", "pool", "--permits", "1/2", "--", "true"});
  EXPECT_EQ(refused.code, 78) << refused.err;
  EXPECT_NE(refused.err.find("kazoo"), std::string::npos) << refused.err;
}

}  // namespace

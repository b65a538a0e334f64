// The command beside Curator, and beside go-zookeeper by its names.
#include <holdfast/holdfast.hpp>

#include "e2e/zk_peers.hpp"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <regex>

namespace {

using e2e::eventually;
using holdfast::lock_mode;
using holdfast::shared_mutex;
using nlohmann::json;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

using zk_interop = e2e::beside<e2e::curator_peer>;

// ---- Curator: InterProcessMutex

TEST_F(zk_interop, what_a_java_mutex_has_locked_is_waited_for_by_us) {
  start_both();
  for (const auto* name : {"job", "jobs/nightly"}) expect_we_wait_for_it("mutex", name);
}

TEST_F(zk_interop, what_we_have_locked_is_waited_for_by_a_java_mutex) {
  start_both();
  for (const auto* name : {"job", "jobs/nightly"}) expect_it_waits_for_us("mutex", name);
}

TEST_F(zk_interop, both_kinds_of_clients_exclude_each_other_under_load) {
  start_both("", {.nodes = 3});
  expect_no_update_lost("mutex");
}

TEST_F(zk_interop, a_chroot_is_the_same_one_for_java) {
  auto& server = start();
  hand().create({.path = "/app"});
  peer.emplace(server.url() + "/app");
  box.set("HOLDFAST_STORE", server.url() + "/app");
  ASSERT_EQ(peer->ask("take a mutex /job"), "taken a");
  EXPECT_EQ(run_at_once("job"), 75);
  EXPECT_EQ(run_at_once("app/job"), 0);
  EXPECT_EQ(box.run({"ls", "--names"}).out, "job\n");
}

TEST_F(zk_interop, what_the_store_does_not_know_of_java_is_not_invented) {
  start_both();
  ASSERT_EQ(peer->ask("take a mutex /job"), "taken a");
  const auto seen = json::parse(box.run({"show", "job", "--json"}).out)["holders"][0];
  EXPECT_EQ(seen["owner"], nodes("/job").at(0)) << seen;
  EXPECT_EQ(seen["label"], hand().get("/job/" + nodes("/job").at(0)).data) << "an address";
  EXPECT_EQ(seen["pid"], 0) << seen;
  EXPECT_TRUE(seen["expires_in_seconds"].is_null()) << seen;
  EXPECT_GE(seen["held_seconds"], 0) << "the leader's clock tells";
  EXPECT_EQ(seen["token"],
            static_cast<std::uint64_t>(hand().stat("/job/" + nodes("/job").at(0))->czxid));
}

TEST_F(zk_interop, break_takes_away_what_java_holds) {
  start_both();
  ASSERT_EQ(peer->ask("take a mutex /job"), "taken a");
  const auto waiter = box.start({"run", "job", "--", "true"});
  ASSERT_TRUE(queued("/job", 2));
  EXPECT_EQ(box.run({"break", "job", "--yes"}).code, 0);
  EXPECT_EQ(waiter->wait().code, 0);
}

// ---- those that die or fall asleep

TEST_F(zk_interop, the_lock_of_a_killed_java_program_is_ours_when_its_session_ends) {
  start_both();
  peer.emplace(running().url(), 1s);
  ASSERT_EQ(peer->ask("take a mutex /job"), "taken a");
  const auto waiter = box.start({"run", "job", "--", "true"});
  ASSERT_TRUE(queued("/job", 2));
  const auto killed = steady_clock::now();
  peer->kill();
  EXPECT_EQ(waiter->wait().code, 0);
  EXPECT_LT(steady_clock::now() - killed, 10s) << "a session of 1s, and a busy machine";
}

TEST_F(zk_interop, java_has_the_lock_of_a_killed_holdfast_at_once) {
  start_both("?session=60s");
  const auto holder = box.start(staying({"run", "job", "--ttl", "60s"}));
  box.pid_in("pid");
  peer->tell("take a mutex /job");
  ASSERT_TRUE(queued("/job", 2));
  holder->send(SIGKILL);
  EXPECT_EQ(peer->hear(20s), "taken a") << "its guard gives it back";
  holder->wait();
}

TEST_F(zk_interop, java_has_the_lock_of_a_sleeping_holdfast_when_its_session_ends) {
  start_both("?session=1s");
  const auto holder = box.start(staying({"run", "job"}));
  const pid_t inside = box.pid_in("pid");
  peer->tell("take a mutex /job");
  ASSERT_TRUE(queued("/job", 2));
  holder->send(SIGSTOP);
  EXPECT_EQ(peer->hear(), "taken a");
  holder->send(SIGCONT);
  const auto ended = holder->wait();
  EXPECT_EQ(ended.code, 76) << ended.err;
  EXPECT_FALSE(e2e::alive(inside));
  EXPECT_EQ(peer->ask("give a"), "given a") << "it was not ours to take along";
}

// ---- Curator: InterProcessReadWriteLock

TEST_F(zk_interop, java_readers_and_ours_share_and_keep_writers_out) {
  start_both();
  ASSERT_EQ(peer->ask("take a read /table"), "taken a");
  EXPECT_EQ(run_at_once("table", {"--shared"}), 0);
  EXPECT_EQ(run_at_once("table"), 75);
  EXPECT_EQ(peer->ask("give a"), "given a");

  const auto reader = box.start(staying({"run", "table", "--shared"}));
  box.pid_in("pid");
  EXPECT_EQ(peer->ask("try a read /table"), "taken a");
  EXPECT_EQ(peer->ask("give a"), "given a");
  EXPECT_EQ(peer->ask("within 50 a write /table"), "busy a");
  peer->tell("take b write /table");
  ASSERT_TRUE(queued("/table", 2));
  EXPECT_EQ(run_at_once("table", {"--shared"}), 75) << "a writer of theirs waits already";
  EXPECT_EQ(peer->hear(100ms), std::nullopt);
  reader->send(SIGTERM);
  EXPECT_EQ(peer->hear(), "taken b");
  reader->wait();

  const auto next = box.start({"run", "table", "--shared", "--", "true"});
  ASSERT_TRUE(queued("/table", 2));
  EXPECT_EQ(next->out(), "");
  EXPECT_EQ(peer->ask("give b"), "given b");
  EXPECT_EQ(next->wait().code, 0);
}

TEST_F(zk_interop, our_readers_and_java_writers_exclude_each_other_under_load) {
  start_both();
  crowd("table --shared",
        "mkdir r.$$; test ! -e w || echo r >> met; sleep 0.02; test ! -e w || echo r >> met; rmdir "
        "r.$$\n",
        "write /table",
        "mkdir w || echo w >> met; sleep 0.01; ls | grep -q '^r\\.' && echo w >> met; rmdir w\n");
  EXPECT_EQ(box.read("met"), "");
}

TEST_F(zk_interop, our_writer_keeps_java_readers_and_writers_out) {
  start_both();
  const auto client = holdfast::client::open(running().url());
  shared_mutex table{client, "table"};
  {
    const auto lease = table.acquire().value();
    EXPECT_EQ(peer->ask("within 50 a read /table"), "busy a");
    EXPECT_EQ(peer->ask("within 50 a write /table"), "busy a");
    peer->tell("take a read /table");
    ASSERT_TRUE(queued("/table", 2));
    EXPECT_EQ(peer->hear(100ms), std::nullopt);
  }
  EXPECT_EQ(peer->hear(), "taken a");
  EXPECT_EQ(table.acquire({.wait = 50ms}).error().code(), holdfast::errc::timed_out);
  EXPECT_EQ(peer->ask("give a"), "given a");
  EXPECT_EQ(peer->ask("take a write /table"), "taken a");
  EXPECT_FALSE(table.acquire_shared({.wait = 0s}));
  EXPECT_FALSE(table.acquire({.wait = 0s}));
  EXPECT_EQ(peer->ask("give a"), "given a");
  EXPECT_TRUE(table.acquire({.wait = 5s}));
}

TEST_F(zk_interop, our_downgrade_lets_java_readers_in_and_no_writer) {
  start_both();
  const auto client = holdfast::client::open(running().url());
  shared_mutex table{client, "table"};
  auto lease = table.acquire().value();
  peer->tell("take r read /table");
  ASSERT_TRUE(queued("/table", 2));
  peer->tell("take w write /table");
  ASSERT_TRUE(queued("/table", 3));
  ASSERT_TRUE(table.downgrade(lease));
  EXPECT_EQ(peer->hear(), "taken r");
  EXPECT_EQ(peer->ask("give r"), "given r");
  EXPECT_EQ(peer->hear(100ms), std::nullopt) << "we read still";
  EXPECT_TRUE(lease.release());
  EXPECT_EQ(peer->hear(), "taken w");
}

// It watches the writer's node, which goes; the reader's is there in the same moment.
TEST_F(zk_interop, our_downgrade_is_not_mistaken_for_a_release_by_a_java_writer) {
  start_both();
  const auto client = holdfast::client::open(running().url());
  shared_mutex table{client, "table"};
  auto lease = table.acquire().value();
  peer->tell("take w write /table");
  ASSERT_TRUE(queued("/table", 2));
  ASSERT_TRUE(table.downgrade(lease));
  EXPECT_EQ(peer->hear(100ms), std::nullopt);
  EXPECT_EQ(peer->ask("within 50 r read /table"), "busy r") << "a writer waits before it";
  EXPECT_TRUE(lease.release());
  EXPECT_EQ(peer->hear(), "taken w");
}

// ---- Curator: InterProcessSemaphoreV2

TEST_F(zk_interop, permits_that_java_has_are_not_ours) {
  start_both();
  ASSERT_EQ(peer->ask("take a semaphore /pool 3"), "taken a");
  ASSERT_EQ(peer->ask("take b semaphore /pool 3"), "taken b");
  EXPECT_EQ(run_at_once("pool", {"--permits", "1/3"}), 0);
  EXPECT_EQ(run_at_once("pool", {"--permits", "2/3"}), 75);
  EXPECT_EQ(box.run({"ls", "--names"}).out, "pool\n");
  const auto waiter = box.start({"run", "pool", "--permits", "2/3", "--", "true"});
  ASSERT_TRUE(queued("/pool/locks", 1));
  EXPECT_EQ(peer->ask("within 50 c semaphore /pool 3"), "busy c") << "one of ours waits before it";
  EXPECT_EQ(peer->ask("give a"), "given a");
  const auto done = waiter->wait();
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(peer->ask("give b"), "given b");
  EXPECT_EQ(run_at_once("pool", {"--permits", "3/3"}), 0);
}

TEST_F(zk_interop, permits_that_we_have_are_not_javas) {
  start_both();
  const auto holder = box.start(staying({"run", "pool", "--permits", "2/3"}));
  box.pid_in("pid");
  ASSERT_EQ(peer->ask("take a semaphore /pool 3"), "taken a");
  EXPECT_EQ(peer->ask("within 50 b semaphore /pool 3"), "busy b");
  peer->tell("take b semaphore /pool 3");
  ASSERT_TRUE(queued("/pool/locks", 1));
  EXPECT_EQ(peer->hear(100ms), std::nullopt);
  EXPECT_EQ(run_at_once("pool", {"--permits", "1/3"}), 75);
  holder->send(SIGTERM);
  EXPECT_EQ(peer->hear(), "taken b");
  holder->wait();
  EXPECT_EQ(run_at_once("pool", {"--permits", "1/3"}), 0);
  EXPECT_EQ(run_at_once("pool", {"--permits", "2/3"}), 75);
}

TEST_F(zk_interop, never_more_than_all_permits_are_out_under_load) {
  start_both("", {.nodes = 3});
  const std::string inside =
      "mkdir in.$$; sleep 0.02; set -- in.*; echo $# >> counts; test $# -le 2 || echo $# >> over; "
      "rmdir in.$$\n";
  crowd("pool --permits 1/2", inside, "semaphore /pool 2", inside);
  EXPECT_EQ(box.read("over"), "");
  EXPECT_NE(box.read("counts").find('2'), std::string::npos)
      << "two never met, so nothing was tried";
}

// ---- Curator: LeaderLatch, LeaderSelector

TEST_F(zk_interop, java_knows_our_leader_and_follows_it) {
  start_both();
  const auto ours = box.start(staying({"elect", "boss", "--value", "node-7"}));
  const pid_t inside = box.pid_in("pid");
  EXPECT_EQ(peer->ask("leader latch /boss"), "leader node-7");
  peer->tell("take a latch /boss node-8");
  ASSERT_TRUE(queued("/boss", 2));
  EXPECT_EQ(peer->ask("participants latch /boss"), "participants node-7 node-8");
  const auto seen = json::parse(box.run({"show", "boss", "--json"}).out);
  EXPECT_EQ(seen["holders"][0]["label"], "node-7") << seen;
  EXPECT_GT(seen["holders"][0]["pid"], 0) << seen;
  EXPECT_EQ(seen["waiters"][0]["label"], "node-8") << seen;
  EXPECT_EQ(peer->hear(100ms), std::nullopt);
  ::kill(inside, SIGTERM);  // we resign
  EXPECT_EQ(peer->hear(), "taken a");
  ours->wait();
}

TEST_F(zk_interop, we_know_javas_leader_and_follow_it) {
  start_both();
  ASSERT_EQ(peer->ask("take a latch /boss node-8"), "taken a");
  const auto ours =
      box.start({"elect", "boss", "--value", "node-7", "--", "holdfast", "show", "boss", "--json"});
  ASSERT_TRUE(queued("/boss", 2));
  const auto seen = json::parse(box.run({"show", "boss", "--json"}).out);
  EXPECT_EQ(seen["holders"][0]["label"], "node-8") << seen;
  EXPECT_EQ(peer->ask("participants latch /boss"), "participants node-8 node-7");
  EXPECT_EQ(ours->out(), "");
  EXPECT_EQ(peer->ask("give a"), "given a");
  const auto led = ours->wait();
  ASSERT_EQ(led.code, 0) << led.err;
  EXPECT_EQ(json::parse(led.out)["holders"][0]["label"], "node-7");
}

TEST_F(zk_interop, java_leads_when_our_leader_was_killed) {
  start_both();
  const auto ours = box.start(staying({"elect", "boss", "--value", "node-7"}));
  box.pid_in("pid");
  peer->tell("take a latch /boss node-8");
  ASSERT_TRUE(queued("/boss", 2));
  ours->send(SIGKILL);
  EXPECT_EQ(peer->hear(), "taken a");
  ours->wait();
}

TEST_F(zk_interop, a_leader_selector_and_run_exclude_each_other) {
  start_both();
  expect_we_wait_for_it("selector", "job", "node-8");
  expect_it_waits_for_us("selector", "job", "node-8");
  ASSERT_EQ(peer->ask("take a selector /job node-8"), "taken a");
  EXPECT_EQ(json::parse(box.run({"show", "job", "--json"}).out)["holders"][0]["label"], "node-8");
}

// ---- Curator: SharedCount, DistributedBarrier

TEST_F(zk_interop, a_latch_and_a_shared_count_are_one_number) {
  start_both();
  EXPECT_EQ(box.run({"latch", "set", "tiles", "3"}).code, 0);
  EXPECT_EQ(peer->ask("count-get /~counters/tiles"), "count 3");
  EXPECT_EQ(peer->ask("count-add /~counters/tiles -1"), "count 2");
  EXPECT_EQ(box.run({"latch", "down", "tiles"}).out, "1\n");
  EXPECT_EQ(peer->ask("count-get /~counters/tiles"), "count 1");
  const auto before = watches();
  const auto waiting = box.start({"latch", "wait", "tiles"});
  EXPECT_TRUE(eventually([&] { return watches() > before; }));
  EXPECT_EQ(peer->ask("count-add /~counters/tiles -1"), "count 0");
  const auto opened = waiting->wait();
  EXPECT_EQ(opened.code, 0) << opened.err;

  EXPECT_EQ(peer->ask("count-set /~counters/theirs 2"), "count 2");
  EXPECT_EQ(box.run({"latch", "down", "theirs"}).out, "1\n");
  EXPECT_NE(box.run({"latch", "ls"}).out.find("theirs"), std::string::npos);
}

TEST_F(zk_interop, a_latch_and_a_java_barrier_are_one_gate) {
  start_both("?latch=barrier");
  EXPECT_EQ(box.run({"latch", "set", "gate", "1"}).code, 0);
  peer->tell("take a barrier /~counters/gate");
  EXPECT_EQ(peer->hear(100ms), std::nullopt);
  EXPECT_EQ(box.run({"latch", "down", "gate"}).out, "0\n");
  EXPECT_EQ(peer->hear(), "taken a");

  EXPECT_EQ(peer->ask("barrier-close /~counters/gate"), "closed");
  EXPECT_EQ(box.run({"latch", "wait", "gate", "--wait", "100ms"}).code, 75);
  const auto before = watches();
  const auto waiting = box.start({"latch", "wait", "gate"});
  EXPECT_TRUE(eventually([&] { return watches() > before; }));
  EXPECT_EQ(peer->ask("barrier-open /~counters/gate"), "open");
  EXPECT_EQ(waiting->wait().code, 0);
}

// ---- go-zookeeper, whose mutex is Curator's by other names

TEST_F(zk_interop, a_java_mutex_and_the_layout_of_go_exclude_each_other) {
  start_both("?layout=go-zk");
  expect_we_wait_for_it("mutex", "job");
  expect_it_waits_for_us("mutex", "job");
  expect_no_update_lost("mutex");
}

TEST_F(zk_interop, names_are_those_of_go) {
  start_both("?layout=go-zk");
  hand().create({.path = "/job"});
  const auto theirs = hand().create({.path = "/job/_c_0123456789abcdef0123456789abcdef-lock-",
                                     .mode = holdfast::jute::create_mode::ephemeral_sequential});
  EXPECT_EQ(run_at_once("job"), 75);
  const auto waiter = box.start(staying({"run", "job"}));
  ASSERT_TRUE(queued("/job", 2));
  hand().erase(theirs);
  box.pid_in("pid");
  // Go finds its own by what begins with _c_ and 32 digits, and the number behind the last "lock-".
  const auto ours = nodes("/job").at(0);
  EXPECT_TRUE(std::regex_match(ours, std::regex{"_c_[0-9a-f]{32}-[^/]*lock-[0-9]{10}"})) << ours;
  waiter->send(SIGTERM);
  waiter->wait();
}

}  // namespace

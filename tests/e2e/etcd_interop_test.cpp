// The command beside etcdctl, which uses the same keys.
#include "e2e/etcd_cli.hpp"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace {

using e2e::etcd_cli;
using e2e::eventually;
using nlohmann::json;
using namespace std::chrono_literals;

class etcd_interop : public etcd_cli {
 protected:
  etcd_interop() {
    // A file, because etcdctl would take the flags of what it runs for its own.
    std::ofstream{box.path("stay")} << "echo $$ > $1; exec sleep 60\n";
  }

  // We lead "boss", and etcdctl listens.
  struct leader {
    std::unique_ptr<e2e::program> ours;
    pid_t inside;  // our command
    std::string key;
    std::unique_ptr<e2e::program> listener;
  };
  leader lead_boss(const std::string& flags) {
    const auto& server = start();
    auto ours = box.start_shell("exec holdfast elect boss " + flags + " -- " + staying("pid"));
    const pid_t inside = box.pid_in("pid");
    EXPECT_TRUE(queued("boss", 1));
    return {std::move(ours), inside, server.keys("boss/").at(0),
            box.start_shell("exec etcdctl elect -l boss")};
  }
  // A command that says where it is and stays there.
  static std::string staying(const std::string& file) { return "sh stay " + file; }
};

TEST_F(etcd_interop, what_etcdctl_has_locked_is_busy_for_us) {
  for (const std::string name : {"job", "jobs/nightly"}) {
    start();
    const auto file = "pid-" + name.substr(0, 4);
    const auto holder = box.start_shell("exec etcdctl lock " + name + " " + staying(file));
    const pid_t inside = box.pid_in(file);
    EXPECT_EQ(box.run({"run", name, "--no-wait", "--", "true"}).code, 75);
    EXPECT_EQ(box.holders_and_waiters(name), (std::pair<std::size_t, std::size_t>{1, 0}));
    const auto waiter = box.start({"run", name, "--", "sh", "-c", "echo $HOLDFAST_TOKEN"});
    ASSERT_TRUE(queued(name, 2));
    EXPECT_EQ(waiter->out(), "");
    ::kill(inside, SIGTERM);  // its command ends, and it gives the lock back
    const auto done = waiter->wait();
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_NE(done.out, "");
    holder->wait();
    std::filesystem::remove(box.path(file));
  }
}

TEST_F(etcd_interop, what_we_have_locked_is_waited_for_by_etcdctl) {
  for (const std::string name : {"job", "jobs/nightly"}) {
    start();
    const auto file = "pid-" + name.substr(0, 4);
    const auto holder = box.start_shell("exec holdfast run " + name + " -- " + staying(file));
    box.pid_in(file);
    const auto waiter = box.start_shell("exec etcdctl lock " + name + " echo inside");
    ASSERT_TRUE(queued(name, 2));
    EXPECT_EQ(waiter->out(), "");
    holder->send(SIGTERM);
    EXPECT_EQ(holder->wait().code, 128 + SIGTERM);
    const auto done = waiter->wait();
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_NE(done.out.find("inside"), std::string::npos) << done.out;
    std::filesystem::remove(box.path(file));
  }
}

// Both kinds fight for one number in a file.
TEST_F(etcd_interop, both_kinds_of_clients_exclude_each_other_under_load) {
  start({.nodes = 3});
  std::ofstream{box.path("count")} << "0\n";
  std::ofstream{box.path("bump")} << "n=$(cat count); sleep 0.02; echo $((n + 1)) > count\n";
  constexpr int each = 12;
  std::vector<std::unique_ptr<e2e::program>> all;
  for (int i = 0; i < each; ++i) {
    all.push_back(box.start_shell("exec etcdctl lock job sh bump"));
    all.push_back(box.start_shell("exec holdfast run job -- sh bump"));
  }
  for (const auto& one : all) {
    const auto ended = one->wait(60s);
    EXPECT_EQ(ended.code, 0) << ended.err;
  }
  EXPECT_EQ(box.read("count"), std::to_string(2 * each) + "\n");
}

// Our lock on something deeper is nobody's business; theirs on something deeper is not ours.
TEST_F(etcd_interop, deeper_names_are_apart) {
  start();
  const auto deep = box.start_shell("exec etcdctl lock job/part " + staying("deep"));
  const pid_t inside = box.pid_in("deep");
  EXPECT_EQ(box.run({"run", "job", "--no-wait", "--", "true"}).code, 0);
  EXPECT_EQ(box.run({"run", "job/part", "--no-wait", "--", "true"}).code, 75);
  EXPECT_EQ(box.run({"ls", "--names"}).out, "job/part\n");
  ::kill(inside, SIGTERM);
  deep->wait();
}

TEST_F(etcd_interop, etcdctl_sees_our_candidate) {
  const auto we = lead_boss("--value node-7");
  EXPECT_TRUE(eventually([&] { return we.listener->out().starts_with(we.key + "\nnode-7\n"); }))
      << we.listener->out() << we.listener->err();
  const auto theirs = box.start_shell("exec etcdctl elect boss node-8");
  ASSERT_TRUE(queued("boss", 2));
  EXPECT_EQ(theirs->out(), "");
  ::kill(we.inside, SIGTERM);  // we resign
  we.ours->wait();
  EXPECT_TRUE(eventually([&] { return theirs->out().find("node-8") != std::string::npos; }))
      << theirs->out() << theirs->err();
  EXPECT_TRUE(eventually([&] { return we.listener->out().find("node-8") != std::string::npos; }));
  theirs->send(SIGTERM), we.listener->send(SIGTERM);
  theirs->wait(), we.listener->wait();
}

// Our own record of the entry was shown as the leader's value once.
TEST_F(etcd_interop, etcdctl_sees_no_value_of_a_candidate_without_one) {
  const auto we = lead_boss("");
  EXPECT_TRUE(eventually([&] { return we.listener->out() == we.key + "\n\n"; }))
      << we.listener->out() << we.listener->err();
  EXPECT_EQ(box.shell("etcdctl get --print-value-only " + we.key).out, "\n");
  const auto seen = json::parse(box.run({"show", "boss", "--json"}).out);
  EXPECT_EQ(seen["holders"][0]["label"], "");
  EXPECT_GT(seen["holders"][0]["pid"], 0);
  EXPECT_GE(seen["holders"][0]["held_seconds"], 0);
  ::kill(we.inside, SIGTERM);
  we.ours->wait();
  we.listener->send(SIGTERM);
  we.listener->wait();
}

TEST_F(etcd_interop, what_the_store_does_not_know_is_not_invented) {
  start();
  const auto holder = box.start_shell("exec etcdctl lock job " + staying("pid"));
  const pid_t inside = box.pid_in("pid");
  const auto seen = json::parse(box.run({"show", "job", "--json"}).out);
  EXPECT_TRUE(seen["holders"][0]["held_seconds"].is_null()) << seen;
  EXPECT_GT(seen["holders"][0]["expires_in_seconds"], 0);
  ::kill(inside, SIGTERM);
  holder->wait();
}

TEST_F(etcd_interop, we_see_etcdctls_candidate_and_take_over) {
  start();
  const auto theirs = box.start_shell("exec etcdctl elect boss node-8");
  ASSERT_TRUE(eventually([&] { return theirs->out().find("node-8") != std::string::npos; }));
  const auto shown = box.run({"show", "boss"});
  EXPECT_NE(shown.out.find("node-8"), std::string::npos) << shown.out;
  const auto ours =
      box.start_shell("exec holdfast elect boss --value node-7 -- holdfast show boss");
  ASSERT_TRUE(queued("boss", 2));
  EXPECT_EQ(ours->out(), "");
  theirs->send(SIGINT);  // resigns
  const auto led = ours->wait();
  EXPECT_EQ(led.code, 0) << led.err;
  EXPECT_NE(led.out.find("node-7"), std::string::npos) << led.out;
  theirs->wait();
}

}  // namespace

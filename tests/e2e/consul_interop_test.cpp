// The command beside `consul lock`, which uses the same keys.
#include "e2e/consul_cli.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

namespace {

using e2e::consul_cli;
using e2e::consul_server;
using e2e::eventually;
using nlohmann::json;
using namespace std::chrono_literals;

class consul_interop : public consul_cli {
 protected:
  consul_interop() {
    std::ofstream{box.path("stay")} << "echo $$ > $1; exec sleep 60\n";
    // Loses updates when two do it at once, and notices it.
    std::ofstream{box.path("bump")} << "mkdir busy || echo $$ >> overlaps\n"
                                       "n=$(cat count); sleep 0.02; echo $((n + 1)) > count\n"
                                       "rmdir busy\n";
    // Writes down how many are inside.
    std::ofstream{box.path("enter")} << "touch inside/$$; ls inside | wc -l >> seen\n"
                                        "sleep 0.1; ls inside | wc -l >> seen; rm inside/$$\n";
    std::ofstream{box.path("count")} << "0\n";
    std::filesystem::create_directory(box.path("inside"));
  }

  // A command that says where it is and stays there.
  static std::string stays(const std::string& file) { return "sh stay " + file; }
  std::unique_ptr<e2e::program> theirs(const std::string& rest) {
    return box.start_shell("exec \"$CONSUL\" lock " + rest);
  }
  std::unique_ptr<e2e::program> ours(const std::string& rest) {
    return box.start_shell("exec holdfast run " + rest);
  }
  void end_all(const std::vector<std::unique_ptr<e2e::program>>& all) {
    for (const auto& one : all) {
      const auto ended = one->wait(90s);
      EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
    }
  }
  // All numbers that a script has written down.
  std::vector<int> numbers_in(const std::string& file) const {
    std::istringstream lines{box.read(file)};
    std::vector<int> out;
    for (int number = 0; lines >> number;) out.push_back(number);
    return out;
  }
};

TEST_F(consul_interop, what_consul_has_locked_is_busy_for_us) {
  start();
  for (const std::string name : {"job", "jobs/nightly"}) {
    const auto file = "pid-" + name.substr(0, 4);
    const auto holder = theirs("locks/" + name + " " + stays(file));
    const pid_t inside = box.pid_in(file);
    EXPECT_EQ(box.run({"run", name, "--no-wait", "--", "true"}).code, 75);
    EXPECT_EQ(box.holders_and_waiters(name), (std::pair<std::size_t, std::size_t>{1, 0}));
    const auto waiter = box.start({"run", name, "--", "sh", "-c", "echo $HOLDFAST_TOKEN"});
    ASSERT_TRUE(eventually([&] { return box.holders_and_waiters(name).second == 1; }));
    EXPECT_EQ(waiter->out(), "");
    ::kill(inside, SIGTERM);  // its command ends, and it gives the lock back
    const auto done = waiter->wait();
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_NE(done.out, "");
    holder->wait();
    std::filesystem::remove(box.path(file));
  }
}

TEST_F(consul_interop, what_we_have_locked_is_waited_for_by_consul) {
  const auto& server = start();
  for (const std::string name : {"job", "jobs/nightly"}) {
    const auto file = "pid-" + name.substr(0, 4);
    const auto holder = ours(name + " -- " + stays(file));
    box.pid_in(file);
    const auto before = server.sessions().size();
    const auto waiter = theirs("locks/" + name + " echo inside");
    ASSERT_TRUE(eventually([&] { return server.sessions().size() > before; }));
    EXPECT_EQ(waiter->out(), "");
    holder->send(SIGTERM);
    EXPECT_EQ(holder->wait().code, 128 + SIGTERM);
    const auto done = waiter->wait();
    EXPECT_EQ(done.code, 0) << done.out << done.err;
    EXPECT_NE(done.out.find("inside"), std::string::npos) << done.out;
    std::filesystem::remove(box.path(file));
  }
}

TEST_F(consul_interop, one_that_tries_once_is_turned_away_by_our_lock) {
  start();
  const auto holder = box.start(staying({"run", "job"}));
  box.pid_in("pid");
  const auto tried = box.shell("\"$CONSUL\" lock -try=1s locks/job echo inside");
  EXPECT_NE(tried.code, 0);
  EXPECT_EQ(tried.out.find("inside"), std::string::npos) << tried.out;
  holder->send(SIGTERM);
  holder->wait();
}

// Both kinds fight for one number in a file.
TEST_F(consul_interop, both_kinds_of_clients_exclude_each_other_under_load) {
  start({.nodes = 3});
  constexpr int each = 12;
  std::vector<std::unique_ptr<e2e::program>> all;
  for (int i = 0; i < each; ++i) {
    all.push_back(theirs("locks/job sh bump"));
    all.push_back(ours("job -- sh bump"));
  }
  end_all(all);
  EXPECT_EQ(box.read("overlaps"), "");
  EXPECT_EQ(box.read("count"), std::to_string(2 * each) + "\n");
}

// One after the other: each finds what the other kind has left behind.
TEST_F(consul_interop, both_kinds_of_clients_take_turns) {
  const auto& server = start();
  for (int i = 0; i < 5; ++i) {
    const auto one = box.shell("\"$CONSUL\" lock locks/job sh bump");
    EXPECT_EQ(one.code, 0) << one.out << one.err;
    const auto other = box.shell("holdfast run job --no-wait -- sh bump");
    EXPECT_EQ(other.code, 0) << other.err;
  }
  EXPECT_EQ(box.read("count"), "10\n");
  EXPECT_TRUE(server.sessions().empty());
}

// ---- semaphores

TEST_F(consul_interop, both_kinds_of_clients_share_permits) {
  const auto& server = start();
  const auto first = theirs("-n 3 locks/pool " + stays("one"));
  const pid_t inside = box.pid_in("one");
  const auto second = ours("pool --permits 1/3 -- " + stays("two"));
  box.pid_in("two");
  EXPECT_EQ(box.holders_and_waiters("pool").first, 2U);
  EXPECT_EQ(box.run({"run", "pool", "--permits", "2/3", "--no-wait", "--", "true"}).code, 75);
  EXPECT_EQ(box.run({"run", "pool", "--permits", "1/3", "--no-wait", "--", "true"}).code, 0);
  const auto third = theirs("-n 3 locks/pool " + stays("three"));
  const pid_t last = box.pid_in("three");
  EXPECT_EQ(box.run({"run", "pool", "--permits", "1/3", "--no-wait", "--", "true"}).code, 75);
  // A fourth of theirs has to wait for ours.
  const auto before = server.sessions().size();
  const auto fourth = theirs("-n 3 locks/pool echo inside");
  ASSERT_TRUE(eventually([&] { return server.sessions().size() > before; }));
  EXPECT_EQ(fourth->out(), "");
  second->send(SIGTERM);
  second->wait();
  const auto done = fourth->wait();
  EXPECT_EQ(done.code, 0) << done.out << done.err;
  ::kill(inside, SIGTERM), ::kill(last, SIGTERM);
  first->wait(), third->wait();
}

TEST_F(consul_interop, never_more_than_the_permits_are_inside_under_load) {
  start({.nodes = 3});
  constexpr int each = 10;
  std::vector<std::unique_ptr<e2e::program>> all;
  for (int i = 0; i < each; ++i) {
    all.push_back(theirs("-n 3 locks/pool sh enter"));
    all.push_back(ours("pool --permits 1/3 -- sh enter"));
  }
  end_all(all);
  const auto seen = numbers_in("seen");
  ASSERT_EQ(seen.size(), 4U * each);
  EXPECT_LE(*std::ranges::max_element(seen), 3);
  EXPECT_GE(*std::ranges::max_element(seen), 2) << "nobody ever shared it";
}

TEST_F(consul_interop, another_limit_is_refused_in_words) {
  start();
  const auto holder = theirs("-n 3 locks/pool " + stays("pid"));
  const pid_t inside = box.pid_in("pid");
  const auto said = box.run({"run", "pool", "--permits", "1/4", "--no-wait", "--", "true"});
  EXPECT_EQ(said.code, 78) << said.err;
  EXPECT_NE(said.err.find('3'), std::string::npos) << said.err;
  ::kill(inside, SIGTERM);
  holder->wait();
}

// ---- what we know of theirs

TEST_F(consul_interop, what_the_store_does_not_know_is_not_invented) {
  start();
  const auto holder = theirs("locks/job " + stays("pid"));
  const pid_t inside = box.pid_in("pid");
  const auto seen = json::parse(box.run({"show", "job", "--json"}).out);
  ASSERT_EQ(seen["holders"].size(), 1U) << seen;
  EXPECT_TRUE(seen["holders"][0]["held_seconds"].is_null()) << seen;
  EXPECT_EQ(box.run({"ls", "--names"}).out, "job\n");
  ::kill(inside, SIGTERM);
  holder->wait();
}

TEST_F(consul_interop, break_takes_theirs_away) {
  start();
  // It gives the line to a shell and signals that one alone; not every shell becomes the last command by itself.
  const auto holder = theirs("locks/job exec " + stays("pid"));
  box.pid_in("pid");
  EXPECT_EQ(box.run({"break", "job", "--yes"}).code, 0);
  // Theirs asks for a delay of 15 s when its session goes. We give the key back instead.
  EXPECT_EQ(box.run({"run", "job", "--wait", "20s", "--", "true"}).code, 0);
  // `consul lock` gives its command 5 s; `sleep` would take a minute.
  EXPECT_TRUE(eventually([&] { return holder->ended(); }, 35s)) << "it was told";
  holder->wait();
}

// Our lock on something deeper is nobody's business; theirs on something deeper is not ours.
TEST_F(consul_interop, deeper_names_are_apart) {
  start();
  const auto deep = theirs("locks/job/part " + stays("deep"));
  const pid_t inside = box.pid_in("deep");
  EXPECT_EQ(box.run({"run", "job", "--no-wait", "--", "true"}).code, 0);
  EXPECT_EQ(box.run({"run", "job/part", "--no-wait", "--", "true"}).code, 75);
  EXPECT_EQ(box.run({"ls", "--names"}).out, "job/part\n");
  ::kill(inside, SIGTERM);
  deep->wait();
}

}  // namespace

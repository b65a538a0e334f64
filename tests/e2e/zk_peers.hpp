// The command beside other people's clients of ZooKeeper, which use the same nodes.
#pragma once

#include "e2e/zk_cli.hpp"
#include "support/zookeeper_peers.hpp"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace e2e {

using namespace std::chrono_literals;
using holdfast::testing::curator_available;
using holdfast::testing::curator_peer;
using holdfast::testing::kazoo_available;
using holdfast::testing::kazoo_peer;

template <class Peer>
class beside : public zk_cli {
 protected:
  void SetUp() override {
    zk_cli::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    need(std::is_same_v<Peer, curator_peer> ? curator_available() : kazoo_available(), "zk");
  }
  // A server for us, with these options in the address, and a peer at it.
  void start_both(const std::string& options = "", zookeeper_server::options how = {}) {
    auto& servers = start(std::move(how));
    peer.emplace(servers.url());
    box.set("HOLDFAST_STORE", servers.url() + options);
  }

  int run_at_once(const std::string& name, const words& flags = {}) {
    words all{"run", name, "--no-wait"};
    all.insert(all.end(), flags.begin(), flags.end());
    all.insert(all.end(), {"--", "true"});
    return box.run(all).code;
  }
  // `more`: what the peer wants to know of this kind of lock.
  void expect_we_wait_for_it(const std::string& kind, const std::string& name,
                             const std::string& more = "") {
    SCOPED_TRACE(kind + " " + name);
    ASSERT_EQ(peer->ask(fmt::format("take a {} /{} {}", kind, name, more)), "taken a");
    EXPECT_EQ(run_at_once(name), 75);
    EXPECT_EQ(box.holders_and_waiters(name), (std::pair<std::size_t, std::size_t>{1, 0}));
    const auto waiter = box.start({"run", name, "--", "sh", "-c", "echo $HOLDFAST_TOKEN"});
    ASSERT_TRUE(queued("/" + name, 2));
    EXPECT_EQ(waiter->out(), "");
    EXPECT_EQ(peer->ask("give a"), "given a");
    const auto done = waiter->wait();
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_GT(std::stoull(done.out), 0U);
  }
  void expect_it_waits_for_us(const std::string& kind, const std::string& name,
                              const std::string& more = "") {
    SCOPED_TRACE(kind + " " + name);
    const auto holder = box.start(staying({"run", name}));
    box.pid_in("pid");
    const auto wanted = fmt::format("a {} /{} {}", kind, name, more);
    EXPECT_EQ(peer->ask("within 50 " + wanted), "busy a");
    peer->tell("take " + wanted);
    ASSERT_TRUE(queued("/" + name, 2));
    EXPECT_EQ(peer->hear(100ms), std::nullopt);
    holder->send(SIGTERM);
    EXPECT_EQ(peer->hear(), "taken a");
    EXPECT_EQ(holder->wait().code, 128 + SIGTERM);
    EXPECT_EQ(run_at_once(name), 75);
    EXPECT_EQ(peer->ask("give a"), "given a");
    std::filesystem::remove(box.path("pid"));
  }

  std::int64_t watches() const { return running().metric("zk_watch_count"); }

  // Four of ours and four of theirs come six times each. They run their scripts while they hold.
  void crowd(const std::string& ours, const std::string& our_script, const std::string& theirs,
             const std::string& their_script) {
    std::ofstream{box.path("ours")} << our_script;
    std::ofstream{box.path("theirs")} << their_script;
    std::vector<std::unique_ptr<program>> all;
    for (int i = 0; i < 4; ++i)
      all.push_back(box.start_shell("for i in 1 2 3 4 5 6; do holdfast run " + ours +
                                    " -- sh ours || exit; done"));
    drive(theirs);
    for (const auto& one : all) {
      const auto ended = one->wait(60s);
      EXPECT_EQ(ended.code, 0) << ended.err;
    }
  }
  void drive(const std::string& theirs) {
    constexpr int at_once = 4, in_all = 24;
    std::map<std::string, std::unique_ptr<program>> inside;  // by handle
    int asked = 0, given = 0;
    const auto ask = [&] { peer->tell(fmt::format("take {} {}", asked++, theirs)); };
    const auto obey = [&](const std::string& said) {
      if (said.starts_with("taken ")) {
        inside[said.substr(6)] = box.start_shell("exec sh theirs");
      } else if (said.starts_with("given ")) {
        ++given;
        if (asked < in_all) ask();
      } else {
        ADD_FAILURE() << said;
      }
    };
    while (asked < at_once) ask();
    const auto step = [&] {
      if (const auto said = peer->hear(5ms)) obey(*said);
      std::erase_if(inside, [&](const auto& one) {
        if (!one.second->ended()) return false;
        peer->tell("give " + one.first);
        return true;
      });
      return given == in_all;
    };
    EXPECT_TRUE(eventually(step, 60s));
  }
  // Both kinds fight for one number in a file.
  void expect_no_update_lost(const std::string& kind) {
    std::ofstream{box.path("count")} << "0\n";
    const std::string bump = "n=$(cat count); sleep 0.02; echo $((n + 1)) > count\n";
    crowd("job", bump, kind + " /job", bump);
    EXPECT_EQ(box.read("count"), "48\n");
  }

  std::optional<Peer> peer;
};

}  // namespace e2e

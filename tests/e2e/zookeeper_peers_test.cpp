// The peers of the interop tests do what they are there for, among themselves: a peer that excludes nothing would let
// every interop test pass.
#include "support/zookeeper_peers.hpp"
#include "support/wait_until.hpp"
#include "support/zookeeper_server.hpp"

#include <gtest/gtest.h>

#include <optional>

namespace holdfast::testing {
namespace {

// Two peers of one kind at one server.
template <class Peer>
class two_peers : public ::testing::Test {
 protected:
  void SetUp() override {
    need(zookeeper_server::available(), "zk");
    if (IsSkipped() || HasFatalFailure()) return;
    need(available(), "zk");
    if (IsSkipped() || HasFatalFailure()) return;
    server.emplace();
    one.emplace(server->url());
    other.emplace(server->url());
  }

  // The other is refused while one has it, waits for it, and gets it when one gives it back.
  void expect_exclusive(const std::string& what) {
    SCOPED_TRACE(what);
    EXPECT_EQ(one->ask("take a " + what), "taken a");
    EXPECT_EQ(other->ask("try b " + what), "busy b");
    EXPECT_EQ(other->ask("within 20 b " + what), "busy b");
    other->tell("take b " + what);
    EXPECT_EQ(other->hear(100ms), std::nullopt);
    EXPECT_EQ(one->ask("give a"), "given a");
    EXPECT_EQ(other->hear(), "taken b");
    EXPECT_EQ(one->ask("try a " + what), "busy a");
    EXPECT_EQ(other->ask("give b"), "given b");
  }

  void expect_readers_share() {
    EXPECT_EQ(one->ask("take a read /rw"), "taken a");
    EXPECT_EQ(other->ask("try b read /rw"), "taken b");
    one->tell("take c write /rw");
    EXPECT_EQ(one->ask("give a"), "given a");
    EXPECT_EQ(one->hear(100ms), std::nullopt);
    EXPECT_EQ(other->ask("give b"), "given b");
    EXPECT_EQ(one->hear(), "taken c");
    EXPECT_EQ(other->ask("try a read /rw"), "busy a");
  }

  void expect_two_permits() {
    EXPECT_EQ(one->ask("take a semaphore /two 2"), "taken a");
    EXPECT_EQ(other->ask("take b semaphore /two 2"), "taken b");
    EXPECT_EQ(one->ask("try c semaphore /two 2"), "busy c");
    EXPECT_EQ(other->ask("give b"), "given b");
    EXPECT_EQ(one->ask("take c semaphore /two 2"), "taken c");
  }

  void expect_known_leader(const std::string& kind) {
    SCOPED_TRACE(kind);
    const auto path = "/leader-" + kind;
    EXPECT_EQ(one->ask("leader " + kind + " " + path), "leader");
    EXPECT_EQ(one->ask("take a " + kind + " " + path + " ann"), "taken a");
    other->tell("take b " + kind + " " + path + " bob");
    EXPECT_TRUE(wait_until(
        [&] { return one->ask("participants " + kind + " " + path) == "participants ann bob"; }));
    EXPECT_EQ(one->ask("leader " + kind + " " + path), "leader ann");
    EXPECT_EQ(one->ask("give a"), "given a");
    EXPECT_EQ(other->hear(), "taken b");
    EXPECT_EQ(one->ask("leader " + kind + " " + path), "leader bob");
  }

  void expect_a_death_passes_it_on(const std::string& what) {
    one.emplace(server->url(), 1s);
    EXPECT_EQ(one->ask("take a " + what), "taken a");
    other->tell("take b " + what);
    EXPECT_EQ(other->hear(100ms), std::nullopt);
    one->kill();
    EXPECT_EQ(other->hear(), "taken b");
  }

  static availability available();
  std::optional<zookeeper_server> server;
  std::optional<Peer> one, other;
};

template <>
availability two_peers<curator_peer>::available() {
  return curator_available();
}
template <>
availability two_peers<kazoo_peer>::available() {
  return kazoo_available();
}

using zookeeper_peers_curator = two_peers<curator_peer>;
using zookeeper_peers_kazoo = two_peers<kazoo_peer>;

TEST_F(zookeeper_peers_curator, exclude_each_other) {
  expect_exclusive("mutex /mutex");
  expect_exclusive("write /write");
  expect_exclusive("semaphore /semaphore 1");
  expect_exclusive("latch /latch id");
  expect_exclusive("selector /selector id");
}

TEST_F(zookeeper_peers_curator, share_what_can_be_shared) {
  expect_readers_share();
  expect_two_permits();
}

TEST_F(zookeeper_peers_curator, know_the_leader) {
  expect_known_leader("latch");
  expect_known_leader("selector");
}

TEST_F(zookeeper_peers_curator, inherit_when_one_is_killed) {
  expect_a_death_passes_it_on("mutex /mutex");
}

TEST_F(zookeeper_peers_curator, handles_of_one_peer_exclude_each_other) {
  EXPECT_EQ(one->ask("take a mutex /mutex"), "taken a");
  EXPECT_EQ(one->ask("try b mutex /mutex"), "busy b");
}

TEST_F(zookeeper_peers_curator, count_together) {
  EXPECT_EQ(one->ask("count-get /count"), "count 0");
  EXPECT_EQ(one->ask("count-set /count 7"), "count 7");
  EXPECT_EQ(other->ask("count-add /count -2"), "count 5");
  EXPECT_EQ(one->ask("count-get /count"), "count 5");
}

TEST_F(zookeeper_peers_curator, wait_at_a_barrier) {
  EXPECT_EQ(one->ask("barrier-close /gate"), "closed");
  EXPECT_EQ(other->ask("within 20 b barrier /gate"), "busy b");
  other->tell("take b barrier /gate");
  EXPECT_EQ(other->hear(100ms), std::nullopt);
  EXPECT_EQ(one->ask("barrier-open /gate"), "open");
  EXPECT_EQ(other->hear(), "taken b");
}

TEST_F(zookeeper_peers_kazoo, exclude_each_other) {
  expect_exclusive("lock /lock");
  expect_exclusive("write /write");
  expect_exclusive("semaphore /semaphore 1");
  expect_exclusive("election /election id");
}

TEST_F(zookeeper_peers_kazoo, share_what_can_be_shared) {
  expect_readers_share();
  expect_two_permits();
}

TEST_F(zookeeper_peers_kazoo, know_the_leader) { expect_known_leader("election"); }

TEST_F(zookeeper_peers_kazoo, inherit_when_one_is_killed) {
  expect_a_death_passes_it_on("lock /lock");
}

TEST_F(zookeeper_peers_kazoo, sees_the_nodes_of_curator_only_when_told_their_pattern) {
  need(curator_available(), "zk");
  if (IsSkipped() || HasFatalFailure()) return;
  curator_peer java{server->url()};
  EXPECT_EQ(java.ask("take a mutex /lock"), "taken a");
  EXPECT_EQ(one->ask("try a lock /lock -lock-"), "busy a");
  EXPECT_EQ(one->ask("try a lock /lock"), "taken a");
}

}  // namespace
}  // namespace holdfast::testing

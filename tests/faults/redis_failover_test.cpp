// What breaks here: the address of the store leads to another server, and some connections stay behind with the old
// one, which is well. What must hold: messages, proofs of presence and commands are all of one server, the new one; a
// lease that the new one knows lives through the change.
#include "faults/redis_contract.hpp"

namespace holdfast::testing {
namespace {

class redis_failover : public redis_contract {
 protected:
  redis_failover() {
    redis("CONFIG", "SET", "repl-diskless-sync-delay", "0");
    redis_command(second_, {"REPLICAOF", "127.0.0.1", std::to_string(server_.port())});
  }
  bool is_synced() const {
    return wait_until(
        [&] { return redis("INFO", "replication").find("state=online") != std::string::npos; });
  }
  void move_address() {
    redis_command(second_, {"REPLICAOF", "NO", "ONE"});
    net_.lead_to(second_.port());
  }
  static bool hears(const redis_server& server, const raw_client& by) {
    const auto channel = "hf:c:" + to_string(owner_id{by.id, 0}).substr(0, 32);
    return redis_command(server, {"PUBSUB", "NUMSUB", channel}).ends_with(" 1]");
  }

  redis_server second_;
  network net_{server_.port()};
};

TEST_F(redis_failover, messages_follow_the_commands) {
  ASSERT_TRUE(is_synced());
  auto a = raw(redis_url(net_, "grace=30s&connections=1"), 1);
  take(a, "stock");
  ASSERT_TRUE(hears(server_, a));
  move_address();
  ASSERT_NE(redis("CLIENT", "KILL", "TYPE", "normal"), "0");
  EXPECT_TRUE(
      wait_until([&] { return a.verbs->inspect("stock", call_within(patience)).has_value(); }));
  EXPECT_TRUE(wait_until([&] { return hears(second_, a); }));
  EXPECT_FALSE(hears(server_, a));
}

TEST_F(redis_failover, commands_follow_the_messages) {
  ASSERT_TRUE(is_synced());
  auto a = raw(redis_url(net_, "grace=30s"), 1);
  for (const auto* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) take(a, name);
  move_address();
  ASSERT_NE(redis("CLIENT", "KILL", "TYPE", "pubsub"), "0");
  ASSERT_TRUE(wait_until([&] { return hears(second_, a); }));
  for (const auto* name : {"i", "j", "k", "l", "m", "n", "o", "p"}) {
    EXPECT_TRUE(wait_until([&] {
      const auto got = a.verbs->enter(a.ask(name), call_within(patience));
      return is_locked(second_, name);
    })) << name;
  }
}

// It answers as before, but its word counts for nothing any more.
TEST_F(redis_failover, master_that_becomes_a_replica_is_left) {
  ASSERT_TRUE(is_synced());
  const auto a = client::open(redis_url(net_, "grace=2s"));
  mutex lock{a, "stock"};
  auto held = lock.acquire({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(wait_until([&] { return is_locked(second_, "stock"); }));
  const auto before = net_.connections();
  move_address();
  redis("REPLICAOF", "127.0.0.1", std::to_string(second_.port()));
  EXPECT_TRUE(wait_until([&] { return net_.connections() > before; })) << "no client has asked";
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 3s)) << "the new master knows it";
  EXPECT_TRUE(is_proven(second_, *held));
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_FALSE(is_locked(second_, "stock"));
}

TEST_F(redis_failover, replica_proves_no_presence) {
  ASSERT_TRUE(is_synced());
  auto a = raw(1);
  take(a, "stock");
  ASSERT_TRUE(is_ok(a.verbs->renew({}, call_within(patience))));
  redis_command(second_, {"REPLICAOF", "NO", "ONE"});
  redis("REPLICAOF", "127.0.0.1", std::to_string(second_.port()));
  EXPECT_TRUE(fails_with(a.verbs->renew({}, call_within(patience)), errc::unavailable));
}

}  // namespace
}  // namespace holdfast::testing

// What breaks here: the replica of a store of which every grant must have a copy (wait_replicas), and the master
// itself. What must hold: without the copy nothing is granted and nothing is left behind; with it, a fail-over finds
// the lock.
#include "faults/redis_contract.hpp"

namespace holdfast::testing {
namespace {

class redis_replicas : public redis_contract {
 protected:
  static bool is_synced(const redis_server& master) {
    return wait_until([&] {
      return redis_command(master, {"INFO", "replication"}).find("state=online") !=
             std::string::npos;
    });
  }
  static redis_server::options replica_of(const redis_server& master) {
    return {.config = {fmt::format("replicaof 127.0.0.1 {}", master.port())}};
  }
  static constexpr auto careful = "wait_replicas=1&wait_timeout=150ms&grace=20s";
};

TEST_F(redis_replicas, grant_needs_its_copy) {
  redis_server master;
  redis_server replica{replica_of(master)};
  ASSERT_TRUE(is_synced(master));
  const auto a = client::open(redis_url(master, careful), {.call_timeout = 1s});
  mutex lock{a, "stock"};
  auto held = lock.acquire({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(is_locked(replica, "stock")) << "it has it before we do";
  EXPECT_TRUE(is_ok(held->release()));

  replica.stop();
  for (int round = 0; round < 3; ++round) {
    const auto tried = lock.try_acquire();
    EXPECT_TRUE(fails_with(tried, errc::unavailable));
    if (!tried) {
      EXPECT_NE(tried.error().message().find("stock"), std::string::npos);
      EXPECT_NE(tried.error().message().find("replica"), std::string::npos)
          << tried.error().message();
    }
    EXPECT_EQ(left_behind(master), "[]");
  }
  replica.resume();
  EXPECT_TRUE(wait_until([&] { return lock.acquire({.wait = 1s}).has_value(); }));
  EXPECT_TRUE(leaves_nothing(master));
}

TEST_F(redis_replicas, no_replica_at_all) {
  redis_server master;
  const auto a = client::open(redis_url(master, careful), {.call_timeout = 1s});
  mutex lock{a, "stock"};
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::unavailable));
  EXPECT_TRUE(fails_with(lock.acquire({.wait = 300ms}), errc::unavailable));
  EXPECT_EQ(left_behind(master), "[]");
}

// A grant that comes by message has its copy as well, or is none.
TEST_F(redis_replicas, waiter_needs_its_copy_too) {
  redis_server master;
  redis_server replica{replica_of(master)};
  ASSERT_TRUE(is_synced(master));
  const auto a = client::open(redis_url(master, "grace=20s"));
  const auto b = client::open(redis_url(master, careful));
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire();
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_queue(master, "stock", 1));
  replica.stop();
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(stays_true([&] { return waiting.wait_for(0s) != std::future_status::ready; }, 400ms));
  replica.resume();
  auto other = get(waiting);
  ASSERT_TRUE(is_ok(other));
  EXPECT_GT(other->token(), held->token());
}

// A grant without an answer is no proof of a copy.
TEST_F(redis_replicas, settled_grant_needs_its_copy_too) {
  redis_server master;
  redis_server replica{replica_of(master)};
  ASSERT_TRUE(is_synced(master));
  fault_proxy net{master.port()};
  const auto a = client::open(redis_url(net, careful), {.call_timeout = 400ms});
  mutex lock{a, "stock"};
  ASSERT_TRUE(wait_until([&] { return lock.try_acquire().has_value(); })) << "connected";
  replica.stop();
  net.drop(fault_proxy::replies);
  auto waiting = acquire_later(lock, {.wait = patience, .ttl = 60s});
  ASSERT_TRUE(wait_until([&] { return is_locked(master, "stock"); })) << "executed";
  net.heal(), net.cut();
  const auto tried = get(waiting);
  EXPECT_FALSE(tried) << "granted without a copy";
  EXPECT_TRUE(leaves_nothing(master)) << left_behind(master);
  EXPECT_EQ(a.metrics().lost, 0U);
}

TEST_F(redis_replicas, lock_with_a_copy_is_still_there_after_a_fail_over) {
  redis_server master;
  redis_server replica{replica_of(master)};
  ASSERT_TRUE(is_synced(master));
  const auto a = client::open(redis_url(master, careful));
  mutex lock{a, "stock"};
  auto held = lock.acquire({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  master.kill();
  redis_command(replica, {"REPLICAOF", "NO", "ONE"});
  const auto b = client::open(redis_url(replica, "grace=0"));
  mutex theirs{b, "stock"};
  EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::busy));
  EXPECT_EQ(b.revoke("stock").value(), 1U);
  auto other = theirs.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(other));
  EXPECT_GT(other->token(), held->token());
}

// ---- a WAIT that is refused

TEST_F(redis_replicas, wait_that_is_refused_leaves_nothing_behind) {
  redis("ACL", "SETUSER", "default", "-wait");
  const auto a = client::open(redis_url(server_, careful), {.call_timeout = 1s});
  mutex lock{a, "stock"};
  EXPECT_TRUE(refuses(lock.try_acquire(), errc::denied, "stock", server_.url(), "WAIT"));
  EXPECT_EQ(left_behind(server_), "[]");
  EXPECT_TRUE(
      refuses(lock.acquire({.wait = patience}), errc::denied, "stock", server_.url(), "WAIT"));
  EXPECT_EQ(left_behind(server_), "[]");

  auto b = raw(2, careful);
  const auto ask = b.ask("stock");
  const auto limits = call_within(patience);
  promised<entered> later;
  b.verbs->start_enter(ask, limits, later);
  const auto refused = later.get();
  EXPECT_TRUE(refuses(refused, errc::denied, "stock", server_.url(), "WAIT"));
  EXPECT_TRUE(!refused && refused.error().is_not_done()) << "it was undone, and that was answered";
  EXPECT_EQ(left_behind(server_), "[]");

  redis("ACL", "SETUSER", "default", "+wait");
  redis_server replica{replica_of(server_)};
  ASSERT_TRUE(is_synced(server_));
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
}

TEST_F(redis_replicas, wait_that_is_refused_costs_no_place_in_the_queue) {
  redis("ACL", "SETUSER", "default", "-wait");
  const auto a = client::open(server_.url()), b = client::open(redis_url(server_, careful));
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(one_waits(server_, "stock"));
  EXPECT_TRUE(stays_true([&] { return !is_ready(waiting); }, 100ms));
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(refuses(get(waiting), errc::denied, "stock", server_.url(), "WAIT"));
  EXPECT_TRUE(leaves_nothing(server_)) << left_behind(server_);
}

// ---- a server that says nothing because it waits for its replicas

TEST_F(redis_replicas, connection_that_waits_for_replicas_is_not_a_silent_one) {
  auto a = raw(1, "wait_replicas=1&wait_timeout=5s&grace=30s&connections=1");
  EXPECT_TRUE(refuses(a.verbs->enter(a.ask("stock"), call_within(15s)), errc::unavailable, "stock",
                      server_.url(), "replica"));
}

TEST_F(redis_replicas, connection_that_answers_one_after_the_other_is_not_a_silent_one) {
  auto a = raw(1, "wait_replicas=1&wait_timeout=2500ms&grace=30s&connections=1");
  const std::array asks{a.ask("first"), a.ask("second"), a.ask("third")};
  const auto limits = call_within(15s);
  std::array<promised<entered>, asks.size()> answers;
  for (std::size_t i = 0; i < asks.size(); ++i) a.verbs->start_enter(asks[i], limits, answers[i]);
  for (std::size_t i = 0; i < asks.size(); ++i)
    EXPECT_TRUE(
        refuses(answers[i].get(), errc::unavailable, asks[i].name, server_.url(), "replica"));
}

}  // namespace
}  // namespace holdfast::testing

// What breaks here: nodes, by SIGKILL, by SIGSTOP for longer than anybody may hold a lock, and by being replaced. What
// must hold: with a majority alive a holder keeps its lock and waiters are served; without one a holder says so when
// its time is up (S2, S5) and nobody believes what a minority remembers; tokens rise over all of it (S1); after
// healing whoever waits is served (L2) and nothing is left behind.
#include "faults/etcd_faults.hpp"

namespace holdfast::testing {
namespace {

class etcd_outage : public etcd_faults {};

// It was renewed since, by whoever leads now.
bool is_renewed(const lease& held, steady_time since) {
  return wait_until([&] { return !held.valid() || held.valid_until() > since; }) && held.valid();
}

// One holds and one waits while something happens to the cluster that must cost neither anything.
class somebody_holds {
 public:
  somebody_holds(const etcd_server& cluster, std::chrono::seconds session)
      : cluster_(cluster),
        a_(client::open(url(session))),
        b_(client::open(url(session))),
        ttl_(session) {}

  // `happens` is given the holder's lease.
  template <class Happens>
  void while_this(const Happens& happens) {
    auto held = ours_.acquire({.wait = patience, .ttl = ttl_});
    ASSERT_TRUE(is_ok(held));
    tokens_.add(held->token());
    auto waiting = acquire_later(theirs_, {.ttl = ttl_});
    ASSERT_TRUE(wait_for_entries(cluster_, "stock", 2));
    happens(*held);
    EXPECT_TRUE(is_proven(cluster_, *held));
    EXPECT_FALSE(is_ready(waiting));
    EXPECT_TRUE(is_ok(held->release()));
    auto other = get(waiting);
    ASSERT_TRUE(is_ok(other));
    tokens_.add(other->token());
    EXPECT_TRUE(is_proven(cluster_, *other));
    EXPECT_TRUE(is_ok(other->release()));
  }

 private:
  std::string url(std::chrono::seconds session) const {
    return fmt::format("{}?session={}s", cluster_.url(), session.count());
  }
  const etcd_server& cluster_;
  const client a_, b_;
  const nanoseconds ttl_;
  mutex ours_{a_, "stock"}, theirs_{b_, "stock"};
  token_log tokens_;
};

TEST_F(etcd_outage, killed_leader_costs_no_lease_and_waiters_are_served) {
  etcd_server cluster{{.nodes = 3}};
  somebody_holds lock{cluster, 6s};
  for (int round = 0; round < 3; ++round) {
    const auto leader = cluster.leader();
    lock.while_this([&](const lease& held) {
      const auto before = held.valid_until();
      cluster.kill(leader);
      EXPECT_TRUE(is_renewed(held, before)) << "two of three are enough";
    });
    cluster.restart(leader);
  }
  EXPECT_TRUE(leaves_nothing(cluster)) << left_behind(cluster);
}

// Its connections stay open, and nothing on them answers: a try must not take long (7 s were measured without a limit).
TEST_F(etcd_outage, leader_stopped_for_longer_than_the_ttl_costs_no_lease) {
  etcd_server cluster{{.nodes = 3}};
  somebody_holds lock{cluster, 5s};
  for (int round = 0; round < 2; ++round) {
    const auto leader = cluster.leader();
    lock.while_this([&](const lease& held) {
      cluster.stop(leader);
      const auto stopped = std::chrono::steady_clock::now();
      EXPECT_TRUE(is_renewed(held, stopped + 11s)) << "6 s later: round " << round;
    });
    cluster.resume(leader);
    ASSERT_TRUE(wait_until([&] { return cluster.is_healthy(leader); }));
  }
}

TEST_F(etcd_outage, minority_costs_the_lease_on_time_and_heals) {
  etcd_server cluster{{.nodes = 3}};
  const std::size_t alone = (cluster.leader() + 1) % 3;
  const std::size_t one = (alone + 1) % 3, two = (alone + 2) % 3;
  const auto a = client::open(cluster.url(alone) + "?session=2s", {.call_timeout = 2s});
  mutex lock{a, "stock"};
  token_log tokens;
  for (int round = 0; round < 2; ++round) {
    auto held = lock.acquire({.wait = patience, .ttl = 2s});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    const loss_recorder loss{*held};
    cluster.stop(one), cluster.stop(two);
    expect_loss_on_time(*held, loss);
    const auto tried = lock.try_acquire();
    ASSERT_FALSE(tried);
    EXPECT_TRUE(tried.error().code() == errc::unavailable ||
                tried.error().code() == errc::outcome_unknown)
        << tried.error().message();
    EXPECT_FALSE(a.inspect("stock")) << "what a minority remembers is not the truth";
    cluster.resume(one), cluster.resume(two);
    auto again = lock.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(again));
    tokens.add(again->token());
    EXPECT_TRUE(is_ok(again->release()));
  }
  EXPECT_TRUE(leaves_nothing(cluster)) << left_behind(cluster);
}

// A node that is cut off still knows a holder, and would say so to whoever does not ask for the truth.
TEST_F(etcd_outage, memory_of_a_minority_is_not_believed) {
  etcd_server cluster{{.nodes = 3}};
  const std::size_t alone = (cluster.leader() + 1) % 3;
  const std::size_t one = (alone + 1) % 3, two = (alone + 2) % 3;
  const auto a = client::open(cluster.url()),
             bound = client::open(cluster.url(alone), {.call_timeout = 2s});
  mutex lock{a, "stock"}, theirs{bound, "stock"};
  auto held = lock.acquire({.ttl = 30s});
  ASSERT_TRUE(is_ok(held));
  EXPECT_EQ(bound.inspect("stock").value().holders.size(), 1U);
  cluster.stop(one), cluster.stop(two);
  EXPECT_NE(cluster.etcdctl({"get", "--prefix", "--consistency=s", "stock/"}), "")
      << "the test is about this: it remembers";
  EXPECT_FALSE(bound.inspect("stock")) << "linearizable reads only";
  EXPECT_FALSE(bound.list());
  EXPECT_FALSE(theirs.try_acquire());
  cluster.resume(one), cluster.resume(two);
  ASSERT_TRUE(wait_until([&] { return held->release().has_value() || !held->valid(); }));
  EXPECT_TRUE(is_ok(theirs.acquire({.wait = 2 * patience})));
}

TEST_F(etcd_outage, all_nodes_killed_and_restarted_cost_no_lease) {
  etcd_server cluster{{.nodes = 3}};
  somebody_holds lock{cluster, 20s};
  for (int round = 0; round < 3; ++round) {
    lock.while_this([&](lease& held) {
      cluster.kill_all();
      cluster.restart_all();
      EXPECT_TRUE(wait_until([&] { return held.renew().has_value(); }))
          << "a lock that survived is still ours";
    });
  }
  EXPECT_TRUE(leaves_nothing(cluster)) << left_behind(cluster);
}

TEST_F(etcd_outage, holder_without_any_node_gives_up_on_time_and_its_lock_is_free_later) {
  etcd_server server;
  const auto a = client::open(server.url() + "?session=2s"),
             b = client::open(server.url() + "?session=2s");
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 2s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  server.kill();
  expect_loss_on_time(*held, loss);
  EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::unavailable));
  server.restart();
  auto other = theirs.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(other)) << "the old key ends with its lease, if not before";
  EXPECT_GT(other->token(), held->token());
  EXPECT_TRUE(fails_with(held->renew(), errc::lost));
  EXPECT_TRUE(fails_with(held->release(), errc::lost));
  EXPECT_TRUE(other->valid());
  EXPECT_TRUE(is_proven(server, *other));
}

// A stopped server executes what has arrived when it wakes up, also the requests that were given up long ago.
TEST_F(etcd_outage, server_stopped_during_acquire_leaves_no_orphan) {
  etcd_server server;
  const auto a = client::open(server.url(), {.call_timeout = 50ms});
  int acquired = 0;
  for (int round = 0; round < 20; ++round) {
    const auto name = "stock-" + std::to_string(round);
    mutex lock{a, name};
    server.stop();
    auto tried = lock.acquire({.wait = round % 2 == 0 ? 0ms : 80ms, .ttl = 60s});
    server.resume();
    if (tried) {
      ++acquired;
      EXPECT_TRUE(is_proven(server, *tried));
      EXPECT_TRUE(wait_until([&] { return tried->release().has_value() || !tried->valid(); }));
    } else {
      EXPECT_TRUE(tried.error().code() == errc::outcome_unknown ||
                  tried.error().code() == errc::unavailable)
          << tried.error().message();
    }
    EXPECT_TRUE(wait_until([&] { return !is_locked(server, name); }))
        << "an orphan, round " << round;
  }
  EXPECT_LT(acquired, 10) << "the server was stopped all the time";
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

TEST_F(etcd_outage, replaced_member_costs_nothing) {
  etcd_server cluster{{.nodes = 3}};
  somebody_holds lock{cluster, 10s};
  for (std::size_t round = 0; round < 3; ++round) {
    lock.while_this([&](lease& held) {
      cluster.replace(round);
      EXPECT_TRUE(wait_until([&] { return held.renew().has_value(); }));
    });
  }
  EXPECT_TRUE(leaves_nothing(cluster)) << left_behind(cluster);
}

}  // namespace
}  // namespace holdfast::testing

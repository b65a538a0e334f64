// What breaks here: servers, by SIGKILL and by SIGSTOP. What must hold: with a majority alive a holder keeps its lock
// and waiters are served; without one a holder says so when its time is up (S2, S5), and nobody believes what a
// minority remembers; tokens rise over all of it (S1); after healing whoever waits is served (L2) and nothing is left
// behind.
#include "faults/consul_faults.hpp"

namespace holdfast::testing {
namespace {

class consul_outage : public consul_faults {};

bool is_renewed_since(const lease& held, steady_time since) {
  return wait_until([&] { return !held.valid() || held.valid_until() > since; }, 2 * patience) &&
         held.valid();
}

// One holds and one waits while something happens to the cluster that must cost neither anything.
class both_keep_their_places {
 public:
  explicit both_keep_their_places(const consul_server& cluster, std::chrono::seconds session = 10s)
      : cluster_(cluster),
        session_(session),
        a_(client::open(url(), {.ttl = session})),
        b_(client::open(url(), {.ttl = session})) {}

  // `happens` is given the holder's lease.
  template <class Happens>
  void while_this(const Happens& happens) {
    auto held = ours_.acquire({.wait = 3 * patience});
    ASSERT_TRUE(is_ok(held));
    tokens_.add(held->token());
    auto waiting = acquire_later(theirs_);
    ASSERT_TRUE(one_waits(cluster_, "stock"));
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
  std::string url() const {
    return fmt::format("{}?session={}s&lock_delay=0s", cluster_.url(), session_.count());
  }
  const consul_server& cluster_;
  const std::chrono::seconds session_;
  const client a_, b_;
  mutex ours_{a_, "stock"}, theirs_{b_, "stock"};
  token_log tokens_;
};

// ---- one server

TEST_F(consul_outage, server_that_restarts_in_time_costs_no_lease) {
  consul_server server;
  constexpr auto session = 30s;
  both_keep_their_places lock{server, session};
  for (int round = 0; round < 2; ++round) {
    lock.while_this([&](const lease& held) {
      const auto killed = std::chrono::steady_clock::now();
      server.kill();
      server.restart();
      if (std::chrono::steady_clock::now() - killed > 10s) return;  // a machine too busy to tell
      EXPECT_TRUE(is_renewed_since(held, killed + session)) << "round " << round;
    });
  }
}

TEST_F(consul_outage, server_that_restarts_too_late_costs_the_lease_and_waiters_are_served) {
  consul_server server;
  const auto a = client::open(server.url() + consul_at_once, {.call_timeout = 2s});
  const auto b = client::open(server.url() + consul_at_once, {.call_timeout = 2s});
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 4s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  server.kill();
  expect_loss_on_time(*held, loss);
  EXPECT_TRUE(is_out_of_reach(theirs.try_acquire()));
  EXPECT_FALSE(a.inspect("stock"));
  server.restart();
  auto other = theirs.acquire({.wait = 3 * patience});
  ASSERT_TRUE(is_ok(other));
  EXPECT_GT(other->token(), held->token());
  EXPECT_FALSE(held->valid());
  EXPECT_FALSE(is_ok(held->release()));
  EXPECT_TRUE(is_proven(server, *other)) << "it was not touched";
}

TEST_F(consul_outage, waiter_waits_through_a_restart) {
  consul_server server;
  const auto a = client::open(server.url() + consul_at_once),
             b = client::open(server.url() + consul_at_once);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 10s});
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(one_waits(server, "stock"));
  server.restart();
  if (held->valid()) {
    EXPECT_TRUE(wait_until([&] { return held->release().has_value() || !held->valid(); }));
  }
  EXPECT_TRUE(is_ok(get(waiting, 3 * patience)));
}

TEST_F(consul_outage, stop_of_the_server_shorter_than_the_validity_costs_nothing) {
  consul_server server;
  both_keep_their_places lock{server};
  lock.while_this([&](const lease& held) {
    server.stop();
    const auto stopped = std::chrono::steady_clock::now();
    EXPECT_TRUE(stays_true([&] { return held.valid(); }, 2s));
    server.resume();
    EXPECT_TRUE(is_renewed_since(held, stopped + 10s));
  });
}

// ---- three

TEST_F(consul_outage, killed_leader_costs_no_lease_and_waiters_are_served) {
  consul_server cluster{{.nodes = 3}};
  // On a busy machine the two that are left took up to 10 s to elect a leader.
  constexpr auto session = 30s;
  both_keep_their_places lock{cluster, session};
  for (int round = 0; round < 2; ++round) {
    const auto leader = cluster.leader();
    lock.while_this([&](const lease& held) {
      const auto killed = std::chrono::steady_clock::now();
      cluster.kill(leader);
      EXPECT_TRUE(is_renewed_since(held, killed + session)) << "two of three are enough";
    });
    cluster.restart(leader);
  }
}

// Its connections stay open, and nothing on them answers.
TEST_F(consul_outage, leader_stopped_for_longer_than_the_session_costs_no_lease) {
  consul_server cluster{{.nodes = 3}};
  both_keep_their_places lock{cluster};
  const auto leader = cluster.leader();
  lock.while_this([&](const lease& held) {
    const auto stopped = std::chrono::steady_clock::now();
    cluster.stop(leader);
    EXPECT_TRUE(is_renewed_since(held, stopped + 21s)) << "11 s later";
  });
  cluster.resume(leader);
  EXPECT_TRUE(wait_until([&] { return cluster.is_healthy(leader); }));
}

// The agents that the client does not talk to die, one after the other.
TEST_F(consul_outage, minority_costs_the_lease_on_time_and_heals) {
  consul_server cluster{{.nodes = 3}};
  const std::size_t alone = (cluster.leader() + 1) % 3;
  const std::size_t one = (alone + 1) % 3, two = (alone + 2) % 3;
  const auto a = client::open(cluster.url(alone) + consul_at_once, {.call_timeout = 2s});
  mutex lock{a, "stock"};
  auto held = lock.acquire({.wait = patience, .ttl = 4s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  cluster.stop(one), cluster.stop(two);
  expect_loss_on_time(*held, loss);
  EXPECT_TRUE(is_out_of_reach(lock.try_acquire()));
  EXPECT_FALSE(a.inspect("stock")) << "what a minority remembers is not the truth";
  cluster.resume(one), cluster.resume(two);
  auto again = lock.acquire({.wait = 3 * patience});
  ASSERT_TRUE(is_ok(again));
  EXPECT_GT(again->token(), held->token());
  EXPECT_TRUE(is_ok(again->release()));
}

// A follower that is behind must not be believed: it still sees the lock free, or held.
TEST_F(consul_outage, what_a_follower_remembers_is_not_believed) {
  consul_server cluster{{.nodes = 3}};
  const auto leader = cluster.leader();
  const auto follower = (leader + 1) % 3;
  const auto writes = client::open(cluster.url(leader) + consul_at_once),
             reads = client::open(cluster.url(follower) + consul_at_once);
  for (int round = 0; round < 30; ++round) {
    mutex ours{writes, fmt::format("item-{}", round)}, theirs{reads, ours.name()};
    auto held = ours.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held));
    EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::busy)) << round;
    const auto seen = reads.inspect(ours.name());
    ASSERT_TRUE(is_ok(seen));
    EXPECT_EQ(seen->holders.size(), 1U) << round;
    ASSERT_TRUE(is_ok(held->release()));
    EXPECT_TRUE(is_ok(theirs.try_acquire())) << round;
  }
}

TEST_F(consul_outage, everybody_dead_and_back_keeps_tokens_rising) {
  consul_server cluster{{.nodes = 3}};
  const auto a = client::open(cluster.url() + consul_at_once, {.call_timeout = 2s});
  mutex lock{a, "stock"};
  token_log tokens;
  for (int round = 0; round < 2; ++round) {
    auto held = lock.acquire({.wait = 3 * patience, .ttl = 10s});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    cluster.restart_all();
    // Kept, or told of.
    EXPECT_TRUE(
        wait_until([&] { return held->lost().stop_requested() || held->renew(); }, 2 * patience));
    if (held->valid()) {
      EXPECT_TRUE(is_proven(cluster, *held));
    }
    static_cast<void>(held->release());
  }
}

}  // namespace
}  // namespace holdfast::testing

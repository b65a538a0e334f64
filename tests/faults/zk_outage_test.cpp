// What breaks here: servers of an ensemble, stopped and killed. What must hold: leases are kept where the session
// allows it, by the same session at another server; without a majority there are typed errors in time, and afterwards
// everybody is served (L2).
#include "faults/zk_faults.hpp"

#include <deque>

namespace holdfast::testing {
namespace {

class zk_outage : public zk_faults {
 protected:
  enum class outage { killed, stopped };

  static void end(zookeeper_server& servers, std::size_t node, outage how) {
    how == outage::killed ? servers.kill(node) : servers.stop(node);
  }
  static void bring_back(zookeeper_server& servers, std::size_t node, outage how) {
    how == outage::killed ? servers.restart(node) : servers.resume(node);
    // A leader that is stopped while others join it is waited for by these, for init_limit: that is ten seconds.
    EXPECT_TRUE(
        wait_until([&] { return servers.metric_of(servers.leader(), "zk_synced_followers") == 2; },
                   3 * patience));
  }
  // A holder and a waiter that know all servers; the one that `which` says goes. An election may take long on a busy
  // machine.
  template <class Which>
  void expect_kept_without(const Which& which, outage how) {
    zookeeper_server servers{{.nodes = 3}};
    const auto url = servers.url() + "?session=30s";
    const auto a = client::open(url), b = client::open(url);
    mutex ours{a, "stock"}, theirs{b, "stock"};
    token_log tokens;
    for (int round = 0; round < 2; ++round) {
      auto held = ours.acquire({.wait = patience, .ttl = 12s});
      ASSERT_TRUE(is_ok(held));
      tokens.add(held->token());
      auto waiting = acquire_later(theirs, {.ttl = 12s});
      ASSERT_TRUE(one_waits(servers, "stock"));
      const auto session = contenders(servers, "stock").at(0).session;
      const auto node = which(servers, session);
      end(servers, node, how);
      const auto gone = std::chrono::steady_clock::now();
      EXPECT_TRUE(wait_until([&] { return !held->valid() || held->valid_until() > gone + 12s; },
                             2 * patience));
      EXPECT_TRUE(held->valid()) << "two of three are enough; round " << round;
      EXPECT_EQ(contenders(servers, "stock").at(0).session, session) << "it went on elsewhere";
      EXPECT_FALSE(is_ready(waiting));
      EXPECT_TRUE(is_ok(held->release()));
      auto other = get(waiting);
      ASSERT_TRUE(is_ok(other));
      tokens.add(other->token());
      EXPECT_TRUE(is_ok(other->release()));
      bring_back(servers, node, how);
    }
    EXPECT_EQ(a.metrics().lost + b.metrics().lost, 0U);
    EXPECT_TRUE(leaves_nothing(servers)) << left_behind(servers);
  }
  static std::size_t leader_of(const zookeeper_server& servers, std::int64_t) {
    return servers.leader();
  }
  // The server at which the session is.
  static std::size_t home_of(const zookeeper_server& servers, std::int64_t session) {
    for (std::size_t n = 0; n < servers.nodes(); ++n)
      if (servers.four_letter(n, "cons").find(fmt::format("sid={:#x}", session)) !=
          std::string::npos)
        return n;
    throw std::runtime_error("nobody has that session");
  }
};

TEST_F(zk_outage, killed_leader_costs_no_lease) { expect_kept_without(leader_of, outage::killed); }

TEST_F(zk_outage, stopped_leader_costs_no_lease) {
  expect_kept_without(leader_of, outage::stopped);
}

TEST_F(zk_outage, killed_server_of_the_holder_costs_no_lease) {
  expect_kept_without(home_of, outage::killed);
}

TEST_F(zk_outage, stopped_server_of_the_holder_costs_no_lease) {
  expect_kept_without(home_of, outage::stopped);
}

// 1.3 s: too short for another leader, and for a session of 4 s. Nobody is to lose anything.
TEST_F(zk_outage, short_stop_of_the_leader_costs_no_lease) {
  zookeeper_server servers{{.nodes = 3}};
  const auto a = client::open(servers.url() + "?session=6s");
  auto held = mutex{a, "stock"}.acquire({.ttl = 4s});
  ASSERT_TRUE(is_ok(held));
  const auto leader = servers.leader();
  servers.stop(leader);
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 1300ms));
  servers.resume(leader);
  EXPECT_TRUE(wait_until([&] { return held->renew().has_value(); }));
  EXPECT_TRUE(held->valid());
  EXPECT_TRUE(is_ok(held->release()));
}

TEST_F(zk_outage, without_a_majority_there_are_errors_in_time_and_then_all_are_served) {
  zookeeper_server servers{{.nodes = 3}};
  std::deque<client> clients;
  for (int i = 0; i < 4; ++i)
    clients.push_back(client::open(servers.url() + "?session=2s", {.call_timeout = 1s}));
  auto held = mutex{clients[0], "stock"}.acquire({.ttl = 2s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  const auto leader = servers.leader();
  servers.kill(leader), servers.kill((leader + 1) % 3);
  expect_loss_on_time(*held, loss);
  for (auto& one : clients) {
    const auto begin = std::chrono::steady_clock::now();
    const auto tried = mutex{one, "stock"}.acquire({.wait = 2s});
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
    ASSERT_FALSE(tried);
    EXPECT_TRUE(tried.error().code() == errc::unavailable ||
                tried.error().code() == errc::timed_out ||
                tried.error().code() == errc::outcome_unknown)
        << tried.error().message();
  }
  // The second is enough for a majority; an election waits for it.
  servers.restart_all();
  for (auto& one : clients) {
    auto got = mutex{one, "stock"}.acquire({.wait = 2 * patience});
    ASSERT_TRUE(is_ok(got));
    EXPECT_TRUE(is_ok(got->release()));
  }
}

}  // namespace
}  // namespace holdfast::testing

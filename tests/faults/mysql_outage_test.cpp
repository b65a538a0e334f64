// What breaks here: the server process (SIGKILL, SIGSTOP), its connections (KILL, and a network that goes silent
// without a FIN). What must hold: committed grants and tokens survive (S1), a holder that cannot reach the server says
// so when its time is up (S2, S5), waiters are served after healing (L2), and nothing is left behind.
#include "faults/mysql_faults.hpp"

namespace holdfast::testing {
namespace {

class mysql_outage : public mysql_faults {};

TEST_F(mysql_outage, killed_server_that_comes_back_knows_its_locks) {
  mariadb_server server;
  const auto url = server.url("grace=15s");  // longer than any restart takes
  const auto a = client::open(url), b = client::open(url);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  token_log tokens;
  for (int round = 0; round < 2; ++round) {
    auto held = ours.acquire({.wait = patience, .ttl = 60s});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    auto waiting = acquire_later(theirs);
    ASSERT_TRUE(wait_for_waiters(server, "stock", 1));
    server.restart();
    EXPECT_TRUE(wait_until([&] { return held->renew().has_value(); }))
        << "a lock that survived is still ours";
    EXPECT_TRUE(held->valid());
    EXPECT_FALSE(is_ready(waiting));
    ASSERT_TRUE(is_ok(held->release()));
    auto next = get(waiting);
    ASSERT_TRUE(is_ok(next));
    tokens.add(next->token());
    ASSERT_TRUE(is_ok(next->release()));
  }
  EXPECT_TRUE(leaves_nothing(server));
}

TEST_F(mysql_outage, server_that_stays_away_costs_the_lease_on_time) {
  mariadb_server server;
  const auto a = client::open(server.url());
  mutex ours{a, "stock"};
  auto held = ours.acquire({.ttl = 3s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  const auto token = held->token();
  server.kill();
  expect_loss_on_time(*held, loss);
  EXPECT_TRUE(fails_with(ours.try_acquire(), errc::unavailable));
  server.restart();
  auto again = ours.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(again)) << "ours of before ends with its ttl";
  EXPECT_GT(again->token(), token);
}

TEST_F(mysql_outage, server_that_stands_still_is_reported_in_time_and_served_after) {
  mariadb_server server;
  const auto a = client::open(server.url(), {.call_timeout = 500ms}),
             b = client::open(server.url());
  mutex ours{a, "stock"}, other{a, "other"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 60s});
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_waiters(server, "stock", 1));
  server.stop();
  const auto begin = std::chrono::steady_clock::now();
  const auto refused = other.acquire({.wait = patience});
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().code() == errc::unavailable ||
              refused.error().code() == errc::outcome_unknown)
      << refused.error().message();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);
  server.resume();
  static_cast<void>(held->release());
  EXPECT_TRUE(is_ok(get(waiting)));
  EXPECT_TRUE(is_ok(other.acquire({.wait = patience}))) << "what was given up has taken nothing";
}

TEST_F(mysql_outage, killed_connections_cost_neither_lease_nor_waiter) {
  mariadb_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 20s});
  const loss_recorder loss{*held};
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_waiters(server, "stock", 1));
  for (int round = 0; round < 3; ++round) {
    kill_all_connections(server);
    // Both sessions and the waiter's listener are back.
    ASSERT_TRUE(wait_until([&] { return user_locks(server) == 3; })) << round;
  }
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 1s));
  EXPECT_FALSE(loss.fired());
  EXPECT_FALSE(is_ready(waiting));
  ASSERT_TRUE(is_ok(held->release()));
  auto next = get(waiting);
  ASSERT_TRUE(is_ok(next));
  EXPECT_GT(next->token(), held->token());
}

// F16: the holder vanishes without a FIN; its connections, and the user lock of its session, stay.
TEST_F(mysql_outage, half_open_holder_keeps_the_lock_no_longer_than_its_ttl) {
  mariadb_server server;
  fault_proxy network{server.port()};
  const auto a = client::open(mysql_url(network), {.call_timeout = 1s});
  const auto b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 3s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  const auto cut = std::chrono::steady_clock::now();
  network.freeze();
  auto next = theirs.acquire({.wait = 3s + 2s});
  ASSERT_TRUE(is_ok(next));
  const auto took_over = std::chrono::steady_clock::now();
  EXPECT_LT(took_over - cut, 3s + 2s);
  EXPECT_FALSE(held->valid());
  ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
  EXPECT_LT(loss.when(), took_over) << "the holder stopped to believe first";
  EXPECT_GT(next->token(), held->token());
  network.heal();
  EXPECT_TRUE(fails_with(held->release(), errc::lost));
  EXPECT_TRUE(next->valid());
}

TEST_F(mysql_outage, half_open_waiter_is_passed_over_in_the_end) {
  mariadb_server server;
  fault_proxy network{server.port()};
  const auto a = client::open(server.url()), c = client::open(server.url());
  const auto b = client::open(mysql_url(network), {.call_timeout = 500ms});
  mutex ours{a, "stock"}, vanishes{b, "stock"}, last{c, "stock"};
  auto held = ours.acquire();
  auto lost = acquire_later(vanishes, {.wait = 4s, .ttl = 2s});
  ASSERT_TRUE(wait_for_waiters(server, "stock", 1));
  auto waiting = acquire_later(last);
  ASSERT_TRUE(wait_for_waiters(server, "stock", 2));
  network.freeze();
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(get(waiting))) << "its grant ended with its ttl";
  EXPECT_FALSE(get(lost));
}

TEST_F(mysql_outage, cut_holder_is_not_believed_longer_than_others_wait) {
  mariadb_server server;
  fault_proxy network{server.port()};
  const auto a = client::open(mysql_url(network)), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_waiters(server, "stock", 1));
  const auto bound = b.capabilities().dead_holder_bound;
  const auto cut = std::chrono::steady_clock::now();
  network.refuse();
  network.cut();
  auto next = get(waiting);
  ASSERT_TRUE(is_ok(next));
  const auto took_over = std::chrono::steady_clock::now();
  EXPECT_LT(took_over - cut, bound + 500ms) << "long before the ttl";
  ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
  EXPECT_LT(loss.when(), took_over);
  EXPECT_FALSE(held->valid());
}

TEST_F(mysql_outage, short_cut_costs_nothing) {
  mariadb_server server;
  fault_proxy network{server.port()};
  const auto a = client::open(mysql_url(network, "grace=4s")), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 60s});
  const loss_recorder loss{*held};
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_waiters(server, "stock", 1));
  for (int round = 0; round < 3; ++round) {
    network.cut();
    ASSERT_TRUE(wait_until([&] { return held->renew().has_value(); }));
  }
  EXPECT_TRUE(stays_true([&] { return held->valid() && !is_ready(waiting); }, 5s));
  EXPECT_FALSE(loss.fired());
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(get(waiting)));
}

}  // namespace
}  // namespace holdfast::testing

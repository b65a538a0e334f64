// What breaks here: the server process, by SIGKILL (with and without its data coming back) and by SIGSTOP for longer
// than a client may hold a lock. What must hold: tokens of a name rise over all of it (S1), a holder that cannot reach
// the server says so when its time is up (S2, S5) and renews nothing afterwards, waiters are served after healing
// (L2), and nothing is left behind.
#include "faults/faults.hpp"

namespace holdfast::testing {
namespace {

class redis_restart : public redis_faults {};

// Nothing renews what is lost, and it cannot be given back.
void expect_stays_lost(const client& by, lease& held) {
  const auto renewed = by.metrics().renewed;
  EXPECT_TRUE(fails_with(held.renew(), errc::lost));
  EXPECT_TRUE(stays_true([&] { return !held.valid() && by.metrics().renewed == renewed; }, 100ms));
  EXPECT_TRUE(fails_with(held.release(), errc::lost));
}

TEST_F(redis_restart, killed_server_that_comes_back_empty) {
  redis_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  token_log tokens;
  auto held = ours.acquire({.ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  tokens.add(held->token());
  const loss_recorder loss{*held};
  server.kill();
  expect_loss_on_time(*held, loss);
  EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::unavailable));

  server.restart();
  auto other = theirs.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(other));
  tokens.add(other->token());
  expect_stays_lost(a, *held);
  EXPECT_TRUE(is_ok(other->release()));
  auto again = ours.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(again));
  tokens.add(again->token());
  EXPECT_TRUE(is_ok(again->release()));
  EXPECT_TRUE(leaves_nothing(server));
}

// The data are gone, the holder is not: it hears of it from the new server at once, not at a third of its ttl.
TEST_F(redis_restart, holder_that_outlives_a_server_without_data_learns_of_its_loss) {
  redis_server server;
  const auto url = redis_url(server, "grace=8s");
  const auto a = client::open(url), b = client::open(url);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 1h});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  server.restart();
  const auto up = std::chrono::steady_clock::now();
  auto other = theirs.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(other));
  EXPECT_GT(other->token(), held->token());
  ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
  EXPECT_LE(loss.when() - up, 6s) << "grace/3, and the time to connect";
  expect_stays_lost(a, *held);
}

TEST_F(redis_restart, killed_server_that_comes_back_with_its_data) {
  redis_server server{{.config = {"appendonly yes", "appendfsync always"}}};
  const auto url = redis_url(server, "grace=15s");  // longer than any restart takes
  const auto a = client::open(url), b = client::open(url);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  token_log tokens;
  for (int round = 0; round < 3; ++round) {
    auto held = ours.acquire({.wait = patience, .ttl = 60s});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    auto waiting = acquire_later(theirs);
    ASSERT_TRUE(wait_for_queue(server, "stock", 1));
    server.restart();
    EXPECT_TRUE(wait_until([&] { return held->renew().has_value(); }))
        << "a lock that survived is still ours";
    EXPECT_TRUE(held->valid());
    EXPECT_TRUE(is_locked(server, "stock"));
    EXPECT_TRUE(fails_with(mutex(client::open(url), "stock").try_acquire(), errc::busy));
    ASSERT_TRUE(is_ok(held->release()));
    auto other = get(waiting);
    ASSERT_TRUE(is_ok(other));
    tokens.add(other->token());
    EXPECT_TRUE(is_ok(other->release()));
  }
  EXPECT_TRUE(leaves_nothing(server));
}

// The tokens were ahead of what the disk had: they rise all the same.
TEST_F(redis_restart, tokens_rise_over_a_restart_from_old_data) {
  redis_server server{{.config = {"save 3600 1000000"}}};
  const auto a = client::open(server.url());
  mutex lock{a, "stock"};
  token_log tokens;
  const auto take_some = [&] {
    for (int i = 0; i < 100; ++i) {
      auto held = lock.acquire({.wait = patience, .own_token = true});
      ASSERT_TRUE(is_ok(held));
      tokens.add(held->token());
      ASSERT_TRUE(is_ok(held->release()));
    }
  };
  take_some();
  ASSERT_EQ(redis_command(server, {"SAVE"}), "OK");
  take_some();
  server.restart();
  take_some();
  EXPECT_EQ(tokens.count(), 300U);
}

TEST_F(redis_restart, stopped_server_costs_the_lease_on_time_and_serves_the_waiter_later) {
  redis_server server;
  const auto url = redis_url(server, "grace=300ms");
  const auto a = client::open(url), b = client::open(url);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  token_log tokens;
  for (int round = 0; round < 4; ++round) {
    auto held = ours.acquire({.wait = patience, .ttl = 500ms});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    const loss_recorder loss{*held};
    auto waiting = acquire_later(theirs);
    if (!wait_for_queue(server, "stock", 1)) {
      ASSERT_TRUE(loss.fired()) << "or it has it already";
    }
    server.stop();
    const auto stopped = std::chrono::steady_clock::now();
    expect_loss_on_time(*held, loss);
    // Every other time for longer than the ttl, too: the key is gone when the server looks at what has arrived.
    const auto length = round % 2 == 0 ? 0ms : 700ms;
    wait_until([&] { return std::chrono::steady_clock::now() - stopped >= length; });
    server.resume();
    auto other = get(waiting);
    ASSERT_TRUE(is_ok(other));
    EXPECT_TRUE(other->valid()) << "a grant that arrives too late is not handed out";
    tokens.add(other->token());
    expect_stays_lost(a, *held);
    EXPECT_TRUE(is_ok(other->release()));
    EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
  }
  EXPECT_EQ(tokens.count(), 8U);
}

// F5. A stopped server executes what has arrived when it wakes up, also the requests that were given up long ago.
TEST_F(redis_restart, server_stopped_during_acquire_leaves_no_orphan) {
  redis_server server;
  const auto a = client::open(redis_url(server, "grace=10s"), {.call_timeout = 25ms});
  int acquired = 0;
  for (int round = 0; round < 40; ++round) {
    const auto name = "stock-" + std::to_string(round);
    mutex lock{a, name};
    server.stop();
    auto tried = lock.acquire({.wait = round % 2 == 0 ? 0ms : 40ms, .ttl = 60s});
    server.resume();
    if (tried) {
      ++acquired;
      EXPECT_TRUE(is_locked(server, name)) << "acquired without proof";
      EXPECT_TRUE(is_ok(tried->release()));
    } else {
      EXPECT_TRUE(tried.error().code() == errc::outcome_unknown ||
                  tried.error().code() == errc::unavailable)
          << tried.error().message();
    }
    EXPECT_TRUE(wait_until([&] { return !is_locked(server, name); }))
        << "an orphan, round " << round;
  }
  EXPECT_LT(acquired, 20) << "the server was stopped all the time";
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

TEST_F(redis_restart, server_stopped_while_locks_are_given_back) {
  redis_server server;
  const auto a = client::open(redis_url(server, "grace=10s"), {.call_timeout = 100ms});
  for (int round = 0; round < 10; ++round) {
    mutex lock{a, "stock-" + std::to_string(round)};
    auto held = lock.acquire({.wait = patience, .ttl = 60s});
    ASSERT_TRUE(is_ok(held));
    server.stop();
    if (round % 2 == 0) {
      *held = lease{};  // no caller waits for the answer
    } else {
      EXPECT_TRUE(fails_with(held->release(), errc::outcome_unknown));
    }
    server.resume();
    EXPECT_TRUE(wait_until([&] { return !is_locked(server, lock.name()); }));
  }
}

}  // namespace
}  // namespace holdfast::testing

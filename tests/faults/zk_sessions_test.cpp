// What breaks here: the session that all locks of a client hang on, and single nodes of it. The server dies and comes
// back, an operator ends the session or deletes a node, the client is paused. What must hold: a lease is kept if its
// session is, and otherwise its loss is announced, to all of them, at once (S5); waiters queue again and are served
// (L2); the next holder is left alone (S3).
#include "faults/scenarios.hpp"
#include "faults/zk_faults.hpp"

#include "engines/zk/engine.hpp"
#include "support/engine_fixture.hpp"

#include <deque>
#include <filesystem>

namespace holdfast::testing {
namespace {

class zk_sessions : public zk_faults {};

// ---- the server

TEST_F(zk_sessions, server_that_is_back_in_time_costs_no_lease) {
  zookeeper_server server;
  const auto a = client::open(server.url() + "?session=20s"),
             b = client::open(server.url() + "?session=20s");
  mutex ours{a, "stock"}, theirs{b, "stock"};
  token_log tokens;
  for (int round = 0; round < 2; ++round) {
    auto held = ours.acquire({.wait = patience, .ttl = 20s});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    auto waiting = acquire_later(theirs);
    ASSERT_TRUE(one_waits(server, "stock"));
    const auto session = contenders(server, "stock").at(0).session;
    server.kill();
    EXPECT_TRUE(stays_true([&] { return held->valid(); }, 500ms));
    server.restart();
    EXPECT_TRUE(wait_until([&] { return held->renew().has_value(); }));
    EXPECT_TRUE(held->valid());
    EXPECT_TRUE(is_proven(server, *held));
    EXPECT_EQ(contenders(server, "stock").at(0).session, session) << "the session went on";
    EXPECT_FALSE(is_ready(waiting));
    ASSERT_TRUE(is_ok(held->release()));
    auto other = get(waiting);
    ASSERT_TRUE(is_ok(other));
    tokens.add(other->token());
    EXPECT_TRUE(is_ok(other->release()));
  }
  EXPECT_EQ(a.metrics().lost, 0U);
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

TEST_F(zk_sessions, server_that_stays_away_costs_the_lease_on_time) {
  zookeeper_server server;
  const auto a = client::open(server.url() + "?session=2s", {.call_timeout = 1s});
  mutex lock{a, "stock"};
  auto held = lock.acquire({.ttl = 2s});
  ASSERT_TRUE(is_ok(held));
  const auto token = held->token();
  const loss_recorder loss{*held};
  server.kill();
  const auto killed = std::chrono::steady_clock::now();
  expect_loss_on_time(*held, loss);
  EXPECT_LE(loss.when() - killed, 2s);
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::unavailable));
  server.restart();
  auto again = lock.acquire({.wait = 2 * patience, .ttl = 2s});
  ASSERT_TRUE(is_ok(again)) << "the old node goes with the old session, or is ours";
  EXPECT_GT(again->token(), token);
}

// ---- the operator

// Ends the session of the one client behind this network, and lets the client hear of it. It is kept away meanwhile: a
// server (3.8.0) that ends a session in the very moment in which its client comes back may take that connection and
// never answer on it.
void end_session(const zookeeper_server& server, fault_proxy& net, std::int64_t session) {
  net.refuse(), net.cut();
  EXPECT_TRUE(zookeeper_hand{server}.expire(session));
  net.heal();
}

TEST_F(zk_sessions, expired_session_is_announced_to_all_leases_at_once) {
  const zookeeper_server server;
  fault_proxy net{server.port()};
  const auto a = client::open(zk_url(net, "session=20s"));
  std::vector<lease> leases;
  std::deque<loss_recorder> losses;
  for (int i = 0; i < 20; ++i) {
    leases.push_back(mutex{a, fmt::format("item-{}", i)}.acquire({.ttl = 20s}).value());
    losses.emplace_back(leases.back());
  }
  const auto other = client::open(server.url());
  auto apart = mutex{other, "apart"}.acquire();
  const auto session = contenders(server, "item-0").at(0).session;
  end_session(server, net, session);
  const auto ended = std::chrono::steady_clock::now();
  for (const auto& loss : losses) {
    ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
    EXPECT_LE(loss.when() - ended, 1s);
  }
  for (auto& one : leases) {
    EXPECT_FALSE(one.valid());
    EXPECT_TRUE(fails_with(one.release(), errc::lost));
  }
  EXPECT_TRUE(apart->valid()) << "another client's";
  auto again = mutex{a, "item-0"}.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(again)) << "in a new session";
  EXPECT_NE(contenders(server, "item-0").at(0).session, session);
}

TEST_F(zk_sessions, waiters_of_an_expired_session_queue_again) {
  const zookeeper_server server;
  fault_proxy net{server.port()};
  const auto a = client::open(server.url()), b = client::open(zk_url(net)),
             c = client::open(server.url());
  mutex first{a, "stock"}, second{b, "stock"}, third{c, "stock"};
  auto held = first.acquire();
  ASSERT_TRUE(is_ok(held));
  auto unlucky = acquire_later(second);
  ASSERT_TRUE(wait_for_nodes(server, "stock", 2));
  auto behind = acquire_later(third);
  ASSERT_TRUE(wait_for_nodes(server, "stock", 3));
  const auto victim = contenders(server, "stock").at(1);
  end_session(server, net, victim.session);
  EXPECT_TRUE(wait_until([&] {
    const auto now = contenders(server, "stock");
    return now.size() == 3 && now[1].path != victim.path;
  })) << "at the end of the queue";
  EXPECT_TRUE(held->valid());
  EXPECT_FALSE(is_ready(behind)) << "the one before it went, but it did not hold";
  ASSERT_TRUE(is_ok(held->release()));
  auto next = get(behind);
  ASSERT_TRUE(is_ok(next));
  EXPECT_TRUE(is_proven(server, *next));
  EXPECT_FALSE(is_ready(unlucky));
  ASSERT_TRUE(is_ok(next->release()));
  auto last = get(unlucky);
  ASSERT_TRUE(is_ok(last));
  EXPECT_TRUE(is_proven(server, *last));
  expect_told_within_a_second(
      *last, [&] { zookeeper_hand{server}.erase(contenders(server, "stock").at(0).path); });
}

TEST_F(zk_sessions, deleted_node_of_a_holder_is_a_loss_within_a_second) {
  const zookeeper_server server;
  const auto a = client::open(server.url() + "?session=20s"), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  zookeeper_hand hand{server};
  for (int round = 0; round < 3; ++round) {
    auto held = ours.acquire({.wait = patience, .ttl = 20s});
    ASSERT_TRUE(is_ok(held));
    auto waiting = acquire_later(theirs);
    ASSERT_TRUE(one_waits(server, "stock"));
    // At once, before its node is watched; or after that.
    if (round > 0) {
      ASSERT_TRUE(wait_until([&] { return server.metric("zk_watch_count") >= 2; }));
    }
    expect_told_within_a_second(*held, [&] { hand.erase(contenders(server, "stock").at(0).path); });
    EXPECT_TRUE(fails_with(held->release(), errc::lost));
    auto other = get(waiting);
    ASSERT_TRUE(is_ok(other));
    EXPECT_TRUE(is_proven(server, *other)) << "left alone";
    EXPECT_TRUE(is_ok(other->release()));
  }
}

TEST_F(zk_sessions, deleted_permit_is_a_loss_within_a_second) {
  const zookeeper_server server;
  const auto a = client::open(server.url() + "?session=20s");
  counting_semaphore seats{a, "seats", 4};
  zookeeper_hand hand{server};
  for (const std::size_t which : {0U, 1U, 2U}) {  // of three
    auto held = seats.acquire_permits(3, {.wait = patience, .ttl = 20s});
    ASSERT_TRUE(is_ok(held));
    const auto nodes = ephemerals(server, "/seats/leases/");
    ASSERT_EQ(nodes.size(), 3U);
    expect_told_within_a_second(*held, [&] { hand.erase(nodes.at(which).path); });
    static_cast<void>(held->release());
    EXPECT_TRUE(wait_until([&] { return ephemerals(server, "/seats/").empty(); }))
        << left_behind(server);
  }
}

TEST_F(zk_sessions, deleted_node_of_a_waiter_comes_again_and_is_served) {
  const zookeeper_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  zookeeper_hand hand{server};
  auto held = ours.acquire();
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(one_waits(server, "stock"));
  hand.erase(contenders(server, "stock").at(1).path);
  EXPECT_TRUE(held->valid());
  ASSERT_TRUE(is_ok(held->release()));
  auto other = get(waiting);
  ASSERT_TRUE(is_ok(other));
  EXPECT_TRUE(other->valid());
  EXPECT_TRUE(is_proven(server, *other));
}

// All at once, with everything below.
TEST_F(zk_sessions, folder_that_is_emptied_serves_all_waiters_in_the_end) {
  const zookeeper_server server;
  std::deque<client> clients;
  std::deque<mutex> locks;
  std::vector<std::future<result<lease>>> waiting;
  for (int i = 0; i < 6; ++i)
    locks.emplace_back(clients.emplace_back(client::open(server.url())), "stock");
  auto held = locks[0].acquire();
  ASSERT_TRUE(is_ok(held));
  for (std::size_t i = 1; i < 6; ++i) waiting.push_back(acquire_later(locks[i]));
  ASSERT_TRUE(wait_for_nodes(server, "stock", 6));
  zookeeper_hand hand{server};
  expect_told_within_a_second(*held, [&] {
    for (const auto& one : contenders(server, "stock")) {
      try {
        hand.erase(one.path);
      } catch (const zookeeper_error&) {  // given back meanwhile
      }
    }
  });
  while (!waiting.empty()) {  // in whatever order they came again
    const auto served = [&] { return std::ranges::find_if(waiting, is_ready); };
    ASSERT_TRUE(wait_until([&] { return served() != waiting.end(); }));
    auto at = served();
    EXPECT_TRUE(is_ok(at->get()));  // and it is released
    waiting.erase(at);
  }
}

// ---- the client

TEST_F(zk_sessions, paused_holder_knows_when_it_wakes) {
  const zookeeper_server server;
  const auto a = client::open(server.url());
  scenarios::holder_is_paused(server, a, server.url() + "?session=2s", "2s");
}

TEST_F(zk_sessions, killed_holder_is_followed_within_the_promised_time) {
  const zookeeper_server server;
  const auto a = client::open(server.url());
  mutex lock{a, "stock"};
  child dying{server.url() + "?session=2s"};
  ASSERT_TRUE(dying.ask("acquire stock 10s").starts_with("granted "));
  auto waiting = acquire_later(lock);
  ASSERT_TRUE(one_waits(server, "stock"));
  const auto bound = client::open(server.url() + "?session=2s").capabilities().dead_holder_bound;
  dying.kill();
  const auto killed = std::chrono::steady_clock::now();
  ASSERT_TRUE(is_ok(get(waiting)));
  EXPECT_LE(std::chrono::steady_clock::now() - killed, bound + 1s);
}

TEST_F(zk_sessions, starved_holder_keeps_its_lease) {
  const zookeeper_server server;
  scenarios::processors_are_busy(client::open(server.url() + "?session=6s"), 4s, 6s);
}

// ---- what was agreed on

TEST_F(zk_sessions, other_length_than_asked_for_is_shown) {
  const zookeeper_server server{{.session_min = 3s, .session_max = 5s}};
  struct bargain {
    const char* asked;
    nanoseconds got;
  };
  for (const auto& [asked, got] : {bargain{"1s", 3s}, bargain{"4s", 4s}, bargain{"30s", 5s}}) {
    const auto a = client::open(fmt::format("{}?session={}", server.url(), asked));
    const auto& caps = a.capabilities();
    EXPECT_LE(caps.longest_validity, got) << asked;
    EXPECT_GE(caps.longest_validity, got / 2) << asked;
    EXPECT_NE(caps.limits.find(format_duration(got)), std::string::npos) << caps.limits;
    if (std::string_view{asked} != "4s") {
      EXPECT_NE(caps.limits.find(fmt::format("session={} was asked for", asked)), std::string::npos)
          << caps.limits;
    }
    auto held = mutex{a, "stock"}.acquire({.wait = patience, .ttl = 30s});
    ASSERT_TRUE(is_ok(held));
    EXPECT_LE(held->valid_until(), std::chrono::steady_clock::now() + got);
    EXPECT_TRUE(is_ok(held->release()));
  }
}

// ---- the ensemble

// Its data are gone, or those of a backup: it is behind what this client has seen, and the session may be among them.
// No server takes a client that has seen more, nor tells it so.
TEST_F(zk_sessions, client_goes_on_after_the_ensemble_was_set_up_anew_or_restored) {
  namespace fs = std::filesystem;
  for (const bool is_restored : {false, true}) {
    SCOPED_TRACE(is_restored ? "restored" : "set up anew");
    zookeeper_server server;
    const auto a = client::open(server.url() + "?session=2s", {.call_timeout = 1s});
    mutex lock{a, "stock"};
    ASSERT_TRUE(is_ok(lock.acquire({.wait = patience})));
    std::vector<fs::path> data;
    for (const auto& at : fs::recursive_directory_iterator{server.folder()})
      if (at.path().filename() == "version-2") data.push_back(at.path());
    ASSERT_FALSE(data.empty());
    server.kill();
    for (const auto& at : data) fs::copy(at, at.string() + ".backup", fs::copy_options::recursive);
    server.restart();
    {
      zookeeper_hand hand{server};
      for (int i = 0; i < 50; ++i) hand.create({.path = fmt::format("/later-{}", i)});
    }
    auto held = lock.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held));
    server.kill();
    for (const auto& at : data) {
      fs::remove_all(at);
      if (is_restored) fs::copy(at.string() + ".backup", at, fs::copy_options::recursive);
    }
    server.restart();
    ASSERT_TRUE(wait_until([&] { return !held->valid(); }));
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(wait_until([&] { return lock.acquire({.wait = 1s}).has_value(); }, 2 * patience));
      server.restart();  // the new session, too, goes on
    }
  }
}

// However late the answers are: the leader may count from what we sent before our last write.
TEST_F(zk_sessions, something_is_sent_every_eighth_of_a_session) {
  const zookeeper_server server;
  fault_proxy net{server.port()};
  const raw_client a{engines::zk::make_engine, zk_url(net, "session=12s"), system_clock(), 1};
  net.delay(fault_proxy::replies, 900ms);
  int late = 0;
  for (int i = 0; i < 8; ++i) {
    const auto before = net.bytes(fault_proxy::requests);
    const auto is_sent = [&] { return net.bytes(fault_proxy::requests) > before; };
    if (wait_until(is_sent, 1500ms)) continue;
    ++late;
    EXPECT_TRUE(wait_until(is_sent));
  }
  EXPECT_LE(late, 2) << "a busy machine has late timers, but not each time";
}

// It is told that it waits; before it listens, its session ends, and its place with it.
TEST_F(zk_sessions, waiter_whose_session_ended_before_it_listened_comes_again) {
  const zookeeper_server server;
  raw_client a{engines::zk::make_engine, server.url(), system_clock(), 1},
      b{engines::zk::make_engine, server.url(), system_clock(), 2};
  ASSERT_TRUE(is_ok(b.verbs->enter(b.ask("stock"), call_within(patience))));
  const auto ask = a.ask("stock");
  const auto queued = a.verbs->enter(ask, call_within(patience));
  ASSERT_TRUE(queued && queued->what == entered::kind::waiting);
  EXPECT_TRUE(zookeeper_hand{server}.expire(contenders(server, "stock").at(1).session));
  ASSERT_TRUE(wait_until([&] { return !a.listener.lost_sessions().empty(); }));
  promised<progress> done;
  const auto limits = call_within(2 * patience);
  a.verbs->start_await(queued->waiting, limits, done);
  EXPECT_TRUE(wait_until([&] { return done.is_done(); }, 3s));
  a.verbs.reset();  // or that completes it
}

}  // namespace
}  // namespace holdfast::testing

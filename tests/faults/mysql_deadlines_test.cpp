// What breaks here: the server does not answer at all, or connections end or fall silent while the server is well. What
// must hold: every verb returns when its time is up, whatever the server does, and one bad connection costs no caller
// more than the time of one call.
#include "faults/mysql_raw.hpp"

#include <atomic>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace holdfast::testing {
namespace {

class mysql_deadlines : public mysql_faults {};

nanoseconds time_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::steady_clock::now() - begin;
}

TEST_F(mysql_deadlines, every_verb_returns_in_time_when_the_server_stands_still) {
  mariadb_server server;
  auto a = raw_mysql(server.url(), 1);
  const auto held = enter(a, "held", 60s);
  std::vector<std::pair<std::string, std::function<void(const call&)>>> verbs;
  auto& does = *a.verbs;
  const auto fresh = a.ask("fresh");
  const std::vector<request> both{a.ask("left"), a.ask("right")};
  const auto queued = a.ask("held");
  ASSERT_EQ(does.enter(queued, soon()).value().what, entered::kind::waiting);
  const ticket place{queued.name, queued.owner};
  verbs.emplace_back("enter", [&](const call& c) { EXPECT_FALSE(does.enter(fresh, c)); });
  verbs.emplace_back("enter again", [&](const call& c) { EXPECT_FALSE(does.enter(queued, c)); });
  verbs.emplace_back("settle", [&](const call& c) { EXPECT_FALSE(does.settle(fresh, c)); });
  verbs.emplace_back("enter_all", [&](const call& c) { EXPECT_FALSE(does.enter_all(both, c)); });
  verbs.emplace_back("await", [&](const call& c) { static_cast<void>(does.await(place, c)); });
  verbs.emplace_back("leave", [&](const call& c) { EXPECT_FALSE(does.leave(place, c)); });
  verbs.emplace_back("renew", [&](const call& c) {
    std::vector<renewal> batch{{.held = &held}};
    EXPECT_FALSE(does.renew(batch, c));
  });
  verbs.emplace_back("renew again", [&](const call& c) {
    std::vector<renewal> batch{{.held = &held}};
    EXPECT_FALSE(does.renew(batch, c));
  });
  verbs.emplace_back("downgrade", [&](const call& c) {
    EXPECT_FALSE(does.downgrade(held, lock_mode::shared, c));
  });
  verbs.emplace_back("release", [&](const call& c) { EXPECT_FALSE(does.release(held, c)); });
  verbs.emplace_back("inspect", [&](const call& c) { EXPECT_FALSE(does.inspect("held", c)); });
  verbs.emplace_back("list", [&](const call& c) { EXPECT_FALSE(does.list("", 10, c)); });
  verbs.emplace_back("revoke", [&](const call& c) { EXPECT_FALSE(does.revoke("held", c)); });
  verbs.emplace_back("diagnose", [&](const call& c) { static_cast<void>(does.diagnose(c)); });
  verbs.emplace_back("count", [&](const call& c) {
    EXPECT_FALSE(does.count({.name = "latch", .op = counter_op::create, .operand = 1}, c));
  });
  verbs.emplace_back("watch", [&](const call& c) {
    static_cast<void>(does.watch(watch_kind::counter, "latch", 0, c));
  });
  server.stop();
  // The server would take for ever; the rest is for a busy machine.
  for (const auto& named : verbs)
    EXPECT_LT(time_of([&] { named.second(call_within(300ms)); }), 300ms + 2s) << named.first;
  server.resume();
}

TEST_F(mysql_deadlines, opening_gives_up_after_five_seconds) {
  mariadb_server server;
  { ASSERT_TRUE(is_ok(client::try_open(server.url()))); }
  server.stop();
  EXPECT_LT(
      time_of([&] { EXPECT_TRUE(fails_with(client::try_open(server.url()), errc::unavailable)); }),
      6s);
  server.resume();
}

// No client wants the lock, and the server answers again before any could have taken it.
TEST_F(mysql_deadlines, server_that_pauses_for_two_and_a_half_seconds_costs_no_lease) {
  mariadb_server server;
  for (const auto* options : {"", "wait=poll"}) {
    const auto a = client::open(server.url(options));
    std::vector<lease> held;
    for (int i = 0; i < 20; ++i) {
      auto got = mutex{a, fmt::format("item-{}", i)}.acquire({.ttl = i % 2 == 0 ? 10s : 60s});
      ASSERT_TRUE(is_ok(got));
      held.push_back(std::move(*got));
    }
    for (int round = 0; round < 3; ++round) {
      // Long enough for the renewals to be anywhere between two of them.
      EXPECT_TRUE(stays_true([&] { return held.front().valid(); }, 300ms + round * 170ms));
      server.stop();
      std::this_thread::sleep_for(2500ms);  // this is the pause
      server.resume();
      EXPECT_TRUE(stays_true(
          [&] { return std::ranges::all_of(held, [](const lease& kept) { return kept.valid(); }); },
          500ms))
          << options << " round " << round;
    }
  }
}

// Every connection of the client falls silent for good; new ones work.
TEST_F(mysql_deadlines, mute_connections_cost_one_call_and_not_one_each) {
  mariadb_server server;
  fault_proxy network{server.port()};
  auto a = raw_mysql(mysql_url(network), 1);
  constexpr int many = 6;
  network.hold(fault_proxy::replies);  // so that each has a connection of its own
  std::vector<std::future<result<lock_info>>> crowd;
  for (int i = 0; i < many; ++i)
    crowd.push_back(
        std::async(std::launch::async, [&] { return a.verbs->inspect("stock", soon()); }));
  ASSERT_TRUE(wait_until([&] { return network.open() == many + 1; })) << "and the session";
  network.heal();
  for (auto& waiter : crowd) ASSERT_TRUE(is_ok(waiter.get()));
  network.strand();
  EXPECT_FALSE(a.verbs->inspect("stock", call_within(300ms)));
  EXPECT_TRUE(is_ok(a.verbs->inspect("stock", call_within(2s))))
      << "the second asks on a new connection";
  EXPECT_LT(time_of([&] { a.verbs.reset(); }), 2s) << "and so does the client that closes";
}

// Somewhere in the answers of a contended acquire its connection ends.
TEST_F(mysql_deadlines, reset_connection_does_not_end_the_wait) {
  mariadb_server server;
  fault_proxy network{server.port()};
  for (const auto* options : {"grace=10s", "grace=10s&connections=1", "wait=poll"}) {
    const auto b = client::open(server.url());
    const auto a = client::open(mysql_url(network, options));
    mutex ours{a, "stock"}, theirs{b, "stock"};
    for (std::size_t bytes = 0; bytes < 1200; bytes += 60) {
      auto held = theirs.acquire({.wait = patience});
      ASSERT_TRUE(is_ok(held));
      network.cut_after(bytes);
      auto waiting = acquire_later(ours, {.wait = 2 * patience, .ttl = 60s});
      ASSERT_TRUE(wait_until([&] {
        return is_ready(waiting) ||
               server.sql("SELECT COUNT(*) FROM holdfast_entry WHERE state=1") != "0";
      }));
      ASSERT_TRUE(is_ok(held->release()));
      auto got = get(waiting);
      EXPECT_TRUE(is_ok(got)) << options << ", after " << bytes;
      network.heal();
    }
  }
}

// Many resets among many waiters: all of them get the lock in the end.
TEST_F(mysql_deadlines, resets_among_contending_clients_end_no_wait) {
  mariadb_server server;
  fault_proxy network{server.port()};
  constexpr int clients = 4;
  std::atomic<bool> done{false};
  std::mutex guard;
  std::vector<std::string> failures;
  std::atomic<int> grants{0};
  {
    std::vector<std::jthread> pool;
    for (int t = 0; t < clients; ++t)
      pool.emplace_back([&, own = client::open(mysql_url(network, "grace=10s"))] {
        mutex lock{own, "stock"};
        while (!done) {
          auto held = lock.acquire({.wait = 2 * patience, .ttl = 60s});
          if (held) {
            ++grants;
            continue;
          }
          const std::lock_guard locked{guard};
          failures.push_back(held.error().message());
        }
      });
    const auto end = std::chrono::steady_clock::now() + 5s;
    for (std::size_t n = 0; std::chrono::steady_clock::now() < end; ++n) {
      network.cut_after(n * 37 % 400);
      const auto seen = grants.load();
      wait_until([&] { return grants > seen + 3; }, 500ms);
    }
    network.heal();
    done = true;
  }
  EXPECT_GT(grants, 20);
  for (const auto& failure : failures) ADD_FAILURE() << failure;
}

}  // namespace
}  // namespace holdfast::testing

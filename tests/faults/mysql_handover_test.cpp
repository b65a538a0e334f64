// From hand to hand without opening the rows of the name: a client that queues up while another releases, what a
// hand-over leaves behind, and the clients that are told of it.
#include "faults/mysql_faults.hpp"

#include "support/child.hpp"

#include <optional>
#include <thread>

namespace holdfast::testing {
namespace {

class mysql_handover : public mysql_faults {};

// Of holders that handed over, and have not queued up again.
std::string leftovers(const mariadb_server& server) {
  return server.sql("SELECT COUNT(*) FROM holdfast_entry WHERE space=0 AND state=0 AND expires=0");
}

// Names whose `more` is not the number of their entries. One statement, so it sees one moment.
std::string miscounted(const mariadb_server& server) {
  return server.sql(
      "SELECT COUNT(*) FROM holdfast_lock l WHERE l.more<>(SELECT COUNT(*) FROM holdfast_entry e "
      "WHERE e.space=0 AND e.name=l.name)");
}

// b has it from a, and so an entry; c waits.
struct three_clients {
  explicit three_clients(const mariadb_server& server)
      : a(client::open(server.url())),
        b(client::open(server.url())),
        c(client::open(server.url())) {
    auto first = at_a.acquire();
    auto second = acquire_later(*at_b);
    EXPECT_TRUE(wait_for_waiters(server, "stock", 1));
    EXPECT_TRUE(is_ok(first->release()));
    held = get(second).value();
    waiting = acquire_later(at_c);
    EXPECT_TRUE(wait_for_waiters(server, "stock", 1));
  }
  client a;
  std::optional<client> b;
  client c;
  mutex at_a{a, "stock"};
  std::optional<mutex> at_b{std::in_place, *b, "stock"};
  mutex at_c{c, "stock"};
  lease held;
  std::future<result<lease>> waiting;
};

TEST_F(mysql_handover, last_one_takes_away_what_the_others_left) {
  mariadb_server server;
  three_clients clients{server};
  ASSERT_TRUE(is_ok(clients.held.release()));
  auto last = get(clients.waiting);
  ASSERT_TRUE(is_ok(last));
  EXPECT_EQ(leftovers(server), "1");
  EXPECT_EQ(miscounted(server), "0");
  EXPECT_TRUE(fails_with(clients.at_a.try_acquire(), errc::busy));
  EXPECT_EQ(clients.a.inspect("stock").value().holders.size(), 1U);
  ASSERT_TRUE(is_ok(last->release()));
  EXPECT_TRUE(leaves_nothing(server));
  EXPECT_EQ(server.sql("SELECT more FROM holdfast_lock WHERE name='stock'"), "0");
}

TEST_F(mysql_handover, who_asks_again_is_behind_those_who_came_meanwhile) {
  mariadb_server server;
  three_clients clients{server};
  auto other = acquire_later(clients.at_a);
  ASSERT_TRUE(wait_for_waiters(server, "stock", 2));
  ASSERT_TRUE(is_ok(clients.held.release()));
  auto second = get(clients.waiting);
  ASSERT_TRUE(is_ok(second));
  ASSERT_EQ(leftovers(server), "1");
  auto again = acquire_later(*clients.at_b);
  ASSERT_TRUE(wait_for_waiters(server, "stock", 2));
  EXPECT_EQ(leftovers(server), "0") << "it queues up by means of what it had left";
  EXPECT_EQ(miscounted(server), "0");
  // And a waiter that queues up by lock_rows is behind it.
  const auto d = client::open(server.url());
  mutex at_d{d, "stock"};
  auto newest = acquire_later(at_d);
  ASSERT_TRUE(wait_for_waiters(server, "stock", 3));
  token_log tokens;
  tokens.add(second->token());
  ASSERT_TRUE(is_ok(second->release()));
  for (auto* next : {&other, &again, &newest}) {
    auto got = get(*next);
    ASSERT_TRUE(is_ok(got));
    tokens.add(got->token());
    ASSERT_TRUE(is_ok(got->release()));
  }
  EXPECT_TRUE(leaves_nothing(server));
}

TEST_F(mysql_handover, who_leaves_for_good_leaves_nothing) {
  mariadb_server server;
  {
    three_clients clients{server};
    ASSERT_TRUE(is_ok(clients.held.release()));
    auto last = get(clients.waiting);
    ASSERT_TRUE(is_ok(last));
    ASSERT_EQ(leftovers(server), "1");
    clients.held = {};
    clients.at_b.reset();
    clients.b.reset();
    EXPECT_TRUE(wait_until([&] { return leftovers(server) == "0"; }));
    EXPECT_EQ(miscounted(server), "0");
    EXPECT_TRUE(last->valid());
  }
  EXPECT_TRUE(leaves_nothing(server));
}

// The new holder dies before its predecessor asks again: that one finds it gone, and does not wait for its ttl.
TEST_F(mysql_handover, death_of_the_new_holder_is_seen_by_who_asks_again) {
  mariadb_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  mutex at_a{a, "stock"}, at_b{b, "stock"};
  auto first = at_a.acquire();
  auto second = acquire_later(at_b);
  ASSERT_TRUE(wait_for_waiters(server, "stock", 1));
  child dies{server.url()};
  dies.tell("acquire stock 60s");
  ASSERT_TRUE(wait_for_waiters(server, "stock", 2));
  ASSERT_TRUE(is_ok(first->release()));
  auto held = get(second);
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(is_ok(held->release()));
  ASSERT_TRUE(dies.hear().value_or("").starts_with("granted"));
  ASSERT_EQ(leftovers(server), "1");
  dies.kill();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(is_ok(at_b.acquire({.wait = patience})));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, b.capabilities().dead_holder_bound + 1s);
}

// A client that queues up while another releases must be seen by it, or see that the lock is free. Half of them ask
// again at once, the others are away for a while, so that the queue is now long and now empty.
TEST_F(mysql_handover, no_client_waits_for_a_free_lock) {
  mariadb_server server;
  const auto makes_the_tables = client::open(server.url());
  constexpr int clients = 6, rounds = 150;
  std::atomic<int> inside{0}, failures{0}, running{clients};
  token_log tokens;
  std::vector<std::jthread> pool;
  for (int t = 0; t < clients; ++t)
    pool.emplace_back([&, t] {
      const auto own = client::open(server.url(), {.handoff_limit = 0});
      mutex lock{own, "hot"};
      for (int round = 0; round < rounds; ++round) {
        auto held = lock.acquire({.wait = patience, .ttl = 60s});
        if (!held || ++inside != 1) ++failures;
        if (!held) continue;
        tokens.add(held->token());
        --inside;
        if (round % 3 != 0 && !held->release()) ++failures;  // else sent, and not waited for
        if (t % 2 == 0)
          std::this_thread::sleep_for(std::chrono::microseconds{(round * 997) % 9000});
      }
      --running;
    });
  while (running > 0) ASSERT_EQ(miscounted(server), "0");
  pool.clear();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(tokens.count(), std::size_t{clients} * rounds);
  EXPECT_EQ(deadlocks(server), 0U);
  EXPECT_TRUE(leaves_nothing(server));
  EXPECT_EQ(server.sql("SELECT SUM(more) FROM holdfast_lock"), "0");
}

}  // namespace
}  // namespace holdfast::testing

// What is counted here: what waiters, names and watches cost the server (F14). One wake-up per release however many
// wait, in the order in which they came; nothing that only grows.
#include "faults/zk_faults.hpp"

#include <deque>
#include <thread>

namespace holdfast::testing {
namespace {

class zk_cost : public zk_faults {};

// So many waiters, each with a client of its own (those of one client queue inside it), are served in order. Returns
// the requests of one hand-off.
double requests_of_a_handoff(const zookeeper_server& server, std::size_t count) {
  std::deque<client> clients;
  for (std::size_t i = 0; i <= count; ++i)
    clients.push_back(client::open(server.url() + "?session=60s"));
  const auto name = fmt::format("stock-{}", count);
  auto held = mutex{clients[0], name}.acquire({.ttl = 30s});
  EXPECT_TRUE(is_ok(held));
  std::mutex guard;
  std::vector<std::size_t> order, expected;
  token_log tokens;
  std::deque<std::jthread> waiters;
  for (std::size_t i = 1; i <= count; ++i) {
    waiters.emplace_back([&, i] {
      auto got = mutex{clients[i], name}.acquire({.wait = 6 * patience, .ttl = 30s});
      EXPECT_TRUE(is_ok(got));
      if (!got) return;
      tokens.add(got->token());
      {
        const std::lock_guard lock{guard};
        order.push_back(i);
      }
      EXPECT_TRUE(is_ok(got->release()));
    });
    expected.push_back(i);
    EXPECT_TRUE(wait_for_nodes(server, name, i + 1));
  }
  const auto before = server.requests();
  EXPECT_TRUE(is_ok(held->release()));
  waiters.clear();
  const auto each = static_cast<double>(server.requests() - before) / static_cast<double>(count);
  EXPECT_EQ(order, expected);
  ::testing::Test::RecordProperty(fmt::format("requests_per_handoff_of_{}", count),
                                  fmt::format("{:.1f}", each));
  return each;
}

TEST_F(zk_cost, handoff_costs_the_same_whatever_the_length_of_the_queue) {
  const zookeeper_server server{{.config = {"maxClientCnxns=0"}}};
  const auto few = requests_of_a_handoff(server, 8), many = requests_of_a_handoff(server, 128);
  EXPECT_LT(few, 8);
  EXPECT_LT(many, few + 2) << "a herd";
}

TEST_F(zk_cost, names_used_once_leave_no_nodes) {
  const zookeeper_server server;
  const auto a = client::open(server.url());
  constexpr std::size_t count = 20'000, threads = 16;
  std::vector<std::thread> users;
  for (std::size_t t = 0; t < threads; ++t)
    users.emplace_back([&, t] {
      for (std::size_t i = t; i < count; i += threads) {
        auto held = mutex{a, fmt::format("item-{}", i)}.acquire({.wait = patience});
        EXPECT_TRUE(is_ok(held));
      }
    });
  for (auto& one : users) one.join();
  zookeeper_hand hand{server};
  EXPECT_TRUE(wait_until([&] { return hand.children("/").size() <= 1; }, 3 * patience))
      << hand.children("/").size();
}

TEST_F(zk_cost, watches_do_not_pile_up) {
  const zookeeper_server server;
  std::deque<client> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(client::open(server.url(), {.handoff_limit = 0}));
  std::vector<std::thread> users;
  for (auto& one : clients)
    users.emplace_back([&] {
      mutex lock{one, "stock"};
      for (int i = 0; i < 500; ++i) {
        auto held = lock.acquire({.wait = 3 * patience});
        EXPECT_TRUE(is_ok(held));
        if (i % 10 == 0) static_cast<void>(lock.acquire({.wait = 1ms}));  // waits, and gives up
      }
    });
  for (auto& one : users) one.join();
  EXPECT_TRUE(wait_until([&] { return server.metric("zk_watch_count") <= 8; }))
      << server.metric("zk_watch_count");
}

}  // namespace
}  // namespace holdfast::testing

// What is counted here: what waiters, names and sessions cost the server. One wake-up per release however many wait, in
// the order in which they came; nothing that only grows.
#include "faults/consul_faults.hpp"

#include <deque>
#include <thread>

namespace holdfast::testing {
namespace {

class consul_cost : public consul_faults {};

// So many waiters, each with a client of its own (those of one client queue inside it), are served in order. Returns
// the requests of one hand-off.
double requests_of_a_consul_handoff(const consul_server& server, std::size_t count) {
  std::deque<client> clients;
  for (std::size_t i = 0; i <= count; ++i)
    clients.push_back(client::open(server.url() + "?session=600s&lock_delay=0s"));
  const auto name = fmt::format("stock-{}", count);
  auto held = mutex{clients[0], name}.acquire({.ttl = 300s});
  EXPECT_TRUE(is_ok(held));
  std::mutex guard;
  std::vector<std::size_t> order, expected;
  token_log tokens;
  std::deque<std::jthread> waiters;
  for (std::size_t i = 1; i <= count; ++i) {
    waiters.emplace_back([&, i] {
      auto got = mutex{clients[i], name}.acquire({.wait = 6 * patience, .ttl = 300s});
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
    EXPECT_TRUE(wait_for_queue(server, name, i));
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

TEST_F(consul_cost, handoff_costs_the_same_whatever_the_length_of_the_queue) {
  const consul_server server;
  const auto few = requests_of_a_consul_handoff(server, 4);
  const auto many = requests_of_a_consul_handoff(server, 32);
  EXPECT_LT(few, 12);
  EXPECT_LT(many, few + 3) << "a herd";
}

TEST_F(consul_cost, pair_without_contention_costs_few_requests) {
  const consul_server server;
  const auto a = client::open(server.url() + "?session=600s&lock_delay=0s", {.handoff_limit = 0});
  mutex lock{a, "stock"};
  ASSERT_TRUE(is_ok(lock.acquire()->release()));
  constexpr std::uint64_t pairs = 100;
  const auto before = server.requests();
  for (std::uint64_t i = 0; i < pairs; ++i) {
    auto held = lock.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held));
    ASSERT_TRUE(is_ok(held->release()));
  }
  const auto each = static_cast<double>(server.requests() - before) / static_cast<double>(pairs);
  RecordProperty("requests_per_pair", fmt::format("{:.2f}", each));
  EXPECT_LE(each, 3.1) << "two, and perhaps one that watches over the key";
}

TEST_F(consul_cost, names_used_once_leave_no_keys) {
  const consul_server server;
  const auto a = client::open(server.url() + consul_at_once);
  constexpr std::size_t count = 2'000, threads = 8;
  std::vector<std::thread> users;
  for (std::size_t t = 0; t < threads; ++t)
    users.emplace_back([&, t] {
      for (std::size_t i = t; i < count; i += threads) {
        auto held = mutex{a, fmt::format("item-{}", i)}.acquire({.wait = patience});
        EXPECT_TRUE(is_ok(held));
      }
    });
  for (auto& one : users) one.join();
  EXPECT_TRUE(leaves_nothing(server, 3 * patience)) << remains(server).size();
}

TEST_F(consul_cost, clients_leave_no_sessions) {
  const consul_server server;
  for (int i = 0; i < 20; ++i) {
    const auto a = client::open(server.url() + consul_at_once);
    EXPECT_TRUE(is_ok(mutex(a, "stock").acquire({.wait = patience})));
    EXPECT_TRUE(is_ok(counting_semaphore(a, "seats", 3).acquire_permits(3, {.wait = patience})));
  }
  EXPECT_TRUE(wait_until([&] { return server.sessions().empty(); })) << server.sessions().size();
  EXPECT_TRUE(wait_until([&] { return server.keys("").empty(); }))
      << fmt::format("{}", fmt::join(server.keys(""), ", "));
}

}  // namespace
}  // namespace holdfast::testing

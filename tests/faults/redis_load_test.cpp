// What breaks here: nothing, there is only much of everything. What must hold: a hand-off costs the server the same
// however many wait (one is woken, not all), and names that were used leave no trace in the server's memory.
#include "faults/faults.hpp"

#include <fmt/format.h>

#include <memory>
#include <thread>

namespace holdfast::testing {
namespace {

class redis_load : public redis_faults {};

std::uint64_t calls_of(const redis_server& server, std::string_view command) {
  const auto stats = redis_command(server, {"INFO", "commandstats"});
  const auto head = fmt::format("cmdstat_{}:calls=", command);
  const auto at = stats.find(head);
  return at == std::string::npos ? 0 : std::stoull(stats.substr(at + head.size()));
}

// How many scripts the server runs for each hand-off when so many clients wait.
double scripts_per_hand_off(std::size_t waiting) {
  redis_server server;
  const auto first = client::open(server.url());
  mutex lock{first, "stock"};
  auto held = lock.acquire();
  EXPECT_TRUE(is_ok(held));
  token_log tokens;
  std::vector<client> clients;
  for (std::size_t i = 0; i < waiting; ++i) clients.push_back(client::open(server.url()));
  std::vector<std::thread> waiters;
  for (std::size_t i = 0; i < waiting; ++i) {
    waiters.emplace_back([&, i] {
      mutex mine{clients[i], "stock"};
      auto next = mine.acquire({.wait = 3 * patience});
      EXPECT_TRUE(is_ok(next));
      if (next) tokens.add(next->token());
    });
  }
  EXPECT_TRUE(wait_for_queue(server, "stock", static_cast<int>(waiting)));
  const auto before = calls_of(server, "evalsha");
  EXPECT_TRUE(is_ok(held->release()));
  for (auto& waiter : waiters) waiter.join();
  EXPECT_EQ(tokens.count(), waiting) << "in the order of the tokens: one after the other";
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
  return static_cast<double>(calls_of(server, "evalsha") - before) / static_cast<double>(waiting);
}

TEST_F(redis_load, one_is_woken_however_many_wait) {
  const auto few = scripts_per_hand_off(8), many = scripts_per_hand_off(64);
  RecordProperty("scripts_per_hand_off_8", std::to_string(few));
  RecordProperty("scripts_per_hand_off_64", std::to_string(many));
  EXPECT_LE(few, 3.0);
  EXPECT_LE(many, 3.0);
  EXPECT_LE(many, few + 1.0) << "it grows with the crowd";
}

TEST_F(redis_load, used_names_leave_no_trace) {
  redis_server server;
  constexpr int names = 50'000, threads = 2;
  const auto size = [&] { return redis_command(server, {"DBSIZE"}); };
  {
    const auto a = client::open(server.url());
    mutex lock{a, "base"};
    ASSERT_TRUE(is_ok(lock.acquire()));
  }
  ASSERT_TRUE(wait_until([&] { return size() == "1"; }));  // hf:t
  std::vector<std::thread> users;
  for (int t = 0; t < threads; ++t) {
    users.emplace_back([&, t] {
      const auto a = client::open(server.url());
      for (int i = 0; i < names; ++i) {
        mutex lock{a, fmt::format("order/{}/{}", t, i)};
        lock.lock();
        lock.unlock();
      }
    });
  }
  for (auto& user : users) user.join();
  EXPECT_TRUE(wait_until([&] { return size() == "1"; })) << size() << ": " << left_behind(server);
}

// Also names that were fought for: the many keys of a lock with waiters go as well.
TEST_F(redis_load, contended_names_leave_no_trace) {
  redis_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  for (int i = 0; i < 200; ++i) {
    const auto name = fmt::format("order/{}", i);
    mutex ours{a, name}, theirs{b, name};
    auto held = ours.acquire();
    ASSERT_TRUE(is_ok(held));
    auto waiting =
        acquire_later(theirs, {.wait = i % 4 == 0 ? nanoseconds{1ms} : nanoseconds{patience}});
    if (i % 4 != 0) {
      ASSERT_TRUE(wait_for_queue(server, name, 1));
    }
    *held = lease{};
    static_cast<void>(get(waiting));
  }
  EXPECT_TRUE(wait_until([&] { return redis_command(server, {"DBSIZE"}) == "1"; }))
      << redis_command(server, {"KEYS", "*"});
}

}  // namespace
}  // namespace holdfast::testing

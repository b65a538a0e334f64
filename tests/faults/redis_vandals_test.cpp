// What breaks here: the server's connections, its script cache and its keys, by an operator or by eviction. What must
// hold: a holder that comes back within the grace keeps its lease; one whose lock was taken away learns of it at its
// next renewal; waiters are served whatever was deleted; tokens rise (S1); no caller sees an error that it did not
// cause.
#include "faults/faults.hpp"

#include "support/plain_counter.hpp"

#include <thread>

namespace holdfast::testing {
namespace {

class redis_vandals : public redis_faults {};

void kill_connections(const redis_server& server, std::string_view type) {
  redis_command(server, {"CLIENT", "KILL", "TYPE", type});
}

// Does every one of `count` clients listen to its channel?
bool all_listen(const redis_server& server, std::ptrdiff_t count) {
  return wait_until([&] {
    const auto channels = redis_command(server, {"PUBSUB", "CHANNELS", "hf:c:*"});
    return channels != "[]" && std::ranges::count(channels, ' ') + 1 == count;
  });
}

// ---- connections

TEST_F(redis_vandals, killed_connections_cost_no_lease) {
  redis_server server;
  const auto url = redis_url(server, "grace=10s");
  const auto a = client::open(url), b = client::open(url);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_queue(server, "stock", 1));
  for (int round = 0; round < 9; ++round) {
    ASSERT_TRUE(all_listen(server, 2)) << "both come back, round " << round;
    kill_connections(server, "pubsub");
    if (round % 3 == 0) kill_connections(server, "normal");
    EXPECT_TRUE(held->valid());
  }
  EXPECT_TRUE(wait_until([&] { return held->renew().has_value(); }));
  EXPECT_EQ(a.metrics().lost, 0U);
  ASSERT_TRUE(is_ok(held->release()));
  auto other = get(waiting);
  ASSERT_TRUE(is_ok(other));
  EXPECT_GT(other->token(), held->token());
}

// The grant is a message; here no client is there to hear it.
TEST_F(redis_vandals, grant_that_no_client_heard_is_found_by_asking) {
  redis_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  token_log tokens;
  for (int round = 0; round < 20; ++round) {
    auto held = ours.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    auto waiting = acquire_later(theirs);
    if (!wait_for_queue(server, "stock", 1)) {
      ASSERT_FALSE(held->valid());
    }
    kill_connections(server, "pubsub");
    *held = lease{};
    const auto begin = std::chrono::steady_clock::now();
    auto other = get(waiting);
    ASSERT_TRUE(is_ok(other));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s) << "not by a timeout";
    tokens.add(other->token());
    EXPECT_TRUE(is_ok(other->release()));
  }
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

TEST_F(redis_vandals, connections_killed_all_the_time_cost_no_exclusion) {
  redis_server server;
  constexpr std::uint64_t threads = 3, rounds = 60;
  const auto url = redis_url(server, "grace=10s");
  std::vector<client> clients;
  for (std::uint64_t i = 0; i < threads; ++i) clients.push_back(client::open(url));
  plain_counter counter;
  std::atomic<std::uint64_t> left{threads};
  std::vector<std::thread> workers;
  for (std::uint64_t i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      mutex lock{clients[i], "stock"};
      for (std::uint64_t round = 0; round < rounds; ++round) {
        auto held = lock.acquire({.wait = 3 * patience, .own_token = true});
        EXPECT_TRUE(is_ok(held));
        if (held && held->valid()) counter.bump();
        if (round % 2 == 0) static_cast<void>(held->release());
      }
      --left;
    });
  }
  for (int round = 0; left > 0; ++round) {
    kill_connections(server, round % 2 == 0 ? "normal" : "pubsub");
    stays_true([&] { return left > 0; }, 30ms);
  }
  for (auto& worker : workers) worker.join();
  EXPECT_EQ(counter.get(), threads * rounds) << "an increment was lost";
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

// ---- scripts

TEST_F(redis_vandals, forgotten_scripts_are_sent_again) {
  redis_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  const auto forget = [&] { ASSERT_EQ(redis_command(server, {"SCRIPT", "FLUSH"}), "OK"); };
  for (int round = 0; round < 5; ++round) {
    forget();
    auto held = ours.acquire({.wait = patience, .ttl = 600ms});
    ASSERT_TRUE(is_ok(held));
    forget();
    EXPECT_TRUE(is_ok(held->renew()));
    forget();
    auto waiting = acquire_later(theirs);
    ASSERT_TRUE(wait_for_queue(server, "stock", 1));
    forget();
    ASSERT_TRUE(is_ok(held->release()));
    auto other = get(waiting);
    ASSERT_TRUE(is_ok(other));
    forget();
    *other = lease{};
    EXPECT_TRUE(is_ok(ours.acquire({.wait = patience})));
    forget();
    EXPECT_TRUE(is_ok(a.inspect("stock")));
  }
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

TEST_F(redis_vandals, unlock_is_in_force_for_the_next_lock_also_on_a_fresh_server) {
  redis_server server;
  const auto a = client::open(server.url());
  for (int round = 0; round < 10; ++round) {
    mutex lock{a, "stock-" + std::to_string(round)};
    lock.lock();
    lock.unlock();
    EXPECT_TRUE(lock.try_lock()) << "round " << round;
    lock.unlock();
    server.restart();
    ASSERT_TRUE(wait_until([&] { return a.inspect("x").has_value(); }));
  }
}

TEST_F(redis_vandals, scripts_forgotten_all_the_time_cost_no_exclusion) {
  redis_server server;
  constexpr std::uint64_t threads = 3, rounds = 100;
  std::vector<client> clients;
  for (std::uint64_t i = 0; i < threads; ++i) clients.push_back(client::open(server.url()));
  plain_counter counter;
  std::atomic<std::uint64_t> left{threads};
  std::vector<std::thread> workers;
  for (std::uint64_t i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      mutex lock{clients[i], "stock"};
      for (std::uint64_t round = 0; round < rounds; ++round) {
        lock.lock();
        counter.bump();
        lock.unlock();
      }
      --left;
    });
  }
  while (left > 0) redis_command(server, {"SCRIPT", "FLUSH", "ASYNC"});
  for (auto& worker : workers) worker.join();
  EXPECT_EQ(counter.get(), threads * rounds);
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

// ---- keys

TEST_F(redis_vandals, flushed_server_is_noticed_at_the_next_renewal) {
  redis_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  token_log tokens;
  for (const auto* command : {"FLUSHALL", "FLUSHDB"}) {
    auto held = ours.acquire({.wait = patience, .ttl = 900ms});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    const loss_recorder loss{*held};
    redis_command(server, {command});
    const auto begin = std::chrono::steady_clock::now();
    auto other = theirs.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(other));
    tokens.add(other->token());
    ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
    EXPECT_LE(loss.when() - begin, 900ms) << "a third of the ttl is enough";
    EXPECT_FALSE(held->valid());
    EXPECT_TRUE(fails_with(held->release(), errc::lost));
    EXPECT_TRUE(other->valid());
    EXPECT_TRUE(is_ok(other->renew())) << "the loser took nothing with it";
  }
}

TEST_F(redis_vandals, deleted_lock_is_noticed_at_the_next_renewal) {
  redis_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 900ms});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  ASSERT_EQ(redis_command(server, {"DEL", "hf:l:stock"}), "1");
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
  EXPECT_LE(loss.when() - begin, 900ms);
  EXPECT_TRUE(is_ok(theirs.try_acquire()));
  EXPECT_TRUE(fails_with(held->release(), errc::lost));
}

// A lock with waiters is several keys, and eviction takes them one by one.
TEST_F(redis_vandals, lock_of_which_one_key_is_gone_still_excludes_and_serves) {
  redis_server server;
  const auto a = client::open(server.url()), b = client::open(server.url()),
             c = client::open(server.url());
  mutex ours{a, "stock"}, second{b, "stock"}, third{c, "stock"};
  for (const std::string kind : {"l", "h", "e", "q", "w", "o"}) {
    SCOPED_TRACE("hf:" + kind + ":stock deleted");
    auto held = ours.acquire({.wait = patience, .ttl = 900ms});
    ASSERT_TRUE(is_ok(held));
    auto b_waits = acquire_later(second);
    ASSERT_TRUE(wait_for_queue(server, "stock", 1));
    auto c_waits = acquire_later(third);
    ASSERT_TRUE(wait_for_queue(server, "stock", 2));
    const auto before = a.metrics();
    redis_command(server, {"DEL", "hf:" + kind + ":stock"});
    ASSERT_TRUE(wait_until([&] {
      const auto now = a.metrics();
      return now.renewed >= before.renewed + 2 || now.lost > before.lost;
    })) << "the holder asks the store";
    const bool still_ours = held->valid();
    const auto granted = [](const auto& waiting) {
      return waiting.wait_for(0s) == std::future_status::ready;
    };
    const bool passed_on = granted(b_waits) || granted(c_waits);
    EXPECT_FALSE(held->valid() && passed_on) << "two holders";
    if (still_ours && !passed_on) {
      EXPECT_TRUE(is_ok(held->release()));
    }
    // Either may be first: the lock goes round.
    for (int served = 0; served < 2; ++served) {
      ASSERT_TRUE(wait_until([&] {
        return (b_waits.valid() && granted(b_waits)) || (c_waits.valid() && granted(c_waits));
      }));
      auto& first = b_waits.valid() && granted(b_waits) ? b_waits : c_waits;
      auto next = first.get();
      ASSERT_TRUE(is_ok(next));
      EXPECT_TRUE(next->valid());
      EXPECT_GT(next->token(), held->token());
      EXPECT_TRUE(is_ok(next->release()));
    }
    EXPECT_TRUE(leaves_nothing(server, 20s)) << left_behind(server);
  }
}

TEST_F(redis_vandals, evicted_lock_is_noticed_at_the_next_renewal) {
  redis_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 900ms});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  redis_command(server, {"CONFIG", "SET", "maxmemory-policy", "allkeys-random"});
  redis_command(server, {"CONFIG", "SET", "maxmemory", "2mb"});
  int written = 0;
  ASSERT_TRUE(wait_until([&] {
    redis_command(server, {"EVAL",
                           "for i = 1, 200 do redis.call('SET', 'fill-' .. ARGV[1] .. '-' .. i, "
                           "string.rep('x', 1000)) end",
                           "0", std::to_string(++written)});
    return !is_locked(server, "stock");
  }));
  const auto gone = std::chrono::steady_clock::now();
  ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
  EXPECT_LE(loss.when() - gone, 900ms);
  EXPECT_FALSE(held->valid());
  redis_command(server, {"CONFIG", "SET", "maxmemory", "0"});
  auto other = theirs.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(other));
  EXPECT_GT(other->token(), held->token()) << "whether the counter was evicted as well or not";
}

}  // namespace
}  // namespace holdfast::testing

// What breaks here: an agent that answers slowly or not at all, and a client that asks much of it. What must hold:
// proof that the session lives does not wait behind the work, so no lease is lost that nobody wanted (L4); and what one
// agent does not tell another one does.
#include "faults/consul_faults.hpp"
#include "faults/consul_relay.hpp"

#include <deque>

namespace holdfast::testing {
namespace {

class consul_heartbeats : public consul_faults {};

// By something that was sent after this has begun: a proof lasts for a session, which is 10 s.
bool is_proven_anew(const lease& held) {
  const auto begin = std::chrono::steady_clock::now();
  return wait_until([&] { return !held.valid() || held.valid_until() > begin + 11s; },
                    2 * patience) &&
         held.valid();
}

task<> try_to_acquire(mutex& lock, acquire_options options, std::atomic<int>& done) {
  static_cast<void>(co_await lock.async_acquire(options));
  ++done;
}

TEST_F(consul_heartbeats, lease_outlives_a_flood_of_slow_requests) {
  constexpr int many = 6'000;
  const consul_server server;
  fault_proxy net{server.port()};
  const auto a = client::open(consul_url(net), {.handoff_limit = 0});
  auto held = mutex{a, "stock"}.acquire({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  net.delay(fault_proxy::replies, 250ms);
  std::deque<mutex> locks;
  std::atomic<int> done{0};
  std::stop_source enough;
  const acquire_options options{.wait = 6 * patience, .ttl = 60s, .stop = enough.get_token()};
  for (int i = 0; i < many; ++i)
    spawn(try_to_acquire(locks.emplace_back(a, fmt::format("item-{}", i)), options, done));
  EXPECT_TRUE(is_proven_anew(*held));
  EXPECT_LT(done, many) << "there was no flood";
  net.heal();
  enough.request_stop();
  ASSERT_TRUE(wait_until([&] { return done == many; }, 6 * patience));
  EXPECT_TRUE(held->valid());
}

// Each further permit has a session of its own, and all of them are renewed.
TEST_F(consul_heartbeats, many_permits_are_kept_by_an_agent_that_answers_slowly) {
  const consul_server server;
  fault_proxy net{server.port()};
  const auto a = client::open(consul_url(net));
  counting_semaphore seats{a, "seats", 1'000};
  std::vector<lease> all;
  for (int i = 0; i < 7; ++i) {
    auto some = seats.acquire_permits(30, {.wait = patience, .ttl = 60s});
    ASSERT_TRUE(is_ok(some));
    all.push_back(std::move(*some));
  }
  net.delay(fault_proxy::replies, 60ms);
  EXPECT_TRUE(is_proven_anew(all.front()));
  // Twice the length of a session: those that were not renewed are gone.
  EXPECT_TRUE(stays_true(
      [&] { return std::ranges::all_of(all, [](const auto& one) { return one.valid(); }); },
      end_of_a_session));
  EXPECT_GE(server.sessions().size(), 210U);
  net.heal();
}

// What proves the main session says nothing about the others.
TEST_F(consul_heartbeats, permits_whose_own_session_cannot_be_renewed_are_lost_in_time) {
  const consul_server server;
  consul_relay relay{server.port()};
  const auto a = client::open(relay.url());
  auto held = counting_semaphore{a, "seats", 2}.acquire_permits(2, {.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  auto other = mutex{a, "stock"}.acquire({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(other));
  const auto main = session_of(server, "stock");
  const auto begin = std::chrono::steady_clock::now();
  relay.answer_with([main](auto& asked) -> std::optional<std::string> {
    if (!asked.target.starts_with("/v1/session/renew/") || asked.target.ends_with(main))
      return std::nullopt;
    return consul_relay::reply(429, "slow down");
  });
  EXPECT_TRUE(wait_until([&] { return !held->valid(); }, 2 * patience));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 13s) << "Consul ends it after 20 s";
  EXPECT_TRUE(other->valid());
  relay.heal();
}

// ---- a session that is lost

// Each waits for a name of its own, and all hear of it at once.
TEST_F(consul_heartbeats, waiters_of_a_lost_session_make_one_new_session) {
  constexpr int many = 50;
  const consul_server server;
  consul_relay relay{server.port()};
  const auto theirs = client::open(server.url() + consul_at_once);
  const auto a = client::open(relay.url());
  std::deque<mutex> locks;
  std::vector<lease> taken;
  for (int i = 0; i < many; ++i) {
    auto one = mutex{theirs, fmt::format("item-{}", i)}.acquire({.wait = patience, .ttl = 300s});
    ASSERT_TRUE(is_ok(one));
    taken.push_back(std::move(*one));
  }
  const auto keep = session_of(server, "item-0");
  std::atomic<int> done{0}, made{0};
  relay.answer_with([&made](auto& asked) -> std::optional<std::string> {
    if (asked.target.starts_with("/v1/session/create")) ++made;
    return std::nullopt;
  });
  const acquire_options options{.wait = 6 * patience};
  for (int i = 0; i < many; ++i)
    spawn(try_to_acquire(locks.emplace_back(a, fmt::format("item-{}", i)), options, done));
  const auto all_wait = [&] {
    const auto waiting = server.keys("holdfast/");
    return std::ranges::count_if(waiting,
                                 [](const auto& key) { return key.ends_with("/.queue"); }) == many;
  };
  ASSERT_TRUE(wait_until(all_wait));
  for (const auto& one : server.sessions())
    if (one != keep) server.destroy_session(one);
  const auto own_keys = [&] {
    const auto keys = server.keys("holdfast/");
    return std::ranges::count_if(
        keys, [](const auto& key) { return key.find("/.owner-") != std::string::npos; });
  };
  EXPECT_TRUE(wait_until([&] { return made > 0 && own_keys() == 2 * many; }, 2 * patience));
  EXPECT_EQ(made, 1);
  EXPECT_EQ(server.sessions().size(), 2U);
  for (auto& one : taken) EXPECT_TRUE(is_ok(one.release()));
  EXPECT_TRUE(wait_until([&] { return done == many; }, 2 * patience));
  relay.heal();
}

// ---- an agent that hangs

// It holds nothing, so nothing but its session makes it ask.
TEST_F(consul_heartbeats, client_that_only_waits_leaves_an_agent_that_hangs) {
  const consul_server server;
  fault_proxy first{server.port()};
  const auto theirs = client::open(server.url() + consul_at_once);
  const auto a = client::open(fmt::format("consul://127.0.0.1:{},127.0.0.1:{}{}", first.port(),
                                          server.port(), consul_at_once));
  auto held = mutex{theirs, "stock"}.acquire({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  mutex lock{a, "stock"};
  auto waiting = acquire_later(lock);
  ASSERT_TRUE(one_waits(server, "stock"));
  first.freeze();
  ASSERT_TRUE(is_ok(held->release()));
  const auto released = std::chrono::steady_clock::now();
  EXPECT_TRUE(is_ok(get(waiting)));
  EXPECT_LT(std::chrono::steady_clock::now() - released, 7s) << "it was the back-stop, after 10 s";
  first.heal();
}

}  // namespace
}  // namespace holdfast::testing

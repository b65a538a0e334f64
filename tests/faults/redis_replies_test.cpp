// What breaks here: the network between a client and its server. Answers are lost, late, torn or one byte long,
// requests arrive after they were given up, connections are half-open. What must hold: nobody claims a lock without
// proof (S4), a request without an answer is settled, an answer is never taken for another call's, no orphan outlives
// its ttl, and after healing everybody is served (L2).
#include "faults/faults.hpp"

#include <array>
#include <thread>

namespace holdfast::testing {
namespace {

class redis_replies : public redis_faults {};

using network = fault_proxy;

std::string holder_in(const redis_server& server, const std::string& name) {
  return redis_command(server, {"GET", "hf:l:" + name});
}

// Of what the store says, and what the lease says.
void expect_proven(const redis_server& server, const lease& held) {
  EXPECT_NE(holder_in(server, held.name()).find(std::to_string(held.token().value)),
            std::string::npos)
      << holder_in(server, held.name());
}

TEST_F(redis_replies, swallowed_reply_is_adopted_or_cleared_up) {
  redis_server server;
  network net{server.port()};
  const auto a = client::open(redis_url(net, "grace=20s"), {.call_timeout = 150ms});
  ASSERT_TRUE(is_ok(mutex(a, "other").try_acquire())) << "from now on the server knows the script";
  for (int round = 0; round < 10; ++round) {
    mutex lock{a, "stock-" + std::to_string(round)};
    ASSERT_TRUE(wait_until([&] { return a.inspect(lock.name()).has_value(); })) << "connected";
    net.drop(network::replies);
    const bool waits = round % 2 == 0;
    auto waiting = acquire_later(lock, {.wait = waits ? nanoseconds{patience} : 0ms, .ttl = 60s});
    ASSERT_TRUE(wait_until([&] { return is_locked(server, lock.name()); })) << "it was executed";
    if (!waits) {
      auto tried = get(waiting);
      EXPECT_TRUE(fails_with(tried, errc::outcome_unknown));
      net.heal(), net.cut();
    } else {
      net.heal(), net.cut();
      auto held = get(waiting);
      // Within the patience for a store that does not answer; else it gives up, and then says so.
      if (held) {
        expect_proven(server, *held);
        EXPECT_TRUE(held->valid());
        static_cast<void>(held->release());  // perhaps cut as well
      } else {
        EXPECT_EQ(held.error().code(), errc::outcome_unknown) << held.error().message();
      }
    }
    EXPECT_TRUE(wait_until([&] { return !is_locked(server, lock.name()); })) << "an orphan";
  }
  EXPECT_GE(a.metrics().settled, 1U);
}

// Whoever waits has been given the lock, and the message was lost on the way.
TEST_F(redis_replies, swallowed_grant_is_found_by_asking) {
  redis_server server;
  network net{server.port()};
  const auto a = client::open(server.url()), b = client::open(redis_url(net, "grace=5s"));
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire();
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_queue(server, "stock", 1));
  net.drop(network::replies);
  ASSERT_TRUE(is_ok(held->release()));
  ASSERT_TRUE(wait_until([&] { return redis_command(server, {"ZCARD", "hf:e:stock"}) == "1"; }));
  net.heal(), net.cut();
  auto other = get(waiting);
  ASSERT_TRUE(is_ok(other));
  EXPECT_TRUE(other->valid());
  EXPECT_GT(other->token(), held->token());
}

// Each answer says which lock it is about: the token of its holder.
TEST_F(redis_replies, late_answers_are_never_taken_for_others) {
  redis_server server;
  network net{server.port()};
  constexpr std::size_t names = 24, threads = 6;
  const auto truth = client::open(server.url());
  std::vector<lease> leases;
  for (std::size_t i = 0; i < names; ++i) {
    mutex lock{truth, "stock-" + std::to_string(i)};
    leases.push_back(lock.acquire({.label = "label " + std::to_string(i)}).value());
  }
  const auto a = client::open(redis_url(net, "grace=20s&connections=2"), {.call_timeout = 20ms});
  std::atomic<bool> done{false};
  std::atomic<int> right{0}, wrong{0}, late{0};
  std::vector<std::thread> askers;
  for (std::size_t t = 0; t < threads; ++t) {
    askers.emplace_back([&, t] {
      for (std::size_t i = t; !done; i = (i * 7 + t + 1) % names) {
        const auto info = a.inspect(leases[i].name());
        if (!info) {
          ++late;
        } else {
          const bool fits = info->holders.size() == 1 &&
                            info->holders[0].token == leases[i].token() &&
                            info->holders[0].label == "label " + std::to_string(i);
          ++(fits ? right : wrong);
        }
      }
    });
  }
  for (int round = 0; round < 8; ++round) {
    const auto before = right.load();
    ASSERT_TRUE(wait_until([&] { return right > before + 50; })) << "undisturbed";
    const auto given_up = late.load();
    net.delay(network::replies, 60ms);
    ASSERT_TRUE(wait_until([&] { return late > given_up + 10; })) << "delayed";
    net.delay(network::replies, 0ms);
  }
  done = true;
  for (auto& one : askers) one.join();
  EXPECT_EQ(wrong, 0) << right << " right, " << late << " late";
}

TEST_F(redis_replies, one_byte_at_a_time) {
  redis_server server;
  network net{server.port()};
  net.trickle();
  const auto url = redis_url(net, "grace=20s");
  const auto a = client::open(url), b = client::open(url);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  token_log tokens;
  for (int round = 0; round < 3; ++round) {
    auto held = ours.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    auto waiting = acquire_later(theirs);
    ASSERT_TRUE(wait_for_queue(server, "stock", 1));
    EXPECT_TRUE(is_ok(held->renew()));
    ASSERT_TRUE(is_ok(held->release()));
    auto other = get(waiting);
    ASSERT_TRUE(is_ok(other));
    tokens.add(other->token());
    EXPECT_TRUE(is_ok(other->release()));
  }
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

TEST_F(redis_replies, reset_in_the_middle_of_a_reply) {
  redis_server server;
  network net{server.port()};
  const auto a = client::open(redis_url(net, "grace=20s&connections=1"));
  token_log tokens;
  mutex lock{a, "stock"};
  for (std::size_t bytes = 0; bytes < 40; ++bytes) {
    net.cut_after(bytes % 20);
    auto held = lock.acquire({.wait = patience, .own_token = true});
    ASSERT_TRUE(is_ok(held)) << "cut after " << bytes;
    tokens.add(held->token());
    expect_proven(server, *held);
    net.cut_after(bytes % 5);
    if (bytes % 2 == 0) {
      static_cast<void>(held->release());
    } else {
      *held = lease{};
    }
    net.heal();
    EXPECT_TRUE(wait_until([&] { return !is_locked(server, "stock"); })) << "cut after " << bytes;
  }
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

TEST_F(redis_replies, half_open_connections_are_replaced_and_waiters_served) {
  redis_server server;
  network net{server.port()};
  const auto a = client::open(server.url());
  const auto b = client::open(redis_url(net, "grace=500ms"), {.call_timeout = 500ms});
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire();
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs, {.ttl = 1s});
  ASSERT_TRUE(wait_for_queue(server, "stock", 1));
  const auto before = net.connections();
  net.drop(network::requests), net.drop(network::replies);
  const auto sent = net.bytes(network::replies);
  ASSERT_TRUE(is_ok(held->release()));
  ASSERT_TRUE(wait_until([&] { return net.bytes(network::replies) > sent; })) << "the grant";
  // Nobody resets anything: the connection that lost bytes stays silent for good, new ones work.
  net.heal();
  auto other = get(waiting);
  if (!other) {
    EXPECT_TRUE(other.error().code() == errc::unavailable ||
                other.error().code() == errc::outcome_unknown)
        << other.error().message();
  }
  EXPECT_TRUE(
      wait_until([&] { return other || (other = theirs.acquire({.wait = 1s})); }, 3 * patience));
  EXPECT_TRUE(is_ok(other));
  EXPECT_GT(net.connections(), before);
}

// The request was given up, and the client has a new connection by the time the old one delivers. Nobody can prevent
// that it is executed then; but it ends.
TEST_F(redis_replies, request_that_arrives_after_it_was_given_up_ends_with_its_ttl) {
  redis_server server;
  network net{server.port()};
  const auto a = client::open(redis_url(net, "grace=30s&connections=1"), {.call_timeout = 100ms});
  const auto b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  ASSERT_TRUE(is_ok(ours.try_acquire())) << "connected, and the server knows the scripts";
  ASSERT_TRUE(leaves_nothing(server));
  const auto before = net.connections();
  net.hold(network::requests);
  ASSERT_TRUE(fails_with(ours.acquire({.wait = 200ms, .ttl = 1s}), errc::outcome_unknown));
  ASSERT_TRUE(wait_until([&] {
    static_cast<void>(a.inspect("stock"));
    return net.connections() > before;
  })) << "the old connection is given up";
  net.heal();
  EXPECT_TRUE(wait_until([&] { return a.inspect("stock").has_value(); }));
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
  EXPECT_TRUE(is_ok(theirs.acquire({.wait = patience})));
  EXPECT_EQ(a.metrics().held_now, 0U);
}

TEST_F(redis_replies, delayed_renewals_never_prolong_what_has_ended) {
  redis_server server;
  network net{server.port()};
  const auto a = client::open(redis_url(net, "grace=400ms")), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  for (const auto by : {250ms, 390ms, 600ms}) {
    auto held = ours.acquire({.wait = patience, .ttl = 400ms});
    ASSERT_TRUE(is_ok(held));
    const loss_recorder loss{*held};
    net.delay(network::replies, by);
    auto waiting = acquire_later(theirs);
    if (by > 400ms) {
      expect_loss_on_time(*held, loss);
      auto other = get(waiting);
      ASSERT_TRUE(is_ok(other));
      EXPECT_FALSE(held->valid());
    } else {
      // Late, but answered in time: validity counts from the time of sending, so it is short, not wrong.
      stays_true([&] { return held->valid_until() <= std::chrono::steady_clock::now() + 400ms; },
                 1s);
      EXPECT_LE(held->valid_until(), std::chrono::steady_clock::now() + 400ms);
      static_cast<void>(held->release());
      EXPECT_TRUE(is_ok(get(waiting)));
    }
    net.heal();
    EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
  }
}

}  // namespace
}  // namespace holdfast::testing

// What breaks here: the network between a client and a node. Answers are lost, late, torn or one byte long, connections
// are half-open. What must hold: nobody claims a lock without proof (S4), a request without an answer is settled, an
// answer is never taken for another call's, no orphan outlives its ttl, and after healing everybody is served (L2).
#include "faults/etcd_faults.hpp"

#include <thread>

namespace holdfast::testing {
namespace {

class etcd_answers : public etcd_faults {};

using network = fault_proxy;

TEST_F(etcd_answers, swallowed_answer_is_adopted_or_cleared_up) {
  const etcd_server server;
  network net{server.port()};
  const auto a = client::open(etcd_url(net), {.call_timeout = 300ms});
  int adopted = 0;
  for (int round = 0; round < 8; ++round) {
    mutex lock{a, "stock-" + std::to_string(round)};
    ASSERT_TRUE(wait_until([&] { return a.inspect(lock.name()).has_value(); })) << "connected";
    net.drop(network::replies);
    const bool waits = round % 2 == 0;
    auto waiting = acquire_later(lock, {.wait = waits ? nanoseconds{patience} : 0ms, .ttl = 60s});
    ASSERT_TRUE(wait_until([&] { return is_locked(server, lock.name()); })) << "it was executed";
    if (!waits) {
      EXPECT_TRUE(fails_with(get(waiting), errc::outcome_unknown));
      net.heal(), net.cut();
    } else {
      net.heal(), net.cut();
      auto held = get(waiting);
      if (held) {
        ++adopted;
        EXPECT_TRUE(is_proven(server, *held));
        EXPECT_TRUE(held->valid());
        static_cast<void>(held->release());  // perhaps cut as well
      } else {
        EXPECT_EQ(held.error().code(), errc::outcome_unknown) << held.error().message();
      }
    }
    EXPECT_TRUE(wait_until([&] { return !is_locked(server, lock.name()); })) << "an orphan";
  }
  EXPECT_GE(adopted, 1) << "whoever goes on waiting finds its own key";
}

// The predecessor has gone, and the event that said so was lost on the way.
TEST_F(etcd_answers, swallowed_event_is_found_by_asking) {
  const etcd_server server;
  network net{server.port()};
  const auto a = client::open(server.url()), b = client::open(etcd_url(net));
  mutex ours{a, "stock"}, theirs{b, "stock"};
  for (int round = 0; round < 3; ++round) {
    auto held = ours.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held));
    auto waiting = acquire_later(theirs, {.ttl = 20s});
    ASSERT_TRUE(wait_for_entries(server, "stock", 2));
    net.drop(network::replies);
    const auto sent = net.bytes(network::replies);
    ASSERT_TRUE(is_ok(held->release()));
    ASSERT_TRUE(wait_until([&] { return net.bytes(network::replies) > sent; })) << "the event";
    net.heal(), net.cut();
    auto other = get(waiting);
    ASSERT_TRUE(is_ok(other));
    EXPECT_TRUE(other->valid());
    EXPECT_TRUE(is_proven(server, *other));
    EXPECT_TRUE(is_ok(other->release()));
  }
}

// Each answer says which lock it is about: the token of its holder.
TEST_F(etcd_answers, late_answers_are_never_taken_for_others) {
  const etcd_server server;
  network net{server.port()};
  constexpr std::size_t names = 24, threads = 6;
  const auto truth = client::open(server.url());
  std::vector<lease> leases;
  for (std::size_t i = 0; i < names; ++i) {
    mutex lock{truth, "stock-" + std::to_string(i)};
    leases.push_back(lock.acquire({.ttl = 60s}).value());
  }
  const auto a = client::open(etcd_url(net), {.call_timeout = 40ms});
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
          const bool fits =
              info->holders.size() == 1 && info->holders[0].token == leases[i].token();
          ++(fits ? right : wrong);
        }
      }
    });
  }
  for (int round = 0; round < 5; ++round) {
    const auto before = right.load();
    EXPECT_TRUE(wait_until([&] { return right > before + 50; })) << "undisturbed";
    const auto given_up = late.load();
    net.delay(network::replies, 100ms);
    EXPECT_TRUE(wait_until([&] { return late > given_up + 10; })) << "delayed";
    net.delay(network::replies, 0ms);
  }
  done = true;
  for (auto& one : askers) one.join();
  EXPECT_EQ(wrong, 0) << right << " right, " << late << " late";
}

TEST_F(etcd_answers, one_byte_at_a_time) {
  const etcd_server server;
  network net{server.port()};
  net.trickle();
  const auto a = client::open(etcd_url(net)), b = client::open(etcd_url(net));
  mutex ours{a, "stock"}, theirs{b, "stock"};
  token_log tokens;
  for (int round = 0; round < 3; ++round) {
    auto held = ours.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    auto waiting = acquire_later(theirs);
    ASSERT_TRUE(wait_for_entries(server, "stock", 2));
    EXPECT_TRUE(is_ok(held->renew()));
    ASSERT_TRUE(is_ok(held->release()));
    auto other = get(waiting);
    ASSERT_TRUE(is_ok(other));
    tokens.add(other->token());
    EXPECT_TRUE(is_ok(other->release()));
  }
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

TEST_F(etcd_answers, reset_in_the_middle_of_an_answer) {
  const etcd_server server;
  network net{server.port()};
  const auto a = client::open(etcd_url(net));
  token_log tokens;
  mutex lock{a, "stock"};
  for (std::size_t bytes = 0; bytes < 30; ++bytes) {
    net.cut_after(7 * bytes);  // frames are of some ten bytes
    auto held = lock.acquire({.wait = patience, .ttl = 60s, .own_token = true});
    ASSERT_TRUE(is_ok(held)) << "cut after " << 7 * bytes;
    tokens.add(held->token());
    net.cut_after(bytes);
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

TEST_F(etcd_answers, half_open_connections_are_replaced_and_waiters_served) {
  const etcd_server server;
  network net{server.port()};
  const auto a = client::open(server.url());
  const auto b = client::open(etcd_url(net), {.call_timeout = 500ms});
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire();
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs, {.ttl = 10s});
  ASSERT_TRUE(wait_for_entries(server, "stock", 2));
  const auto before = net.connections();
  net.drop(network::requests), net.drop(network::replies);
  const auto sent = net.bytes(network::replies);
  ASSERT_TRUE(is_ok(held->release()));
  ASSERT_TRUE(wait_until([&] { return net.bytes(network::replies) > sent; })) << "the event";
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

// The holder is alive and believes in its lease; the network to it is gone.
void cut_off_rounds(int rounds, bool cut) {
  const etcd_server server;
  network net{server.port()};
  const auto a = client::open(etcd_url(net, "session=2s")), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  token_log tokens;
  for (int round = 0; round < rounds; ++round) {
    auto held = ours.acquire({.wait = 3 * patience, .ttl = 2s});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    const loss_recorder loss{*held};
    steady_time granted{};
    bool was_valid = true;
    std::thread waits{[&] {
      auto other = theirs.acquire({.wait = 3 * patience});
      was_valid = held->valid();
      granted = std::chrono::steady_clock::now();
      EXPECT_TRUE(is_ok(other));
      if (!other) return;
      tokens.add(other->token());
      EXPECT_TRUE(is_ok(other->release()));
    }};
    EXPECT_TRUE(wait_for_entries(server, "stock", 2));
    net.refuse();
    if (cut) {
      net.cut();
    } else {
      net.drop(network::requests), net.drop(network::replies);
    }
    const auto end = end_of_validity(*held);
    waits.join();
    EXPECT_FALSE(was_valid) << "two holders, round " << round;
    EXPECT_LE(end, granted) << "round " << round;
    EXPECT_TRUE(wait_until([&] { return loss.fired(); }));
    net.heal();
    if (!cut) net.cut();
  }
}

TEST_F(etcd_answers, cut_off_holder_gives_up_before_the_waiter_is_let_in) {
  cut_off_rounds(4, true);
}

TEST_F(etcd_answers, silenced_holder_gives_up_before_the_waiter_is_let_in) {
  cut_off_rounds(3, false);
}

// One node is behind a network that swallows everything: a try is short, and the next node is asked.
TEST_F(etcd_answers, silent_node_is_passed_over) {
  const etcd_server cluster{{.nodes = 3}};
  network first{cluster.port(0)}, second{cluster.port(1)};
  const auto a = client::open(
      fmt::format("etcd://127.0.0.1:{},127.0.0.1:{}?session=6s", first.port(), second.port()));
  mutex lock{a, "stock"}, more{a, "shelf"};
  auto held = lock.acquire({.wait = patience, .ttl = 6s});
  ASSERT_TRUE(is_ok(held));
  for (int round = 0; round < 2; ++round) {
    auto& silent = round % 2 == 0 ? first : second;
    silent.drop(network::requests), silent.drop(network::replies);
    const auto begin = std::chrono::steady_clock::now();
    auto other = more.acquire({.wait = patience});
    EXPECT_TRUE(is_ok(other));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);
    EXPECT_TRUE(wait_until([&] { return !held->valid() || held->valid_until() > begin + 7s; }));
    EXPECT_TRUE(held->valid()) << "renewed through the other";
    silent.heal(), silent.cut();
  }
  EXPECT_TRUE(is_ok(held->release()));
}

// A network that is all delay: validity counts from before the request was sent.
TEST_F(etcd_answers, late_renewals_do_not_prolong_what_they_should_not) {
  const etcd_server server;
  network net{server.port()};
  const auto a = client::open(etcd_url(net, "session=3s"));
  mutex lock{a, "stock"};
  auto held = lock.acquire({.ttl = 3s});
  ASSERT_TRUE(is_ok(held));
  net.delay(network::replies, 600ms);
  for (int i = 0; i < 3; ++i) {
    const auto asked = std::chrono::steady_clock::now();
    if (!held->renew()) continue;
    EXPECT_LE(held->valid_until(), asked + 3s + 400ms)
        << "an answer that took 600 ms is not worth 600 ms more (others renew meanwhile)";
  }
  EXPECT_TRUE(held->valid());
}

}  // namespace
}  // namespace holdfast::testing

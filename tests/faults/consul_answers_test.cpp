// What breaks here: the network between a client and an agent. Answers are lost, late, torn or one byte long,
// connections are half-open. What must hold: nobody claims a lock without proof (S4), a request without an answer is
// settled, an answer is never taken for another call's, no orphan is left, and after healing everybody is served (L2).
#include "faults/consul_faults.hpp"
#include "faults/scenarios.hpp"

namespace holdfast::testing {
namespace {

class consul_answers : public consul_faults {};

using network = fault_proxy;

TEST_F(consul_answers, swallowed_answer_is_adopted_or_cleared_up) {
  const consul_server server;
  network net{server.port()};
  const auto a = client::open(consul_url(net), {.call_timeout = 300ms});
  int adopted = 0;
  scenarios::answers_are_swallowed(server, net, a, 8, adopted);
  EXPECT_GE(adopted, 1) << "whoever goes on waiting finds its own entry";
}

// The holder has gone, and the answer to the blocking query that said so was lost on the way.
TEST_F(consul_answers, swallowed_news_are_found_by_asking) {
  const consul_server server;
  network net{server.port()};
  const auto a = client::open(server.url() + consul_at_once), b = client::open(consul_url(net));
  mutex ours{a, "stock"}, theirs{b, "stock"};
  for (int round = 0; round < 3; ++round) {
    auto held = ours.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held));
    auto waiting = acquire_later(theirs, {.ttl = 20s});
    ASSERT_TRUE(one_waits(server, "stock"));
    net.drop(network::replies);
    const auto sent = net.bytes(network::replies);
    ASSERT_TRUE(is_ok(held->release()));
    ASSERT_TRUE(wait_until([&] { return net.bytes(network::replies) > sent; })) << "the news";
    net.heal(), net.cut();
    auto other = get(waiting);
    ASSERT_TRUE(is_ok(other));
    EXPECT_TRUE(other->valid());
    EXPECT_TRUE(is_proven(server, *other));
    EXPECT_TRUE(is_ok(other->release()));
  }
}

TEST_F(consul_answers, late_answers_are_never_taken_for_others) {
  const consul_server server;
  network net{server.port()};
  const auto a = client::open(consul_url(net), {.call_timeout = 40ms});
  scenarios::answers_come_late(net, client::open(server.url() + consul_at_once), a, 5, 100ms);
}

TEST_F(consul_answers, one_byte_at_a_time) {
  const consul_server server;
  network net{server.port()};
  scenarios::bytes_come_one_at_a_time(server, net, consul_url(net));
}

TEST_F(consul_answers, reset_in_the_middle_of_an_answer) {
  const consul_server server;
  network net{server.port()};
  const auto a = client::open(consul_url(net));
  std::vector<scenarios::reset_points> rounds;  // heads are of some hundred bytes, bodies, too
  for (std::size_t i = 0; i < 30; ++i) rounds.push_back({.acquire = 23 * i, .release = 17 * i});
  scenarios::answers_are_torn(server, net, a, rounds);
}

TEST_F(consul_answers, half_open_connections_are_replaced_and_waiters_served) {
  const consul_server server;
  network net{server.port()};
  const auto b = client::open(consul_url(net), {.call_timeout = 500ms});
  scenarios::connections_are_half_open(server, net, b, 10s);
}

// It takes Consul twice the session to let the waiter in.
TEST_F(consul_answers, cut_off_holder_gives_up_before_the_waiter_is_let_in) {
  const consul_server server;
  network net{server.port()};
  const auto a = client::open(consul_url(net, "session=10s"));
  scenarios::holder_is_cut_off(server, net, a, 1, scenarios::isolation::cut, 8s);
}

TEST_F(consul_answers, silenced_holder_gives_up_before_the_waiter_is_let_in) {
  const consul_server server;
  network net{server.port()};
  const auto a = client::open(consul_url(net, "session=10s"));
  scenarios::holder_is_cut_off(server, net, a, 1, scenarios::isolation::silent, 8s);
}

// One agent is behind a network that swallows everything: a try is short, and the next agent is asked.
TEST_F(consul_answers, silent_agent_is_passed_over) {
  const consul_server cluster{{.nodes = 3}};
  network first{cluster.port(0)}, second{cluster.port(1)};
  const auto a = client::open(
      fmt::format("consul://127.0.0.1:{},127.0.0.1:{}?session=10s", first.port(), second.port()));
  mutex lock{a, "stock"}, more{a, "shelf"};
  auto held = lock.acquire({.wait = patience, .ttl = 10s});
  ASSERT_TRUE(is_ok(held));
  for (int round = 0; round < 2; ++round) {
    auto& silent = round % 2 == 0 ? first : second;
    silent.drop(network::requests), silent.drop(network::replies);
    const auto begin = std::chrono::steady_clock::now();
    auto other = more.acquire({.wait = patience});
    EXPECT_TRUE(is_ok(other));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);
    EXPECT_TRUE(wait_until([&] { return !held->valid() || held->valid_until() > begin + 11s; },
                           2 * patience));
    EXPECT_TRUE(held->valid()) << "renewed through the other";
    silent.heal(), silent.cut();
  }
  EXPECT_TRUE(is_ok(held->release()));
}

// A network that is all delay: validity counts from before the request was sent.
TEST_F(consul_answers, late_renewals_do_not_prolong_what_they_should_not) {
  const consul_server server;
  network net{server.port()};
  const auto a = client::open(consul_url(net, "session=10s"));
  mutex lock{a, "stock"};
  auto held = lock.acquire({.ttl = 10s});
  ASSERT_TRUE(is_ok(held));
  net.delay(network::replies, 600ms);
  for (int i = 0; i < 3; ++i) {
    if (!held->renew()) continue;
    const auto until = held->valid_until();
    EXPECT_LE(until, std::chrono::steady_clock::now() - 600ms + 10s);
  }
  EXPECT_TRUE(held->valid());
}

// Every verb is back at the end of its time, whatever the server does (L4).
TEST_F(consul_answers, caller_is_answered_on_time_by_a_server_that_hangs) {
  consul_server server;
  const auto a = client::open(server.url() + consul_at_once, {.call_timeout = 20s});
  mutex lock{a, "stock"}, other{a, "shelf"};
  auto held = other.acquire({.ttl = 1min});
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(is_ok(lock.acquire()->release()));
  server.stop();
  for (const nanoseconds wait : {nanoseconds{0}, nanoseconds{500ms}}) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(is_ok(lock.acquire({.wait = wait})));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, wait + 4s) << "call_timeout is 20 s";
  }
  server.resume();
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
}

// The answer to a release is lost: it is certain only afterwards, and nobody else's lock is touched by a repetition.
TEST_F(consul_answers, release_whose_answer_is_lost_frees_the_lock_once) {
  const consul_server server;
  network net{server.port()};
  const auto a = client::open(consul_url(net), {.call_timeout = 500ms, .handoff_limit = 0});
  const auto b = client::open(server.url() + consul_at_once);
  for (int round = 0; round < 4; ++round) {
    mutex ours{a, fmt::format("item-{}", round)}, theirs{b, ours.name()};
    auto held = ours.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held));
    net.drop(network::replies);
    const auto released = held->release();
    net.heal(), net.cut();
    if (!released) {
      EXPECT_TRUE(is_out_of_reach(released));
    }
    auto other = theirs.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(other)) << "an orphan, round " << round;
    EXPECT_TRUE(stays_true([&] { return other->valid(); }, 300ms));
    EXPECT_TRUE(is_proven(server, *other));
  }
}

}  // namespace
}  // namespace holdfast::testing

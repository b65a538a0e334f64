// What breaks here: the network between our own client and a service, and the client itself. Answers are lost, late,
// torn or one byte long, connections are half-open, holders are cut off, paused and killed. What must hold: nobody
// claims a lock without proof (S4), a lease that cannot be proven is over before another client has the lock (S2), no
// orphan is left, a dead holder frees its lock within the published bound (L1), and after healing everybody is served
// (L2).
#include "faults/scenarios.hpp"
#include "faults/serve_faults.hpp"

#include "support/child.hpp"

namespace holdfast::testing {
namespace {

class serve_engine : public serve_faults {};

TEST_F(serve_engine, swallowed_answer_is_adopted_or_cleared_up) {
  const serve_process service;
  fault_proxy network{service.port()};
  const auto a = client::open(serve_url(network), {.call_timeout = 300ms});
  int adopted = 0;
  scenarios::answers_are_swallowed(service, network, a, 8, adopted);
  EXPECT_GE(adopted, 1) << "whoever goes on waiting finds its own entry";
}

TEST_F(serve_engine, late_answers_are_never_taken_for_others) {
  const serve_process service;
  fault_proxy network{service.port()};
  const auto a = client::open(serve_url(network, "grace=10s"), {.call_timeout = 40ms});
  scenarios::answers_come_late(network, client::open(service.url()), a, 5, 100ms);
}

TEST_F(serve_engine, one_byte_at_a_time) {
  const serve_process service;
  fault_proxy network{service.port()};
  scenarios::bytes_come_one_at_a_time(service, network, serve_url(network, "grace=10s"));
}

TEST_F(serve_engine, reset_in_the_middle_of_an_answer) {
  const serve_process service;
  fault_proxy network{service.port()};
  const auto a = client::open(serve_url(network));
  std::vector<scenarios::reset_points> rounds;  // heads are of some two hundred bytes, bodies, too
  for (std::size_t i = 0; i < 24; ++i) rounds.push_back({.acquire = 23 * i, .release = 17 * i});
  scenarios::answers_are_torn(service, network, a, rounds);
}

TEST_F(serve_engine, half_open_connections_are_replaced_and_waiters_served) {
  const serve_process service;
  fault_proxy network{service.port()};
  const auto b = client::open(serve_url(network), {.call_timeout = 500ms});
  scenarios::connections_are_half_open(service, network, b, 10s);
}

TEST_F(serve_engine, cut_off_holder_gives_up_before_the_waiter_is_let_in) {
  const serve_process service;
  fault_proxy network{service.port()};
  const auto a = client::open(serve_url(network, "grace=1s"));
  scenarios::holder_is_cut_off(service, network, a, 3, scenarios::isolation::cut, 2s);
}

TEST_F(serve_engine, silenced_holder_gives_up_before_the_waiter_is_let_in) {
  const serve_process service;
  fault_proxy network{service.port()};
  const auto a = client::open(serve_url(network, "grace=1s"));
  scenarios::holder_is_cut_off(service, network, a, 3, scenarios::isolation::silent, 2s);
}

TEST_F(serve_engine, paused_holder_knows_when_it_wakes) {
  const serve_process service;
  const auto a = client::open(service.url());
  scenarios::holder_is_paused(service, a, service.url() + "?grace=1s", "2s");
}

TEST_F(serve_engine, killed_holder_is_noticed_within_the_bound_however_long_its_ttl) {
  const serve_process service;
  const auto a = client::open(service.url());
  const auto bound = a.capabilities().dead_holder_bound;
  mutex lock{a, "stock"};
  child dies{service.url()};
  const auto answer = dies.ask("acquire stock 60s");
  ASSERT_TRUE(answer.starts_with("granted ")) << answer;
  auto waiting = acquire_later(lock);
  ASSERT_TRUE(one_waits(service, "stock"));
  dies.kill();
  const auto begin = std::chrono::steady_clock::now();
  auto held = get(waiting);
  ASSERT_TRUE(is_ok(held));
  EXPECT_LE(std::chrono::steady_clock::now() - begin, bound + 500ms) << "a busy machine has more";
  EXPECT_GT(held->token(), scenarios::token_in(answer));
}

// A network that takes what is sent on the connections of today and delivers it when the lease would be long over: a
// renewal that is not answered is repeated on a new one.
TEST_F(serve_engine, stranded_connections_do_not_cost_the_lease) {
  const serve_process service;
  fault_proxy network{service.port()};
  const auto a = client::open(serve_url(network));
  mutex lock{a, "stock"};
  auto held = lock.acquire({.ttl = 3s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  network.strand();
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 6s)) << "renewed over another one";
  network.heal();  // what was held comes now
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 1s));
  EXPECT_FALSE(loss.fired());
  EXPECT_TRUE(is_proven(service, *held));
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(leaves_nothing(service)) << left_behind(service);
}

// The service itself stands still, for less and for more than the grace.
TEST_F(serve_engine, stopped_service_costs_leases_on_time_and_no_waiter) {
  serve_process service;
  const auto a = client::open(service.url()), b = client::open(service.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 6s});
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs, {.ttl = 6s});
  ASSERT_TRUE(one_waits(service, "stock"));
  const loss_recorder loss{*held};
  service.stop();
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 1s));
  service.resume();
  EXPECT_TRUE(is_ok(held->renew()));
  EXPECT_FALSE(loss.fired());
  EXPECT_FALSE(is_ready(waiting));
  service.stop();
  const auto stopped = std::chrono::steady_clock::now();
  expect_loss_on_time(*held, loss);
  EXPECT_LT(loss.when() - stopped, 3500ms) << "the grace, and not the ttl";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(ours.acquire({.wait = 1s}));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1600ms)
      << "a wait is bounded, whatever happens";
  service.resume();
  auto next = get(waiting);
  if (!next) next = theirs.acquire({.wait = patience, .ttl = 6s});
  ASSERT_TRUE(is_ok(next));
  EXPECT_TRUE(is_proven(service, *next));
  EXPECT_TRUE(is_ok(next->release()));
  EXPECT_TRUE(leaves_nothing(service)) << left_behind(service);
}

}  // namespace
}  // namespace holdfast::testing

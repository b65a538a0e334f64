// What breaks here: the holder. Its process is killed or paused, its network cut, its processor taken away. What must
// hold: a dead holder frees its lock within the published bound (L1) and not before it may; a holder that is cut off
// knows it before another client has the lock (S2); a busy machine costs nothing.
#include "faults/faults.hpp"
#include "faults/scenarios.hpp"

#include "support/child.hpp"

namespace holdfast::testing {
namespace {

class redis_death : public redis_faults {};

TEST_F(redis_death, killed_holder_is_noticed_within_the_bound_however_long_its_ttl) {
  redis_server server;
  const auto a = client::open(server.url());
  const auto bound = a.capabilities().dead_holder_bound;
  ASSERT_GT(bound, 0s);
  mutex lock{a, "stock"};
  for (int round = 0; round < 2; ++round) {
    child dies{server.url()};
    const auto answer = dies.ask("acquire stock 60s");
    ASSERT_TRUE(answer.starts_with("granted ")) << answer;
    auto waiting = acquire_later(lock);
    ASSERT_TRUE(wait_for_queue(server, "stock", 1));
    dies.kill();
    const auto begin = std::chrono::steady_clock::now();
    auto held = get(waiting);
    const auto took = std::chrono::steady_clock::now() - begin;
    ASSERT_TRUE(is_ok(held));
    EXPECT_LE(took, bound + 500ms) << "a busy machine has half a second more";
    EXPECT_GE(took, 900ms) << "the grace is the time in which it could have come back";
    EXPECT_GT(held->token(), scenarios::token_in(answer));
    EXPECT_TRUE(is_ok(held->release()));
  }
}

TEST_F(redis_death, killed_holder_without_grace_keeps_its_lock_for_its_ttl) {
  redis_server server;
  const auto url = redis_url(server, "grace=0");
  const auto a = client::open(url);
  EXPECT_EQ(a.capabilities().dead_holder_bound, 0s);
  mutex lock{a, "stock"};
  child dies{url};
  ASSERT_TRUE(dies.ask("acquire stock 60s").starts_with("granted "));
  dies.kill();
  EXPECT_TRUE(fails_with(lock.acquire({.wait = 2s}), errc::timed_out));
  EXPECT_TRUE(is_locked(server, "stock"));
}

// It is the holder's grace that counts, not the waiter's.
TEST_F(redis_death, everybody_has_the_grace_he_asked_for) {
  redis_server server;
  const auto hasty = client::open(redis_url(server, "grace=100ms"));
  mutex lock{hasty, "stock"};
  child patient{redis_url(server, "grace=10s")};
  ASSERT_TRUE(patient.ask("acquire stock 60s").starts_with("granted "));
  patient.kill();
  EXPECT_TRUE(fails_with(lock.acquire({.wait = 1s}), errc::timed_out));
}

TEST_F(redis_death, killed_waiter_is_passed_over) {
  redis_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 60s});
  child dies{server.url()};
  dies.tell("acquire stock 60s");
  ASSERT_TRUE(wait_for_queue(server, "stock", 1));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_queue(server, "stock", 2));
  dies.kill();
  ASSERT_TRUE(wait_until([&] {
    return redis_command(server, {"PUBSUB", "CHANNELS", "hf:c:*"}).find(' ') ==
           redis_command(server, {"PUBSUB", "CHANNELS", "hf:c:*"}).rfind(' ');
  })) << "the server has seen it go";
  ASSERT_TRUE(is_ok(held->release()));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(is_ok(get(waiting)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s)
      << "at once: no client heard the first grant";
}

TEST_F(redis_death, cut_off_holder_gives_up_before_the_waiter_is_let_in) {
  redis_server server;
  fault_proxy net{server.port()};
  const auto a = client::open(redis_url(net, "grace=250ms"));
  scenarios::holder_is_cut_off(server, net, a, 10, scenarios::isolation::cut, 60s);
}

TEST_F(redis_death, silenced_holder_gives_up_before_the_waiter_is_let_in) {
  redis_server server;
  fault_proxy net{server.port()};
  const auto a = client::open(redis_url(net, "grace=250ms"));
  scenarios::holder_is_cut_off(server, net, a, 5, scenarios::isolation::silent, 600ms);
}

TEST_F(redis_death, paused_holder_sees_the_truth_when_it_wakes) {
  redis_server server;
  const auto a = client::open(server.url());
  for (const auto* ttl : {"400ms", "800ms"})
    scenarios::holder_is_paused(server, a, redis_url(server, "grace=400ms"), ttl);
}

TEST_F(redis_death, busy_processors_cost_no_lease_of_two_seconds) {
  redis_server server;
  scenarios::processors_are_busy(client::open(redis_url(server, "grace=2s")), 2s, 3s);
}

}  // namespace
}  // namespace holdfast::testing

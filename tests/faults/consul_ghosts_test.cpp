// What breaks here: a request is held up on its way, the client asks another agent instead, is done with the lock, and
// only then the first copy arrives. What must hold: it has no effect. It would take the lock for a session that is kept
// alive: the lock would be blocked for as long as its client lives.
#include "faults/consul_faults.hpp"

#include <holdfast/lock_all.hpp>

#include <future>

namespace holdfast::testing {
namespace {

// The client knows the first agent by way of the network, which keeps what is sent to it.
class consul_ghosts : public consul_faults {
 protected:
  using network = fault_proxy;

  void SetUp() override {
    consul_faults::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    cluster_.emplace(consul_server::options{.nodes = 3});
    net_.emplace(cluster_->port(0));
    client_.emplace(client::open(
        fmt::format("consul://127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}?session=30s&lock_delay=0s",
                    net_->port(), cluster_->port(1), cluster_->port(2)),
        {.handoff_limit = 0}));
    mutex warm{*client_, "warm"};
    ASSERT_TRUE(is_ok(warm.acquire({.wait = patience})->release()));
  }
  // What `ask` sends first is kept; nothing that follows on that connection arrives, so that it is not taken back.
  template <class Ask>
  auto with_first_copy_kept(const Ask& ask) {
    const auto before = net_->bytes(network::requests);
    net_->hold(network::requests);
    auto answer = std::async(std::launch::async, ask);
    EXPECT_TRUE(wait_until([&] { return net_->bytes(network::requests) > before + 100; }));
    net_->drop(network::requests);
    return answer.get();
  }
  // Returns when the first agent has dealt with it.
  void deliver_first_copy() {
    const auto before = net_->bytes(network::replies);
    net_->hold(network::requests, false);
    ASSERT_TRUE(wait_until([&] { return net_->bytes(network::replies) > before; })) << "no answer";
  }
  // Nobody holds it and nobody waits for it.
  bool is_free(const std::string& name) {
    const auto seen = client::open(cluster_->url(1) + consul_at_once).inspect(name);
    return seen && seen->holders.empty() && seen->waiters.empty() && !is_locked(*cluster_, name);
  }

  std::optional<consul_server> cluster_;
  std::optional<network> net_;
  std::optional<client> client_;
};

TEST_F(consul_ghosts, copy_of_a_request_that_was_granted) {
  mutex lock{*client_, "stock"};
  auto held = with_first_copy_kept([&] { return lock.acquire({.wait = patience}); });
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(is_ok(held->release()));
  deliver_first_copy();
  EXPECT_TRUE(is_free("stock"));
  auto again = lock.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(again)) << "the client goes on";
  EXPECT_TRUE(is_proven(*cluster_, *again));
}

TEST_F(consul_ghosts, copy_of_a_request_that_waited_and_gave_up) {
  const auto other = client::open(cluster_->url(1) + consul_at_once);
  auto theirs = mutex{other, "stock"}.acquire();
  ASSERT_TRUE(is_ok(theirs));
  mutex lock{*client_, "stock"};
  const auto late = with_first_copy_kept([&] { return lock.acquire({.wait = 3s}); });
  ASSERT_TRUE(fails_with(late, errc::timed_out));
  ASSERT_TRUE(wait_for_queue(*cluster_, "stock", 0));
  deliver_first_copy();
  EXPECT_TRUE(stays_true([&] { return other.inspect("stock").value().waiters.empty(); }, 300ms));
  EXPECT_TRUE(theirs->valid());
  EXPECT_TRUE(is_ok(theirs->release()));
  EXPECT_TRUE(is_free("stock"));
}

// The copy finds the lock free: that it was refused once, by another agent, says nothing about the first one.
TEST_F(consul_ghosts, copy_of_a_request_that_gave_up_when_the_lock_is_free) {
  const auto other = client::open(cluster_->url(1) + consul_at_once);
  auto theirs = mutex{other, "stock"}.acquire();
  ASSERT_TRUE(is_ok(theirs));
  mutex lock{*client_, "stock"};
  const auto late = with_first_copy_kept([&] { return lock.acquire({.wait = 3s}); });
  ASSERT_TRUE(fails_with(late, errc::timed_out));
  ASSERT_TRUE(wait_for_queue(*cluster_, "stock", 0));
  ASSERT_TRUE(is_ok(theirs->release()));
  deliver_first_copy();
  EXPECT_TRUE(is_free("stock"));
}

TEST_F(consul_ghosts, copy_of_a_request_that_waited_and_was_granted) {
  const auto other = client::open(cluster_->url(1) + consul_at_once);
  auto theirs = mutex{other, "stock"}.acquire();
  ASSERT_TRUE(is_ok(theirs));
  mutex lock{*client_, "stock"};
  std::optional<result<lease>> held;
  std::jthread waiting{[&] {
    held.emplace(with_first_copy_kept([&] { return lock.acquire({.wait = patience}); }));
  }};
  ASSERT_TRUE(wait_for_queue(*cluster_, "stock", 1));
  ASSERT_TRUE(is_ok(theirs->release()));
  waiting.join();
  ASSERT_TRUE(is_ok(*held));
  ASSERT_TRUE(is_ok((*held)->release()));
  deliver_first_copy();
  EXPECT_TRUE(is_free("stock"));
}

TEST_F(consul_ghosts, copy_of_a_request_that_would_not_wait) {
  const auto other = client::open(cluster_->url(1) + consul_at_once);
  auto theirs = mutex{other, "stock"}.acquire();
  ASSERT_TRUE(is_ok(theirs));
  mutex lock{*client_, "stock"};
  const auto refused = with_first_copy_kept([&] { return lock.acquire({.wait = 0s}); });
  ASSERT_FALSE(refused);
  // It may have had the time to ask another agent; else it is settled in the background, which the next attempt of the
  // same client waits for.
  if (refused.error().code() != errc::busy) {
    EXPECT_TRUE(fails_with(refused, errc::outcome_unknown));
    EXPECT_TRUE(fails_with(lock.acquire({.wait = 1s}), errc::timed_out));
  }
  ASSERT_TRUE(wait_for_queue(*cluster_, "stock", 0));
  ASSERT_TRUE(is_ok(theirs->release()));
  deliver_first_copy();
  EXPECT_TRUE(is_free("stock"));
}

TEST_F(consul_ghosts, copy_of_a_request_for_permits) {
  counting_semaphore seats{*client_, "seats", 3};
  auto held = with_first_copy_kept([&] { return seats.acquire_permits(1, {.wait = patience}); });
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(is_ok(held->release()));
  deliver_first_copy();
  const auto other = client::open(cluster_->url(1) + consul_at_once);
  EXPECT_TRUE(is_ok(counting_semaphore(other, "seats", 3).acquire_permits(3, {.wait = 0s})))
      << "one of them is nobody's";
}

TEST_F(consul_ghosts, copy_of_a_request_for_several) {
  const std::vector<std::string> names{"left", "right"};
  auto all = with_first_copy_kept([&] { return lock_all(*client_, names, {.wait = patience}); });
  ASSERT_TRUE(is_ok(all));
  for (auto& one : *all) ASSERT_TRUE(is_ok(one.release()));
  deliver_first_copy();
  EXPECT_TRUE(is_free("left"));
  EXPECT_TRUE(is_free("right"));
}

// Delivered after the next grant, it must not take that away.
TEST_F(consul_ghosts, copy_of_a_release) {
  mutex lock{*client_, "stock"};
  auto held = lock.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(held));
  const auto released = with_first_copy_kept([&] { return held->release(); });
  ASSERT_TRUE(wait_until([&] { return !is_locked(*cluster_, "stock"); }));
  const auto again = lock.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(again)) << "the same session";
  deliver_first_copy();
  EXPECT_TRUE(stays_true([&] { return again->valid(); }, 1s));
  EXPECT_TRUE(is_locked(*cluster_, "stock"));
  EXPECT_TRUE(fails_with(
      mutex(client::open(cluster_->url(1) + consul_at_once), "stock").try_acquire(), errc::busy));
}

TEST_F(consul_ghosts, others_of_the_same_client_are_not_disturbed) {
  mutex one{*client_, "stock"}, two{*client_, "shelf"};
  auto kept = two.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(kept));
  auto held = with_first_copy_kept([&] { return one.acquire({.wait = patience}); });
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(mutex(*client_, "item").acquire({.wait = patience})));
  deliver_first_copy();
  EXPECT_TRUE(kept->valid());
  EXPECT_TRUE(is_proven(*cluster_, *kept));
  EXPECT_TRUE(is_ok(kept->release()));
}

}  // namespace
}  // namespace holdfast::testing

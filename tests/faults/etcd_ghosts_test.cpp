// What breaks here: a request is held up on its way (by a node that is stopped, by the network), the client asks
// another node instead, is done with the lock, and only then the first copy arrives. What must hold: it has no effect.
// It would put a key that nobody knows of, under a session that is kept alive: the lock would be blocked for as long as
// its client lives.
#include "faults/etcd_faults.hpp"

#include <holdfast/lock_all.hpp>

#include <deque>
#include <future>

namespace holdfast::testing {
namespace {

// The client knows the first node by way of the network, which keeps what is sent to it.
class etcd_ghosts : public etcd_faults {
 protected:
  using network = fault_proxy;

  void SetUp() override {
    etcd_faults::SetUp();
    if (IsSkipped()) return;
    cluster_.emplace(etcd_server::options{.nodes = 3});
    net_.emplace(cluster_->port(0));
    client_.emplace(
        client::open(fmt::format("etcd://127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}?session=30s",
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
  // Returns when the first node has dealt with it.
  void deliver_first_copy() {
    const auto before = net_->bytes(network::replies);
    net_->hold(network::requests, false);
    ASSERT_TRUE(wait_until([&] { return net_->bytes(network::replies) > before; })) << "no answer";
  }
  std::size_t stored(const std::string& name) { return entries(*cluster_, name).size(); }

  std::optional<etcd_server> cluster_;
  std::optional<network> net_;
  std::optional<client> client_;
};

TEST_F(etcd_ghosts, copy_of_a_request_that_was_granted) {
  mutex lock{*client_, "stock"};
  auto held = with_first_copy_kept([&] { return lock.acquire({.wait = patience}); });
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(is_ok(held->release()));
  deliver_first_copy();
  EXPECT_EQ(stored("stock"), 0U);
  auto again = lock.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(again)) << "the client goes on";
  EXPECT_TRUE(is_proven(*cluster_, *again));
}

TEST_F(etcd_ghosts, copy_of_a_request_that_waited_and_gave_up) {
  const auto other = client::open(cluster_->url());
  auto theirs = mutex{other, "stock"}.acquire();
  ASSERT_TRUE(is_ok(theirs));
  mutex lock{*client_, "stock"};
  const auto late = with_first_copy_kept([&] { return lock.acquire({.wait = 3s}); });
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), errc::timed_out);
  ASSERT_TRUE(wait_for_entries(*cluster_, "stock", 1));
  deliver_first_copy();
  EXPECT_EQ(stored("stock"), 1U);
}

TEST_F(etcd_ghosts, copy_of_a_request_that_would_not_wait) {
  const auto other = client::open(cluster_->url());
  auto theirs = mutex{other, "stock"}.acquire();
  ASSERT_TRUE(is_ok(theirs));
  mutex lock{*client_, "stock"};
  const auto refused = with_first_copy_kept([&] { return lock.acquire({.wait = 0s}); });
  ASSERT_FALSE(refused);
  EXPECT_TRUE(fails_with(refused, errc::outcome_unknown)) << "it has no time to ask another node";
  ASSERT_TRUE(wait_until([&] { return !cluster_->keys("./fences/").empty(); })) << "it is settled";
  ASSERT_TRUE(is_ok(theirs->release()));
  deliver_first_copy();
  EXPECT_EQ(stored("stock"), 0U);
}

TEST_F(etcd_ghosts, copy_of_a_request_for_several) {
  const std::vector<std::string> names{"left", "right"};
  auto all = with_first_copy_kept([&] { return lock_all(*client_, names, {.wait = patience}); });
  ASSERT_TRUE(is_ok(all));
  for (auto& one : *all) ASSERT_TRUE(is_ok(one.release()));
  deliver_first_copy();
  EXPECT_EQ(stored("left") + stored("right"), 0U);
}

// Not to be had at once: then one after the other, although something of the first attempt is still under way.
TEST_F(etcd_ghosts, copy_of_a_request_for_several_of_which_one_was_taken) {
  const auto other = client::open(cluster_->url());
  auto theirs = mutex{other, "left"}.acquire();
  ASSERT_TRUE(is_ok(theirs));
  auto freeing = std::async(std::launch::async, [&] {
    return wait_for_entries(*cluster_, "left", 2) && theirs->release();
  });
  const std::vector<std::string> names{"left", "right"};
  auto all = with_first_copy_kept([&] { return lock_all(*client_, names, {.wait = patience}); });
  ASSERT_TRUE(is_ok(all));
  EXPECT_TRUE(freeing.get());
  for (auto& one : *all) ASSERT_TRUE(is_ok(one.release()));
  deliver_first_copy();
  EXPECT_EQ(stored("left") + stored("right"), 0U);
}

// Delivered after a further change, it must not make a reader more than that again.
TEST_F(etcd_ghosts, copy_of_a_downgrade_that_was_followed_by_another) {
  shared_mutex lock{*client_, "stock"};
  auto held = lock.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(held));
  const auto outcome =
      with_first_copy_kept([&] { return lock.downgrade(*held, lock_mode::upgradeable); });
  ASSERT_TRUE(is_ok(outcome));
  ASSERT_TRUE(is_ok(lock.downgrade(*held, lock_mode::shared)));
  deliver_first_copy();
  const auto other = client::open(cluster_->url());
  EXPECT_TRUE(is_ok(shared_mutex(other, "stock").acquire_upgradeable({.wait = 0s})));
  EXPECT_TRUE(held->valid());
}

// The epoch has moved: whoever asks with the old one is told so, and asks again.
TEST_F(etcd_ghosts, others_of_the_same_client_are_not_disturbed) {
  {
    mutex one{*client_, "stock"}, two{*client_, "shelf"};
    auto kept = two.acquire();
    ASSERT_TRUE(is_ok(kept));
    auto held = with_first_copy_kept([&] { return one.acquire({.wait = patience}); });
    ASSERT_TRUE(is_ok(held));
    std::vector<std::future<result<lease>>> crowd;
    std::deque<mutex> locks;
    for (int i = 0; i < 8; ++i)
      crowd.push_back(acquire_later(locks.emplace_back(*client_, fmt::format("item-{}", i))));
    ASSERT_TRUE(is_ok(held->release()));
    for (auto& each : crowd) EXPECT_TRUE(is_ok(get(each)));
    EXPECT_TRUE(kept->valid());
    EXPECT_TRUE(is_proven(*cluster_, *kept));
    EXPECT_TRUE(is_ok(kept->release()));
  }
  client_.reset();
  EXPECT_TRUE(wait_until([&] { return cluster_->keys("").empty(); })) << "the epoch goes, too";
}

}  // namespace
}  // namespace holdfast::testing

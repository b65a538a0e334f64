// What breaks here: a request is held up on its way (by the network, by a server that is stopped), the client goes on
// with its session at another server, is done with the lock, and only then the first request arrives. What must hold:
// it has no effect. It would make a node that nobody knows of, in a session that lives: the lock would be blocked for
// as long as its client is there.
#include "faults/zk_faults.hpp"

#include <holdfast/lock_all.hpp>

#include <optional>

namespace holdfast::testing {
namespace {

using network = fault_proxy;

// The client is at the first server, by way of the network, and knows another one.
class zk_ghosts : public zk_faults {
 protected:
  void SetUp() override {
    zk_faults::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    servers_.emplace(zookeeper_server::options{.nodes = 3});
    net_.emplace(servers_->port(0));
    for (const char* name : {"/stock", "/left", "/right"})  // then one request takes a lock
      zookeeper_hand{*servers_}.create({.path = name});
    const auto url =
        fmt::format("zk://127.0.0.1:{},127.0.0.1:{}?session=6s", net_->port(), servers_->port(1));
    // It begins at either of them.
    ASSERT_TRUE(wait_until([&] {
      client_.reset();
      client_.emplace(client::open(url, {.handoff_limit = 0}));
      return net_->open() > 0;
    }));
    kept_.emplace(mutex{*client_, "kept"}.acquire({.wait = patience, .ttl = 6s}).value());
  }
  void TearDown() override {
    if (kept_) {
      EXPECT_TRUE(kept_->valid()) << "the session went on all the time";
    }
  }
  // What `ask` sends is kept on its way, as is all that follows on that connection.
  template <class Ask>
  auto with_first_copy_kept(const Ask& ask) {
    const auto before = net_->bytes(network::requests);
    net_->strand();
    auto answer = std::async(std::launch::async, ask);
    EXPECT_TRUE(wait_until([&] { return net_->bytes(network::requests) > before + 100; }));
    net_->refuse();
    return answer.get();
  }
  // Returns when the first server has dealt with it: it answers, or it has closed the connection.
  void deliver_first_copy() {
    const auto before = net_->bytes(network::replies);
    net_->heal();
    ASSERT_TRUE(wait_until([&] {
      return net_->bytes(network::replies) > before || net_->open() == 0;
    })) << "nothing came of it";
    zookeeper_hand{*servers_, {.node = servers_->leader()}}.set(
        "/kept", "");  // all that came before is done
  }
  std::size_t stored(const std::string& name) {
    return zookeeper_hand{*servers_}.children("/" + name).size();
  }

  std::optional<zookeeper_server> servers_;
  std::optional<network> net_;
  std::optional<client> client_;
  std::optional<lease> kept_;
};

TEST_F(zk_ghosts, first_copy_of_a_request_that_was_granted) {
  mutex lock{*client_, "stock"};
  auto held = with_first_copy_kept([&] { return lock.acquire({.wait = patience}); });
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(is_ok(held->release()));
  deliver_first_copy();
  EXPECT_EQ(stored("stock"), 0U);
  auto again = lock.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(again)) << "the client goes on";
  EXPECT_TRUE(is_proven(*servers_, *again));
}

TEST_F(zk_ghosts, first_copy_of_a_request_that_waited_and_gave_up) {
  const auto other = client::open(servers_->url());
  auto theirs = mutex{other, "stock"}.acquire();
  ASSERT_TRUE(is_ok(theirs));
  mutex lock{*client_, "stock"};
  const auto late = with_first_copy_kept([&] { return lock.acquire({.wait = 4s}); });
  ASSERT_FALSE(late);
  EXPECT_TRUE(late.error().code() == errc::timed_out ||
              late.error().code() == errc::outcome_unknown)
      << late.error().message();
  ASSERT_TRUE(wait_for_nodes(*servers_, "stock", 1));
  deliver_first_copy();
  EXPECT_EQ(stored("stock"), 1U);
  EXPECT_TRUE(theirs->valid());
}

TEST_F(zk_ghosts, first_copy_of_a_request_for_several) {
  const std::vector<std::string> names{"left", "right"};
  auto all = with_first_copy_kept([&] { return lock_all(*client_, names, {.wait = patience}); });
  ASSERT_TRUE(fails_with(all, errc::outcome_unknown)) << "and is cleared up in the background";
  deliver_first_copy();
  auto again = lock_all(*client_, names, {.wait = patience});
  ASSERT_TRUE(is_ok(again));
  for (auto& one : *again) ASSERT_TRUE(is_ok(one.release()));
  EXPECT_EQ(stored("left") + stored("right"), 0U);
}

// The lock is taken again before the first request to give it back arrives: that one must not end the second lease.
TEST_F(zk_ghosts, first_copy_of_a_release) {
  mutex lock{*client_, "stock"};
  auto held = lock.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(held));
  const auto said = with_first_copy_kept([&] { return held->release(); });
  EXPECT_TRUE(said || said.error().code() == errc::outcome_unknown) << said.error().message();
  auto again = lock.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(again));
  deliver_first_copy();
  EXPECT_TRUE(is_proven(*servers_, *again));
  EXPECT_TRUE(again->valid());
  EXPECT_TRUE(is_ok(again->release()));
  EXPECT_TRUE(wait_for_nodes(*servers_, "stock", 0)) << left_behind(*servers_);
}

// The server itself is stopped, with the request in its socket; it executes what has arrived when it wakes.
TEST_F(zk_ghosts, request_in_a_stopped_server) {
  mutex lock{*client_, "stock"};
  servers_->stop(0);
  auto held = lock.acquire({.wait = 2 * patience});
  ASSERT_TRUE(is_ok(held)) << "at the other one";
  const auto token = held->token();
  ASSERT_TRUE(is_ok(held->release()));
  servers_->resume(0);
  ASSERT_TRUE(wait_until([&] { return servers_->is_healthy(0); }));
  auto again = lock.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(again)) << left_behind(*servers_);
  EXPECT_GT(again->token(), token);
  EXPECT_EQ(stored("stock"), 1U);
}

}  // namespace
}  // namespace holdfast::testing

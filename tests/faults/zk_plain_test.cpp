// What breaks here: the layout "exclusive", whose node has no owner in its name and is deleted by its path. Its
// holder is cut off for longer than its session, another client makes the node anew, and the first one comes back
// with a deletion that was meant for its own. What must hold: the next holder is left alone (S3).
#include "faults/scenarios.hpp"
#include "faults/zk_faults.hpp"

#include <future>

namespace holdfast::testing {
namespace {

class zk_plain : public zk_faults {
 protected:
  // The holder loses its connection and its session, and the next one has the lock.
  lease pass_to_next() {
    net_.refuse(), net_.cut();
    const auto node = ephemerals(server_, "/stock");
    EXPECT_EQ(node.size(), 1U);
    EXPECT_TRUE(zookeeper_hand{server_}.expire(node.at(0).session));
    return mutex{theirs_, "stock"}.acquire({.wait = patience, .ttl = 60s}).value();
  }
  // Also when the first client's deletions have had their time.
  void expect_left_alone(lease& next, const client& first) {
    mutex lock{first, "stock"};
    const auto is_busy = [&] {
      const auto got = lock.acquire({.wait = 0s});
      return !got && got.error().code() == errc::busy;
    };
    EXPECT_TRUE(wait_until(is_busy)) << "it is back, and the lock is not free";
    EXPECT_TRUE(stays_true([&] { return next.renew().has_value(); }, 2s));
    EXPECT_TRUE(is_ok(next.release()));
    EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
  }

  zookeeper_server server_;
  fault_proxy net_{server_.port()};
  client ours_{client::open(zk_url(net_, "layout=exclusive&session=3s"), {.call_timeout = 5s})};
  client theirs_{client::open(server_.url() + "?layout=exclusive&session=20s")};
};

TEST_F(zk_plain, what_was_forgotten_during_an_outage_is_not_deleted_afterwards) {
  auto held = mutex{ours_, "stock"}.acquire({.ttl = 1s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  auto next = pass_to_next();
  ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
  // Its time is over, and it is taken away, which needs a connection.
  const auto over = std::chrono::steady_clock::now() + 3s;
  ASSERT_TRUE(wait_until([&] { return std::chrono::steady_clock::now() > over; }));
  net_.heal();
  expect_left_alone(next, ours_);
}

TEST_F(zk_plain, release_that_waits_for_a_connection_deletes_nothing_in_the_next_session) {
  auto held = mutex{ours_, "stock"}.acquire({.ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  auto next = pass_to_next();
  auto releasing = std::async(std::launch::async, [&] { return held->release(); });
  EXPECT_EQ(releasing.wait_for(300ms), std::future_status::timeout) << "it waits";
  net_.heal();
  const auto released = releasing.get();
  EXPECT_FALSE(released.has_value()) << "it was lost";
  expect_left_alone(next, ours_);
}

}  // namespace
}  // namespace holdfast::testing

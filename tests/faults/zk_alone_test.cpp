// A client that was alone with a lock takes it again without a look at the others (lone_folders.hpp). It must notice
// every way in which it is not alone any more.
#include "faults/zk_faults.hpp"

#include "support/expect.hpp"
#include "support/wait_until.hpp"
#include "support/zookeeper_hand.hpp"
#include "support/zookeeper_server.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace holdfast::testing {
namespace {

using namespace std::chrono_literals;

struct zk_alone : ::testing::Test {
  void SetUp() override {
    need(zookeeper_server::available(), "zk");
    if (IsSkipped() || HasFatalFailure()) return;
    server_.emplace();
    hand_.emplace(*server_);
    client_.emplace(client::open(server_->url(), {.handoff_limit = 0}));
  }
  // Until it is taken by one request and given back by another.
  void be_alone() {
    mutex lock{*client_, "stock"};
    const auto pair = [&] {
      auto held = lock.acquire({.wait = patience});
      ASSERT_TRUE(is_ok(held));
      ASSERT_TRUE(is_ok(held->release()));
      ++taken_;
    };
    for (int i = 0; i < 3; ++i) pair();
    ASSERT_TRUE(wait_until([&] {
      const auto before = server_->requests();
      pair();
      return server_->requests() - before <= 3;  // a ping may come between
    })) << "it never was alone";
  }
  std::string contend() {
    return hand_->create({.path = "/stock/_c_01234567-89ab-cdef-0123-456789abcdef-lock-",
                          .mode = jute::create_mode::ephemeral_sequential});
  }
  result<lease> try_now() { return mutex{*client_, "stock"}.acquire({.wait = 0s}); }

  std::optional<zookeeper_server> server_;
  std::optional<zookeeper_hand> hand_;
  std::optional<client> client_;
  int taken_ = 0;
};

TEST_F(zk_alone, another_contender_is_seen) {
  be_alone();
  const auto other = contend();
  EXPECT_TRUE(fails_with(try_now(), errc::busy));
  hand_->erase(other);
  EXPECT_TRUE(is_ok(try_now()));
}

TEST_F(zk_alone, one_that_came_and_went_is_no_harm) {
  be_alone();
  hand_->erase(contend());
  EXPECT_TRUE(is_ok(try_now()));
  be_alone();
}

// The folder is made anew, and as many nodes in it as we had made: our next number follows our last, but the folder is
// another one, and another client holds.
TEST_F(zk_alone, another_folder_of_the_same_count_is_seen) {
  for (int round = 0; round < 20; ++round) {
    be_alone();
    hand_->erase("/stock");
    hand_->create({.path = "/stock", .mode = jute::create_mode::container});
    std::string last;
    for (int i = 0; i < taken_; ++i) {
      if (!last.empty()) hand_->erase(last);
      last = contend();
    }
    EXPECT_TRUE(fails_with(try_now(), errc::busy)) << "two holders, round " << round;
    hand_->erase(last);
    hand_->erase("/stock");
    taken_ = 0;
  }
}

TEST_F(zk_alone, semaphore_of_the_same_name_is_seen) {
  be_alone();
  const auto other = client::open(server_->url());
  counting_semaphore seats{other, "stock", 2};
  const auto seat = seats.acquire_permits(1);
  ASSERT_TRUE(is_ok(seat));
  EXPECT_TRUE(fails_with(try_now(), errc::misconfigured));
}

TEST_F(zk_alone, contender_that_came_during_an_outage_is_seen) {
  be_alone();
  server_->restart();
  hand_.emplace(*server_);
  const auto other = contend();
  EXPECT_TRUE(wait_until([&] {
    const auto got = try_now();
    EXPECT_FALSE(got);
    return !got && got.error().code() == errc::busy;
  }));
}

}  // namespace
}  // namespace holdfast::testing

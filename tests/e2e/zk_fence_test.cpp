// zk_fence on a real ZooKeeper, with a client of the user's own.
#include <holdfast/fence.hpp>
#include <holdfast/holdfast.hpp>

#include "support/expect.hpp"
#include "support/required.hpp"
#include "support/wait_until.hpp"
#include "support/zookeeper_hand.hpp"
#include "support/zookeeper_server.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace holdfast::testing {
namespace {

using namespace std::chrono_literals;

// The three calls of a fence, by the client that a user has anyway.
zk_fence::session calls_of(zookeeper_hand& hand) {
  zk_fence::session out;
  out.get = [&](const std::string& path) -> result<std::optional<zk_fence::node>> {
    if (!hand.stat(path)) return std::optional<zk_fence::node>{};
    const auto found = hand.get(path);
    return std::optional{zk_fence::node{found.data, found.stat.version}};
  };
  out.create = [&](const std::string& path, const std::string& data) -> result<bool> {
    try {
      hand.create({.path = path, .data = data});
      return true;
    } catch (const zookeeper_error& why) {
      if (why.code() == jute::code::node_exists) return false;
      throw;
    }
  };
  out.set = [&](const std::string& path, const std::string& data,
                std::int32_t version) -> result<std::optional<std::int32_t>> {
    try {
      return std::optional{hand.set(path, data, version).version};
    } catch (const zookeeper_error& why) {
      if (why.code() == jute::code::bad_version) return std::optional<std::int32_t>{};
      throw;
    }
  };
  return out;
}

struct zk_fence_test : ::testing::Test {
  void SetUp() override {
    need(zookeeper_server::available(), "zk");
    if (!IsSkipped() && !HasFatalFailure())
      shared_zookeeper();  // on this thread, with which it ends
  }
  const zk_fence fence{"/stock.fence"};
};

TEST_F(zk_fence_test, older_tokens_are_refused_once_a_newer_was_seen) {
  zookeeper_hand hand{shared_zookeeper()};
  const zk_fence own{"/refusals.fence"};
  const auto calls = calls_of(hand);
  EXPECT_TRUE(is_ok(own.admit({7}, calls)));
  EXPECT_TRUE(is_ok(own.admit({7}, calls))) << "the same holder comes again";
  EXPECT_TRUE(is_ok(own.admit({10}, calls))) << "as a number, not as text";
  EXPECT_TRUE(fails_with(own.admit({9}, calls), errc::lost));
  EXPECT_TRUE(fails_with(own.admit({0}, calls), errc::misconfigured));
  hand.set("/refusals.fence", "rubbish");
  EXPECT_TRUE(fails_with(own.admit({11}, calls), errc::protocol));
}

TEST_F(zk_fence_test, changes_of_an_older_holder_do_nothing) {
  zookeeper_hand old{shared_zookeeper()}, next{shared_zookeeper()};
  old.create({.path = "/guarded", .data = "10"});
  const auto before = fence.admit({100}, calls_of(old));
  ASSERT_TRUE(is_ok(before));
  const auto sell = [&](zookeeper_hand& by, std::int32_t pass, const std::string& left) {
    return by.change(
        [&](jute::multi& all) { all.check(fence.path(), pass).set("/guarded", left); });
  };
  EXPECT_EQ(sell(old, *before, "9"), jute::code::ok);
  const auto after = fence.admit({101}, calls_of(next));
  ASSERT_TRUE(is_ok(after));
  EXPECT_EQ(sell(old, *before, "8"), jute::code::bad_version)
      << "it has read 9, and so has the next";
  EXPECT_EQ(next.get("/guarded").data, "9");
  EXPECT_EQ(sell(next, *after, "8"), jute::code::ok);
  EXPECT_TRUE(fails_with(fence.admit({100}, calls_of(old)), errc::lost));
}

TEST_F(zk_fence_test, admits_the_tokens_of_our_own_locks_in_their_order) {
  const zk_fence own{"/ours.fence"};
  zookeeper_hand hand{shared_zookeeper()};
  std::vector<std::int32_t> passes;
  for (int i = 0; i < 3; ++i) {
    const auto store = client::open(shared_zookeeper().url());
    mutex lock{store, "fenced"};
    auto held = lock.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held));
    auto pass = own.admit(held->token(), calls_of(hand));
    ASSERT_TRUE(is_ok(pass));
    passes.push_back(*pass);
  }
  EXPECT_TRUE(passes[0] < passes[1] && passes[1] < passes[2]);
}

// Many holders at once: each is admitted, or told that a newer one was; and the newest is what stays.
TEST_F(zk_fence_test, newest_wins_however_they_meet) {
  const zk_fence own{"/crowd.fence"};
  std::atomic<int> admitted{0}, refused{0};
  {
    std::vector<std::jthread> all;
    for (std::uint64_t token = 1; token <= 8; ++token)
      all.emplace_back([&, token] {
        zookeeper_hand hand{shared_zookeeper()};
        const auto got = own.admit({token}, calls_of(hand));
        if (got) {
          ++admitted;
        } else if (got.error().code() == errc::lost) {
          ++refused;
        }
      });
  }
  EXPECT_EQ(admitted + refused, 8);
  EXPECT_GE(admitted, 1);
  EXPECT_EQ(zookeeper_hand{shared_zookeeper()}.get("/crowd.fence").data, "8");
}

}  // namespace
}  // namespace holdfast::testing

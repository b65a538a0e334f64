// A mutex that its owner may take again.
#include "conformance/conformance.hpp"

#include <mutex>

namespace holdfast::testing {
namespace {

class recursion : public conformance {};
FOR_EVERY_ENGINE(recursion);

TEST_P(recursion, owner_enters_again_and_leaves_as_often) {
  const auto a = open(), b = open();
  recursive_mutex ours{a, name()}, theirs{b, name()};
  EXPECT_EQ(ours.depth(), 0U);
  ours.lock();
  ours.lock();
  EXPECT_TRUE(ours.try_lock());
  EXPECT_EQ(ours.depth(), 3U);
  ours.unlock();
  ours.unlock();
  EXPECT_EQ(ours.depth(), 1U);
  EXPECT_FALSE(theirs.try_lock());
  ours.unlock();
  EXPECT_EQ(ours.depth(), 0U);
  EXPECT_TRUE(theirs.try_lock_for(patience)) << "unlock is sent, though perhaps not there yet";
  theirs.unlock();
  EXPECT_EQ(a.metrics().acquired, 1U) << "re-entry asks nobody";
  EXPECT_EQ(a.metrics().reentered, 2U);
}

TEST_P(recursion, leases_of_one_ownership_share_one_token) {
  const auto a = open(), b = open();
  recursive_mutex ours{a, name()}, theirs{b, name()};
  auto outer = ours.acquire();
  auto inner = ours.acquire();
  ASSERT_TRUE(is_ok(outer));
  ASSERT_TRUE(is_ok(inner));
  EXPECT_EQ(outer->token(), inner->token());
  EXPECT_EQ(ours.depth(), 2U);
  ASSERT_TRUE(is_ok(outer->release()));
  EXPECT_FALSE(outer->valid());
  EXPECT_TRUE(inner->valid());
  EXPECT_TRUE(fails_with(outer->release(), errc::not_held));
  EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::busy));
  ASSERT_TRUE(is_ok(inner->release()));
  EXPECT_TRUE(is_ok(theirs.try_acquire()));
}

TEST_P(recursion, other_threads_are_kept_out) {
  const auto a = open();
  recursive_mutex lock{a, name()};
  const std::scoped_lock guard{lock};
  const auto elsewhere = [&](auto what) { return std::async(std::launch::async, what).get(); };
  EXPECT_FALSE(elsewhere([&] { return lock.try_lock(); }));
  EXPECT_FALSE(elsewhere([&] { return lock.try_lock_for(20ms); }));
  EXPECT_EQ(elsewhere([&] { return lock.depth(); }), 0U);
  EXPECT_EQ(lock.depth(), 1U);
}

TEST_P(recursion, counter_under_many_threads_loses_nothing) {
  constexpr int threads = 4, rounds = 40;
  int count = 0;
  const auto a = open();
  recursive_mutex lock{a, name()};
  std::vector<std::jthread> pool;
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([&] {
      for (int round = 0; round < rounds; ++round) {
        const std::scoped_lock outer{lock};
        const std::scoped_lock inner{lock};
        ++count;
      }
    });
  }
  pool.clear();
  EXPECT_EQ(count, threads * rounds);
}

// Just after a hand-off: the one who left comes back before the next one has written down that it owns the lock now.
TEST_P(recursion, one_who_comes_back_at_once_does_not_enter_anothers_hold) {
  const auto a = open();
  recursive_mutex lock{a, name()};
  constexpr int threads = 3;
  const int rounds = a.capabilities().immediate ? 20'000 : 100;
  std::atomic<int> inside{0}, intruders{0}, stuck{0};
  std::vector<std::jthread> pool;
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([&] {
      for (int round = 0; round < rounds && intruders + stuck == 0; ++round) {
        for (int tries = 0; tries < 10; ++tries) {
          if (!lock.try_lock()) continue;
          if (++inside != 1) ++intruders;
          --inside;
          lock.unlock();
        }
        if (!lock.try_lock_for(patience)) {
          ++stuck;
          continue;
        }
        if (++inside != 1) ++intruders;
        --inside;
        lock.unlock();
      }
    });
  }
  pool.clear();
  EXPECT_EQ(intruders, 0);
  EXPECT_EQ(stuck, 0) << "an entry was not given back";
}

TEST_P(recursion, all_leases_are_lost_together) {
  NEEDS(listing);
  const auto a = open(), b = open();
  recursive_mutex lock{a, name()};
  auto outer = lock.acquire(), inner = lock.acquire();
  ASSERT_EQ(b.revoke(name()).value(), 1U);
  EXPECT_TRUE(wait_until([&] { return !outer->valid() && !inner->valid(); }));
  EXPECT_TRUE(wait_until([&] { return outer->lost().stop_requested(); }));
  EXPECT_TRUE(inner->lost().stop_requested());
}

}  // namespace
}  // namespace holdfast::testing

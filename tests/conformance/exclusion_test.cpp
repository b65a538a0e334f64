// One holder at a time, and what its token and its release are worth.
#include "conformance/conformance.hpp"

#include <atomic>
#include <mutex>

namespace holdfast::testing {
namespace {

class exclusion : public conformance {};
FOR_EVERY_ENGINE(exclusion);

TEST_P(exclusion, second_owner_is_busy_while_held) {
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(held->valid());
  EXPECT_EQ(held->name(), name());
  EXPECT_EQ(held->mode(), lock_mode::exclusive);
  EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::busy));
  EXPECT_TRUE(fails_with(theirs.acquire({.wait = 0s}), errc::busy));
  EXPECT_TRUE(fails_with(ours.try_acquire(), errc::busy)) << "a mutex is not recursive";
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(theirs.try_acquire()));
}

TEST_P(exclusion, different_names_do_not_meet) {
  const auto a = open(), b = open();
  mutex one{a, name("one")}, other{b, name("other")};
  const auto first = one.try_acquire(), second = other.try_acquire();
  EXPECT_TRUE(is_ok(first));
  EXPECT_TRUE(is_ok(second));
}

TEST_P(exclusion, dropping_a_lease_releases_it) {
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  {
    const auto held = ours.acquire();
    ASSERT_TRUE(is_ok(held));
  }
  EXPECT_TRUE(is_ok(theirs.acquire({.wait = patience}))) << "sent, though perhaps not there yet";
}

TEST_P(exclusion, the_end_of_a_client_releases_what_it_held) {
  const auto b = open();
  mutex theirs{b, name()};
  lease moved;
  {
    const auto a = open();
    mutex ours{a, name()};
    moved = std::move(ours.acquire().value());
  }
  EXPECT_TRUE(moved.valid()) << "a lease keeps its client alive";
  EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::busy));
  moved = lease{};
  EXPECT_TRUE(wait_until([&] { return theirs.try_acquire().has_value(); }));
}

TEST_P(exclusion, token_rises_across_owners) {
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  fencing_token newest{};
  for (int round = 0; round < 20; ++round) {
    auto held = (round % 2 == 0 ? ours : theirs).acquire();
    ASSERT_TRUE(is_ok(held));
    EXPECT_GT(held->token(), newest) << "round " << round;
    newest = held->token();
    ASSERT_TRUE(is_ok(held->release()));
  }
}

TEST_P(exclusion, token_rises_after_the_name_was_forgotten) {
  fencing_token before{};
  {
    const auto a = open();
    mutex lock{a, name()};
    before = lock.acquire().value().token();
    // Push it out of whatever remembers names: many others, and nobody left who knows this one.
    for (int i = 0; i < 500; ++i) {
      mutex other{a, name("other-" + std::to_string(i))};
      ASSERT_TRUE(is_ok(other.acquire()));
    }
  }
  const auto b = open();
  mutex lock{b, name()};
  EXPECT_GT(lock.acquire().value().token(), before);
}

TEST_P(exclusion, released_lease_cannot_be_released_again) {
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_FALSE(held->valid());
  EXPECT_FALSE(held->lost().stop_requested()) << "released is not lost";
  auto other = theirs.acquire();
  EXPECT_TRUE(fails_with(held->release(), errc::not_held));
  EXPECT_TRUE(fails_with(held->renew(), errc::not_held));
  *held = lease{};
  EXPECT_TRUE(other->valid());
  EXPECT_TRUE(fails_with(ours.try_acquire(), errc::busy)) << "the other's lock was touched";
}

TEST_P(exclusion, moved_from_lease_is_nobodys) {
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  auto first = ours.acquire().value();
  lease second = std::move(first);
  EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(fails_with(first.release(), errc::not_held));
  EXPECT_TRUE(second.valid());
  EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::busy));
  EXPECT_TRUE(is_ok(second.release()));
}

TEST_P(exclusion, timed_wait_times_out_and_leaves_no_waiter) {
  NEEDS(listing);
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(fails_with(theirs.acquire({.wait = 100ms}), errc::timed_out));
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, 100ms);
  EXPECT_LT(took, 1s);
  EXPECT_EQ(waiters(name()), 0U);
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(no_trace_of(name()));
}

TEST_P(exclusion, std_face_is_timed_lockable) {
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  {
    const std::scoped_lock guard{ours};
    EXPECT_TRUE(ours.held().valid());
    EXPECT_FALSE(theirs.try_lock());
    EXPECT_FALSE(theirs.try_lock_for(20ms));
    EXPECT_FALSE(theirs.try_lock_until(std::chrono::system_clock::now() + 20ms));
    EXPECT_FALSE(theirs.try_lock_for(-1s));
  }
  std::unique_lock guard{theirs, std::defer_lock};
  EXPECT_TRUE(guard.try_lock_for(1s));
  EXPECT_TRUE(theirs.held().valid());
  EXPECT_TRUE(fails_with(ours.try_acquire(), errc::busy));
}

TEST_P(exclusion, counter_under_many_threads_and_clients_loses_nothing) {
  constexpr unsigned threads = 6, rounds = 60;
  plain_counter count, newest;
  std::vector<std::jthread> pool;
  const auto shared = open();
  for (unsigned t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      const auto own = t % 2 == 0 ? shared : open();
      mutex lock{own, name()};
      for (unsigned round = 0; round < rounds; ++round) {
        auto held = lock.acquire();
        ASSERT_TRUE(is_ok(held));
        EXPECT_GE(held->token().value, newest.get());  // equal when handed on inside a client
        newest.set(held->token().value);
        count.bump();
      }
    });
  }
  pool.clear();
  EXPECT_EQ(count.get(), threads * rounds);
}

TEST_P(exclusion, scoped_lock_over_three_mutexes_in_any_order_never_deadlocks) {
  // std::lock backs off and tries again, and a fair lock is rarely free when it does: on a store across a network that
  // takes many tries. So: 25 rounds, or as many as there is time for, and a few at least.
  constexpr unsigned threads = 4, rounds = 25, least = 5;
  const auto enough = std::chrono::steady_clock::now() + 15s;
  plain_counter count;
  std::atomic<unsigned> done{0};
  std::vector<std::jthread> pool;
  for (unsigned t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      const auto own = open();
      mutex x{own, name("x")}, y{own, name("y")}, z{own, name("z")};
      const std::array<mutex*, 3> in{&x, &y, &z};
      const auto at = [&](unsigned i) -> mutex& { return *in[(t + i) % 3]; };
      for (unsigned round = 0; round < rounds; ++round) {
        if (round >= least && std::chrono::steady_clock::now() > enough) break;
        const std::scoped_lock guard{at(0), at(t % 2 == 0 ? 1U : 2U), at(t % 2 == 0 ? 2U : 1U)};
        count.bump();
        ++done;
      }
    });
  }
  pool.clear();
  EXPECT_EQ(count.get(), done.load());
  EXPECT_GE(done.load(), threads * least);
}

}  // namespace
}  // namespace holdfast::testing

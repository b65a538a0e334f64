// Readers, writers, and changing from one to the other.
#include "conformance/conformance.hpp"

#include <shared_mutex>

namespace holdfast::testing {
namespace {

class sharing : public conformance {
 protected:
  void SetUp() override {
    conformance::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    NEEDS(shared);
  }
};
FOR_EVERY_ENGINE(sharing);

TEST_P(sharing, readers_share_writers_exclude) {
  const auto a = open(), b = open();
  shared_mutex ours{a, name()}, theirs{b, name()};
  auto first = ours.acquire_shared(), second = theirs.acquire_shared();
  auto third = ours.acquire_shared({.wait = 0s});
  ASSERT_TRUE(is_ok(first));
  ASSERT_TRUE(is_ok(second));
  ASSERT_TRUE(is_ok(third)) << "each lease is a holder of its own";
  EXPECT_EQ(first->mode(), lock_mode::shared);
  EXPECT_TRUE(fails_with(theirs.acquire({.wait = 0s}), errc::busy));
  EXPECT_TRUE(is_ok(first->release()));
  EXPECT_TRUE(is_ok(second->release()));
  EXPECT_TRUE(fails_with(theirs.acquire({.wait = 0s}), errc::busy));
  EXPECT_TRUE(is_ok(third->release()));
  auto writer = theirs.acquire({.wait = 0s});
  ASSERT_TRUE(is_ok(writer));
  EXPECT_TRUE(fails_with(ours.acquire_shared({.wait = 0s}), errc::busy));
  EXPECT_GT(writer->token(), second->token());
}

TEST_P(sharing, std_face_is_shared_timed_lockable) {
  const auto a = open(), b = open();
  shared_mutex ours{a, name()}, theirs{b, name()};
  {
    const std::shared_lock first{ours}, second{ours};
    const std::shared_lock third{theirs};
    EXPECT_FALSE(theirs.try_lock());
    EXPECT_FALSE(theirs.try_lock_for(10ms));
  }
  const std::unique_lock writer{ours};
  EXPECT_FALSE(theirs.try_lock_shared());
  EXPECT_FALSE(theirs.try_lock_shared_for(10ms));
  EXPECT_FALSE(ours.try_lock_shared());
}

TEST_P(sharing, waiting_writer_holds_back_later_readers) {
  NEEDS(fifo);
  NEEDS(listing);
  const auto a = open(), b = open(), c = open();
  shared_mutex reading{a, name()}, writing{b, name()}, late{c, name()};
  auto reader = reading.acquire_shared();
  auto writer = later([&] { return writing.acquire({.wait = patience}); });
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  EXPECT_TRUE(fails_with(late.acquire_shared({.wait = 0s}), errc::busy));
  auto second = later([&] { return late.acquire_shared({.wait = patience}); });
  ASSERT_TRUE(wait_for_waiters(name(), 2));
  ASSERT_TRUE(is_ok(reader->release()));
  auto written = writer.get();
  ASSERT_TRUE(is_ok(written));
  EXPECT_FALSE(is_ready(second));
  ASSERT_TRUE(is_ok(written->release()));
  EXPECT_TRUE(is_ok(second.get()));
}

TEST_P(sharing, all_readers_behind_a_writer_enter_together) {
  NEEDS(listing);
  const auto a = open();
  shared_mutex lock{a, name()};
  auto writer = lock.acquire();
  std::vector<std::future<result<lease>>> readers;
  for (std::size_t i = 0; i < 3; ++i) {
    readers.push_back(later([&] {
      return shared_mutex{open(), name()}.acquire_shared({.wait = patience});
    }));
    ASSERT_TRUE(wait_for_waiters(name(), i + 1));
  }
  ASSERT_TRUE(is_ok(writer->release()));
  std::vector<result<lease>> held;
  for (auto& reader : readers) {
    held.push_back(reader.get());
    EXPECT_TRUE(is_ok(held.back()));
  }
  EXPECT_EQ(holders(name()), 3U);
}

TEST_P(sharing, downgrade_lets_readers_in_without_a_gap) {
  NEEDS(fifo);
  NEEDS(listing);
  const auto a = open(), b = open(), c = open();
  shared_mutex ours{a, name()}, reading{b, name()}, writing{c, name()};
  auto held = ours.acquire();
  const auto token = held->token();
  auto reader = later([&] { return reading.acquire_shared({.wait = patience}); });
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  auto writer = later([&] { return writing.acquire({.wait = patience}); });
  ASSERT_TRUE(wait_for_waiters(name(), 2));
  ASSERT_TRUE(is_ok(ours.downgrade(*held)));
  EXPECT_EQ(held->mode(), lock_mode::shared);
  EXPECT_EQ(held->token(), token);
  EXPECT_TRUE(held->valid());
  auto read = reader.get();
  ASSERT_TRUE(is_ok(read));
  EXPECT_FALSE(is_ready(writer)) << "no writer came in between";
  ASSERT_TRUE(is_ok(held->release()));
  ASSERT_TRUE(is_ok(read->release()));
  EXPECT_TRUE(is_ok(writer.get()));
}

TEST_P(sharing, a_reader_cannot_be_downgraded_or_upgraded) {
  const auto a = open();
  shared_mutex lock{a, name()};
  auto held = lock.acquire_shared();
  EXPECT_TRUE(fails_with(lock.downgrade(*held, lock_mode::upgradeable), errc::misconfigured));
  EXPECT_TRUE(fails_with(lock.upgrade(*held), errc::misconfigured));
  EXPECT_TRUE(held->valid());
}

TEST_P(sharing, upgrade_waits_for_readers_and_beats_queued_writers) {
  NEEDS(upgrade);
  NEEDS(listing);
  const auto a = open(), b = open(), c = open();
  shared_mutex ours{a, name()}, reading{b, name()}, writing{c, name()};
  auto held = ours.acquire_upgradeable();
  ASSERT_TRUE(is_ok(held));
  EXPECT_EQ(held->mode(), lock_mode::upgradeable);
  const auto before = held->token();
  auto reader = reading.acquire_shared();
  ASSERT_TRUE(is_ok(reader)) << "readers may be beside it";
  auto writer = later([&] { return writing.acquire({.wait = patience}); });
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  auto upgraded =
      std::async(std::launch::async, [&] { return ours.upgrade(*held, {.wait = patience}); });
  ASSERT_TRUE(wait_for_waiters(name(), 2));
  EXPECT_TRUE(
      fails_with(reading.acquire_shared({.wait = 0s, .order = queue_order::barging}), errc::busy))
      << "nobody overtakes an upgrade";
  EXPECT_FALSE(is_ready(upgraded));
  ASSERT_TRUE(is_ok(reader->release()));
  ASSERT_TRUE(is_ok(upgraded.get()));
  EXPECT_EQ(held->mode(), lock_mode::exclusive);
  EXPECT_GT(held->token(), before);
  EXPECT_TRUE(held->valid());
  EXPECT_EQ(holders(name()), 1U);
  EXPECT_FALSE(is_ready(writer));
  ASSERT_TRUE(is_ok(held->release()));
  auto written = writer.get();
  ASSERT_TRUE(is_ok(written));
  EXPECT_GT(written->token(), held->token());
}

TEST_P(sharing, failed_upgrade_leaves_the_lease_as_it_was) {
  NEEDS(upgrade);
  NEEDS(listing);
  const auto a = open(), b = open();
  shared_mutex ours{a, name()}, reading{b, name()};
  auto held = ours.acquire_upgradeable();
  auto reader = reading.acquire_shared();
  const auto token = held->token();
  EXPECT_TRUE(fails_with(ours.upgrade(*held, {.wait = 0s}), errc::busy));
  EXPECT_TRUE(fails_with(ours.upgrade(*held, {.wait = 50ms}), errc::timed_out));
  EXPECT_EQ(held->mode(), lock_mode::upgradeable);
  EXPECT_EQ(held->token(), token);
  EXPECT_TRUE(held->valid());
  EXPECT_EQ(waiters(name()), 0U);
  ASSERT_TRUE(is_ok(reader->release()));
  EXPECT_TRUE(is_ok(ours.upgrade(*held)));
  EXPECT_TRUE(is_ok(ours.downgrade(*held, lock_mode::upgradeable)));
  EXPECT_TRUE(is_ok(reading.acquire_shared({.wait = 0s})));
  EXPECT_TRUE(is_ok(ours.upgrade(*held)));
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(no_trace_of(name()));
}

TEST_P(sharing, two_upgradeables_exclude_each_other) {
  NEEDS(upgrade);
  const auto a = open(), b = open();
  shared_mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire_upgradeable();
  EXPECT_TRUE(fails_with(theirs.acquire_upgradeable({.wait = 0s}), errc::busy));
  EXPECT_TRUE(fails_with(theirs.acquire({.wait = 0s}), errc::busy));
  EXPECT_TRUE(is_ok(theirs.acquire_shared({.wait = 0s})));
  ASSERT_TRUE(is_ok(ours.downgrade(*held, lock_mode::shared)));
  EXPECT_TRUE(is_ok(theirs.acquire_upgradeable({.wait = 0s})));
}

TEST_P(sharing, read_modify_write_by_upgrade_loses_nothing) {
  NEEDS(upgrade);
  constexpr unsigned threads = 3, rounds = 20;
  plain_counter count;
  std::vector<std::jthread> pool;
  for (unsigned t = 0; t < threads; ++t) {
    pool.emplace_back([&] {
      const auto own = open();
      shared_mutex lock{own, name()};
      for (unsigned round = 0; round < rounds; ++round) {
        auto held = lock.acquire_upgradeable();
        ASSERT_TRUE(is_ok(held));
        const auto read = count.get();
        ASSERT_TRUE(is_ok(lock.upgrade(*held)));
        count.set(read + 1);
      }
    });
  }
  pool.clear();
  EXPECT_EQ(count.get(), threads * rounds);
}

}  // namespace
}  // namespace holdfast::testing

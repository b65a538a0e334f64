// Several names at once, and very many of them.
#include "conformance/conformance.hpp"

#include <algorithm>
#include <set>

namespace holdfast::testing {
namespace {

class several : public conformance {};
FOR_EVERY_ENGINE(several);

TEST_P(several, lock_all_takes_each_name_once_in_sorted_order) {
  const auto a = open(), b = open();
  const std::vector names{name("c"), name("a"), name("b"), name("a")};
  const auto held = lock_all(a, names);
  ASSERT_TRUE(is_ok(held));
  ASSERT_EQ(held->size(), 3U);
  EXPECT_EQ((*held)[0].name(), name("a"));
  EXPECT_EQ((*held)[2].name(), name("c"));
  for (const auto& one : *held) {
    EXPECT_TRUE(one.valid());
    mutex other{b, one.name()};
    EXPECT_TRUE(fails_with(other.try_acquire(), errc::busy));
  }
  EXPECT_TRUE(is_ok(lock_all(a, {})));
}

// What is still on its way out is no obstacle, and however many there are: they fit into one request or they do not.
TEST_P(several, lock_all_of_many_names_again_and_again) {
  const auto a = open();
  for (const int count : {20, 60, 130}) {
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) names.push_back(name("n" + std::to_string(i)));
    for (int round = 0; round < 3; ++round) {
      auto all = lock_all(a, names, {.wait = patience});
      ASSERT_TRUE(is_ok(all)) << count;
      EXPECT_EQ(all->size(), names.size());
    }
  }
}

TEST_P(several, lock_all_is_all_or_nothing) {
  const auto a = open(), b = open();
  mutex taken{b, name("b")};
  auto held = taken.acquire();
  const std::vector names{name("a"), name("b"), name("c")};
  EXPECT_TRUE(fails_with(lock_all(a, names, {.wait = 50ms}), errc::timed_out));
  EXPECT_TRUE(fails_with(lock_all(a, names, {.wait = 0s}), errc::busy));
  for (const auto* word : {"a", "c"}) {
    mutex other{b, name(word)};
    EXPECT_TRUE(is_ok(other.try_acquire())) << word;
  }
  const std::vector bad{name("a"), std::string{"a//b"}};
  EXPECT_TRUE(fails_with(lock_all(a, bad), errc::misconfigured));
}

TEST_P(several, lock_all_in_opposite_orders_never_deadlocks) {
  constexpr unsigned threads = 4, rounds = 15;
  plain_counter count;
  std::vector<std::jthread> pool;
  for (unsigned t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      const auto own = open();
      std::vector names{name("x"), name("y"), name("z")};
      if (t % 2 == 1) std::ranges::reverse(names);
      for (unsigned round = 0; round < rounds; ++round) {
        const auto held = lock_all(own, names, {.wait = patience});
        ASSERT_TRUE(is_ok(held));
        count.bump();
      }
    });
  }
  pool.clear();
  EXPECT_EQ(count.get(), threads * rounds);
}

TEST_P(several, striped_mutex_spreads_and_finds_its_stripe_again) {
  const auto a = open(), b = open();
  striped_mutex ours{a, name(), 8}, theirs{b, name(), 8};
  EXPECT_EQ(ours.stripe_of("sku-42"), theirs.stripe_of("sku-42"));
  auto held = ours.acquire("sku-42");
  ASSERT_TRUE(is_ok(held));
  EXPECT_EQ(held->stripe, ours.stripe_of("sku-42"));
  EXPECT_EQ(held->held.name(), name() + "/" + std::to_string(held->stripe));
  EXPECT_TRUE(fails_with(theirs.acquire("sku-42", {.wait = 0s}), errc::busy));

  std::vector<stripe_lease> taken;
  std::set<std::size_t> seen{held->stripe};
  for (int i = 0; i < 7; ++i) {
    auto any = theirs.acquire_any({.wait = 0s});
    ASSERT_TRUE(is_ok(any));
    EXPECT_TRUE(seen.insert(any->stripe).second) << "given out twice";
    taken.push_back(std::move(*any));
  }
  EXPECT_TRUE(fails_with(ours.acquire_any({.wait = 0s}), errc::busy));
  EXPECT_TRUE(fails_with(ours.acquire_all({.wait = 0s}), errc::busy));
  taken.clear();
  ASSERT_TRUE(is_ok(held->held.release()));
  const auto all = ours.acquire_all({.wait = patience});
  ASSERT_TRUE(is_ok(all));
  EXPECT_EQ(all->size(), 8U);
}

TEST_P(several, wrong_numbers_of_stripes_are_refused) {
  const auto a = open();
  EXPECT_EQ(thrown_by([&] { striped_mutex(a, name(), 0); }), errc::misconfigured);
  EXPECT_EQ(thrown_by([&] { striped_mutex(a, name(), 4097); }), errc::misconfigured);
}

TEST_P(several, stripe_of_a_key_is_the_same_in_every_version) {
  const striped_mutex lock{open(), name(), 10};
  // FNV-1a, 64 bits: 0xcbf29ce484222325 for nothing, 0xaf63dc4c8601ec8c for "a".
  EXPECT_EQ(lock.stripe_of(""), 0xcbf29ce484222325ULL % 10);
  EXPECT_EQ(lock.stripe_of("a"), 0xaf63dc4c8601ec8cULL % 10);
}

TEST_P(several, five_thousand_names_are_held_listed_freed_and_used_again) {
  NEEDS(listing);
  constexpr std::size_t many = 5'000;
  const auto a = open();
  std::vector<lease> held;
  fencing_token newest{};
  for (std::size_t i = 0; i < many; ++i) {
    mutex lock{a, name(std::to_string(i))};
    auto got = lock.acquire({.wait = patience});  // one slow commit is no failure
    ASSERT_TRUE(is_ok(got)) << i;
    newest = std::max(newest, got->token());
    held.push_back(std::move(*got));
  }
  EXPECT_EQ(a.list(prefix()).value().size(), many);
  EXPECT_EQ(a.list(prefix(), 10).value().size(), 10U);
  EXPECT_EQ(a.metrics().held_now, many);
  held.clear();
  EXPECT_TRUE(wait_until([&] { return a.list(prefix()).value().empty(); }));
  mutex again{a, name("0")};
  EXPECT_TRUE(is_ok(again.try_acquire()));
  EXPECT_EQ(a.metrics().held_now, 0U);
}

}  // namespace
}  // namespace holdfast::testing

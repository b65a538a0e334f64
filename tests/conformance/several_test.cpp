// Several names at once, and very many of them.
#include "conformance/conformance.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <mutex>
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
  EXPECT_TRUE(wait_until([&] { return a.list(prefix()).value().empty(); }, 6 * patience));
  mutex again{a, name("0")};
  EXPECT_TRUE(is_ok(again.try_acquire()));
  EXPECT_EQ(a.metrics().held_now, 0U);
}

// ---- several stores

class stores : public conformance {
 protected:
  // Another store, of this process.
  client elsewhere() const { return client::open("memory:beside-" + name("")); }
};
FOR_EVERY_ENGINE(stores);

TEST_P(stores, lock_all_takes_all_in_the_order_asked_for) {
  const auto a = open(), b = open();
  const auto there = elsewhere(), too = elsewhere();
  const std::vector<lock_place> places{{a, name("z")}, {there, name("m")}, {a, name("a")}};
  auto held = lock_all(places, {.wait = patience});
  ASSERT_TRUE(is_ok(held));
  ASSERT_EQ(held->size(), 3U);
  for (std::size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ((*held)[i].name(), places[i].name);
    EXPECT_TRUE((*held)[i].valid());
    mutex other{i == 1 ? too : b, places[i].name};
    EXPECT_TRUE(fails_with(other.try_acquire(), errc::busy)) << places[i].name;
  }
  for (auto& one : *held) EXPECT_TRUE(is_ok(one.release()));
  EXPECT_TRUE(is_ok(lock_all(std::span<const lock_place>{})));
}

TEST_P(stores, lock_all_is_all_or_nothing) {
  const auto a = open(), b = open();
  const auto there = elsewhere(), too = elsewhere();
  const std::vector<lock_place> places{{a, name("a")}, {there, name("b")}};
  mutex taken{too, name("b")}, first{b, name("a")};
  auto obstacle = taken.acquire();
  EXPECT_TRUE(fails_with(lock_all(places, {.wait = 50ms}), errc::timed_out));
  EXPECT_TRUE(fails_with(lock_all(places, {.wait = 0s}), errc::busy));
  EXPECT_TRUE(is_ok(first.acquire({.wait = patience}))) << "given back";
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(fails_with(lock_all(places, {.stop = stop.get_token()}), errc::cancelled));
  ASSERT_TRUE(is_ok(obstacle->release()));
  const std::vector<lock_place> twice{{a, name("a")}, {a, name("a")}};
  EXPECT_TRUE(fails_with(lock_all(twice), errc::misconfigured));
  const std::vector<lock_place> bad{{a, name("a")}, {there, "a//b"}};
  EXPECT_TRUE(fails_with(lock_all(bad), errc::misconfigured));
}

TEST_P(stores, lock_all_gives_back_what_it_has_when_another_store_fails) {
  const auto b = open();
  const auto plan = std::make_shared<faults>();
  const auto failing = open_flaky(plan);
  plan->refuse_enters = faults::always;
  const auto there = elsewhere(), too = elsewhere();
  const std::vector<lock_place> places{{there, name("a")}, {failing, name("b")}};
  EXPECT_TRUE(fails_with(lock_all(places, {.wait = 50ms}), errc::unavailable));
  mutex first{too, name("a")};
  EXPECT_TRUE(is_ok(first.try_acquire()));
  plan->refuse_enters = 0;
  EXPECT_TRUE(is_ok(lock_all(places, {.wait = patience})));
}

// The executor of a program is often one thread, and it may be the one that waits here.
TEST_P(stores, lock_all_that_fails_needs_no_executor) {
  std::mutex guard;
  std::deque<std::function<void()>> executor;
  client_options options;
  options.resume = [&](std::function<void()> work) {
    const std::lock_guard lock{guard};
    executor.push_back(std::move(work));
  };
  std::size_t posted = 0;
  {
    const auto a = open(options), b = open();
    mutex taken{b, name("b")};
    auto obstacle = taken.acquire();
    ASSERT_TRUE(is_ok(obstacle));
    const std::vector<lock_place> places{{a, name("a")}, {a, name("b")}};
    EXPECT_TRUE(fails_with(lock_all(places, {.wait = 0s}), errc::busy));
    mutex first{b, name("a")};
    EXPECT_TRUE(is_ok(first.try_acquire())) << "given back";
    posted = executor.size();
  }
  EXPECT_EQ(posted, 0U) << "it waited for what this thread alone would have run";
}

// What it has is worth nothing any more, so it does not wait for the rest.
TEST_P(stores, lock_all_ends_when_what_it_has_is_lost) {
  const auto a = open(), operators = open();
  const auto there = elsewhere(), too = elsewhere();
  mutex taken{too, name("b")};
  auto obstacle = taken.acquire();
  ASSERT_TRUE(is_ok(obstacle));
  const std::vector<lock_place> places{{a, name("a")}, {there, name("b")}};
  auto waiting = std::async(std::launch::async,
                            [&] { return lock_all(places, {.wait = 6 * patience, .ttl = 2s}); });
  // Not only in the store: what is revoked before the client knows of it is asked for again.
  ASSERT_TRUE(wait_until([&] { return a.metrics().acquired == 1; }));
  const auto revoked = operators.revoke(name("a"));
  ASSERT_TRUE(is_ok(revoked));
  ASSERT_EQ(*revoked, 1U);
  ASSERT_EQ(waiting.wait_for(patience), std::future_status::ready);
  EXPECT_TRUE(fails_with(waiting.get(), errc::lost));
  EXPECT_TRUE(obstacle->valid());
}

task<bool> await_both(client here, client there, std::string name) {
  const std::vector<lock_place> places{{there, name + "/y"}, {here, name + "/x"}};
  const acquire_options options{.wait = patience};
  auto held = co_await async_lock_all(places, options);
  if (!held || held->size() != 2 || (*held)[0].name() != name + "/y") co_return false;
  const acquire_options at_once{.wait = 0s};
  const std::vector<lock_place> again{{here, name + "/w"}, {there, name + "/y"}};
  const auto refused = co_await async_lock_all(again, at_once);
  co_return !refused && refused.error().code() == errc::busy;
}

TEST_P(stores, lock_all_can_be_awaited) {
  EXPECT_TRUE(sync_wait(await_both(open(), elsewhere(), name())));
}

TEST_P(stores, lock_all_in_opposite_orders_never_deadlocks) {
  constexpr unsigned threads = 4, rounds = 10;
  plain_counter count;
  std::vector<std::jthread> pool;
  for (unsigned t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      const auto own = open(), there = elsewhere();
      std::vector<lock_place> places{{own, name("x")}, {there, name("x")}, {own, name("w")}};
      if (t % 2 == 1) std::ranges::reverse(places);
      for (unsigned round = 0; round < rounds; ++round) {
        const auto held = lock_all(places, {.wait = patience});
        ASSERT_TRUE(is_ok(held));
        count.bump();
      }
    });
  }
  pool.clear();
  EXPECT_EQ(count.get(), threads * rounds);
}

}  // namespace
}  // namespace holdfast::testing

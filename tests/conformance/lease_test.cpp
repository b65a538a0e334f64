// How long a lease lasts, and how its holder learns that it is over.
#include "conformance/conformance.hpp"

#include "support/loss_recorder.hpp"

#include <atomic>
#include <mutex>

namespace holdfast::testing {
namespace {

class lease_life : public conformance {};
FOR_EVERY_ENGINE(lease_life);

TEST_P(lease_life, lease_outlives_ttl_by_renewal) {
  NEEDS_SHORT_TTL();
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire({.ttl = short_ttl()});
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(stays_true([&] { return held->valid() && !theirs.try_acquire(); }, 2 * short_ttl()));
  EXPECT_FALSE(held->lost().stop_requested());
  EXPECT_GE(a.metrics().renewed, 1U);
  EXPECT_TRUE(is_ok(held->release()));
}

TEST_P(lease_life, validity_never_claims_more_than_the_ttl) {
  mutex lock{open(), name()};
  const auto before = std::chrono::steady_clock::now();
  auto held = lock.acquire({.ttl = std::max<nanoseconds>(caps().min_ttl, 10s)});
  const auto ttl = std::max<nanoseconds>(caps().min_ttl, 10s);
  const auto after = std::chrono::steady_clock::now();
  EXPECT_LE(held->valid_until(), after + ttl);
  EXPECT_GT(held->valid_until(), before);
  const auto longest = caps().longest_validity > 0s ? caps().longest_validity : ttl;
  EXPECT_TRUE(held->valid_for(longest / 4));
  EXPECT_FALSE(held->valid_for(longest + 1s));
  EXPECT_FALSE(held->valid_for(ttl + 1s));
  EXPECT_FALSE(held->valid_for(nanoseconds::max()));
}

TEST_P(lease_life, explicit_renewal_moves_the_end_on) {
  mutex lock{open(), name()};
  auto held = lock.acquire();
  const auto first = held->valid_until();
  EXPECT_TRUE(wait_until([&] { return held->renew() && held->valid_until() > first; }));
}

TEST_P(lease_life, holder_whose_renewals_stop_is_lost_on_time) {
  NEEDS_SHORT_TTL();
  const auto plan = std::make_shared<faults>();
  const auto a = open_flaky(plan);
  const auto b = open();
  mutex ours{a, name()}, theirs{b, name()};
  plan->fail_renewals = true;
  plan->fail_settles = faults::always;  // cut off: it cannot clear up after itself, the store must
  auto held = ours.acquire({.ttl = short_ttl()});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  const auto end = held->valid_until();
  auto other = theirs.acquire({.wait = short_ttl() + caps().expiry_slack + 2s});
  const auto got = std::chrono::steady_clock::now();
  ASSERT_TRUE(is_ok(other));
  EXPECT_GE(got, end) << "the other had it while we could still believe in ours";
  EXPECT_FALSE(held->valid());
  ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
  EXPECT_GE(loss.when(), end);
  EXPECT_LE(loss.when(), end + 250ms);
  EXPECT_GT(other->token(), held->token());
  EXPECT_TRUE(fails_with(held->release(), errc::lost));
  EXPECT_TRUE(other->valid());
  EXPECT_EQ(a.metrics().lost, 1U);
  EXPECT_GE(a.metrics().renew_failed, 1U);
}

TEST_P(lease_life, renewals_that_fail_for_a_while_cost_nothing) {
  NEEDS_SHORT_TTL();
  const auto plan = std::make_shared<faults>();
  const auto a = open_flaky(plan);
  mutex lock{a, name()};
  auto held = lock.acquire({.ttl = 5 * short_ttl()});
  plan->fail_renewals = true;
  ASSERT_TRUE(wait_until([&] { return a.metrics().renew_failed >= 1; }));
  plan->fail_renewals = false;
  const auto first = held->valid_until();
  EXPECT_TRUE(wait_until([&] { return held->valid_until() > first; }));
  EXPECT_TRUE(held->valid());
  EXPECT_FALSE(held->lost().stop_requested());
}

TEST_P(lease_life, a_renewal_without_an_answer_prolongs_nothing) {
  NEEDS_SHORT_TTL();
  const auto plan = std::make_shared<faults>();
  mutex lock{open_flaky(plan), name()};
  plan->drop_renewals = true;
  auto held = lock.acquire({.ttl = short_ttl()});
  const loss_recorder loss{*held};
  const auto end = held->valid_until();
  ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
  EXPECT_LE(loss.when(), end + 250ms);
  EXPECT_GE(plan->renewals, 1);
}

TEST_P(lease_life, renewal_never_outlives_release) {
  NEEDS_SHORT_TTL();
  const auto plan = std::make_shared<faults>();
  const auto a = open_flaky(plan);
  const auto b = open();
  mutex ours{a, name()}, theirs{b, name()};
  plan->delay_renewals = 50ms;  // so that the release comes while one is on its way
  auto held = ours.acquire({.ttl = short_ttl()});
  const auto owner = held->owner();
  ASSERT_TRUE(wait_until([&] { return plan->renewals_of(owner) >= 1; }));
  ASSERT_TRUE(is_ok(held->release()));
  auto other = theirs.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(other));
  const auto renewals = plan->renewals_of(owner);
  EXPECT_TRUE(stays_true([&] { return plan->renewals_of(owner) == renewals && other->valid(); },
                         short_ttl()));
  EXPECT_FALSE(held->valid());
  EXPECT_FALSE(held->lost().stop_requested());
}

TEST_P(lease_life, max_hold_ends_the_lease) {
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  const auto begin = std::chrono::steady_clock::now();
  auto held = ours.acquire({.max_hold = 200ms});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  auto other = theirs.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(other));
  EXPECT_FALSE(held->valid());
  ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
  EXPECT_GE(loss.when() - begin, 200ms);
  EXPECT_LE(loss.when() - begin, 600ms);
  EXPECT_GT(other->token(), held->token());
  EXPECT_TRUE(fails_with(held->release(), errc::lost));
  EXPECT_TRUE(other->valid());
}

// A lost reader was settled as if it were a writer, and stayed in the store until its ttl.
TEST_P(lease_life, max_hold_frees_what_a_reader_or_a_permit_had) {
  NEEDS(shared);
  NEEDS(permits);
  const auto a = open(), b = open();
  const acquire_options briefly{.ttl = 60s, .max_hold = 20ms};
  shared_mutex ours{a, name()};
  mutex theirs{b, name()};
  const auto reader = ours.acquire_shared(briefly);
  ASSERT_TRUE(is_ok(reader));
  EXPECT_TRUE(is_ok(theirs.acquire({.wait = patience})));
  counting_semaphore seats{a, name("seats"), 1}, others{b, name("seats"), 1};
  const auto permit = seats.acquire_permits(1, briefly);
  ASSERT_TRUE(is_ok(permit));
  EXPECT_TRUE(is_ok(others.acquire_permits(1, {.wait = patience})));
}

TEST_P(lease_life, a_flood_of_acquires_costs_no_held_lease) {
  NEEDS_SHORT_TTL();
  const auto a = open();
  mutex lock{a, name()};
  auto held = lock.acquire({.ttl = short_ttl()});
  std::atomic<bool> done{false};
  std::vector<std::jthread> flood;
  for (int t = 0; t < 3; ++t) {
    flood.emplace_back([&, t] {
      mutex other{a, name("flood-" + std::to_string(t))};
      while (!done) static_cast<void>(other.acquire());
    });
  }
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 2 * short_ttl()));
  done = true;
}

}  // namespace
}  // namespace holdfast::testing

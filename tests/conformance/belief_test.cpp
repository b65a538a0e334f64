// Is a lease ever believed longer than the store keeps it? And is a loss announced, by whatever way it shows?
#include "conformance/conformance.hpp"

#include "support/loss_recorder.hpp"

#include <atomic>
#include <mutex>
#include <set>

namespace holdfast::testing {
namespace {

class belief : public conformance {
 protected:
  const std::shared_ptr<faults> plan = std::make_shared<faults>();
  client flaky() const { return open_flaky(plan); }

  // By how much the lease is believed longer than the store keeps it, for certain: what was believed before the store
  // was asked, against what it says, counted from after its answer.
  nanoseconds believed_too_long(const client& as, const lease& held) const {
    const auto until = held.valid_until();
    const auto owner = held.owner();
    const auto seen = as.inspect(held.name());
    const auto now = std::chrono::steady_clock::now();
    if (!seen) return {};
    for (const auto& one : seen->holders)
      if (one.owner == owner && one.expires_in > nanoseconds::zero())
        return std::max<nanoseconds>(until - (now + one.expires_in), nanoseconds::zero());
    return {};
  }
};
FOR_EVERY_ENGINE(belief);

// Stores keep expiries in milliseconds, and some round the rest they show.
constexpr nanoseconds rounding = 5ms;

TEST_P(belief, never_outlasts_the_stores_own_expiry) {
  NEEDS(listing);
  NEEDS_SHORT_TTL();
  const auto a = flaky(), b = open();
  // Answers to renewals come late: whoever counts from the answer believes too long.
  plan->delay_renewal_answers = 100ms;
  const auto brief = std::max<nanoseconds>(caps().min_ttl, 900ms);
  std::vector<std::unique_ptr<mutex>> locks;
  std::vector<lease> held;
  for (const auto ttl : {brief, nanoseconds{20s}, 2 * brief}) {
    locks.push_back(std::make_unique<mutex>(a, name(std::to_string(locks.size()))));
    auto got = locks.back()->acquire({.ttl = ttl});
    ASSERT_TRUE(is_ok(got));
    held.push_back(std::move(*got));
  }
  EXPECT_TRUE(stays_true(
      [&] {
        for (const auto& one : held)
          if (believed_too_long(b, one) > rounding) return false;
        return true;
      },
      3 * brief));
  for (const auto& one : held) EXPECT_TRUE(one.valid()) << one.name();
  EXPECT_GE(plan->renewals, 2) << "nothing was tried";
}

TEST_P(belief, never_outlasts_the_stores_own_expiry_after_a_hand_over) {
  NEEDS(listing);
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  const auto ttl = std::max<nanoseconds>(caps().min_ttl, 2s);
  for (int round = 0; round < 5; ++round) {
    auto held = ours.acquire({.wait = patience, .ttl = ttl});
    auto waiting = acquire_later(theirs, {.ttl = ttl});
    ASSERT_TRUE(wait_for_waiters(name(), 1));
    ASSERT_TRUE(is_ok(held->release()));
    auto next = waiting.get();
    ASSERT_TRUE(is_ok(next));
    EXPECT_LE(believed_too_long(a, *next), rounding);
    ASSERT_TRUE(is_ok(next->release()));
  }
}

TEST_P(belief, is_not_revived_by_a_renewal_that_is_answered_too_late) {
  NEEDS_SHORT_TTL();
  const auto a = flaky();
  mutex lock{a, name()};
  const auto ttl = short_ttl();
  auto held = lock.acquire({.ttl = ttl});
  ASSERT_TRUE(is_ok(held));
  const auto first_end = held->valid_until();
  plan->delay_renewal_answers = std::chrono::duration_cast<std::chrono::milliseconds>(ttl) + 200ms;
  ASSERT_TRUE(wait_until([&] { return plan->renewals >= 1; }));
  if (held->valid_until() != first_end)
    GTEST_SKIP() << "a renewal was answered before the fault was there";
  ASSERT_TRUE(wait_until([&] { return !held->valid(); }));
  EXPECT_TRUE(stays_true([&] { return !held->valid(); }, ttl)) << "no must stay no";
  EXPECT_TRUE(wait_until([&] { return held->lost().stop_requested(); }));
  EXPECT_TRUE(fails_with(held->renew(), errc::lost));
}

TEST_P(belief, is_kept_up_although_a_renewal_hangs) {
  NEEDS_SHORT_TTL();
  const auto a = flaky();
  mutex brief{a, name("brief")}, lasting{a, name("lasting")};
  const auto ttl = std::max<nanoseconds>(caps().min_ttl, 2s);
  auto held = brief.acquire({.ttl = ttl});
  auto other = lasting.acquire({.ttl = 2 * ttl});
  ASSERT_TRUE(is_ok(held));
  plan->hang_renewals = 1;
  ASSERT_TRUE(wait_until([&] { return plan->hang_renewals == 0; })) << "no renewal was tried";
  EXPECT_TRUE(stays_true([&] { return held->valid() && other->valid(); }, 2 * ttl));
}

TEST_P(belief, renew_that_is_answered_too_late_is_no_proof) {
  NEEDS_SHORT_TTL();
  const auto a = flaky();
  mutex lock{a, name()};
  const auto ttl = short_ttl();
  auto held = lock.acquire({.ttl = ttl});
  ASSERT_TRUE(is_ok(held));
  plan->delay_renewal_answers = std::chrono::duration_cast<std::chrono::milliseconds>(ttl) + 200ms;
  EXPECT_TRUE(fails_with(held->renew(), errc::lost));
  EXPECT_FALSE(held->valid());
}

TEST_P(belief, what_is_handed_on_inside_the_process_is_worth_something) {
  NEEDS_SHORT_TTL();
  const auto a = flaky();
  mutex lock{a, name()};
  const auto ttl = std::max<nanoseconds>(caps().min_ttl, 1200ms);
  auto held = lock.acquire({.ttl = ttl});
  ASSERT_TRUE(is_ok(held));
  plan->fail_renewals = true;
  const auto length =
      std::max<nanoseconds>(held->valid_until() - std::chrono::steady_clock::now(), nanoseconds{1});
  auto next = acquire_later(lock, {.ttl = ttl});
  ASSERT_TRUE(wait_until([&] { return !held->valid_for(length / 5); }));
  if (!held->valid()) GTEST_SKIP() << "the machine was too busy to see the last fifth";
  static_cast<void>(held->release());
  plan->fail_renewals = false;
  const auto got = next.get();
  ASSERT_TRUE(is_ok(got));
  EXPECT_TRUE(got->valid_for(length / 3)) << "a lease with no validity left was handed on";
}

TEST_P(belief, loss_reaches_whoever_the_grant_was_handed_to_meanwhile) {
  NEEDS(listing);
  NEEDS_SHORT_TTL();
  const auto a =
      open_flaky(plan, {.handoff_limit = 1'000'000, .handoff_time = std::chrono::hours{1}});
  const auto b = open();
  plan->hide_losses = true;
  mutex lock{a, name()};
  const auto ttl = std::max<nanoseconds>(caps().min_ttl, 3s);
  std::atomic<bool> done{false};
  std::vector<std::jthread> pool;
  for (int t = 0; t < 2; ++t)  // a grant that is always held, by ever new leases
    pool.emplace_back([&] {
      while (!done) {
        const auto held = lock.acquire({.wait = patience, .ttl = ttl});
        std::this_thread::sleep_for(1ms);
      }
    });
  ASSERT_TRUE(wait_until([&] { return a.metrics().handed_off > 20; }));
  plan->delay_renewal_answers = 50ms;  // longer than any lease is held
  ASSERT_TRUE(is_ok(b.revoke(name())));
  const auto lost = wait_until([&] { return a.metrics().lost >= 1; }, ttl * 2 / 3);
  done = true;
  EXPECT_TRUE(lost) << "the answer to the renewal was about a lease that had been handed on";
}

TEST_P(belief, loss_that_only_the_release_shows_is_announced) {
  NEEDS(listing);
  const auto a = flaky(), b = open();
  plan->hide_losses = true;
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire({.ttl = 30s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  ASSERT_TRUE(is_ok(b.revoke(name())));
  if (loss.fired()) GTEST_SKIP() << "it was noticed before";
  const auto outcome = held->release();
  EXPECT_TRUE(fails_with(outcome, errc::lost));
  EXPECT_TRUE(wait_until([&] { return loss.fired(); }));
  EXPECT_EQ(a.metrics().lost, 1U);
  EXPECT_TRUE(is_ok(theirs.acquire({.wait = patience}))) << "nothing of the other's was touched";
}

TEST_P(belief, loss_that_only_an_unlock_shows_is_announced) {
  NEEDS(listing);
  const auto a = flaky(), b = open();
  plan->hide_losses = true;
  mutex ours{a, name()};
  std::optional<lease> held = std::move(*ours.acquire({.ttl = 30s}));
  const loss_recorder loss{*held};
  ASSERT_TRUE(is_ok(b.revoke(name())));
  held.reset();
  EXPECT_TRUE(wait_until([&] { return loss.fired(); }));
  EXPECT_TRUE(wait_until([&] { return a.metrics().lost == 1; }));
}

task<result<void>> renew_in_coroutine(lease& held) { co_return co_await held.async_renew(); }

TEST_P(belief, renew_is_proof_about_this_very_grant) {
  NEEDS(listing);
  const auto a = flaky(), b = open();
  plan->hide_losses = true;
  mutex ours{a, name()}, theirs{b, name()};
  for (int round = 0; round < 4; ++round) {
    const auto renew = [&](lease& held) {
      return round < 2 ? held.renew() : sync_wait(renew_in_coroutine(held));
    };
    auto held = ours.acquire({.wait = patience, .ttl = 30s});
    ASSERT_TRUE(is_ok(held));
    ASSERT_TRUE(is_ok(renew(*held)));
    ASSERT_TRUE(is_ok(b.revoke(name())));
    auto other = theirs.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(other));
    EXPECT_TRUE(fails_with(renew(*held), errc::lost)) << "another holds it";
    EXPECT_FALSE(held->valid());
    EXPECT_TRUE(is_ok(other->release()));
  }
}

TEST_P(belief, good_releases_never_say_lost) {
  NEEDS(permits);
  const auto a = open(), b = open();
  std::atomic<int> bad{0};
  const auto work = [&](const client& as) {
    counting_semaphore permits{as, name(), 3};
    for (int i = 0; i < 40; ++i) {
      auto held = permits.acquire_permits(1, {.wait = patience});
      if (!held || !held->release()) ++bad;
    }
  };
  {
    std::vector<std::jthread> pool;
    for (const auto* as : {&a, &b, &a, &b, &a}) pool.emplace_back(work, *as);
  }
  EXPECT_EQ(bad, 0);
}

TEST_P(belief, each_grant_has_a_token_of_its_own_also_when_leases_are_lost_at_once) {
  NEEDS(fifo);
  const auto a = open({.handoff_limit = 0});
  mutex lock{a, name()};
  std::mutex guard;
  std::multiset<std::uint64_t> tokens;
  {
    std::vector<std::jthread> pool;
    for (int t = 0; t < 4; ++t)
      pool.emplace_back([&] {
        for (int i = 0; i < 50; ++i) {
          // So short that it is often lost before acquire() has returned.
          auto held = lock.acquire({.wait = patience, .max_hold = 1us});
          ASSERT_TRUE(is_ok(held));
          const std::lock_guard locked{guard};
          tokens.insert(held->token().value);
        }
      });
  }
  const std::set<std::uint64_t> distinct{tokens.begin(), tokens.end()};
  EXPECT_EQ(distinct.size(), tokens.size()) << "a lease carries its successor's token";
}

TEST_P(belief, what_was_lost_is_not_left_behind_by_a_client_that_ends) {
  const auto b = open();
  mutex theirs{b, name()};
  for (int round = 0; round < 10; ++round) {
    {
      const auto a = open();
      mutex ours{a, name()};
      auto held = ours.acquire({.wait = patience, .ttl = 60s, .max_hold = 1us});
      ASSERT_TRUE(is_ok(held));
    }
    // Long before a ttl or any grace has passed.
    EXPECT_TRUE(is_ok(theirs.acquire({.wait = 1500ms}))) << "round " << round;
  }
}

TEST_P(belief, max_hold_is_not_inherited_by_the_next_lease) {
  const auto a = open();
  mutex lock{a, name()};
  auto first = lock.acquire({.max_hold = 700ms});
  ASSERT_TRUE(is_ok(first));
  auto next = acquire_later(lock);
  EXPECT_FALSE(wait_until([&] { return is_ready(next); }, 30ms));
  if (!is_ok(first->release())) GTEST_SKIP() << "the machine was too busy";
  auto held = next.get();
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 1s));
}

}  // namespace
}  // namespace holdfast::testing

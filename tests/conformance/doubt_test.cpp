// What breaks here: the answer to a change of mode, a leave or a refusal is lost, or the store is mute.
// What must hold: the lease is what it was, what it should be, or lost; nothing is left behind; the caller's wait
// counts.
#include "conformance/conformance.hpp"

#include "support/end_of_clients.hpp"
#include "support/manual_task.hpp"

namespace holdfast::testing {
namespace {

class doubt : public conformance {
 protected:
  const std::shared_ptr<faults> plan = std::make_shared<faults>();
  client flaky(nanoseconds call_timeout = 300ms) const {
    return open_flaky(plan, {.call_timeout = call_timeout});
  }
  void break_clearing_up() const { plan->fail_settles = plan->fail_leaves = faults::always; }
  void mend_clearing_up() const { plan->fail_settles = plan->fail_leaves = 0; }
};
FOR_EVERY_ENGINE(doubt);

TEST_P(doubt, upgrade_without_an_answer_leaves_the_read_it_was) {
  NEEDS(upgrade);
  NEEDS(listing);
  const auto a = flaky(), b = open();
  shared_mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire_upgradeable();
  ASSERT_TRUE(is_ok(held));
  plan->drop_enter_replies = 1;
  break_clearing_up();
  EXPECT_TRUE(fails_with(ours.upgrade(*held, {.wait = 2s}), errc::outcome_unknown));
  EXPECT_EQ(held->mode(), lock_mode::upgradeable);
  mend_clearing_up();
  auto reader = theirs.acquire_shared({.wait = patience});
  EXPECT_TRUE(is_ok(reader)) << "the store still has it as exclusive";
  EXPECT_TRUE(held->valid()) << "the clearing up took along what the upgrade replaced";
  EXPECT_EQ(held->mode(), lock_mode::upgradeable);
  EXPECT_TRUE(fails_with(theirs.acquire_upgradeable({.wait = 0s}), errc::busy))
      << "the store no longer has it as ours";
  EXPECT_TRUE(is_ok(reader->release()));
  ASSERT_TRUE(wait_until([&] { return is_ok(ours.upgrade(*held, {.wait = 2s})); }));
  EXPECT_EQ(held->mode(), lock_mode::exclusive);
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(wait_until([&] { return no_trace_of(name()); }));
}

TEST_P(doubt, upgrade_that_could_not_leave_the_queue_is_not_granted_behind_our_back) {
  NEEDS(upgrade);
  NEEDS(listing);
  const auto a = flaky(), b = open();
  shared_mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire_upgradeable();
  auto reader = theirs.acquire_shared();
  break_clearing_up();
  EXPECT_TRUE(fails_with(ours.upgrade(*held, {.wait = 50ms}), errc::timed_out));
  ASSERT_TRUE(is_ok(reader->release()));  // now it is granted
  mend_clearing_up();
  EXPECT_TRUE(is_ok(theirs.acquire_shared({.wait = patience}))) << "it stayed exclusive";
  EXPECT_TRUE(held->valid());
  EXPECT_EQ(held->mode(), lock_mode::upgradeable);
  EXPECT_TRUE(wait_until([&] { return is_ok(held->renew()); })) << "the store has it no longer";
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(wait_until([&] { return no_trace_of(name()); }, 3s));
}

TEST_P(doubt, release_of_a_lease_whose_upgrade_is_in_doubt_leaves_no_trace) {
  NEEDS(upgrade);
  NEEDS(listing);
  const auto a = flaky();
  shared_mutex ours{a, name()};
  auto held = ours.acquire_upgradeable();
  plan->drop_enter_replies = 1;
  break_clearing_up();
  EXPECT_FALSE(is_ok(ours.upgrade(*held, {.wait = 2s})));
  static_cast<void>(held->release());
  mend_clearing_up();
  EXPECT_TRUE(wait_until([&] { return no_trace_of(name()); }));
}

TEST_P(doubt, downgrade_without_an_answer_counts_as_done_and_becomes_so) {
  NEEDS(shared);
  NEEDS(listing);
  for (auto* fault : {&plan->drop_downgrade_replies, &plan->lose_downgrades}) {
    const auto a = flaky(), b = open();
    shared_mutex ours{a, name()}, theirs{b, name()};
    auto held = ours.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held));
    *fault = faults::always;
    const auto outcome = ours.downgrade(*held, lock_mode::shared);
    EXPECT_TRUE(fails_with(outcome, errc::outcome_unknown));
    EXPECT_EQ(held->mode(), lock_mode::shared) << "others may be in already";
    *fault = 0;
    auto reader = theirs.acquire_shared({.wait = patience});
    EXPECT_TRUE(is_ok(reader));
    EXPECT_TRUE(held->valid());
    EXPECT_TRUE(wait_until([&] { return is_ok(held->renew()); }));
    EXPECT_TRUE(is_ok(held->release()));
    EXPECT_TRUE(is_ok(reader->release()));
    EXPECT_TRUE(wait_until([&] { return no_trace_of(name()); }));
  }
}

TEST_P(doubt, change_of_mode_waits_for_the_end_of_an_earlier_one) {
  NEEDS(upgrade);
  const auto a = flaky(), b = open();
  shared_mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  plan->lose_downgrades = faults::always;
  EXPECT_TRUE(fails_with(ours.downgrade(*held, lock_mode::upgradeable), errc::outcome_unknown));
  EXPECT_TRUE(fails_with(ours.downgrade(*held, lock_mode::shared), errc::unavailable))
      << "the first one, repeated later, would make it upgradeable again";
  plan->lose_downgrades = 0;
  ASSERT_TRUE(wait_until([&] { return is_ok(ours.downgrade(*held, lock_mode::shared)); }));
  EXPECT_TRUE(is_ok(theirs.acquire_upgradeable({.wait = patience})));
  EXPECT_EQ(held->mode(), lock_mode::shared);
}

TEST_P(doubt, downgrade_once_without_an_answer_is_asked_again) {
  NEEDS(shared);
  const auto a = flaky(), b = open();
  shared_mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  plan->drop_downgrade_replies = 1;
  EXPECT_TRUE(is_ok(ours.downgrade(*held, lock_mode::shared)));
  EXPECT_TRUE(is_ok(theirs.acquire_shared({.wait = 0s})));
}

// That it was not sent the second time says nothing about the first, which was carried out.
TEST_P(doubt, downgrade_whose_repeat_is_refused_counts_as_done) {
  NEEDS(shared);
  NEEDS(listing);
  const auto a = flaky(), b = open();
  shared_mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  ASSERT_TRUE(is_ok(held));
  plan->drop_downgrade_replies = 1;
  plan->refuse_downgrade_number = 2;
  EXPECT_TRUE(fails_with(ours.downgrade(*held, lock_mode::shared), errc::outcome_unknown));
  EXPECT_EQ(held->mode(), lock_mode::shared) << "others may be in already";
  auto reader = theirs.acquire_shared({.wait = patience});
  EXPECT_TRUE(is_ok(reader));
  EXPECT_TRUE(held->valid());
  EXPECT_TRUE(wait_until([&] { return plan->downgrades >= 3 && is_ok(held->renew()); }))
      << "the store is asked until it agrees";
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(reader->release()));
  EXPECT_TRUE(wait_until([&] { return no_trace_of(name()); }));
}

TEST_P(doubt, refusal_while_queued_leaves_no_place_behind) {
  NEEDS(listing);
  const auto a = open(), b = flaky();
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  // The first enter queues up, the second (where do we stand?) is denied.
  plan->nudge_awaits = 1;
  plan->deny_enter_number = 2;
  EXPECT_TRUE(fails_with(theirs.acquire({.wait = patience}), errc::denied));
  EXPECT_TRUE(wait_for_waiters(name(), 0));
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(no_trace_of(name())) << "the place was granted to nobody";
}

TEST_P(doubt, garbled_answer_leaves_no_grant_behind) {
  NEEDS(listing);
  const auto a = flaky(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  plan->garble_enters = 1;
  EXPECT_TRUE(fails_with(ours.acquire({.wait = 2s}), errc::protocol));
  EXPECT_TRUE(is_ok(theirs.acquire({.wait = patience})));
}

TEST_P(doubt, wait_is_kept_while_the_store_is_mute) {
  if (caps().immediate) GTEST_SKIP() << GetParam().name << " answers without I/O";
  const auto a = flaky(20s);
  mutex lock{a, name()};
  plan->hang_enters = true;
  for (const nanoseconds wait : {nanoseconds{0}, nanoseconds{200ms}}) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(is_ok(lock.acquire({.wait = wait})));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s) << "call_timeout is 20 s";
  }
  plan->hang_enters = false;
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
}

TEST_P(doubt, wait_counts_from_when_the_caller_came_also_inside_the_process) {
  if (caps().immediate) GTEST_SKIP() << GetParam().name << " answers without I/O";
  const auto a = open_flaky(plan, {.call_timeout = 20s, .handoff_limit = 0});
  mutex lock{a, name()};
  auto held = lock.acquire();
  ASSERT_TRUE(is_ok(held));
  const auto begin = std::chrono::steady_clock::now();
  auto waiting = acquire_later(lock, {.wait = 3s});
  wait_until([&] { return std::chrono::steady_clock::now() - begin > 2s; });
  plan->hang_enters = true;
  static_cast<void>(held->release());
  EXPECT_FALSE(is_ok(waiting.get()));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s) << "3 s and a half were promised";
}

manual_task upgrade_in(shared_mutex& lock, lease& held, bool& over) {
  static_cast<void>(co_await lock.async_upgrade(held));
  over = true;
}

TEST_P(doubt, suspended_upgrade_may_be_destroyed_with_its_lease) {
  NEEDS(upgrade);
  NEEDS(listing);
  const end_of_clients end;
  const auto a = open({.observer = end.observed()}), b = open();
  shared_mutex ours{a, name()}, theirs{b, name()};
  auto reader = theirs.acquire_shared();
  bool over = false;
  {
    auto held = ours.acquire_upgradeable();
    ASSERT_TRUE(is_ok(held));
    auto lease_of_its_own = std::make_unique<lease>(std::move(*held));
    auto task = upgrade_in(ours, *lease_of_its_own, over);
    task.start();
    ASSERT_TRUE(wait_for_waiters(name(), 1));
    task.destroy();
  }
  EXPECT_TRUE(is_ok(reader->release()));
  EXPECT_TRUE(wait_until([&] { return no_trace_of(name()); }));
  EXPECT_FALSE(over);
}

// What there is to be left behind is not known yet: its successor would find another grant, or none.
TEST_P(doubt, lease_whose_upgrade_is_in_doubt_is_not_left_behind) {
  NEEDS(upgrade);
  NEEDS(outlives_client);
  const auto a = flaky();
  shared_mutex ours{a, name()};
  const acquire_options lasting{.wait = 2s, .ttl = 60s, .outlives_client = true};
  auto held = ours.acquire_upgradeable(lasting);
  ASSERT_TRUE(is_ok(held));
  plan->drop_enter_replies = 1;
  break_clearing_up();
  EXPECT_TRUE(fails_with(ours.upgrade(*held, lasting), errc::outcome_unknown));
  EXPECT_TRUE(fails_with(held->leave_behind(), errc::unavailable));
  EXPECT_TRUE(held->valid()) << "it stayed what it was";
  mend_clearing_up();
  EXPECT_TRUE(wait_until([&] { return held->leave_behind().has_value(); }));
}

// Braces: a cluster takes together what is in one slot.
TEST_P(doubt, lock_all_is_not_ok_with_leases_that_are_over) {
  NEEDS(atomic_multi);
  NEEDS(listing);
  NEEDS_SHORT_TTL();
  const auto a = open_flaky(plan, {.call_timeout = 5s});
  const std::vector<std::string> names{name("{same}a"), name("{same}b")};
  const auto ttl = short_ttl();
  plan->delay_enter_all_answers =
      std::chrono::duration_cast<std::chrono::milliseconds>(ttl) + 400ms;
  const auto all = lock_all(a, names, {.wait = 0s, .ttl = ttl});
  EXPECT_TRUE(fails_with(all, errc::lost));
  EXPECT_TRUE(wait_until([&] { return no_trace_of(names[0]) && no_trace_of(names[1]); }));
}

TEST_P(doubt, cancelled_lock_all_says_cancelled) {
  NEEDS(atomic_multi);
  const auto a = flaky(20s);
  const std::vector<std::string> names{name("{same}a"), name("{same}b")};
  plan->hang_enters = true;
  std::stop_source stop;
  auto waiting = std::async(std::launch::async, [&] {
    return lock_all(a, names, {.wait = patience, .stop = stop.get_token()});
  });
  stop.request_stop();
  ASSERT_EQ(waiting.wait_for(5s), std::future_status::ready);
  EXPECT_TRUE(fails_with(waiting.get(), errc::cancelled));
}

}  // namespace
}  // namespace holdfast::testing

// What breaks here: the store executes a request and its answer never arrives (or the request never did).
// What must hold: nobody claims a lock without proof, and nobody's lock is left behind.
#include "conformance/conformance.hpp"

namespace holdfast::testing {
namespace {

class unanswered : public conformance {
 protected:
  const std::shared_ptr<faults> plan = std::make_shared<faults>();
  // Short, so that giving up is quick.
  client flaky() const { return open_flaky(plan, {.call_timeout = 300ms}); }
};
FOR_EVERY_ENGINE(unanswered);

TEST_P(unanswered, lost_reply_is_settled_by_adopting_the_grant) {
  const auto a = flaky(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  plan->drop_enter_replies = 1;
  auto held = ours.acquire({.wait = 5s});
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(held->valid());
  EXPECT_EQ(a.metrics().settled, 1U);
  EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::busy));
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(theirs.try_acquire()));
}

TEST_P(unanswered, lost_request_is_asked_again) {
  const auto a = flaky();
  mutex lock{a, name()};
  plan->lose_enter_requests = 2;
  EXPECT_TRUE(is_ok(lock.acquire({.wait = 5s})));
  EXPECT_EQ(plan->enters, 3);
}

TEST_P(unanswered, lost_reply_keeps_the_place_in_the_queue) {
  NEEDS(listing);
  const auto a = open(), b = flaky();
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  plan->drop_enter_replies = 1;
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_until([&] { return plan->settles >= 1; }));
  EXPECT_EQ(waiters(name()), 1U) << "one place, not two";
  ASSERT_TRUE(is_ok(held->release()));
  ASSERT_EQ(waiting.wait_for(patience), std::future_status::ready);
  EXPECT_TRUE(is_ok(waiting.get()));
}

TEST_P(unanswered, unsettled_request_is_unknown_and_cleared_up_later) {
  NEEDS(listing);
  const auto a = flaky(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  plan->drop_enter_replies = 1;
  plan->fail_settles = faults::always;
  plan->fail_leaves = faults::always;
  EXPECT_TRUE(fails_with(ours.acquire({.wait = 5s}), errc::outcome_unknown));
  plan->fail_settles = 0;
  plan->fail_leaves = 0;
  EXPECT_TRUE(wait_until([&] { return no_trace_of(name()); }, 5s)) << "an orphan was left behind";
  EXPECT_TRUE(is_ok(theirs.try_acquire()));
}

TEST_P(unanswered, try_lock_with_a_lost_reply_is_no_orphan) {
  NEEDS(listing);
  const auto a = flaky(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  plan->drop_enter_replies = 1;
  auto tried = ours.try_acquire();
  if (tried) {
    EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::busy));
    EXPECT_TRUE(is_ok(tried->release()));
  }
  EXPECT_TRUE(wait_until([&] { return no_trace_of(name()); }));
}

TEST_P(unanswered, refused_calls_are_tried_again_while_patience_lasts) {
  const auto a = flaky();
  mutex lock{a, name()};
  plan->refuse_enters = 3;
  EXPECT_TRUE(is_ok(lock.acquire({.wait = 5s})));
  plan->refuse_enters = faults::always;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(fails_with(lock.acquire({.wait = 30s}), errc::unavailable));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s)
      << "a dead store is reported, not waited out";
  EXPECT_EQ(thrown_by([&] { lock.lock(); }), errc::unavailable);
  EXPECT_EQ(thrown_by([&] { static_cast<void>(lock.try_lock()); }), errc::unavailable)
      << "false would mean busy";
}

TEST_P(unanswered, release_without_an_answer_frees_the_lock_all_the_same) {
  NEEDS(listing);
  const auto a = flaky(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  plan->drop_release_replies = 1;
  const auto outcome = held->release();
  if (!outcome) {
    EXPECT_EQ(outcome.error().code(), errc::outcome_unknown);
  }
  EXPECT_FALSE(held->valid());
  EXPECT_TRUE(wait_until([&] { return no_trace_of(name()); }));
  EXPECT_TRUE(is_ok(theirs.try_acquire()));
  EXPECT_TRUE(is_ok(ours.acquire({.wait = 5s}))) << "and we can come again";
}

TEST_P(unanswered, cancelled_while_the_store_does_not_answer) {
  NEEDS(listing);
  const auto a = flaky();
  mutex lock{a, name()};
  plan->refuse_enters = faults::always;
  std::stop_source stop;
  auto waiting = acquire_later(lock, {.stop = stop.get_token()});
  ASSERT_TRUE(wait_until([&] { return plan->enters >= 1; }));
  stop.request_stop();
  ASSERT_EQ(waiting.wait_for(patience), std::future_status::ready);
  const auto outcome = waiting.get();
  ASSERT_FALSE(outcome);
  EXPECT_TRUE(outcome.error().code() == errc::cancelled ||
              outcome.error().code() == errc::unavailable);
  EXPECT_TRUE(no_trace_of(name()));
}

}  // namespace
}  // namespace holdfast::testing

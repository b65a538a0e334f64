// The acquire loop, driven by made-up answers: every road through it without a store, a thread or a clock.
#include "core/acquire_machine.hpp"

#include <holdfast/options.hpp>

#include <gtest/gtest.h>

namespace holdfast::core {
namespace {

using namespace std::chrono_literals;
using step = acquire_machine::step;

const steady_time t0{std::chrono::hours{1}};

struct acquire_machine_test : testing::Test {
  acquire_machine_test() {
    ask.name = "stock";
    ask.owner = {{1, 2}, 3};
    ask.ttl = 10s;
  }
  acquire_machine make(nanoseconds wait = 5s) {
    return {ask, caps, {deadline_after(t0, wait), 2s}, stop.get_token(), [this] {
              return owner_id{ask.owner.client, ++last_owner};
            }};
  }
  grant fresh(steady_time from = t0) const {
    grant g;
    g.name = ask.name;
    g.owner = ask.owner;
    g.token = {7};
    g.valid_from = from;
    g.ttl = ask.ttl;
    return g;
  }
  entered granted(steady_time from = t0) const { return {entered::kind::granted, fresh(from), {}}; }
  entered waiting() const {
    return {entered::kind::waiting, {}, {ask.name, ask.owner, 5, steady_time::max()}};
  }

  request ask;
  capabilities caps;
  std::stop_source stop;
  std::uint64_t last_owner = 100;
};

using owners = std::vector<owner_id>;

error unavailable() { return {errc::unavailable, "down"}; }
error unknown() { return {errc::outcome_unknown, "no answer"}; }

TEST_F(acquire_machine_test, free_lock_needs_one_step) {
  auto m = make();
  EXPECT_EQ(m.start(t0), step::enter);
  EXPECT_EQ(m.on_entered(granted(), t0), step::done);
  EXPECT_TRUE(m.succeeded());
  EXPECT_EQ(m.granted().token.value, 7U);
  EXPECT_FALSE(m.waited());
}

TEST_F(acquire_machine_test, handed_off_grant_needs_no_second_enter) {
  auto m = make();
  m.start(t0);
  EXPECT_EQ(m.on_entered(waiting(), t0), step::await);
  EXPECT_EQ(m.on_progress(progress{true, fresh(t0 + 1s)}, t0 + 1s), step::done);
  EXPECT_TRUE(m.succeeded());
  EXPECT_TRUE(m.waited());
}

TEST_F(acquire_machine_test, moved_ticket_is_asked_about_again) {
  auto m = make();
  m.start(t0);
  m.on_entered(waiting(), t0);
  EXPECT_EQ(m.on_progress(progress{}, t0 + 1s), step::enter);
}

TEST_F(acquire_machine_test, time_is_up_leaves_the_queue) {
  auto m = make(1s);
  m.start(t0);
  m.on_entered(waiting(), t0);
  EXPECT_EQ(m.on_progress(progress{}, t0 + 1s), step::leave);
  EXPECT_EQ(m.on_left({}, t0 + 1s), step::done);
  EXPECT_EQ(m.failure().code(), errc::timed_out);
  EXPECT_TRUE(m.left_behind().empty());
}

TEST_F(acquire_machine_test, stop_leaves_the_queue_even_with_time_left) {
  auto m = make();
  m.start(t0);
  m.on_entered(waiting(), t0);
  stop.request_stop();
  EXPECT_EQ(m.on_progress(progress{}, t0), step::leave);
  EXPECT_FALSE(m.next_call(t0).stop.stop_requested()) << "the leave itself must not be cancelled";
  EXPECT_EQ(m.on_left({}, t0), step::done);
  EXPECT_EQ(m.failure().code(), errc::cancelled);
}

TEST_F(acquire_machine_test, stop_before_the_start_asks_nobody) {
  stop.request_stop();
  auto m = make();
  EXPECT_EQ(m.start(t0), step::done);
  EXPECT_EQ(m.failure().code(), errc::cancelled);
}

TEST_F(acquire_machine_test, failed_leave_is_an_orphan_to_clear_up) {
  auto m = make(1s);
  m.start(t0);
  m.on_entered(waiting(), t0);
  m.on_progress(progress{}, t0 + 1s);
  EXPECT_EQ(m.on_left(unavailable(), t0 + 1s), step::done);
  EXPECT_EQ(m.failure().code(), errc::timed_out);
  EXPECT_EQ(m.left_behind(), owners{ask.owner});
}

TEST_F(acquire_machine_test, busy_is_an_answer) {
  auto m = make(0s);
  m.start(t0);
  EXPECT_EQ(m.on_entered(entered{}, t0), step::done);
  EXPECT_EQ(m.failure().code(), errc::busy);
}

TEST_F(acquire_machine_test, stale_grant_is_given_back_and_not_believed) {
  auto m = make(forever);
  m.start(t0);
  EXPECT_EQ(m.on_entered(granted(t0), t0 + ask.ttl), step::give_back);
  EXPECT_EQ(m.on_given_back({}, t0 + ask.ttl), step::enter);
}

TEST_F(acquire_machine_test, margin_and_drift_are_taken_off_before_a_grant_is_believed) {
  caps.margin = 1s;
  caps.drift_ppm = 100'000;  // 10 %
  auto m = make(forever);
  m.start(t0);
  EXPECT_EQ(m.on_entered(granted(t0), t0 + 8s), step::give_back);
  auto n = make(forever);
  n.start(t0);
  EXPECT_EQ(n.on_entered(granted(t0), t0 + 8s - 1ns), step::done);
}

TEST_F(acquire_machine_test, unavailable_store_is_tried_again_while_patience_lasts) {
  auto m = make(forever);
  m.start(t0);
  auto now = t0;
  int tries = 0;
  while (m.on_entered(unavailable(), now) == step::pause) {
    ASSERT_GT(m.pause_until(), now);
    now = m.pause_until();
    EXPECT_EQ(m.on_resumed(now), step::enter);
    ASSERT_LT(++tries, 100);
  }
  EXPECT_GT(tries, 3);
  EXPECT_EQ(m.failure().code(), errc::unavailable);
  EXPECT_LE(now, t0 + 2s) << "call_timeout bounds our patience";
  EXPECT_TRUE(m.left_behind().empty()) << "unavailable means it was not done";
}

TEST_F(acquire_machine_test, wait_that_ends_while_the_store_is_away_has_timed_out) {
  auto m = make(1s);
  m.start(t0);
  m.on_entered(waiting(), t0);
  auto now = t0 + 999ms;
  EXPECT_EQ(m.on_progress(progress{}, now), step::enter);
  EXPECT_EQ(m.on_entered(unavailable(), now), step::pause);
  EXPECT_EQ(m.pause_until(), t0 + 1s) << "there is time left, and no more than that";
  now = m.pause_until();
  EXPECT_EQ(m.on_resumed(now), step::enter);
  EXPECT_EQ(m.on_entered(unavailable(), now), step::done);
  EXPECT_EQ(m.failure().code(), errc::timed_out);
  EXPECT_EQ(m.left_behind(), owners{ask.owner});
}

TEST_F(acquire_machine_test, one_attempt_does_not_wait_for_a_sick_store) {
  auto m = make(0s);
  m.start(t0);
  EXPECT_EQ(m.on_entered(unavailable(), t0), step::done);
  EXPECT_EQ(m.failure().code(), errc::unavailable);
}

TEST_F(acquire_machine_test, unanswered_request_is_settled_before_anything_else) {
  auto m = make();
  m.start(t0);
  EXPECT_EQ(m.on_entered(unknown(), t0), step::settle);
  EXPECT_EQ(m.on_settled(granted(), t0), step::done);
  EXPECT_TRUE(m.succeeded()) << "adopted";
  EXPECT_EQ(m.settled(), 1U);
}

TEST_F(acquire_machine_test, settled_as_unknown_owner_asks_again) {
  auto m = make();
  m.start(t0);
  m.on_entered(unknown(), t0);
  EXPECT_EQ(m.on_settled(entered{}, t0), step::enter);
}

TEST_F(acquire_machine_test, what_cannot_be_settled_is_unknown_and_cleared_up_later) {
  auto m = make(forever);
  m.start(t0);
  auto next = m.on_entered(unknown(), t0);
  auto now = t0;
  while (next == step::settle) {
    next = m.on_settled(unavailable(), now);
    if (next != step::pause) break;
    now = m.pause_until();
    next = m.on_resumed(now);
  }
  EXPECT_EQ(next, step::done);
  EXPECT_EQ(m.failure().code(), errc::outcome_unknown);
  EXPECT_EQ(m.left_behind(), owners{ask.owner});
}

TEST_F(acquire_machine_test, refusals_end_it_with_the_engines_own_words) {
  auto m = make();
  m.start(t0);
  EXPECT_EQ(m.on_entered(not_done{errc::denied, "not you"}, t0), step::done);
  EXPECT_EQ(m.failure().code(), errc::denied);
  EXPECT_EQ(m.failure().message(), "not you");
  EXPECT_TRUE(m.left_behind().empty());
}

TEST_F(acquire_machine_test, refusal_that_is_not_certain_is_settled_first) {
  auto m = make();
  m.start(t0);
  EXPECT_EQ(m.on_entered(error{errc::protocol, "what?"}, t0), step::settle);
  EXPECT_EQ(m.on_settled(granted(), t0), step::give_back) << "it was done all the same";
  EXPECT_EQ(m.on_given_back({}, t0), step::done);
  EXPECT_EQ(m.failure().code(), errc::protocol);
  EXPECT_TRUE(m.left_behind().empty());

  auto n = make();
  n.start(t0);
  n.on_entered(error{errc::denied, "not you"}, t0);
  EXPECT_EQ(n.on_settled(error{errc::denied, "nor that"}, t0), step::done);
  EXPECT_EQ(n.failure().message(), "not you");
  EXPECT_EQ(n.left_behind(), owners{ask.owner});
}

TEST_F(acquire_machine_test, refusal_while_queued_gives_the_place_up) {
  for (const auto code : {errc::denied, errc::misconfigured, errc::protocol}) {
    auto m = make();
    m.start(t0);
    m.on_entered(waiting(), t0);
    m.on_progress(progress{}, t0);
    EXPECT_EQ(m.on_entered(not_done{code, "no more"}, t0), step::leave);
    EXPECT_EQ(m.place().handle, 5U);
    EXPECT_EQ(m.on_left(unavailable(), t0), step::done);
    EXPECT_EQ(m.failure().code(), code);
    EXPECT_EQ(m.left_behind(), owners{ask.owner}) << "the leave did not arrive";

    auto n = make();
    n.start(t0);
    n.on_entered(waiting(), t0);
    EXPECT_EQ(n.on_progress(error{code, "no more"}, t0), step::leave);
    EXPECT_EQ(n.on_left({}, t0), step::done);
    EXPECT_TRUE(n.left_behind().empty());
  }
}

TEST_F(acquire_machine_test, owner_that_gave_back_never_comes_again) {
  auto m = make(forever);
  m.start(t0);
  m.on_entered(granted(t0), t0 + ask.ttl);
  EXPECT_EQ(m.on_given_back({}, t0 + ask.ttl), step::enter);
  EXPECT_NE(m.ask().owner, ask.owner);
  EXPECT_EQ(m.ask().owner.client, ask.owner.client);
}

// What took it back may be delivered once more, and must not meet the next attempt.
TEST_F(acquire_machine_test, owner_that_was_taken_back_never_comes_again) {
  auto m = make(forever);
  m.start(t0);
  m.on_entered(waiting(), t0);
  m.on_progress(progress{}, t0);
  EXPECT_EQ(m.on_entered(taken_back{errc::unavailable, "no replica has it"}, t0), step::pause);
  EXPECT_NE(m.ask().owner, ask.owner);
  EXPECT_EQ(m.on_resumed(m.pause_until()), step::enter);
  EXPECT_EQ(m.on_entered(taken_back{errc::protocol, "no such command"}, t0), step::done)
      << "there is no place to be given up";
  EXPECT_TRUE(m.left_behind().empty());
}

TEST_F(acquire_machine_test, owner_that_was_settled_as_nothing_never_comes_again) {
  auto m = make();
  m.start(t0);
  m.on_entered(unknown(), t0);
  EXPECT_EQ(m.on_settled(entered{}, t0), step::enter);
  EXPECT_NE(m.ask().owner, ask.owner);
}

TEST_F(acquire_machine_test, giving_back_in_doubt_leaves_the_old_owner_to_be_cleared_up) {
  auto m = make(forever);
  m.start(t0);
  m.on_entered(granted(t0), t0 + ask.ttl);
  EXPECT_EQ(m.on_given_back(unknown(), t0 + ask.ttl), step::enter);
  EXPECT_EQ(m.on_entered(granted(t0 + ask.ttl), t0 + ask.ttl), step::done);
  EXPECT_TRUE(m.succeeded());
  EXPECT_EQ(m.left_behind(), owners{ask.owner});
}

TEST_F(acquire_machine_test, mute_store_costs_the_caller_its_wait_and_half_a_second) {
  auto m = make(100ms);
  m.start(t0);
  EXPECT_EQ(m.next_call(t0).deadline, t0 + 600ms);
  EXPECT_EQ(m.on_entered(unknown(), t0 + 600ms), step::done) << "no time is left to settle";
  EXPECT_EQ(m.failure().code(), errc::outcome_unknown);
  EXPECT_EQ(m.left_behind(), owners{ask.owner});
}

TEST_F(acquire_machine_test, wait_that_ends_while_the_store_is_mute_timed_out) {
  auto m = make(1s);
  m.start(t0);
  m.on_entered(waiting(), t0);
  EXPECT_EQ(m.on_progress(progress{}, t0 + 1s), step::leave);
  EXPECT_EQ(m.next_call(t0 + 1s).deadline, t0 + 1500ms);
  EXPECT_EQ(m.on_left(unknown(), t0 + 1500ms), step::done);
  EXPECT_EQ(m.failure().code(), errc::timed_out);
}

TEST_F(acquire_machine_test, cancelled_caller_waits_half_a_second_at_most) {
  auto m = make(forever);
  m.start(t0);
  stop.request_stop();
  EXPECT_EQ(m.on_entered(unknown(), t0), step::settle);
  EXPECT_EQ(m.next_call(t0).deadline, t0 + 500ms);
  EXPECT_EQ(m.on_settled(unknown(), t0 + 500ms), step::done);
  EXPECT_EQ(m.failure().code(), errc::cancelled);
  EXPECT_EQ(m.left_behind(), owners{ask.owner});
}

struct upgrade_machine_test : acquire_machine_test {
  upgrade_machine_test() { ask.replaces = &old; }
  grant old;
};

TEST_F(upgrade_machine_test, place_is_marked_and_what_became_of_it_is_asked_after_leaving) {
  auto m = make(1s);
  m.start(t0);
  m.on_entered(waiting(), t0);
  EXPECT_TRUE(m.place().replacing);
  EXPECT_EQ(m.on_progress(progress{}, t0 + 1s), step::leave);
  EXPECT_EQ(m.on_left({}, t0 + 1s), step::settle);
  EXPECT_EQ(m.on_settled(entered{}, t0 + 1s), step::done);
  EXPECT_EQ(m.failure().code(), errc::timed_out);
  EXPECT_FALSE(m.in_doubt());
}

TEST_F(upgrade_machine_test, grant_that_came_while_leaving_is_taken) {
  auto m = make(1s);
  m.start(t0);
  m.on_entered(waiting(), t0);
  m.on_progress(progress{}, t0 + 1s);
  m.on_left({}, t0 + 1s);
  EXPECT_EQ(m.on_settled(granted(), t0 + 1s), step::done);
  EXPECT_TRUE(m.succeeded());
}

TEST_F(upgrade_machine_test, is_never_given_back_nor_left_to_be_released) {
  auto m = make();
  m.start(t0);
  EXPECT_EQ(m.on_entered(granted(t0), t0 + ask.ttl), step::done) << "too late, but it is ours";
  EXPECT_TRUE(m.succeeded());

  auto n = make(0s);
  n.start(t0);
  n.on_entered(unknown(), t0);
  EXPECT_EQ(n.on_settled(unavailable(), t0 + 600ms), step::done);
  EXPECT_TRUE(n.in_doubt());
  EXPECT_TRUE(n.left_behind().empty()) << "an orphan is released, and its base with it";
}

TEST_F(acquire_machine_test, calls_are_bounded_and_waits_end_at_the_deadline) {
  auto m = make(1s);
  m.start(t0);
  EXPECT_EQ(m.next_call(t0).deadline, t0 + 1500ms);
  m.on_entered(waiting(), t0);
  EXPECT_EQ(m.next_call(t0).deadline, t0 + 1s);
  auto n = make(forever);
  n.start(t0);
  EXPECT_EQ(n.next_call(t0).deadline, t0 + 2s);
}

TEST(deadline_after_test, saturates) {
  EXPECT_EQ(deadline_after(t0, forever), steady_time::max());
  EXPECT_EQ(deadline_after(t0, 3s), t0 + 3s);
}

}  // namespace
}  // namespace holdfast::core

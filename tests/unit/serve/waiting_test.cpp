#include "server/waiting.hpp"

#include "unit/serve/fakes.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace holdfast::server {
namespace {

using testing::fake_exchange;

const key& anybody() {
  static const key one;
  return one;
}

struct client_of_a_call {
  std::shared_ptr<fake_exchange> to = std::make_shared<fake_exchange>("POST", "/");
  visit from() const { return {to, nullptr, {}, {}, false, std::chrono::steady_clock::now()}; }
};

TEST(serve_waiting, a_call_is_cancelled_when_the_last_of_its_clients_has_gone) {
  const client_of_a_call first, second;
  const auto call = std::make_shared<waiting_call>(first.from());
  call->attach(second.from(), {});
  first.to->leave();
  EXPECT_FALSE(call->stop().stop_requested());
  EXPECT_FALSE(call->is_abandoned());
  second.to->leave();
  EXPECT_TRUE(call->stop().stop_requested());
  EXPECT_TRUE(call->is_abandoned());
  EXPECT_FALSE(call->cancelled());
}

TEST(serve_waiting, a_client_that_has_gone_before_is_nobody) {
  const client_of_a_call gone;
  gone.to->leave();
  const auto call = std::make_shared<waiting_call>(gone.from());
  EXPECT_TRUE(call->is_abandoned());
  EXPECT_TRUE(call->stop().stop_requested());
}

// A retry by a client that does not wait for the answer, again and again.
TEST(serve_waiting, who_has_joined_and_gone_leaves_nothing) {
  limits bounds{{.waiters = 2}};
  const client_of_a_call first, stays;
  const auto call = std::make_shared<waiting_call>(first.from());
  call->attach(stays.from(), bounds.waiter(anybody()));
  for (int i = 0; i < 1000; ++i) {
    const client_of_a_call joins;
    const std::weak_ptr memory = joins.to;
    call->attach(joins.from(), bounds.waiter(anybody()));
    EXPECT_EQ(bounds.waiters(), 2U);
    joins.to->leave();
    EXPECT_EQ(bounds.waiters(), 1U);
    EXPECT_EQ(memory.use_count(), 1) << "the test's own";
  }
  const client_of_a_call gone;
  gone.to->leave();
  call->attach(gone.from(), bounds.waiter(anybody()));
  EXPECT_EQ(call->size(), 2U);
  EXPECT_EQ(bounds.waiters(), 1U);
  first.to->leave();
  EXPECT_FALSE(call->is_abandoned());
  call->refuse(stopping());
  EXPECT_TRUE(stays.to->answered);
  EXPECT_FALSE(gone.to->answered);
}

TEST(serve_waiting, one_that_comes_when_all_have_gone_is_asked_for_again) {
  const client_of_a_call first, again;
  const auto call = std::make_shared<waiting_call>(first.from());
  first.to->leave();
  EXPECT_FALSE(call->is_wanted_again());
  call->attach(again.from(), {});
  EXPECT_TRUE(call->is_wanted_again());
  call->ask_again();
  EXPECT_FALSE(call->stop().stop_requested());
  again.to->leave();
  EXPECT_TRUE(call->stop().stop_requested());
}

TEST(serve_waiting, all_of_its_clients_get_the_answer) {
  const client_of_a_call first, second;
  const auto call = std::make_shared<waiting_call>(first.from());
  call->attach(second.from(), {});
  call->refuse(stopping());
  for (const auto* each : {&first, &second}) {
    ASSERT_TRUE(each->to->answered);
    EXPECT_EQ(each->to->answered->status, 503);
  }
}

TEST(serve_waiting, the_first_reason_to_cancel_counts) {
  const client_of_a_call one;
  const auto call = std::make_shared<waiting_call>(one.from());
  call->cancel(stopping());
  call->cancel(bad_request("later"));
  EXPECT_TRUE(call->stop().stop_requested());
  ASSERT_TRUE(call->cancelled());
  EXPECT_EQ(call->cancelled()->status, 503);
}

TEST(serve_waiting, a_call_is_found_by_its_request_while_it_is_there) {
  const client_of_a_call one;
  waiting_room room;
  const auto call = std::make_shared<waiting_call>(one.from());
  call->request = "hash";
  EXPECT_EQ(room.find("hash"), nullptr);
  room.enter(call);
  EXPECT_EQ(room.find("hash"), call);
  EXPECT_EQ(room.size(), 1U);
  room.leave(call);
  room.leave(call);
  EXPECT_EQ(room.find("hash"), nullptr);
  EXPECT_EQ(room.size(), 0U);
}

// One that was abandoned may end after another with its request_id has begun.
TEST(serve_waiting, an_older_call_that_leaves_does_not_hide_the_newer_one) {
  const client_of_a_call one, other;
  waiting_room room;
  const auto older = std::make_shared<waiting_call>(one.from());
  const auto newer = std::make_shared<waiting_call>(other.from());
  older->request = newer->request = "hash";
  room.enter(older);
  one.to->leave();
  room.enter(newer);
  room.leave(older);
  EXPECT_EQ(room.find("hash"), newer);
}

TEST(serve_waiting, when_the_service_stops_all_of_them_hear_it) {
  const client_of_a_call one, other;
  waiting_room room;
  const std::vector calls{std::make_shared<waiting_call>(one.from()),
                          std::make_shared<waiting_call>(other.from())};
  for (const auto& each : calls) room.enter(each);
  room.stop_all();
  for (const auto& each : calls) {
    ASSERT_TRUE(each->cancelled());
    EXPECT_EQ(each->cancelled()->code, "stopping");
  }
}

TEST(serve_waiting, who_waits_behind_another_of_this_process_is_shown_in_the_order_of_service) {
  constexpr std::array<std::uint64_t, 2> own{1, 2};
  const client_of_a_call client;
  waiting_room room;
  std::vector<call_ptr> calls;
  const auto add = [&](const std::string& label, int priority, lock_mode mode, bool is_queued) {
    calls.push_back(std::make_shared<waiting_call>(client.from()));
    calls.back()->name = "x";
    calls.back()->shown.label = label;
    calls.back()->shown.priority = priority;
    calls.back()->shown.mode = mode;
    calls.back()->is_queued = is_queued;
    room.enter(calls.back());
  };
  add("first", 0, lock_mode::exclusive, true);
  add("second", 0, lock_mode::exclusive, true);
  add("urgent", 5, lock_mode::exclusive, true);
  add("reader", 0, lock_mode::shared, true);  // each of them is in the store itself
  add("granted at once", 0, lock_mode::exclusive, false);
  const auto shown = [&](const std::string& in_store, int priority) {
    lock_info lock, other;
    lock.name = "x";
    other.name = "y";
    lock.waiters.emplace_back().owner.client = own;
    lock.waiters.back().label = in_store;
    lock.waiters.back().priority = priority;
    std::vector<lock_info> locks{lock, other};
    room.add_to(locks, own);
    EXPECT_TRUE(locks[1].waiters.empty());
    std::vector<std::string> labels;
    for (const auto& each : locks[0].waiters) labels.push_back(each.label);
    return labels;
  };
  EXPECT_EQ(shown("urgent", 5), (std::vector<std::string>{"urgent", "first", "second"}));
  // It came later than the one that the store has already.
  EXPECT_EQ(shown("first", 0), (std::vector<std::string>{"first", "urgent", "second"}));
}

}  // namespace
}  // namespace holdfast::server

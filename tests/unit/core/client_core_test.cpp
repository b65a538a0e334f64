// What a client keeps, and for how long.
#include "core/client_core.hpp"

#include "core/blocking.hpp"
#include "core/gate.hpp"
#include "engines/registry.hpp"
#include "support/flaky_engine.hpp"
#include "support/manual_task.hpp"
#include "support/reaper.hpp"
#include "support/wait_until.hpp"

#include <holdfast/holdfast.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <list>

namespace holdfast::testing {
namespace {

manual_task take(mutex& lock, std::atomic<int>& served) {
  const acquire_options options{.wait = std::chrono::hours{1}};
  auto pending = lock.async_acquire(options);
  const auto held = co_await pending;
  served += held ? 1 : 0;
}

TEST(client_core_test, finished_coroutine_leaves_no_timer) {
  std::atomic<int> served{0};
  std::list<manual_task>
      tasks;  // they go after the client, whose thread may still be in the last of them
  const auto a = client::open("memory:timers");
  mutex lock{a, "stock"};
  auto held = lock.acquire();
  for (int i = 0; i < 200; ++i) tasks.push_back(take(lock, served));
  for (auto& one : tasks) one.start();
  EXPECT_EQ(a.core()->timers(), 200U);
  ASSERT_TRUE(held->release());
  ASSERT_TRUE(wait_until([&] { return served == 200; }));
  EXPECT_TRUE(wait_until([&] { return a.core()->timers() == 0; })) << "kept for an hour";
}

TEST(client_core_test, operation_that_is_never_awaited_does_not_keep_the_last_handle_waiting) {
  { auto never = mutex{client::open("memory:never"), "stock"}.async_acquire(); }
  { auto again = recursive_mutex{client::open("memory:never"), "stock"}.async_acquire(); }
}

manual_task own_everything(std::atomic<bool>& over) {
  mutex lock{client::open("memory:own"), "stock"};
  const acquire_options options{};
  {
    auto pending = lock.async_acquire(options);
    const auto held = co_await pending;
  }
  over = true;
}

TEST(client_core_test, coroutine_that_owns_its_client_may_end_on_the_users_thread) {
  std::vector<std::function<void()>> posted;
  {
    const auto a = client::open("memory:pool", {.resume = [&](std::function<void()> work) {
                                  posted.push_back(std::move(work));
                                }});
    mutex lock{a, "stock"};
    auto held = lock.acquire();
    std::atomic<int> served{0};
    auto task = take(lock, served);
    task.start();
    ASSERT_TRUE(held->release());
    ASSERT_EQ(posted.size(), 1U);
    posted.front()();
    EXPECT_EQ(served, 1);
    task.destroy();
  }
  posted.clear();  // what it kept of the client must not wait for itself
  std::atomic<bool> over{false};
  auto task = own_everything(over);
  task.start();
  EXPECT_TRUE(wait_until([&] { return over.load(); }));
}

TEST(client_core_test, session_that_ends_takes_all_its_leases_in_one_look) {
  engine_listener* ear = nullptr;
  const auto make = [&](const engine_config& config) {
    ear = &config.listener;
    const auto rows = engines::table();
    return std::ranges::find(rows, config.url.scheme(), &engines::engine_entry::scheme)
        ->make(config);
  };
  const auto a = client::try_open_with(make, "memory:losses").value();
  shared_mutex lock{a, "stock"};
  std::vector<lease> held;
  std::vector<owner_id> owners;
  for (int i = 0; i < 3000; ++i) {
    held.push_back(lock.acquire_shared().value());
    owners.push_back(held.back().owner());
  }
  owners.pop_back();
  ear->on_lost(owners, "the session is over");
  EXPECT_EQ(std::ranges::count_if(held, &lease::valid), 1);
  EXPECT_EQ(a.metrics().lost, 2999U);
}

TEST(client_core_test, session_that_is_over_takes_what_counts_on_it) {
  const auto plan = std::make_shared<faults>();
  plan->session = 30s;
  const auto a = open_flaky("memory:session-lost", plan);
  auto old = mutex{a, "stock"}.acquire();
  plan->session_number = 2;
  auto fresh = mutex{a, "shelf"}.acquire();
  plan->lose_session(1, "the session is over");
  EXPECT_FALSE(old->valid());
  EXPECT_TRUE(fresh->valid());
  EXPECT_TRUE(wait_until([&] { return old->lost().stop_requested(); }));
  plan->session_number = 1;  // an answer that comes late
  auto late = mutex{a, "till"}.acquire();
  ASSERT_TRUE(late);
  EXPECT_FALSE(late->valid());
}

TEST(client_core_test, heartbeats_keep_a_lease_without_asking_about_it) {
  const auto plan = std::make_shared<faults>();
  plan->session = 300ms;
  const auto a = open_flaky("memory:heartbeats", plan);
  auto held = mutex{a, "stock"}.acquire();
  EXPECT_TRUE(wait_until([&] { return plan->heartbeats >= 18; })) << "two sessions long";
  EXPECT_TRUE(held->valid());
  EXPECT_EQ(plan->renewals_of(held->owner()), 0) << "a ttl of 30 s";
}

TEST(client_core_test, lease_ends_with_the_last_proof_of_its_session) {
  const auto plan = std::make_shared<faults>();
  plan->session = 300ms;
  const auto a = open_flaky("memory:silence", plan);
  auto held = mutex{a, "stock"}.acquire();
  plan->fail_heartbeats = true;
  EXPECT_TRUE(wait_until([&] { return held->lost().stop_requested(); }));
  EXPECT_FALSE(held->valid());
  EXPECT_GE(plan->heartbeats, 5) << "it was tried often";
  EXPECT_LE(plan->heartbeats, 100) << "but not all the time";
}

// Renewed twenty-five times a second, and each of those says nothing about the session.
TEST(client_core_test, renewals_of_a_short_lease_do_not_keep_heartbeats_from_being_sent) {
  const auto plan = std::make_shared<faults>();
  plan->session = 3s;
  plan->renewals_prove_nothing = true;
  const auto a = open_flaky("memory:short-beside-long", plan);
  auto held = mutex{a, "long"}.acquire({.ttl = 5min});
  auto brief = mutex{a, "short"}.acquire({.ttl = 120ms});
  EXPECT_TRUE(wait_until([&] { return plan->heartbeats >= 6; }, 6s)) << "two thirds of a session";
  EXPECT_TRUE(held->valid());
}

TEST(client_core_test, heartbeat_that_hangs_costs_no_lease) {
  const auto plan = std::make_shared<faults>();
  plan->session = 600ms;
  const auto a = open_flaky("memory:hanging", plan);
  auto held = mutex{a, "stock"}.acquire();
  plan->hang_renewals = 1;
  ASSERT_TRUE(wait_until([&] { return plan->hang_renewals == 0; }));
  const auto seen = plan->heartbeats.load();
  EXPECT_TRUE(wait_until([&] { return plan->heartbeats > seen + 18; })) << "two sessions long";
  EXPECT_TRUE(held->valid());
}

TEST(client_core_test, idle_client_is_heard_where_the_store_ends_silent_sessions) {
  const auto plan = std::make_shared<faults>();
  plan->session = 300ms;
  plan->needs_heartbeats = true;
  const auto a = open_flaky("memory:idle", plan);
  EXPECT_TRUE(wait_until([&] { return plan->heartbeats >= 4; }));
  EXPECT_EQ(a.metrics().renew_failed, 0U);
  plan->fail_heartbeats = true;
  const auto before = std::chrono::steady_clock::now();
  const auto seen = plan->heartbeats.load();
  ASSERT_TRUE(wait_until([&] { return plan->heartbeats > seen + 20; }));
  EXPECT_LT(std::chrono::steady_clock::now() - before, 20 * 100ms) << "tried again at once";
  EXPECT_EQ(a.metrics().renew_failed, 0U) << "nothing depends on it";
}

TEST(client_core_test, idle_client_is_silent_where_its_connection_is_the_session) {
  const auto plan = std::make_shared<faults>();
  plan->session = 100ms;
  const auto a = open_flaky("memory:silent", plan);
  { auto held = mutex{a, "stock"}.acquire(); }
  const auto seen = plan->heartbeats.load();
  EXPECT_TRUE(stays_true([&] { return plan->heartbeats <= seen + 1; }, 500ms));
}

// The grant's own proof is as old as its request; meanwhile heartbeats went well.
TEST(client_core_test, grant_that_was_long_on_its_way_counts_on_the_latest_proof) {
  const auto plan = std::make_shared<faults>();
  plan->session = 3s;
  const auto a = open_flaky("memory:slow", plan);
  auto other = mutex{a, "other"}.acquire();
  ASSERT_TRUE(wait_until([&] { return plan->heartbeats >= 2; }));
  plan->proof_age = 2800ms;
  auto held = mutex{a, "stock"}.acquire();
  ASSERT_TRUE(held);
  EXPECT_GT(held->valid_until() - std::chrono::steady_clock::now(), 1s);
}

TEST(client_core_test, renewal_without_any_verdict_is_told_as_a_failure) {
  const auto plan = std::make_shared<faults>();
  plan->session = 3s;
  const auto a = open_flaky("memory:no-verdict", plan);
  auto held = mutex{a, "stock"}.acquire({.ttl = 300ms});
  plan->hide_verdicts = true;
  EXPECT_TRUE(wait_until([&] { return a.metrics().renew_failed >= 1; }));
}

TEST(client_core_test, lease_of_an_earlier_session_is_asked_about_at_once) {
  const auto plan = std::make_shared<faults>();
  plan->session = 500ms;
  const auto a = open_flaky("memory:reconnected", plan);
  auto held = mutex{a, "stock"}.acquire();
  plan->session_number = 2;
  EXPECT_TRUE(wait_until([&] { return plan->renewals_of(held->owner()) == 1; }));
  const auto seen = plan->heartbeats.load();
  EXPECT_TRUE(wait_until([&] { return plan->heartbeats > seen + 10; })) << "two sessions long";
  EXPECT_TRUE(held->valid());
  EXPECT_EQ(plan->renewals_of(held->owner()), 1) << "once";
}

TEST(client_core_test, lease_of_an_earlier_session_that_cannot_be_asked_about_ends) {
  const auto plan = std::make_shared<faults>();
  plan->session = 300ms;
  const auto a = open_flaky("memory:unasked", plan);
  auto held = mutex{a, "stock"}.acquire();
  plan->fail_renewals = true;
  plan->session_number = 2;
  EXPECT_TRUE(wait_until([&] { return held->lost().stop_requested(); }));
  EXPECT_LE(plan->renewals, 100) << "no busy loop";
}

TEST(client_core_test, loss_that_overtakes_its_grant_is_not_forgotten) {
  const auto plan = std::make_shared<faults>();
  const auto a = open_flaky("memory:overtaken", plan);
  plan->lose_entered = 2;
  auto held = mutex{a, "stock"}.acquire();
  ASSERT_TRUE(held);
  EXPECT_FALSE(held->valid());
  EXPECT_TRUE(wait_until([&] { return held->lost().stop_requested(); }));
  auto reading = shared_mutex{a, "shelf"}.acquire_shared();
  ASSERT_TRUE(reading);
  EXPECT_FALSE(reading->valid());
  EXPECT_EQ(a.metrics().lost, 2U);
  EXPECT_TRUE((mutex{a, "other"}.acquire()->valid()));
}

// Told of the first answer of an owner, which said "waiting": the grant that comes later is another matter.
TEST(client_core_test, loss_that_was_told_before_an_owner_asked_again_does_not_end_its_grant) {
  const auto plan = std::make_shared<faults>();
  const auto a = open_flaky("memory:asked-again", plan), b = client::open("memory:asked-again");
  auto other = mutex{b, "stock"}.acquire();
  plan->lose_entered = 1;
  plan->nudge_awaits = 1;
  std::optional<result<lease>> got;
  std::jthread waits{[&] { got.emplace(mutex{a, "stock"}.acquire()); }};
  ASSERT_TRUE(wait_until([&] { return plan->enters >= 2; }));
  ASSERT_TRUE(other->release());
  waits.join();
  ASSERT_TRUE(*got);
  EXPECT_TRUE((*got)->valid());
  EXPECT_EQ(a.metrics().lost, 0U);
}

TEST(client_core_test, loss_that_overtakes_a_downgrade_is_not_forgotten) {
  const auto plan = std::make_shared<faults>();
  const auto a = open_flaky("memory:shrunk", plan);
  shared_mutex lock{a, "stock"};
  auto held = lock.acquire();
  const auto lost = held->lost();
  plan->lose_downgraded = 1;
  EXPECT_FALSE(lock.downgrade(*held));
  EXPECT_FALSE(held->valid());
  EXPECT_TRUE(wait_until([&] { return lost.stop_requested(); }));
  EXPECT_EQ(a.metrics().lost, 1U);
}

manual_task be_refused(mutex& lock, std::atomic<int>& refused) {
  const acquire_options options{.wait = std::chrono::hours{1}};
  auto pending = lock.async_acquire(options);
  const auto held = co_await pending;
  refused += held ? 0 : 1;
}

TEST(client_core_test, queue_of_any_length_is_refused_without_a_deep_stack) {
  constexpr int count = 20'000;
  std::atomic<int> refused{0};
  std::list<manual_task>
      tasks;  // they go after the client, whose thread may still be in the last of them
  const auto plan = std::make_shared<faults>();
  const auto a = open_flaky("memory:refused", plan, {.handoff_limit = 0});
  mutex lock{a, "stock"};
  auto held = lock.acquire();
  for (int i = 0; i < count; ++i) tasks.push_back(be_refused(lock, refused));
  for (auto& one : tasks) one.start();
  plan->deny_enters = faults::always;
  ASSERT_TRUE(held->release());
  EXPECT_TRUE(wait_until([&] { return refused == count; })) << refused;
}

manual_task hand_on(mutex& lock, const std::atomic<bool>& next_has_it, std::atomic<bool>& saw_it) {
  const acquire_options options{.priority = 1};
  auto pending = lock.async_acquire(options);
  auto held = co_await pending;
  static_cast<void>(held->release());
  saw_it = wait_until([&] { return next_has_it.load(); });
}

// The coroutine runs inside the release of the thread that held the lock, and waits for the one behind it.
TEST(client_core_test, coroutine_that_is_resumed_in_place_may_wait_for_whom_it_made_room) {
  const auto a = client::open("memory:in-place",
                              {.resume = [](const std::function<void()>& work) { work(); }});
  mutex lock{a, "stock"};
  auto held = lock.acquire();
  std::atomic<bool> next_has_it{false}, saw_it{false};
  std::jthread next{[&] {
    const auto got = lock.acquire();
    next_has_it = got.has_value();
  }};
  const auto gate = a.core()->gate_for("stock");
  ASSERT_TRUE(wait_until([&] { return (gate->word & core::hold_word::waiters) != 0; }));
  auto task = hand_on(lock, next_has_it, saw_it);
  task.start();  // its priority takes it ahead of the thread
  ASSERT_TRUE(held->release());
  EXPECT_TRUE(saw_it);
}

TEST(client_core_test, acquire_that_runs_out_of_memory_leaves_the_gate_open) {
  const auto plan = std::make_shared<faults>();
  const auto a = open_flaky("memory:full", plan);
  mutex lock{a, "stock"};
  plan->enters_out_of_memory = 1;
  EXPECT_THROW(static_cast<void>(lock.acquire()), std::bad_alloc);
  EXPECT_TRUE(lock.acquire({.wait = std::chrono::seconds{0}}));
}

TEST(client_core_test, std_face_gives_back_a_valid_lease_before_a_lost_one) {
  const auto a = client::open("memory:faces");
  shared_mutex lock{a, "stock"};
  std::vector<lease> held;
  held.push_back(lock.acquire_shared().value());
  held.push_back(lock.acquire_shared({.max_hold = std::chrono::microseconds{1}}).value());
  ASSERT_TRUE(wait_until([&] { return !held.back().valid(); }));
  EXPECT_TRUE(core::take_one(held).valid());
  EXPECT_FALSE(core::take_one(held).valid());
  EXPECT_TRUE(held.empty());
}

std::size_t address_space_in_megabytes() {
  std::ifstream in{"/proc/self/statm"};
  std::size_t pages = 0;
  in >> pages;
  return pages * 4096 / (1 << 20);
}

TEST(reaper_test, finished_threads_give_their_stacks_back) {
  const auto once = [] {
    std::atomic<bool> done{false};
    support::run_elsewhere([&] { done = true; });
    ASSERT_TRUE(wait_until([&] { return done.load(); }));
  };
  once();
  const auto before = address_space_in_megabytes();
  for (int i = 0; i < 300; ++i) once();
  EXPECT_LT(address_space_in_megabytes(), before + 500) << "8 MB each would be 2,400";
}

}  // namespace
}  // namespace holdfast::testing

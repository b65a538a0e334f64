// co_await: contended, cancelled, destroyed, and very many of them.
#include "conformance/conformance.hpp"

#include "support/end_of_clients.hpp"
#include "support/manual_task.hpp"

#include <atomic>

namespace holdfast::testing {
namespace {

class coroutines : public conformance {};
FOR_EVERY_ENGINE(coroutines);

task<result<lease>> acquire_in(mutex& lock, acquire_options options = {}) {
  co_return co_await lock.async_acquire(options);
}

std::future<result<lease>> start(mutex& lock, acquire_options options = {}) {
  options.wait = std::min(options.wait, patience);
  return later([&lock, options] { return sync_wait(acquire_in(lock, options)); });
}

TEST_P(coroutines, uncontended_acquire_goes_on_at_once) {
  const auto a = open();
  mutex lock{a, name()};
  auto held = sync_wait(acquire_in(lock));
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(held->valid());
  EXPECT_TRUE(fails_with(sync_wait(acquire_in(lock, {.wait = 0s})), errc::busy));
  EXPECT_TRUE(is_ok(held->release()));
}

TEST_P(coroutines, contended_acquire_is_resumed_by_the_release) {
  NEEDS(listing);
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  auto waiting = start(theirs);
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  EXPECT_FALSE(is_ready(waiting));
  ASSERT_TRUE(is_ok(held->release()));
  ASSERT_EQ(waiting.wait_for(patience), std::future_status::ready);
  auto next = waiting.get();
  ASSERT_TRUE(is_ok(next));
  EXPECT_GT(next->token(), held->token());
}

TEST_P(coroutines, wait_ends_with_its_time_or_its_stop_and_leaves_no_trace) {
  NEEDS(listing);
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  EXPECT_TRUE(fails_with(sync_wait(acquire_in(theirs, {.wait = 50ms})), errc::timed_out));
  EXPECT_EQ(waiters(name()), 0U);
  std::stop_source stop;
  auto waiting = start(theirs, {.stop = stop.get_token()});
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  stop.request_stop();
  ASSERT_EQ(waiting.wait_for(patience), std::future_status::ready);
  EXPECT_TRUE(fails_with(waiting.get(), errc::cancelled));
  EXPECT_EQ(waiters(name()), 0U);
  EXPECT_TRUE(fails_with(sync_wait(acquire_in(theirs, {.wait = -1s})), errc::misconfigured));
}

manual_task hold_on(mutex& lock, std::atomic<int>& granted) {
  auto held = co_await lock.async_acquire();
  ++granted;
}

TEST_P(coroutines, destroyed_while_suspended_leaves_no_trace) {
  NEEDS(listing);
  const end_of_clients end;
  const auto a = open(), b = open({.observer = end.observed()});
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  std::atomic<int> granted{0};
  {
    auto waiting = hold_on(theirs, granted);
    waiting.start();
    ASSERT_TRUE(wait_for_waiters(name(), 1));
  }
  EXPECT_TRUE(wait_for_waiters(name(), 0));
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(wait_until([&] { return no_trace_of(name()); }));
  EXPECT_EQ(granted, 0);
  EXPECT_TRUE(is_ok(ours.try_acquire()));
}

TEST_P(coroutines, destroyed_while_waiting_in_line_inside_the_client) {
  const end_of_clients end;
  const auto a = open({.observer = end.observed()});
  mutex lock{a, name()};
  auto held = lock.acquire();
  std::atomic<int> granted{0};
  {
    auto first = hold_on(lock, granted), second = hold_on(lock, granted);
    first.start();
    second.start();
  }
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_EQ(granted, 0);
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
}

task<> count_in(mutex& lock, plain_counter& count, std::atomic<int>& done) {
  {
    auto held = co_await lock.async_acquire();
    EXPECT_TRUE(is_ok(held));
    count.bump();
  }
  ++done;
}

TEST_P(coroutines, a_thousand_on_one_name_are_all_served) {
  constexpr int many = 1'000;
  const auto a = open();
  mutex lock{a, name()};
  plain_counter count;
  std::atomic<int> done{0};
  auto held = lock.acquire();
  for (int i = 0; i < many; ++i) spawn(count_in(lock, count, done));
  EXPECT_EQ(done, 0);
  ASSERT_TRUE(is_ok(held->release()));
  ASSERT_TRUE(wait_until([&] { return done == many; }));
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
  EXPECT_EQ(count.get(), static_cast<std::uint64_t>(many));
}

TEST_P(coroutines, clients_in_competition_are_all_served) {
  constexpr int clients = 4, each = 50;
  plain_counter count;
  std::atomic<int> done{0};
  std::vector<std::unique_ptr<mutex>> locks;
  for (int c = 0; c < clients; ++c) locks.push_back(std::make_unique<mutex>(open(), name()));
  for (int i = 0; i < clients * each; ++i) {
    spawn(count_in(*locks[static_cast<std::size_t>(i % clients)], count, done));
  }
  ASSERT_TRUE(wait_until([&] { return done == clients * each; }));
  mutex last{open(), name()};
  const auto held = last.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(held));
  EXPECT_EQ(count.get(), static_cast<std::uint64_t>(clients * each));
}

TEST_P(coroutines, resumed_where_the_client_was_told_to) {
  NEEDS(listing);
  std::atomic<int> resumed{0};
  const auto a = open();
  const auto b = open({.resume = [&](std::function<void()> go_on) {
    ++resumed;
    go_on();
  }});
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  plain_counter count;
  std::atomic<int> done{0};
  spawn(count_in(theirs, count, done));  // on this thread: it is suspended now
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  ASSERT_TRUE(is_ok(held->release()));
  ASSERT_TRUE(wait_until([&] { return done == 1; }));
  EXPECT_EQ(resumed, 1);
}

// Each says whether it got what it waited for.
task<bool> await_shared(client store, std::string at) {
  shared_mutex lock{store, std::move(at)};
  auto reader = co_await lock.async_acquire_shared();
  if (!reader || !reader->release()) co_return false;
  auto writer = co_await lock.async_acquire();
  co_return writer.has_value() && writer->mode() == lock_mode::exclusive;
}

task<bool> await_upgrade(client store, std::string at) {
  shared_mutex lock{store, std::move(at)};
  auto held = co_await lock.async_acquire_upgradeable();
  if (!held) co_return false;
  const auto upgraded = co_await lock.async_upgrade(*held);
  co_return upgraded.has_value() && held->mode() == lock_mode::exclusive && held->valid();
}

task<bool> await_permits(client store, std::string at) {
  counting_semaphore seats{store, std::move(at), 2};
  const auto taken = co_await seats.async_acquire_permits(2);
  co_return taken.has_value();
}

task<bool> await_latch(client store, std::string at) {
  latch gate{store, std::move(at), 1};
  const auto closed = co_await gate.async_wait(20ms);
  if (closed || !gate.count_down()) co_return false;
  const auto opened = co_await gate.async_wait();
  co_return opened.has_value();
}

task<bool> await_barrier(client store, std::string at) {
  barrier meeting{store, std::move(at), 1};
  const auto phase = meeting.arrive();
  if (!phase) co_return false;
  const auto complete = co_await meeting.async_wait(*phase);
  co_return complete.has_value();
}

task<bool> await_seat(client store, std::string at) {
  election seat{store, std::move(at), "me"};
  const auto leading = co_await seat.async_campaign();
  if (!leading) co_return false;
  const auto seen = co_await seat.async_observe({}, patience);
  if (!seen || !*seen || (*seen)->term != leading->token()) co_return false;
  const auto still = co_await seat.async_observe(leading->token(), 20ms);
  co_return !still && still.error().code() == errc::timed_out;
}

task<bool> await_several(client store, std::vector<std::string> names) {
  const acquire_options once{.wait = 0ns};
  auto all = co_await async_lock_all(store, names, once);
  if (!all || all->size() != names.size()) co_return false;
  mutex second{store, names[1]};
  const bool excluded = !second.try_lock();
  all->clear();
  const auto again = co_await async_lock_all(store, names, once);
  co_return excluded&& again.has_value();
}

// The second name is taken: nothing may stay held.
task<bool> await_several_in_vain(client store, std::vector<std::string> names) {
  mutex taken{store, names[1]}, first{store, names[0]};
  auto held = taken.acquire();
  const acquire_options soon{.wait = 20ms};
  const auto all = co_await async_lock_all(store, names, soon);
  co_return !all && all.error().code() == errc::timed_out && first.try_acquire().has_value();
}

task<bool> await_again(client store, std::string at) {
  recursive_mutex lock{store, std::move(at)};
  const auto outer = co_await lock.async_acquire();
  const auto inner = co_await lock.async_acquire();
  co_return outer.has_value() && inner.has_value() && outer->token() == inner->token();
}

task<> release_and_try(client store, std::string at) {
  mutex lock{store, std::move(at)};
  auto held = co_await lock.async_acquire();
  EXPECT_TRUE(is_ok(held));
  if (!held) co_return;
  const auto token = held->token();
  EXPECT_TRUE(is_ok(co_await held->async_renew()));
  EXPECT_TRUE(held->valid());
  EXPECT_TRUE(is_ok(co_await held->async_release()));
  EXPECT_FALSE(held->valid());
  EXPECT_TRUE(fails_with(co_await held->async_release(), errc::not_held));
  EXPECT_TRUE(fails_with(co_await held->async_renew(), errc::not_held));
  auto next = lock.try_acquire();
  EXPECT_TRUE(is_ok(next)) << "it was free when the coroutine went on";
  EXPECT_TRUE(!next || next->token() > token);
}

TEST_P(coroutines, release_and_renewal_can_be_awaited) {
  const auto a = open(), b = open();
  sync_wait(release_and_try(a, name()));
  EXPECT_TRUE(is_ok(mutex(b, name()).acquire({.wait = patience})));
  const auto numbers = a.metrics();
  EXPECT_EQ(numbers.acquired, 2U);
  EXPECT_EQ(numbers.released, 2U);
}

task<result<void>> awaited(async<void> what) { co_return co_await what; }

TEST_P(coroutines, awaited_renewal_and_release_tell_of_a_loss) {
  NEEDS(listing);
  const auto a = open(), b = open();
  mutex first{a, name("first")}, second{a, name("second")};
  auto renewed = first.acquire().value(), released = second.acquire().value();
  const auto told = renewed.lost(), told_too = released.lost();
  ASSERT_TRUE(is_ok(b.revoke(name("first"))));
  EXPECT_TRUE(fails_with(sync_wait(awaited(renewed.async_renew())), errc::lost));
  EXPECT_TRUE(wait_until([&] { return told.stop_requested(); }));
  ASSERT_TRUE(is_ok(b.revoke(name("second"))));
  EXPECT_TRUE(fails_with(sync_wait(awaited(released.async_release())), errc::lost));
  EXPECT_TRUE(wait_until([&] { return told_too.stop_requested(); }));
}

TEST_P(coroutines, release_that_was_made_for_another_lease_touches_nothing) {
  const auto a = open(), b = open();
  mutex ours{a, name("ours")}, theirs{b, name("theirs")};
  auto held = ours.acquire().value();
  auto made = held.async_release();
  held = theirs.acquire().value();
  EXPECT_TRUE(fails_with(sync_wait(awaited(std::move(made))), errc::not_held));
  EXPECT_TRUE(held.valid());
  EXPECT_TRUE(is_ok(held.renew()));
  EXPECT_TRUE(is_ok(ours.acquire({.wait = patience}))) << "released by the assignment";
}

TEST_P(coroutines, awaited_release_hands_on_inside_the_client) {
  const auto a = open();
  mutex lock{a, name()};
  auto held = lock.acquire().value();
  auto waiting = start(lock);
  EXPECT_TRUE(is_ok(sync_wait(awaited(held.async_release()))));
  ASSERT_EQ(waiting.wait_for(patience), std::future_status::ready);
  EXPECT_TRUE(is_ok(waiting.get()));
}

manual_task let_go(lease& held) { static_cast<void>(co_await held.async_release()); }

TEST_P(coroutines, release_is_carried_out_though_its_coroutine_is_destroyed) {
  // What resumes a coroutine is kept back: so the test may destroy it at any time.
  std::mutex guard;
  std::vector<std::function<void()>> kept_back;
  const end_of_clients end;
  const auto a = open({.observer = end.observed(), .resume = [&](std::function<void()> work) {
                         const std::lock_guard lock{guard};
                         kept_back.push_back(std::move(work));
                       }});
  const auto b = open();
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire().value();
  {
    auto going = let_go(held);
    going.start();
  }
  EXPECT_FALSE(held.valid());
  EXPECT_TRUE(is_ok(theirs.acquire({.wait = patience})));
  const std::lock_guard lock{guard};
  for (const auto& work : kept_back) work();  // finds its coroutine gone
}

TEST_P(coroutines, every_face_can_be_awaited) {
  const auto a = open();
  EXPECT_TRUE(sync_wait(await_again(a, name("again"))));
  if (caps().listing) {
    EXPECT_TRUE(sync_wait(await_seat(a, name("seat"))));
  }
  EXPECT_TRUE(sync_wait(await_several(a, {name("x"), name("y"), name("z")})));
  EXPECT_TRUE(sync_wait(await_several_in_vain(a, {name("x"), name("y")})));
  if (caps().shared) {
    EXPECT_TRUE(sync_wait(await_shared(a, name("shared"))));
  }
  if (caps().upgrade) {
    EXPECT_TRUE(sync_wait(await_upgrade(a, name("upgrade"))));
  }
  if (caps().permits) {
    EXPECT_TRUE(sync_wait(await_permits(a, name("permits"))));
  }
  if (caps().counters) {
    EXPECT_TRUE(sync_wait(await_latch(a, name("latch"))));
    EXPECT_TRUE(sync_wait(await_barrier(a, name("barrier"))));
  }
}

}  // namespace
}  // namespace holdfast::testing

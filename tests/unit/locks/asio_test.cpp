// Our acquires in Boost.Asio programs.
#ifdef __SANITIZE_THREAD__
#define BOOST_ASIO_DISABLE_FENCED_BLOCK  // gcc's TSan knows no fences; Asio's mutexes order the same
#endif
#include <holdfast/asio.hpp>
#include <holdfast/holdfast.hpp>

#include "support/end_of_clients.hpp"
#include "support/expect.hpp"
#include "support/wait_until.hpp"

#include <gtest/gtest.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>

#include <thread>

namespace holdfast::testing {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using namespace asio::experimental::awaitable_operators;

struct asio_programs : ::testing::Test {
  end_of_clients end;
  client store = client::open(
      std::string{"memory:asio-"} + ::testing::UnitTest::GetInstance()->current_test_info()->name(),
      {.observer = end.observed()});
  mutex lock{store, "stock"};
  asio::io_context context;

  std::size_t waiters() const { return store.inspect("stock").value().waiters.size(); }
};

asio::awaitable<void> take_and_release(mutex& lock, int& done) {
  const auto here = std::this_thread::get_id();
  auto held = co_await with_asio(lock.async_acquire());
  EXPECT_TRUE(is_ok(held));
  EXPECT_EQ(std::this_thread::get_id(), here);
  EXPECT_TRUE(is_ok(co_await with_asio(held->async_renew())));
  EXPECT_TRUE(is_ok(co_await with_asio(held->async_release())));
  ++done;
}

TEST_F(asio_programs, awaitable_takes_and_releases_on_its_own_thread) {
  int done = 0;
  for (int i = 0; i < 3; ++i) asio::co_spawn(context, take_and_release(lock, done), asio::detached);
  context.run();
  EXPECT_EQ(done, 3);
}

asio::awaitable<void> wait_for_it(mutex& lock, std::atomic<int>& done) {
  const acquire_options patient{.wait = 20s};
  auto held = co_await with_asio(lock.async_acquire(patient));
  EXPECT_TRUE(is_ok(held));
  ++done;
}

TEST_F(asio_programs, context_runs_until_a_contended_acquire_is_served) {
  auto other = client::open(store.url());
  auto held = mutex{other, "stock"}.acquire().value();
  std::atomic<int> done{0};
  asio::co_spawn(context, wait_for_it(lock, done), asio::detached);
  std::jthread runs{[&] { context.run(); }};
  ASSERT_TRUE(wait_until([&] { return waiters() == 1; }));
  EXPECT_EQ(done, 0);
  EXPECT_TRUE(is_ok(held.release()));
  runs.join();
  EXPECT_EQ(done, 1);
}

TEST_F(asio_programs, many_on_a_pool_are_all_served) {
  asio::thread_pool pool{3};
  std::atomic<int> done{0};
  for (int i = 0; i < 300; ++i) asio::co_spawn(pool, wait_for_it(lock, done), asio::detached);
  pool.join();
  EXPECT_EQ(done, 300);
}

TEST_F(asio_programs, future_or_callback_will_do_as_well) {
  auto asked = with_asio(lock.async_acquire(), asio::bind_executor(context, asio::use_future));
  context.run();
  auto held = asked.get();
  ASSERT_TRUE(is_ok(held));
  bool told = false;
  with_asio(held->async_release(), asio::bind_executor(context, [&](const result<void>& done) {
              told = done.has_value();
            }));
  EXPECT_FALSE(told) << "never inside with_asio";
  context.restart();
  context.run();
  EXPECT_TRUE(told);
}

asio::awaitable<void> give_up_after(mutex& lock, nanoseconds time, bool& timed_out) {
  asio::steady_timer timer{co_await asio::this_coro::executor, time};
  const auto first =
      co_await (with_asio(lock.async_acquire()) || timer.async_wait(asio::use_awaitable));
  timed_out = first.index() == 1;
}

TEST_F(asio_programs, acquire_that_a_timer_beats_leaves_no_trace) {
  auto held = mutex{store, "stock"}.acquire().value();
  bool timed_out = false;
  asio::co_spawn(context, give_up_after(lock, 50ms, timed_out), asio::detached);
  context.run();
  EXPECT_TRUE(timed_out);
  EXPECT_EQ(waiters(), 0U);
  EXPECT_TRUE(is_ok(held.release()));
  EXPECT_TRUE(is_ok(lock.try_acquire()));
}

TEST_F(asio_programs, context_that_goes_takes_its_waiters_along) {
  auto other = client::open(store.url());
  auto held = mutex{other, "stock"}.acquire().value();
  std::atomic<int> done{0};
  {
    asio::io_context brief;
    asio::co_spawn(brief, wait_for_it(lock, done), asio::detached);
    brief.poll();
    ASSERT_TRUE(wait_until([&] { return waiters() == 1; }));
  }
  EXPECT_TRUE(wait_until([&] { return waiters() == 0; }));
  EXPECT_TRUE(is_ok(held.release()));
  EXPECT_TRUE(is_ok(lock.acquire({.wait = 10s})));
  EXPECT_EQ(done, 0);
}

// A strand has a part in its context that is used up to its own end.
TEST_F(asio_programs, context_that_goes_takes_strands_along) {
  auto other = client::open(store.url());
  auto held = mutex{other, "stock"}.acquire().value();
  std::atomic<int> done{0};
  {
    asio::io_context brief;
    asio::co_spawn(asio::make_strand(brief), wait_for_it(lock, done), asio::detached);
    brief.poll();
    ASSERT_TRUE(wait_until([&] { return waiters() == 1; }));
  }
  EXPECT_TRUE(wait_until([&] { return waiters() == 0; }));
  EXPECT_EQ(done, 0);
}

TEST_F(asio_programs, context_may_go_while_the_grant_arrives) {
  auto other = client::open(store.url());
  for (int round = 0; round < 300; ++round) {
    auto held = mutex{other, "stock"}.acquire().value();
    std::atomic<int> done{0};
    auto brief = std::make_unique<asio::io_context>();
    asio::co_spawn(*brief, wait_for_it(lock, done), asio::detached);
    brief->poll();
    std::jthread gives_back{[&] { EXPECT_TRUE(is_ok(held.release())); }};
    brief.reset();
    gives_back.join();
  }
  EXPECT_TRUE(is_ok(lock.acquire({.wait = 10s})));
}

asio::awaitable<void> take_both(client store, int& taken) {
  const std::vector<std::string> names{"a", "b"};
  const acquire_options patient{.wait = 20s};
  const auto all = co_await with_asio(async_lock_all(store, names, patient));
  if (all) taken = static_cast<int>(all->size());
}

TEST_F(asio_programs, tasks_can_be_awaited_too) {
  int taken = 0;
  asio::co_spawn(context, take_both(store, taken), asio::detached);
  context.run();
  EXPECT_EQ(taken, 2);
}

}  // namespace
}  // namespace holdfast::testing

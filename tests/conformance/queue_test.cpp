// Who comes next: order, priorities, and those who stop waiting.
#include "conformance/conformance.hpp"

#include "support/manual_task.hpp"

#include <deque>
#include <mutex>

namespace holdfast::testing {
namespace {

class queue : public conformance {
 protected:
  // A client of its own that waits on a thread of its own, and writes down when it was served.
  struct contender {
    contender(const client& own, const std::string& at) : lock{own, at} {}
    mutex lock;
    std::future<void> served;
  };

  void line_up(const std::string& label, acquire_options options = {}) {
    options.wait = patience;
    contenders_.emplace_back(open(), name());
    auto& one = contenders_.back();
    one.served = std::async(std::launch::async, [this, &one, options, label] {
      auto held = one.lock.acquire(options);
      ASSERT_TRUE(is_ok(held));
      const std::lock_guard guard{guard_};
      order_ += label;
    });
    ASSERT_TRUE(wait_for_waiters(name(), contenders_.size()));
  }
  std::string order() {
    for (auto& one : contenders_) {
      if (one.served.wait_for(patience) != std::future_status::ready) ADD_FAILURE() << "starved";
    }
    const std::lock_guard guard{guard_};
    return order_;
  }

 private:
  std::mutex guard_;
  std::string order_;
  std::deque<contender> contenders_;
};
FOR_EVERY_ENGINE(queue);

TEST_P(queue, fifo_order_is_kept) {
  NEEDS(fifo);
  NEEDS(listing);
  mutex lock{open(), name()};
  auto held = lock.acquire();
  for (const auto* label : {"a", "b", "c", "d"}) line_up(label);
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_EQ(order(), "abcd");
}

TEST_P(queue, priorities_come_first_and_equals_keep_their_order) {
  NEEDS(priorities);
  NEEDS(listing);
  mutex lock{open(), name()};
  auto held = lock.acquire();
  line_up("a");
  line_up("b", {.priority = 5});
  line_up("c");
  line_up("d", {.priority = 5});
  line_up("e", {.priority = -1});
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_EQ(order(), "bdace");
}

TEST_P(queue, without_the_capability_a_priority_is_refused) {
  if (caps().priorities) GTEST_SKIP() << GetParam().name << " has priorities";
  mutex lock{open(), name()};
  EXPECT_TRUE(fails_with(lock.acquire({.priority = 1}), errc::unsupported));
}

TEST_P(queue, barging_overtakes_those_who_wait_and_fifo_does_not) {
  NEEDS(fifo);
  NEEDS(shared);
  NEEDS(listing);
  const auto a = open();
  shared_mutex lock{a, name()};
  auto reader = lock.acquire_shared();
  ASSERT_TRUE(is_ok(reader));
  line_up("w");
  EXPECT_TRUE(fails_with(lock.acquire_shared({.wait = 0s}), errc::busy));
  EXPECT_TRUE(is_ok(lock.acquire_shared({.wait = 0s, .order = queue_order::barging})));
  ASSERT_TRUE(is_ok(reader->release()));
  EXPECT_EQ(order(), "w");
}

// Whoever comes in over the head of a waiter has a newer token than that one had coming; so have those behind it.
TEST_P(queue, tokens_rise_behind_those_who_were_overtaken) {
  NEEDS(fifo);
  NEEDS(shared);
  NEEDS(listing);
  const auto a = open(), b = open(), c = open();
  shared_mutex reading{a, name()}, first{b, name()}, second{c, name()};
  auto reader = reading.acquire_shared();
  ASSERT_TRUE(is_ok(reader));
  const auto in_line = [&](shared_mutex& lock, std::size_t place) {
    auto out = std::async(std::launch::async, [&lock] { return lock.acquire({.wait = patience}); });
    EXPECT_TRUE(wait_for_waiters(name(), place));
    return out;
  };
  auto one = in_line(first, 1);
  auto over = reading.acquire_shared({.wait = 0s, .order = queue_order::barging});
  ASSERT_TRUE(is_ok(over));
  auto two = in_line(second, 2);
  auto newest = over->token();
  EXPECT_GT(newest, reader->token());
  ASSERT_TRUE(is_ok(over->release()));
  ASSERT_TRUE(is_ok(reader->release()));
  for (auto* waiting : {&one, &two}) {
    ASSERT_EQ(waiting->wait_for(patience), std::future_status::ready);
    auto held = waiting->get();
    ASSERT_TRUE(is_ok(held));
    EXPECT_GT(held->token(), newest);
    newest = held->token();
    EXPECT_TRUE(is_ok(held->release()));
  }
}

TEST_P(queue, cancelled_waiter_leaves_no_trace) {
  NEEDS(listing);
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  std::stop_source stop;
  auto waiting = acquire_later(theirs, {.stop = stop.get_token()});
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  EXPECT_FALSE(is_ready(waiting));
  stop.request_stop();
  ASSERT_EQ(waiting.wait_for(patience), std::future_status::ready);
  EXPECT_TRUE(fails_with(waiting.get(), errc::cancelled));
  EXPECT_EQ(waiters(name()), 0U);
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(no_trace_of(name()));
  EXPECT_TRUE(fails_with(theirs.acquire({.stop = stop.get_token()}), errc::cancelled))
      << "stopped before it began";
}

TEST_P(queue, cancelled_in_the_middle_the_others_move_up) {
  NEEDS(fifo);
  NEEDS(listing);
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  std::stop_source stop;
  auto waiting = acquire_later(theirs, {.stop = stop.get_token(), .label = "x"});
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  mutex last{open(), name()};
  auto behind = acquire_later(last);
  ASSERT_TRUE(wait_for_waiters(name(), 2));
  stop.request_stop();
  EXPECT_TRUE(fails_with(waiting.get(), errc::cancelled));
  ASSERT_TRUE(is_ok(held->release()));
  ASSERT_EQ(behind.wait_for(patience), std::future_status::ready);
  EXPECT_TRUE(is_ok(behind.get()));
}

manual_task wait_for(mutex& lock) { static_cast<void>(co_await lock.async_acquire()); }

TEST_P(queue, dead_waiter_is_skipped) {
  NEEDS(listing);
  mutex ours{open(), name()};
  auto held = ours.acquire();
  {
    mutex theirs{open(), name()};
    auto dies = wait_for(theirs);
    dies.start();
    ASSERT_TRUE(wait_for_waiters(name(), 1));
    dies.destroy();
  }  // the client is gone, with a waiter in the queue a moment ago
  mutex next{open(), name()};
  auto waiting = acquire_later(next);
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  ASSERT_TRUE(is_ok(held->release()));
  ASSERT_EQ(waiting.wait_for(patience), std::future_status::ready);
  EXPECT_TRUE(is_ok(waiting.get()));
}

TEST_P(queue, killed_waiter_is_skipped) {
  NEEDS(listing);
  NEEDS(cross_process);
  mutex ours{open(), name()};
  auto held = ours.acquire();
  child dies{url()};
  dies.tell("acquire " + name() + " 10s");
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  mutex next{open(), name()};
  auto waiting = later([&] { return next.acquire({.wait = patience_for_the_dead()}); });
  ASSERT_TRUE(wait_for_waiters(name(), 2));
  dies.kill();
  ASSERT_TRUE(is_ok(held->release()));
  ASSERT_EQ(waiting.wait_for(patience_for_the_dead()), std::future_status::ready);
  EXPECT_TRUE(is_ok(waiting.get()));
}

}  // namespace
}  // namespace holdfast::testing

// User code that we call: where it runs, what it may do, and that it has ended when the client has.
#include "conformance/conformance.hpp"

#include <atomic>
#include <set>

namespace holdfast::testing {
namespace {

class hooks : public conformance {};
FOR_EVERY_ENGINE(hooks);

struct curious final : observer {
  std::function<void()> do_this = [] {};  // set while `over`, or before the client is there
  std::atomic<int> begun{0}, ended{0};
  std::atomic<bool> on_a_callers_thread{false};
  std::atomic<bool> over{false};      // do nothing any more
  std::set<std::thread::id> callers;  // set before anything happens

  void call() {
    ++begun;
    if (callers.contains(std::this_thread::get_id())) on_a_callers_thread = true;
    if (!over) do_this();
    ++ended;
  }
  void acquired(std::string_view, fencing_token, nanoseconds) override { call(); }
  void released(std::string_view, fencing_token) override { call(); }
  void lost(std::string_view, fencing_token, std::string_view) override { call(); }
};

TEST_P(hooks, may_ask_the_lease_and_take_the_lock) {
  const auto watcher = std::make_shared<curious>();
  watcher->callers = {std::this_thread::get_id()};
  watcher->over = true;  // until everything is there
  const auto a = open({.observer = watcher});
  mutex lock{a, name()}, other{a, name("other")};
  const auto kept = other.acquire();
  std::atomic<int> asked{0};
  watcher->do_this = [&] {
    if (++asked > 20) return;
    static_cast<void>(kept->valid());
    static_cast<void>(kept->mode());
    static_cast<void>(lock.try_acquire());
  };
  auto held = lock.acquire();
  ASSERT_TRUE(is_ok(held));
  watcher->over = false;
  auto next = acquire_later(lock);  // handed on inside the process
  EXPECT_FALSE(wait_until([&] { return is_ready(next); }, 20ms));
  ASSERT_TRUE(is_ok(held->release()));
  ASSERT_EQ(next.wait_for(patience), std::future_status::ready) << "a hook stands in the way";
  EXPECT_TRUE(is_ok(next.get()));
  EXPECT_TRUE(wait_until([&] { return asked >= 3; }));
  EXPECT_FALSE(watcher->on_a_callers_thread);
  // What the hooks ask goes before the client does.
  watcher->over = true;
  EXPECT_TRUE(wait_until([&] { return watcher->begun == watcher->ended; }));
}

TEST_P(hooks, that_take_long_do_not_delay_the_news_of_a_loss) {
  const auto watcher = std::make_shared<curious>();
  std::atomic<bool> go_on{false};
  watcher->do_this = [&] { wait_until([&] { return go_on.load(); }); };
  const auto a = open({.observer = watcher});
  auto held = mutex{a, name()}.acquire({.max_hold = 100ms});
  ASSERT_TRUE(is_ok(held));
  const auto lost = held->lost();
  EXPECT_TRUE(wait_until([&] { return lost.stop_requested(); }));
  EXPECT_EQ(watcher->ended, 0);
  go_on = true;
}

TEST_P(hooks, have_ended_when_the_last_handle_is_gone) {
  for (int round = 0; round < 10; ++round) {
    const auto watcher = std::make_shared<curious>();
    watcher->do_this = [] { std::this_thread::sleep_for(5ms); };
    {
      const auto a = open({.observer = watcher});
      mutex lock{a, name()};
      for (int i = 0; i < 3; ++i) static_cast<void>(lock.acquire({.max_hold = 1us}));
    }
    EXPECT_EQ(watcher->begun, watcher->ended);
    EXPECT_EQ(watcher.use_count(), 1) << "the client is not gone";
  }
}

TEST_P(hooks, may_drop_the_last_handle) {
  const auto watcher = std::make_shared<curious>();
  auto a = std::make_unique<client>(open({.observer = watcher}));
  auto lock = std::make_unique<mutex>(*a, name());
  std::atomic<bool> may_drop{false}, dropped{false}, both_gone{false};
  watcher->do_this = [&] {
    if (dropped.exchange(true)) return;
    wait_until([&] { return may_drop.load(); });
    lock.reset();
    a.reset();
    both_gone = true;
  };
  static_cast<void>(lock->acquire());
  may_drop = true;
  EXPECT_TRUE(wait_until([&] { return both_gone.load(); }));
  EXPECT_TRUE(wait_until([&] { return watcher.use_count() == 1; }));
}

TEST_P(hooks, slow_loss_callback_costs_no_other_lease_its_renewal) {
  NEEDS_SHORT_TTL();
  const auto a = open();
  mutex brief{a, name("brief")}, lasting{a, name("lasting")};
  const auto ttl = std::max<nanoseconds>(caps().min_ttl, 900ms);
  auto held = lasting.acquire({.ttl = ttl});
  auto doomed = brief.acquire({.max_hold = 20ms});
  std::atomic<bool> go_on{false}, called{false};
  const std::stop_callback slow{doomed->lost(), [&] {
                                  called = true;
                                  wait_until([&] { return go_on.load(); });
                                }};
  ASSERT_TRUE(wait_until([&] { return called.load(); }));
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 2 * ttl));
  go_on = true;
}

}  // namespace
}  // namespace holdfast::testing

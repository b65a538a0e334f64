// Threads of one client that want the same lock, and what is counted and told.
#include "conformance/conformance.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

namespace holdfast::testing {
namespace {

class handoff : public conformance {};
FOR_EVERY_ENGINE(handoff);

TEST_P(handoff, inside_a_client_keeps_the_token) {
  const auto a = open();
  mutex lock{a, name()};
  std::vector<std::uint64_t> tokens;  // in order of the grants; guarded by the lock under test
  constexpr int threads = 3, rounds = 40;
  auto held = lock.acquire();
  tokens.push_back(held->token().value);
  std::vector<std::jthread> pool;
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([&] {
      for (int round = 0; round < rounds; ++round) {
        auto mine = lock.acquire();
        ASSERT_TRUE(is_ok(mine));
        tokens.push_back(mine->token().value);
        std::this_thread::yield();
      }
    });
  }
  ASSERT_TRUE(is_ok(held->release()));
  pool.clear();
  ASSERT_EQ(tokens.size(), static_cast<std::size_t>(threads * rounds + 1));
  // Whether anybody met at the gate so far was up to the scheduler: go on until somebody did.
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (a.metrics().handed_off == 0 && std::chrono::steady_clock::now() < deadline) {
    auto outer = lock.acquire();
    tokens.push_back(outer->token().value);
    std::atomic<bool> comes{false};
    const std::jthread next{[&] {
      comes = true;
      const auto mine = lock.acquire();
      tokens.push_back(mine->token().value);
    }};
    while (!comes) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    ASSERT_TRUE(is_ok(outer->release()));
  }
  EXPECT_TRUE(std::ranges::is_sorted(tokens));
  const std::set<std::uint64_t> grants{tokens.begin(), tokens.end()};
  const auto seen = a.metrics();
  EXPECT_GE(seen.handed_off, 1U) << "nobody ever waited inside the process";
  EXPECT_EQ(grants.size() + seen.handed_off, tokens.size()) << "same grant, same token";
}

TEST_P(handoff, is_bounded_while_another_client_waits) {
  NEEDS(fifo);
  NEEDS(listing);
  constexpr unsigned limit = 8;
  const auto a = open({.handoff_limit = limit, .handoff_time = 10s});
  const auto b = open();
  mutex ours{a, name()}, theirs{b, name()};
  std::atomic<bool> done{false}, other_waits{false};
  std::atomic<unsigned> since{0};  // our turns since the other began to wait
  std::vector<std::jthread> pool;
  for (int t = 0; t < 3; ++t) {
    pool.emplace_back([&] {
      while (!done) {
        auto held = ours.acquire();
        ASSERT_TRUE(is_ok(held));
        if (other_waits) ++since;
        std::this_thread::sleep_for(1ms);
      }
    });
  }
  EXPECT_TRUE(wait_until([&] { return a.metrics().handed_off >= 3; }));
  auto waiting = acquire_later(theirs);
  EXPECT_TRUE(wait_until([&] { return waiters(name()) == 1 || is_ready(waiting); }));
  other_waits = true;
  auto served = waiting.get();
  const auto turns = since.load();
  done = true;
  EXPECT_TRUE(is_ok(served)) << "starved";
  if (served) static_cast<void>(served->release());  // or our threads would wait for it for ever
  EXPECT_LE(turns, limit + 2) << "a grant is handed on at most handoff_limit times";
}

TEST_P(handoff, can_be_switched_off) {
  const auto a = open({.handoff_limit = 0});
  mutex lock{a, name()};
  std::vector<std::jthread> pool;
  std::vector<std::uint64_t> tokens;
  for (int t = 0; t < 3; ++t) {
    pool.emplace_back([&] {
      for (int round = 0; round < 30; ++round) {
        auto held = lock.acquire();
        ASSERT_TRUE(is_ok(held));
        tokens.push_back(held->token().value);
      }
    });
  }
  pool.clear();
  const std::set<std::uint64_t> grants{tokens.begin(), tokens.end()};
  EXPECT_EQ(grants.size(), tokens.size()) << "each turn is a grant of its own";
  EXPECT_EQ(a.metrics().handed_off, 0U);
}

TEST_P(handoff, metrics_count_what_happened) {
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  EXPECT_EQ(a.metrics().held_now, 1U);
  EXPECT_FALSE(theirs.try_acquire());
  EXPECT_FALSE(theirs.acquire({.wait = 20ms}));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(theirs.acquire({.stop = stop.get_token()}));
  ASSERT_TRUE(is_ok(held->renew()));
  ASSERT_TRUE(is_ok(held->release()));
  const auto ours_seen = a.metrics(), theirs_seen = b.metrics();
  EXPECT_EQ(ours_seen.acquired, 1U);
  EXPECT_EQ(ours_seen.released, 1U);
  EXPECT_EQ(ours_seen.held_now, 0U);
  EXPECT_GE(ours_seen.renewed, 1U);
  EXPECT_GE(ours_seen.renew.count, 1U);
  EXPECT_EQ(ours_seen.lost, 0U);
  EXPECT_EQ(theirs_seen.acquired, 0U);
  EXPECT_EQ(theirs_seen.busy, 1U);
  EXPECT_EQ(theirs_seen.timed_out, 1U);
  EXPECT_EQ(theirs_seen.cancelled, 1U);
}

// Writes down every hook as a word.
class diary final : public observer {
 public:
  void acquired(std::string_view, fencing_token, nanoseconds) override { note("acquired"); }
  void released(std::string_view, fencing_token) override { note("released"); }
  void release_failed(std::string_view, const error&) override { note("release_failed"); }
  void lost(std::string_view, fencing_token, std::string_view) override { note("lost"); }
  void renew_failed(const error&) override { note("renew_failed"); }
  void settled(std::string_view, bool adopted) override { note(adopted ? "adopted" : "removed"); }

  std::size_t count(const std::string& word) const {
    const std::lock_guard lock{guard_};
    return words_.count(word);
  }

 private:
  void note(const char* word) {
    {
      const std::lock_guard lock{guard_};
      words_.insert(word);
    }
    throw std::runtime_error("observers may throw");
  }
  mutable std::mutex guard_;
  std::multiset<std::string> words_;
};

TEST_P(handoff, observer_hooks_are_called_and_may_throw) {
  NEEDS(listing);
  const auto seen = std::make_shared<diary>();
  const auto plan = std::make_shared<faults>();
  const auto a = open_flaky(plan, {.observer = seen});
  mutex lock{a, name()};
  { const std::scoped_lock guard{lock}; }
  EXPECT_TRUE(wait_until([&] { return seen->count("released") == 1; }));
  EXPECT_EQ(seen->count("acquired"), 1U);

  plan->drop_enter_replies = 1;
  auto held = lock.acquire({.wait = 5s});
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(wait_until([&] { return seen->count("adopted") == 1; }));
  ASSERT_EQ(open().revoke(name()).value(), 1U);
  EXPECT_TRUE(wait_until([&] { return seen->count("lost") == 1; }));

  lock.lock();
  ASSERT_EQ(open().revoke(name()).value(), 1U);
  EXPECT_TRUE(wait_until([&] { return seen->count("lost") == 2; }));
  lock.unlock();
  EXPECT_TRUE(wait_until([&] { return seen->count("release_failed") == 1; }))
      << "an unlock of what was lost is reported";
}

TEST_P(handoff, observer_learns_of_failed_renewals) {
  NEEDS_SHORT_TTL();
  const auto seen = std::make_shared<diary>();
  const auto plan = std::make_shared<faults>();
  const auto a = open_flaky(plan, {.observer = seen});
  mutex lock{a, name()};
  plan->fail_renewals = true;
  auto held = lock.acquire({.ttl = short_ttl()});
  EXPECT_TRUE(wait_until([&] { return seen->count("renew_failed") >= 1; }));
  EXPECT_TRUE(wait_until([&] { return seen->count("lost") == 1; }));
}

}  // namespace
}  // namespace holdfast::testing

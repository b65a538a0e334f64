// What the bad days of one engine share. Everything goes through the public API; the test looks into the server, and
// interferes with it, on a connection of its own.
//
//   HOLDFAST_REQUIRE_ENGINES=redis   a missing redis-server fails instead of skipping (CI sets it; "all" is all)
#pragma once

#include <holdfast/holdfast.hpp>

#include "support/expect.hpp"
#include "support/fault_proxy.hpp"
#include "support/loss_recorder.hpp"
#include "support/redis_server.hpp"
#include "support/required.hpp"
#include "support/wait_until.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::testing {

// Tests of this fixture start servers of their own: most of what they break could not be shared.
class redis_faults : public ::testing::Test {
 protected:
  void SetUp() override { need(redis_server::available(), "redis"); }
};

// All tokens of one name, in the order in which they were given: S1.
class token_log {
 public:
  void add(fencing_token token) {
    const std::lock_guard lock{guard_};
    EXPECT_GT(token, newest_) << "grant " << count_ + 1;
    newest_ = std::max(newest_, token);
    ++count_;
  }
  std::size_t count() const {
    const std::lock_guard lock{guard_};
    return count_;
  }

 private:
  mutable std::mutex guard_;
  fencing_token newest_{};
  std::size_t count_ = 0;
};

// Until when a lease was valid: its last validity, seen while it was.
inline steady_time end_of_validity(const lease& held) {
  auto last = std::chrono::steady_clock::now();
  wait_until([&] {
    const auto until = held.valid_until();
    if (until > last) last = until;
    return !held.valid();
  });
  return last;
}

// The loss of a cut-off holder is announced when its validity ends (S5), and that end stays one.
inline void expect_loss_on_time(const lease& held, const loss_recorder& loss) {
  const auto end = end_of_validity(held);
  EXPECT_FALSE(held.valid());
  ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
  EXPECT_LE(loss.when() - end, 250ms);
  EXPECT_FALSE(held.valid());
}

// Something happens to the store (`act`, an operator's hand): the loss is announced within a second (S5).
template <class Act>
void expect_told_within_a_second(const lease& held, const Act& act) {
  const loss_recorder loss{held};
  act();
  const auto done = std::chrono::steady_clock::now();
  ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
  EXPECT_LE(loss.when() - done, 1s);
  EXPECT_FALSE(held.valid());
}

inline std::future<result<lease>> acquire_later(mutex& lock, acquire_options options = {}) {
  options.wait = std::min<nanoseconds>(options.wait, 3 * patience);
  return std::async(std::launch::async, [&lock, options] { return lock.acquire(options); });
}

inline result<lease> get(std::future<result<lease>>& waiting,
                         std::chrono::nanoseconds limit = 2 * patience) {
  if (waiting.wait_for(limit) != std::future_status::ready)
    return error{errc::timed_out, "the test has no more patience"};
  return waiting.get();
}

inline bool is_ready(const std::future<result<lease>>& answer) {
  return answer.wait_for(0s) == std::future_status::ready;
}

// A typed error whose sentence names the lock, the store, and a word about what happened. Empty: need not.
template <class T>
::testing::AssertionResult refuses(const result<T>& outcome, errc code, std::string_view name,
                                   std::string_view store, std::string_view word) {
  if (auto coded = fails_with(outcome, code); !coded) return coded;
  for (const auto part : {name, store, word})
    if (outcome.error().message().find(part) == std::string::npos)
      return ::testing::AssertionFailure()
             << "no \"" << part << "\" in: " << outcome.error().message();
  return ::testing::AssertionSuccess();
}

// ---- the server's view

inline bool wait_for_queue(const redis_server& server, const std::string& name, int length) {
  return wait_until([&] {
    return redis_command(server, {"ZCARD", "hf:q:" + name}) == std::to_string(length);
  });
}

inline bool one_waits(const redis_server& server, const std::string& name) {
  return wait_for_queue(server, name, 1);
}

inline bool is_locked(const redis_server& server, const std::string& name) {
  return redis_command(server, {"EXISTS", "hf:l:" + name}) == "1";
}

// What is claimed is in the store: the lock has the token.
inline ::testing::AssertionResult is_proven(const redis_server& server, const lease& held) {
  const auto holder = redis_command(server, {"GET", "hf:l:" + held.name()});
  if (holder.find(std::to_string(held.token().value)) != std::string::npos)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "the token is " << held.token().value << ", the store has " << holder;
}

// All that holdfast has left in the server, but for the token counter, the notes about missing clients and the marks of
// requests that may still be delivered, which end by themselves: "[]" when there is nothing.
inline std::string left_behind(const redis_server& server) {
  return redis_command(server,
                       {"EVAL",
                        "local out = {} for _, k in ipairs(redis.call('KEYS', 'hf:*')) do "
                        "local kind = string.sub(k, 1, 5) "
                        "if k ~= 'hf:t' and kind ~= 'hf:g:' and kind ~= 'hf:x:' then out[#out + 1] "
                        "= k end end table.sort(out) return out",
                        "0"});
}

inline bool leaves_nothing(const redis_server& server, std::chrono::nanoseconds within = patience) {
  return wait_until([&] { return left_behind(server) == "[]"; }, within);
}

inline std::string redis_url(const redis_server& server, std::string_view options) {
  return server.url() + "?" + std::string{options};
}

inline std::string redis_url(const fault_proxy& network, std::string_view options) {
  return network.url("redis") + "?" + std::string{options};
}

}  // namespace holdfast::testing

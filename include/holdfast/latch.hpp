// latch: a count that goes down to zero once, and lets everybody through from then on.
//
// The first handle creates the count in the store; later handles join it, whatever count they name.
// An opened latch stays open until it is set anew, removed, or unchanged for `keep`. The count
// never goes below zero. A participant that dies does not count down: wait with a time limit.
#pragma once

#include <holdfast/async.hpp>
#include <holdfast/client.hpp>
#include <holdfast/options.hpp>

#include <cstdint>
#include <string>

namespace holdfast {

class latch {
 public:
  static constexpr nanoseconds default_keep = std::chrono::hours{24};

  // Creates it with `expected` unless it exists. Throws lock_error.
  latch(const client& store, std::string name, std::int64_t expected,
        nanoseconds keep = default_keep);
  // Joins one that exists or will: until somebody creates it, wait() waits and count_down() says not_held.
  latch(const client& store, std::string name);

  result<std::int64_t> count_down(std::int64_t n = 1);  // what is left
  result<bool> try_wait() const;                        // is it open?
  // ok once it is open; timed_out, cancelled ...
  result<void> wait(nanoseconds limit = forever, std::stop_token stop = {}) const;
  async<void> async_wait(nanoseconds limit = forever, std::stop_token stop = {}) const;
  result<void> arrive_and_wait(std::int64_t n = 1, nanoseconds limit = forever,
                               std::stop_token stop = {});

  result<std::int64_t> value() const;       // not_held when it does not exist
  result<void> set(std::int64_t expected);  // starts it anew
  result<void> remove();
  const std::string& name() const noexcept { return name_; }

 private:
  client store_;
  std::string name_;
  nanoseconds keep_ = default_keep;
};

}  // namespace holdfast

// Who of this client waits for what, and the news that end the waiting.
//
// News may come before the one it is for has begun to wait (its answer "you are queued" was still on the way), so
// grants for owners unknown here are kept for a while.
#pragma once

#include "engines/mysql/workers.hpp"

#include <holdfast/engine.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace holdfast::engines::mysql {

// A grant as the store tells it to somebody who waited.
struct told_grant {
  fencing_token token;
  nanoseconds ttl{};
  steady_time valid_from;
  lock_mode mode = lock_mode::exclusive;
  std::uint64_t weight = 0;
};

class waits {
 public:
  // Called once, without locks: with the grant, or with nothing for "look again" (a hint, the deadline, stop, or the
  // connection was lost).
  using wake = std::function<void(std::optional<told_grant>)>;

  // `begun` is called, without locks, whenever somebody has begun to wait.
  waits(timers& time, std::function<void()> begun) : timers_(time), begun_(std::move(begun)) {}
  ~waits() { look_again_all(); }

  // Waits for news about this number: an owner's sequence, or an observer's. The limits are copied: the caller's may be
  // gone as soon as `done` has been called, which can be before this returns.
  void begin(std::uint64_t number, call limits, wake done);
  bool any() const;

  void granted(std::uint64_t number, const told_grant& what);
  void look_again(std::uint64_t number);
  void look_again_all();
  // Its owner has its answer from elsewhere.
  void forget(std::uint64_t number);

 private:
  struct waiter;
  struct on_stop {
    waits* in;
    std::uint64_t id;
    void operator()() const noexcept { in->end(id, std::nullopt); }
  };
  struct early {
    told_grant what;
    steady_time since;
  };
  void end(std::uint64_t id, std::optional<told_grant> news);
  std::uint64_t id_of(std::uint64_t number) const;  // 0: nobody

  timers& timers_;
  const std::function<void()> begun_;
  mutable std::mutex guard_;
  std::uint64_t last_id_ = 0;
  std::unordered_map<std::uint64_t, std::shared_ptr<waiter>> all_;  // by id
  std::unordered_map<std::uint64_t, std::uint64_t> by_number_;      // to id
  std::unordered_map<std::uint64_t, early> early_;                  // by number
};

}  // namespace holdfast::engines::mysql

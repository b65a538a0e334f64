// Who of this client waits for what, and the messages that end the waiting.
//
// A message may come before the one it is for has begun to wait (its answer "you are queued" was still on the way), so
// grants for owners unknown here are kept for a while.
#pragma once

#include "net/reactor.hpp"

#include <holdfast/engine.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace holdfast::engines::redis {

// A grant as the message tells it.
struct pushed_grant {
  fencing_token token;
  nanoseconds ttl{};
  std::int64_t server_us = 0;
  lock_mode mode = lock_mode::exclusive;
  std::uint64_t weight = 0;
};

class waits {
 public:
  // Called once, without locks: with the grant, or with nothing for "look again" (a hint, the deadline, stop, or the
  // connection was lost).
  using wake = std::function<void(std::optional<pushed_grant>)>;

  explicit waits(net::reactor& timers) : timers_(timers) {}
  ~waits();  // wakes everybody

  // Waits for the grant of the owner with this sequence number, or for a change of `topic`. The limits are copied: the
  // caller's may be gone as soon as `done` has been called, which can be before these return.
  void for_grant(std::uint64_t sequence, call limits, wake done);
  void for_change(std::string topic, call limits, wake done);

  // Messages.
  void granted(std::uint64_t sequence, const pushed_grant& what);
  void look_again(std::uint64_t sequence);
  void changed(const std::string& topic);
  void look_again_all();
  // The owner has its answer from elsewhere.
  void forget(std::uint64_t sequence);

 private:
  struct waiter;
  struct on_stop {
    waits* in;
    std::uint64_t id;
    void operator()() const noexcept { in->end(id, std::nullopt); }
  };
  struct early {
    pushed_grant what;
    steady_time since;
  };
  void begin(const std::shared_ptr<waiter>& one, const call& limits);
  void end(std::uint64_t id, std::optional<pushed_grant> news);
  void drop_old_news();

  net::reactor& timers_;
  std::mutex guard_;
  std::uint64_t last_id_ = 0;
  std::unordered_map<std::uint64_t, std::shared_ptr<waiter>> all_;   // by id
  std::unordered_map<std::uint64_t, std::uint64_t> by_sequence_;     // to id
  std::multimap<std::string, std::uint64_t, std::less<>> by_topic_;  // to id
  std::unordered_map<std::uint64_t, early> early_;                   // by sequence
};

}  // namespace holdfast::engines::redis

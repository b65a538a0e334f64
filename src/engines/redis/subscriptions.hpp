// Channels that are listened to for as long as a client waits for their messages, over the stream connection.
//
// The order that loses no message: ask the store (busy), listen, ask again once the server has confirmed that it will
// tell us, then wait. The caller notes how much was heard() before; listen() returns at once when more was heard
// since, or when listening has only begun. A channel is let go a second after its last waiter has gone, so
// waiters that come and go cost nothing. When the connection is lost all waiters are woken, and those that still want
// to wait listen anew.
//
// Thread-safe. The subscriptions themselves are changed on the reactor's thread only, so the server sees the changes
// in the order in which they were made here.
#pragma once

#include "engines/redis/connections.hpp"
#include "engines/redis/waits.hpp"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace holdfast::engines::redis {

class subscriptions {
 public:
  subscriptions(connections& over, waits& in) : connections_(over), waits_(in) {}

  bool is_empty() const noexcept { return count_.load(std::memory_order_acquire) == 0; }
  // How much was heard on this channel; 0 while the server has not confirmed that we listen.
  std::uint64_t heard(std::string_view channel) const;

  // Calls `done` once: when more was heard than `seen`, when listening has begun, at the deadline, on stop, or with the
  // reason why it cannot be listened to. `id` tells the waiters of this client apart.
  using wake = std::function<void(result<void>)>;
  void listen(std::string channel, std::uint64_t id, std::uint64_t seen, const call& limits,
              wake done);

  // From then on nothing is sent. Not on the reactor's thread.
  void close();

  // From the stream's listener.
  void on_push(std::string_view frame);
  void on_down();

 private:
  enum class state : std::uint8_t { none, asking, confirmed };
  struct channel {
    state is = state::none;
    std::uint64_t heard = 0;
    std::set<std::uint64_t> waiters;
    std::optional<error> failure;
    bool is_checked = false;  // a timer will see whether it is still wanted
    steady_time used_at{};
  };
  class asked;

  std::optional<error> stop_waiting(const std::string& name, std::uint64_t id);
  void wake_all(const std::string& name, const std::function<void(channel&)>& change);
  void begin(const std::string& name);
  void check(const std::string& name);
  void check_later(const std::string& name);
  void send(std::string_view verb, const std::string& name,
            std::function<void(std::optional<error>)> then);

  connections& connections_;
  waits& waits_;
  // Of the reactor's thread: false after close(). What is posted has a share in it.
  const std::shared_ptr<bool> is_open_ = std::make_shared<bool>(true);
  mutable std::mutex guard_;
  std::uint64_t last_heard_ = 0;  // of all channels, so that no count comes back
  std::map<std::string, channel, std::less<>> channels_;
  std::atomic<std::size_t> count_{0};  // of channels_, to be read without the guard
};

}  // namespace holdfast::engines::redis

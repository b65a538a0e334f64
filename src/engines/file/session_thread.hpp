// The client's one thread: it is the session (its death ends it), and it serves asynchronous waits.
//
// It sleeps on the session's wake word and on the life words of those its waits monitor. Other clients wake it after
// sending a message by the session's ring; our own threads after putting something into the inbox.
#pragma once

#include "engines/file/shard.hpp"
#include "engines/file/wait.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <thread>
#include <unordered_map>
#include <vector>

namespace holdfast::engines::file {

// One wait without a thread. Only the session thread calls it, without any lock.
class async_wait {
 public:
  virtual ~async_wait() = default;
  // Looks; true when there is an outcome. Else says when to look again and whom to monitor.
  virtual bool look(std::uint32_t cookie, look_result& out) noexcept = 0;
  // May something have changed since the last look? Cheap, and wrong only towards yes.
  virtual bool may_have_moved() const noexcept = 0;
  // Takes its cookie out of the store; the outcome is "not yet".
  virtual void give_up() noexcept = 0;
  virtual void cancel() noexcept = 0;    // the same; the engine is closing
  virtual void complete() noexcept = 0;  // tells the outcome. The last call.

  steady_time deadline = steady_time::max();
  std::stop_token stop{};
};

class session_thread {
 public:
  session_thread(environment& env, const engine_config& config) : env_(env), config_(config) {}
  session_thread(const session_thread&) = delete;
  session_thread& operator=(const session_thread&) = delete;

  result<void> start();     // afterwards env.self is known
  void stop();              // completes every wait, ends the session
  void abandon() noexcept;  // in a forked child, where the thread does not exist
  void add(std::unique_ptr<async_wait> wait);

 private:
  struct canceller {
    session_thread* owner;
    std::uint32_t cookie;
    void operator()() const noexcept { owner->ask_to_stop(cookie); }
  };
  struct pending_wait {
    std::unique_ptr<async_wait> wait;
    steady_time due = steady_time::max();
    std::vector<std::uint32_t> monitored{};
    std::optional<std::stop_callback<canceller>> on_stop{};
  };

  void run() noexcept;
  void wake() noexcept;
  void ask_to_stop(std::uint32_t cookie) noexcept;
  bool take_inbox();
  void take_messages();
  void take_timers();
  void take_deaths();
  void look(std::uint32_t cookie);
  void forget(std::uint32_t cookie, pending_wait& pending);
  void finish(std::uint32_t cookie);
  void give_up(std::uint32_t cookie);
  void look_at_all();
  void close();

  environment& env_;
  const engine_config& config_;
  std::thread thread_;

  std::mutex guard_;  // for the inbox
  std::vector<std::unique_ptr<async_wait>> added_;
  std::vector<std::uint32_t> stopped_;
  bool closing_ = false;

  // The thread's own.
  std::unordered_map<std::uint32_t, pending_wait> waits_;
  std::set<std::pair<steady_time, std::uint32_t>> timers_;
  std::map<std::uint32_t, std::set<std::uint32_t>> monitors_;  // session -> cookies
  std::uint32_t last_cookie_ = 0;
  std::uint32_t messages_read_ = 0;
};

}  // namespace holdfast::engines::file

// The client's one thread: it is the session (its death ends it), and it serves asynchronous waits.
//
// It sleeps on the session's bell and on the life words of those its waits watch over. Others ring the bell
// after leaving a note in the session's ring; our own threads after putting something into the inbox.
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

// One wait without a thread. Only the keeper calls it, without any lock.
class async_wait {
 public:
  virtual ~async_wait() = default;
  // Looks; true when there is an outcome. Else says when to look again and whom to watch over.
  virtual bool look(std::uint32_t cookie, outlook& out) noexcept = 0;
  // May something have changed since the last look? Cheap, and wrong only towards yes.
  virtual bool may_have_moved() const noexcept = 0;
  virtual void
  give_up() noexcept = 0;  // takes its cookie out of the store; the outcome is "not yet"
  virtual void cancel() noexcept = 0;    // the same; the engine is closing
  virtual void complete() noexcept = 0;  // tells the outcome. The last call.

  steady_time deadline = steady_time::max();
  std::stop_token stop{};
};

class keeper {
 public:
  keeper(environment& env, const engine_config& config) : env_(env), config_(config) {}
  keeper(const keeper&) = delete;
  keeper& operator=(const keeper&) = delete;

  result<void> start();     // afterwards env.self is known
  void stop();              // completes every wait, ends the session
  void abandon() noexcept;  // in a forked child, where the thread does not exist
  void add(std::unique_ptr<async_wait> wait);

 private:
  struct canceller {
    keeper* owner;
    std::uint32_t cookie;
    void operator()() const noexcept { owner->ask_to_stop(cookie); }
  };
  struct item {
    std::unique_ptr<async_wait> wait;
    steady_time due = steady_time::max();
    std::vector<std::uint32_t> watched{};
    std::optional<std::stop_callback<canceller>> on_stop{};
  };

  void run() noexcept;
  void ring() noexcept;
  void ask_to_stop(std::uint32_t cookie) noexcept;
  bool take_inbox();
  void take_notes();
  void take_timers();
  void take_deaths();
  void look(std::uint32_t cookie);
  void forget(std::uint32_t cookie, item& one);
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

  // The keeper's own.
  std::unordered_map<std::uint32_t, item> items_;
  std::set<std::pair<steady_time, std::uint32_t>> timers_;
  std::map<std::uint32_t, std::set<std::uint32_t>> watchers_;  // session -> cookies
  std::uint32_t last_cookie_ = 0;
  std::uint32_t notes_read_ = 0;
};

}  // namespace holdfast::engines::file

// An engine's one thread, started when first needed: it completes async waits (met, too late, or stopped) and tells
// core of lost grants. A client that changes the store only wakes it, so no thread ever runs another caller's
// continuation while holding the store's guard, or when it was merely releasing a lock.
#pragma once

#include "engines/memory/waits.hpp"

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace holdfast::engines::memory {

class session_thread final : public session, public std::enable_shared_from_this<session_thread> {
 public:
  session_thread(std::shared_ptr<store> in, const engine_config& config);

  // `finish` is called once: by the calling thread when there is nothing to wait for, else by the session thread. After
  // end() at the latest, met or not.
  void start(std::unique_ptr<condition> what, const call& limits, std::function<void()> finish);

  // Finishes every wait, and ends the client's session in the store.
  void end();

  // From the store, with its guard held.
  void lost(const owner_id& owner, std::string_view why) override;
  const std::string& host() const noexcept override { return host_; }
  std::int64_t pid() const noexcept override { return pid_; }

 private:
  struct wait;
  struct wake_on_stop {
    session_thread* self;
    wait* what;
    void operator()() const noexcept;
  };
  struct loss {
    owner_id owner;
    std::string why;
  };
  using schedule = std::set<std::pair<steady_time, wait*>>;

  void need_thread();
  void run();
  bool is_over(wait& pending, steady_time now);
  void look_at_due(steady_time now, std::vector<std::unique_ptr<wait>>& over);
  void sleep(std::unique_lock<std::mutex>& guard);
  std::unique_ptr<wait> take(wait& ended);

  const std::shared_ptr<store> store_;
  const class clock& clock_;
  engine_listener& listener_;
  const std::string host_;
  const std::int64_t pid_;

  // Under the store's guard.
  std::condition_variable changed_;
  bool woken_ = false;
  bool ending_ = false;
  schedule
      waits_;  // by the time at which to look at each next; those that were woken are due at once
  std::vector<loss> losses_;
  std::thread thread_;
};

}  // namespace holdfast::engines::memory

// The client's one background thread for time: renewals, lost leases, timers, and clearing up after
// requests that were never answered. It never runs user code except observers and loss callbacks.
//
// It sleeps until the earliest thing it knows of. A fresh lease is usually due later than that, so taking a
// lock costs a comparison; only a lease that is due earlier wakes it.
#pragma once

#include <holdfast/engine.hpp>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace holdfast::core {

class client_core;
struct hold;

class driver {
 public:
  explicit driver(client_core& owner);
  ~driver();

  void start();  // may throw std::system_error: no thread to be had
  // Ends the thread. What is still in flight may complete until the driver itself goes.
  void stop() noexcept;
  // Something must be looked at by `ns`. Cheap unless that is earlier than planned.
  void due_at(std::int64_t ns) noexcept {
    auto planned = planned_.load(std::memory_order_seq_cst);
    if (ns < planned && planned_.compare_exchange_strong(planned, 0)) poke();
  }
  // Runs `work` on this thread at `when`.
  void at(steady_time when, std::function<void()> work);
  // Asks the store about this owner until it is certain that nothing of it is left.
  void clear_up(std::string name, const owner_id& owner, lock_mode mode);

 private:
  struct orphan {
    std::string name;
    owner_id owner;
    lock_mode mode;
  };
  class flight;    // a renewal on its way
  class clearing;  // an orphan being asked about
  friend class flight;
  friend class clearing;

  void poke() noexcept;
  // A completion that asks the store for more does so between these two, and stop() waits for the second: after it
  // nobody touches the store, which is about to go.
  bool begin_asking() {
    std::lock_guard locked{guard_};
    if (!stopping_) ++asking_;
    return !stopping_;
  }
  void end_asking() {
    std::lock_guard locked{guard_};
    --asking_;
    changed_.notify_all();
  }
  void run();
  bool pass(steady_time& next);
  void run_timers(steady_time now, steady_time& next);
  void clear_orphans(steady_time& next);
  void renew(const std::vector<std::shared_ptr<hold>>& all, steady_time now);
  void land();
  bool sleep_until(steady_time next);

  client_core& core_;
  // When the thread will look next; 0 while it is being woken, max when it sleeps for good.
  std::atomic<std::int64_t> planned_{INT64_MAX};

  std::mutex guard_;
  std::condition_variable changed_;
  bool poked_ = false, stopping_ = false;
  unsigned asking_ = 0;
  std::multimap<steady_time, std::function<void()>> timers_;
  std::vector<orphan> orphans_;
  std::vector<std::unique_ptr<clearing>> clearing_;
  steady_time orphans_at_{};
  std::unique_ptr<flight> flight_;              // (thread) at most one at a time
  std::vector<std::shared_ptr<hold>> scratch_;  // of the thread's
  std::thread thread_;
};

}  // namespace holdfast::core

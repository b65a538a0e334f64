// The client's one background thread for time: renewals, lost leases, timers, and clearing up after
// requests that were never answered. It runs no user code and never waits for the store.
//
// It sleeps until the earliest thing it knows of. A fresh lease is usually due later than that, so taking a
// lock costs a comparison; only a lease that is due earlier wakes it.
#pragma once

#include <holdfast/engine.hpp>

#include "core/renewal.hpp"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace holdfast::core {

class client_core;
struct hold;
struct renewal_item;

class driver {
 public:
  explicit driver(client_core& owner);
  ~driver();

  void start();  // may throw std::system_error: no thread to be had
  // Ends the thread. What is still to be cleared up has a moment for it: in the store no other client will do it
  // before a grace or a ttl has passed. What is in flight may complete until the driver itself goes.
  void stop() noexcept;
  // Something must be looked at by `ns`. Cheap unless that is earlier than planned.
  void due_at(std::int64_t ns) noexcept {
    // Again when the plan has changed under our hands: the new one may be too late for us as well.
    auto planned = planned_.load(std::memory_order_seq_cst);
    while (ns < planned)
      if (planned_.compare_exchange_weak(planned, 0)) return poke();
  }
  // Runs `work` on this thread at `when`, unless it is cancelled before.
  using timer = std::pair<steady_time, std::uint64_t>;
  timer at(steady_time when, std::function<void()> work);
  void cancel(const timer& planned) noexcept;
  std::size_t timers() {  // for tests
    std::lock_guard locked{guard_};
    return timers_.size();
  }
  // Asks the store about this owner until it is certain that nothing of it is left: often while the store is away,
  // rarely when it refuses to say, and in that case not for ever.
  void clear_up(std::string name, const owner_id& owner, lock_mode mode);

 private:
  struct orphan {
    std::string name;
    owner_id owner;
    lock_mode mode;
    steady_time since{};
    nanoseconds pause{};
  };
  class flight;    // a renewal on its way
  class clearing;  // an orphan being asked about
  friend class flight;
  friend class clearing;

  void poke() noexcept;
  // A completion that asks the store for more does so between these two, and stop() waits for the second: after it
  // no thread touches the store, which is about to go.
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
  lease_times times_of(const hold& h) const noexcept;
  struct due {
    bool renewal = false, proof = false;
  };
  due look(const std::vector<std::shared_ptr<hold>>& all, steady_time now);
  void prove_session(steady_time now);
  void renew(const std::vector<std::shared_ptr<hold>>& all, steady_time now);
  void ask(std::vector<renewal_item> items, steady_time deadline, steady_time now);
  void land();
  void write_down(const flight& done);
  void count(const flight& done);
  void note_proof(const flight& done);
  bool sleep_until(steady_time next);

  client_core& core_;
  // When the thread will look next; 0 while it is being woken, max when it sleeps for good.
  std::atomic<std::int64_t> planned_{INT64_MAX};

  std::mutex guard_;
  std::condition_variable changed_;
  std::condition_variable cleared_;  // orphans_ and clearing_ are empty
  bool poked_ = false, stopping_ = false;
  unsigned asking_ = 0;
  std::map<timer, std::function<void()>> timers_;
  std::uint64_t last_timer_ = 0;
  std::multimap<steady_time, orphan> orphans_;  // by when to ask
  std::vector<std::unique_ptr<clearing>> clearing_;
  std::vector<std::unique_ptr<flight>> flights_;  // (thread) renewals on their way
  // (thread) When the session may be asked for its next proof, and when it must be even if nothing is held.
  steady_time prove_not_before_{}, prove_by_ = steady_time::max();
  bool held_any_ = false;                       // (thread) when it last looked
  std::vector<std::shared_ptr<hold>> scratch_;  // of the thread's
  std::thread thread_;
};

}  // namespace holdfast::core

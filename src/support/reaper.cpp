#include "support/reaper.hpp"

#include "support/fork.hpp"

#include <cstdlib>
#include <list>
#include <mutex>
#include <thread>

namespace holdfast::support {

namespace {

// Never destroyed: a client may still be on its way here when the program ends.
class reaper {
 public:
  reaper() {
    std::atexit([] { all().join(); });
  }
  static reaper& all() {
    static auto* const instance = new reaper;
    return *instance;
  }
  // Joins those that are done: a finished thread keeps its stack until then.
  void add(std::function<void()> work) {
    std::list<worker> done;
    {
      std::lock_guard locked{guard_};
      for (auto i = workers_.begin(); i != workers_.end();) {
        const auto found = i++;
        if (found->done) done.splice(done.end(), workers_, found);
      }
      auto& fresh = workers_.emplace_back();
      fresh.thread = std::thread{[this, &fresh, work = std::move(work)]() mutable {
        work();
        work = {};
        std::lock_guard finished{guard_};
        fresh.done = true;
      }};
    }
    for (auto& finished : done) finished.thread.join();
  }

 private:
  void join() {
    if (fork_generation() != forks_) return;  // a forked child has none of these threads
    for (;;) {
      std::list<worker> some;
      {
        std::lock_guard locked{guard_};
        some.swap(workers_);
      }
      if (some.empty()) return;
      // Without the guard: a worker may send another one here.
      for (auto& joined : some) joined.thread.join();
    }
  }

  struct worker {
    std::thread thread;
    bool done = false;  // under guard_
  };
  const std::uint64_t forks_ = fork_generation();
  std::mutex guard_;
  std::list<worker> workers_;
};

}  // namespace

void run_elsewhere(std::function<void()> work) noexcept { reaper::all().add(std::move(work)); }

}  // namespace holdfast::support

#include "support/reaper.hpp"

#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

namespace holdfast::support {

namespace {

// Never destroyed: a client may still be on its way here when the program ends.
class reaper {
 public:
  reaper() {
    std::atexit([] { all().join(); });
  }
  static reaper& all() {
    static auto* const one = new reaper;
    return *one;
  }
  void add(std::function<void()> work) {
    std::lock_guard locked{guard_};
    workers_.emplace_back(std::move(work));
  }

 private:
  void join() {
    for (;;) {
      std::vector<std::thread> some;
      {
        std::lock_guard locked{guard_};
        some.swap(workers_);
      }
      if (some.empty()) return;
      for (auto& worker : some)
        worker.join();  // without the guard: a worker may send another one here
    }
  }

  std::mutex guard_;
  std::vector<std::thread> workers_;
};

}  // namespace

void run_elsewhere(std::function<void()> work) noexcept { reaper::all().add(std::move(work)); }

}  // namespace holdfast::support

#include "support/reaper.hpp"

#include <mutex>
#include <thread>
#include <vector>

namespace holdfast::support {

namespace {

class reaper {
 public:
  ~reaper() {
    for (auto& worker : workers_) worker.join();
  }
  void add(std::function<void()> work) {
    std::lock_guard locked{guard_};
    workers_.emplace_back(std::move(work));
  }

 private:
  std::mutex guard_;
  std::vector<std::thread> workers_;
};

}  // namespace

void run_elsewhere(std::function<void()> work) noexcept {
  static reaper all;
  all.add(std::move(work));
}

}  // namespace holdfast::support

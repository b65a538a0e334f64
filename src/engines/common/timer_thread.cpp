#include "engines/common/timer_thread.hpp"

namespace holdfast::engines {

timer_thread::id timer_thread::at(steady_time when, std::function<void()> work) {
  const std::lock_guard lock{guard_};
  const id which{when, ++last_};
  if (ending_) return which;
  const bool is_first = all_.empty() || which < all_.begin()->first;
  all_.emplace(which, std::move(work));
  if (!thread_.joinable()) thread_ = std::thread{[this] { run(); }};
  if (is_first) changed_.notify_one();
  return which;
}

void timer_thread::cancel(const id& which) {
  const std::lock_guard lock{guard_};
  all_.erase(which);
}

void timer_thread::finish() noexcept {
  {
    const std::lock_guard lock{guard_};
    ending_ = true;
    all_.clear();
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void timer_thread::run() {
  std::unique_lock lock{guard_};
  while (!ending_) {
    if (all_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto next = all_.begin()->first.first;
    if (std::chrono::steady_clock::now() < next) {
      changed_.wait_until(lock, next);
      continue;
    }
    auto work = std::move(all_.extract(all_.begin()).mapped());
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace holdfast::engines

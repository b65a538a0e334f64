#include "engines/mysql/workers.hpp"

namespace holdfast::engines::mysql {

void workers::post(std::function<void()> work) {
  {
    const std::lock_guard lock{guard_};
    if (!ending_) {
      queue_.push_back(std::move(work));
      if (idle_ < queue_.size() && threads_.size() < most_)
        threads_.emplace_back([this] { run(); });
      changed_.notify_one();
      return;
    }
  }
  work();
}

void workers::finish() noexcept {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock{guard_};
    ending_ = true;
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (auto& one : threads) one.join();
}

void workers::run() {
  std::unique_lock lock{guard_};
  for (;;) {
    ++idle_;
    changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    --idle_;
    if (queue_.empty()) return;
    auto work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
  }
}

timers::id timers::at(steady_time when, std::function<void()> work) {
  const std::lock_guard lock{guard_};
  const id which{when, ++last_};
  if (ending_) return which;
  const bool is_first = all_.empty() || which < all_.begin()->first;
  all_.emplace(which, std::move(work));
  if (!thread_.joinable()) thread_ = std::thread{[this] { run(); }};
  if (is_first) changed_.notify_one();
  return which;
}

void timers::cancel(const id& which) {
  const std::lock_guard lock{guard_};
  all_.erase(which);
}

void timers::finish() noexcept {
  {
    const std::lock_guard lock{guard_};
    ending_ = true;
    all_.clear();
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void timers::run() {
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

}  // namespace holdfast::engines::mysql

#include "engines/common/thread_pool.hpp"

#include <utility>

namespace holdfast::engines {

void thread_pool::post(std::function<void()> work) {
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

void thread_pool::finish() noexcept {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock{guard_};
    ending_ = true;
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (auto& thread : threads) thread.join();
}

void thread_pool::run() {
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

}  // namespace holdfast::engines

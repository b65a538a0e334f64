#include "core/resumer.hpp"

#include "core/client_core.hpp"

namespace holdfast::core {

resumer::~resumer() {
  {
    std::lock_guard locked{guard_};
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void resumer::post(std::function<void()> work) {
  {
    std::lock_guard locked{guard_};
    queue_.push_back(std::move(work));
    if (!thread_.joinable()) thread_ = std::thread{[this] { run(); }};
  }
  changed_.notify_one();
}

void resumer::run() {
  const background_thread mark;
  std::unique_lock locked{guard_};
  for (;;) {
    changed_.wait(locked, [this] { return stopping_ || !queue_.empty(); });
    // What was promised to go on goes on, also when the client is ending.
    if (queue_.empty()) return;
    {
      auto work = std::move(queue_.front());
      queue_.pop_front();
      locked.unlock();
      work();
    }
    locked.lock();
  }
}

}  // namespace holdfast::core

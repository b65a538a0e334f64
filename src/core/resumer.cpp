#include "core/resumer.hpp"

#include "core/client_core.hpp"

#include <utility>

namespace holdfast::core {

resumer::~resumer() { stop(); }

void resumer::stop() noexcept {
  {
    std::lock_guard locked{guard_};
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void resumer::post(std::function<void()> work) {
  bool was_empty = false;
  {
    std::lock_guard locked{guard_};
    if (!thread_.joinable())
      thread_ = std::thread{[this] { run(); }};  // may throw: then nothing is queued
    was_empty = queue_.empty();
    queue_.push_back(std::move(work));
  }
  if (was_empty) changed_.notify_one();  // else it is awake, or about to be
}

void resumer::run() {
  const background_thread mark;
  std::unique_lock locked{guard_};
  for (;;) {
    changed_.wait(locked, [this] { return stopping_ || !queue_.empty(); });
    // What was promised to go on goes on, also when the client is ending.
    if (queue_.empty()) return;
    auto batch = std::exchange(queue_, {});
    locked.unlock();
    for (; !batch.empty(); batch.pop_front()) batch.front()();
    locked.lock();
  }
}

}  // namespace holdfast::core

#include "core/retry_thread.hpp"

#include "core/client_core.hpp"

#include <algorithm>

namespace holdfast::core {

namespace {

constexpr nanoseconds first_pause = std::chrono::milliseconds{20};
constexpr nanoseconds longest_pause = std::chrono::seconds{1};

}  // namespace

void retry_thread::add(attempt what) {
  std::lock_guard locked{guard_};
  if (stopped_) return;
  doubts_.emplace(std::chrono::steady_clock::now(), doubt{std::move(what), first_pause});
  if (!thread_.joinable()) thread_ = std::jthread{[this](const std::stop_token& s) { run(s); }};
  changed_.notify_one();
}

void retry_thread::stop(nanoseconds patience) noexcept {
  std::jthread last;
  {
    std::unique_lock locked{guard_};
    stopped_ = true;
    decltype(doubts_) now;
    for (auto& [due, next] : doubts_)
      now.emplace(std::chrono::steady_clock::time_point{}, std::move(next));
    doubts_ = std::move(now);
    changed_.notify_one();
    settled_.wait_for(locked, patience, [this] { return doubts_.empty() && !trying_; });
    last = std::move(thread_);
  }
}  // asked to stop, and joined, here

void retry_thread::run(const std::stop_token& stop) {
  const background_thread mark;
  std::unique_lock locked{guard_};
  while (!stop.stop_requested()) {
    if (doubts_.empty()) {
      changed_.wait(locked, stop, [this] { return !doubts_.empty(); });
      continue;
    }
    const auto due = doubts_.begin()->first;
    if (std::chrono::steady_clock::now() < due) {
      changed_.wait_until(locked, stop, due, [&] { return doubts_.begin()->first < due; });
      continue;
    }
    auto next = std::move(doubts_.extract(doubts_.begin()).mapped());
    trying_ = true;
    locked.unlock();
    const bool certain = next.what(stop);
    locked.lock();
    trying_ = false;
    if (certain) {
      settled_.notify_all();
      continue;
    }
    const auto again = std::chrono::steady_clock::now() + next.pause;
    next.pause = std::min(next.pause * 2, longest_pause);
    doubts_.emplace(again, std::move(next));
  }
}

}  // namespace holdfast::core

#include "engines/mysql/watchdog.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace holdfast::engines::mysql {

namespace {

constexpr std::int64_t was_cut = -1;

std::int64_t to_ns(watchdog::steady_time t) {
  const std::chrono::nanoseconds since = t.time_since_epoch();
  return since.count() <= 0 ? 1 : since.count();
}

}  // namespace

watchdog::socket_deadline::socket_deadline(watchdog& by, int socket)
    : by_(by), socket_(::fcntl(socket, F_DUPFD_CLOEXEC, 0)) {
  const std::lock_guard lock{by_.guard_};
  by_.all_.insert(this);
}

watchdog::socket_deadline::~socket_deadline() {
  {
    const std::lock_guard lock{by_.guard_};
    by_.all_.erase(this);
  }
  if (socket_ >= 0) ::close(socket_);
}

void watchdog::socket_deadline::arm(steady_time until) noexcept {
  const auto due = to_ns(until);
  std::int64_t idle = 0;
  if (due_.compare_exchange_strong(idle, due)) by_.expect(due);
}

bool watchdog::socket_deadline::disarm() noexcept {
  auto now = due_.load();
  while (now != was_cut && !due_.compare_exchange_weak(now, 0)) {
  }
  return now == was_cut;
}

void watchdog::socket_deadline::shorten(steady_time until) noexcept {
  const auto due = to_ns(until);
  auto now = due_.load();
  while (now > due && !due_.compare_exchange_weak(now, due)) {
  }
  if (now > due) by_.expect(due);
}

void watchdog::socket_deadline::cut() noexcept {
  due_.store(was_cut);
  ::shutdown(socket_, SHUT_RDWR);
}

watchdog::~watchdog() {
  {
    const std::lock_guard lock{guard_};
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void watchdog::expect(std::int64_t due) noexcept {
  if (due == INT64_MAX || due >= next_.load()) return;
  const std::lock_guard lock{guard_};
  if (due < next_.load()) next_.store(due);
  if (!thread_.joinable() && !ending_) thread_ = std::thread{[this] { run(); }};
  changed_.notify_one();
}

void watchdog::run() {
  std::unique_lock lock{guard_};
  while (!ending_) {
    // First say when we would look, then look: a deadline armed in between either is seen or wakes us.
    next_.store(INT64_MAX);
    const auto now = to_ns(std::chrono::steady_clock::now());
    auto next = INT64_MAX;
    for (auto* armed : all_) {
      auto due = armed->due_.load();
      if (due > 0 && due <= now && armed->due_.compare_exchange_strong(due, was_cut)) {
        ::shutdown(armed->socket_, SHUT_RDWR);
      } else if (due > 0 && due < next) {
        next = due;
      }
    }
    auto planned = next_.load();
    while (next < planned && !next_.compare_exchange_weak(planned, next)) {
    }
    const steady_time until{std::chrono::nanoseconds{next_.load()}};
    if (next_.load() == INT64_MAX) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, until);
    }
  }
}

}  // namespace holdfast::engines::mysql

#include "net/reconnector.hpp"

#include "support/parker.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

namespace holdfast::net {

namespace {

constexpr nanoseconds first_delay = std::chrono::milliseconds{10};
constexpr nanoseconds longest_delay = std::chrono::seconds{1};
// A connection that lasted so long, or has answered anything, was a good one: the next attempt need not wait.
constexpr nanoseconds good_life = std::chrono::seconds{1};

// Half of it to all of it, so that a thousand clients do not come back at the same instant.
nanoseconds jittered(nanoseconds delay) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return nanoseconds{
      std::uniform_int_distribution<std::int64_t>{delay.count() / 2, delay.count()}(random)};
}

}  // namespace

result<std::shared_ptr<connection>> reconnector::current() {
  std::lock_guard locked{guard_};
  if (current_) return current_;
  if (closed_.load())
    return error{errc::unavailable,
                 fmt::format("the channel to {} is closed", settings_->description)};
  if (std::chrono::steady_clock::now() < retry_at_) return last_;
  const auto serial = ++last_serial_;
  current_ = std::make_shared<connection>(loop_, settings_, make_protocol(serial), weak_from_this(),
                                          serial);
  loop_.post([made = current_] { made->open(); });
  return current_;
}

std::shared_ptr<connection> reconnector::find(std::uint32_t serial) noexcept {
  std::lock_guard locked{guard_};
  if (current_ && current_->serial() == serial) return current_;
  const auto old = std::find_if(retired_.begin(), retired_.end(),
                                [&](const auto& retired) { return retired->serial() == serial; });
  return old == retired_.end() ? nullptr : *old;
}

std::uint64_t reconnector::note_accepted(const connection& which, int fd) noexcept {
  std::lock_guard locked{guard_};
  ++generations_;
  if (current_.get() != &which) return generations_;  // closed meanwhile; it will hear of that
  up_since_ = std::chrono::steady_clock::now();
  socket_.store(fd);
  generation_.store(generations_);
  return generations_;
}

void reconnector::note_lost(const connection& which, const error& why) noexcept {
  std::shared_ptr<connection> gone;  // let go without the lock
  std::lock_guard locked{guard_};
  const auto old = std::find_if(retired_.begin(), retired_.end(),
                                [&](const auto& retired) { return retired.get() == &which; });
  if (old != retired_.end()) {
    gone = std::move(*old);
    retired_.erase(old);
  }
  if (current_.get() != &which) return;
  gone = std::move(current_);
  plan_next(*gone);
  last_ = why;
  if (!settings_->keep_open || closed_.load()) return;
  loop_.at(retry_at_, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) static_cast<void>(self->current());
  });
}

// The current one is no more: when may the next one be tried?
void reconnector::plan_next(const connection& after) noexcept {
  const auto now = std::chrono::steady_clock::now();
  const bool was_up = generation_.exchange(0) != 0;
  const bool good = was_up && (after.answered() || now - up_since_ >= good_life);
  delay_ = good ? nanoseconds::zero() : std::clamp(delay_ * 2, first_delay, longest_delay);
  retry_at_ = now + jittered(delay_);
  socket_.store(-1);
}

void reconnector::note_retired(const connection& which) noexcept {
  std::lock_guard locked{guard_};
  if (current_.get() != &which) return;
  plan_next(which);
  retired_.push_back(std::move(current_));
}

void reconnector::close() noexcept {
  closed_.store(true);
  std::vector<std::shared_ptr<connection>> last;
  {
    std::lock_guard locked{guard_};
    last = std::move(retired_);
    retired_.clear();
    if (current_) last.push_back(std::move(current_));
    current_ = nullptr;
    generation_.store(0);
    socket_.store(-1);
  }
  for (const auto& ended : last)
    ended->lose(
        {errc::unavailable, fmt::format("the channel to {} was closed", settings_->description)});
  if (loop_.on_thread()) {
    for (const auto& ended : last) ended->deliver();
    return;
  }
  // What was posted for this channel comes before this, so afterwards no callback of it runs any more.
  support::parker told;
  loop_.post([&told] { told.set(1); });
  told.wait(steady_time::max());
}

void reconnector::drop(const error& why) noexcept {
  std::shared_ptr<connection> which;
  {
    std::lock_guard locked{guard_};
    which = current_;
  }
  if (which)
    which->lose({errc::unavailable, fmt::format("the connection to {} was dropped ({})",
                                                settings_->description, why.message())});
}

std::uint64_t reconnector::received() noexcept {
  std::shared_ptr<connection> which;
  {
    std::lock_guard locked{guard_};
    which = current_;
  }
  return which ? which->received() : 0;  // its own lock comes before ours
}

error reconnector::fork_refusal() const {
  return {errc::misconfigured, fmt::format("the connection to {} was opened before fork() and is "
                                           "used in the child; open a new client "
                                           "after fork()",
                                           settings_->description)};
}

void reconnector::close_in_child() const noexcept {
  if (const int fd = socket_.load(); fd >= 0) ::close(fd);
}

std::optional<error> reconnector::refuse_on_reactor() const {
  if (!loop_.on_thread()) return std::nullopt;
  return error{
      errc::misconfigured,
      fmt::format(
          "a blocking call to {} was made on the thread that would have to answer it; use send() "
          "there",
          settings_->description)};
}

}  // namespace holdfast::net

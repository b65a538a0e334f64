#include "net/reactor_impl.hpp"

#include "support/fork.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <system_error>

namespace holdfast::net {

namespace {

constexpr reactor::impl::watch_id wake_id = 0;

// For the life of a scope no signal reaches this thread, nor the threads it starts.
class signals_blocked {
 public:
  signals_blocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~signals_blocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  signals_blocked(const signals_blocked&) = delete;
  signals_blocked& operator=(const signals_blocked&) = delete;

 private:
  sigset_t before_{};
};

error no_reactor(std::string_view what, const char* why) {
  return {errc::unavailable,
          fmt::format("The transport cannot be started: no {} is to be had: {}.", what, why)};
}

// An exception of work is dropped: what it was for has its own deadline, and the thread serves all channels.
void run(const std::function<void()>& work) noexcept {
  try {
    work();
  } catch (const std::exception&) {
  }
}

}  // namespace

reactor::impl::impl(int poll_fd, int wake_fd) noexcept
    : poll_fd_(poll_fd),
      wake_fd_(wake_fd),
      born_(support::fork_generation()),
      name_resolver_([this](std::function<void()> work) { post(std::move(work)); }) {}

reactor::impl::~impl() { close_quietly(); }

bool reactor::impl::forked() const noexcept { return born_ != support::fork_generation(); }

void reactor::impl::close_quietly() noexcept {
  ::close(poll_fd_);
  ::close(wake_fd_);
}

void reactor::impl::start() {
  const signals_blocked quiet;
  std::lock_guard locked{guard_};  // the thread looks at nothing before thread_id_ is set
  thread_ = std::thread{[this] { run(); }};
  thread_id_ = thread_.get_id();
  pthread_setname_np(thread_.native_handle(), "holdfast-net");
}

void reactor::impl::stop() noexcept {
  {
    std::lock_guard locked{guard_};
    stopping_ = true;
    wake();
  }
  if (thread_.joinable()) thread_.join();
}

// REQUIRES: guard_ is held.
void reactor::impl::wake() noexcept {
  if (!asleep_) return;  // it will look at everything before it sleeps
  asleep_ = false;
  const std::uint64_t count = 1;
  static_cast<void>(
      !::write(wake_fd_, &count, sizeof count));  // only fails when it would wake anyway
}

reactor::timer_id reactor::impl::at(steady_time when, std::function<void()> work) {
  std::lock_guard locked{guard_};
  const auto id = ++last_timer_;
  timers_.emplace(timer_key{when, id}, std::move(work));
  timer_times_.emplace(id, when);
  if (when < wakes_at_) wake();
  return id;
}

bool reactor::impl::cancel(timer_id which) noexcept {
  std::function<void()> unwanted;  // destroyed without the lock: it may own anything
  std::lock_guard locked{guard_};
  const auto known = timer_times_.find(which);
  if (known == timer_times_.end()) return false;
  auto timer = timers_.extract(timer_key{known->second, which});
  timer_times_.erase(known);
  unwanted = std::move(timer.mapped());
  return true;
}

void reactor::impl::post(std::function<void()> work) {
  std::lock_guard locked{guard_};
  posted_.push_back(std::move(work));
  wake();
}

result<reactor::impl::watch_id> reactor::impl::watch(int fd, std::shared_ptr<watcher> owner) {
  const auto id = ++last_watch_;
  epoll_event event{};
  event.events = EPOLLONESHOT;
  event.data.u64 = id;
  if (epoll_ctl(poll_fd_, EPOLL_CTL_ADD, fd, &event) != 0)
    return error{errc::unavailable,
                 fmt::format("a socket cannot be watched: {}", std::strerror(errno))};
  watchers_.emplace(id, std::move(owner));
  return id;
}

void reactor::impl::unwatch(int fd, watch_id which) noexcept {
  // Said explicitly, because a descriptor that a forked child has too would stay in the set after close().
  if (watchers_.contains(which)) epoll_ctl(poll_fd_, EPOLL_CTL_DEL, fd, nullptr);
  watchers_.erase(which);
}

void reactor::impl::rearm(int fd, watch_id which, std::uint32_t events) noexcept {
  epoll_event event{};
  event.events = events | EPOLLONESHOT;
  event.data.u64 = which;
  epoll_ctl(poll_fd_, EPOLL_CTL_MOD, fd,
            &event);  // fails only for what has been unwatched meanwhile
}

void reactor::impl::run() noexcept {
  while (const auto timeout = prepare_to_sleep()) {
    poll(*timeout);
    run_timers();
    run_posted();
  }
}

std::optional<int> reactor::impl::prepare_to_sleep() {
  std::lock_guard locked{guard_};
  if (!posted_.empty()) return 0;
  if (stopping_) return std::nullopt;
  wakes_at_ = timers_.empty() ? steady_time::max() : timers_.begin()->first.first;
  const auto now = std::chrono::steady_clock::now();
  if (wakes_at_ <= now) return 0;
  asleep_ = true;
  if (wakes_at_ == steady_time::max()) return -1;
  // Rounded up: to wake early would be to spin. A day is as good as any longer sleep.
  const auto length = std::chrono::ceil<std::chrono::milliseconds>(wakes_at_ - now);
  return static_cast<int>(
      std::min<std::chrono::milliseconds>(length, std::chrono::hours{24}).count());
}

void reactor::impl::poll(int timeout) noexcept {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(poll_fd_, events.data(), static_cast<int>(events.size()), timeout);
  {
    std::lock_guard locked{guard_};
    asleep_ = false;
  }
  for (int i = 0; i < count; ++i) {
    const auto& event = events[static_cast<std::size_t>(i)];
    const std::uint64_t id =
        event.data.u64;  // a copy: the kernel's struct is packed, and no reference may bind to it
    if (id == wake_id) {
      std::uint64_t ignored = 0;
      static_cast<void>(!::read(wake_fd_, &ignored, sizeof ignored));
      continue;
    }
    // An event may be about something that an earlier one of the same batch has ended.
    const auto known = watchers_.find(id);
    if (known == watchers_.end()) continue;
    const auto owner = known->second;
    owner->on_event(event.events);
  }
}

// Only those that were there when it began: one that plans itself for the past must not keep the reactor from polling.
void reactor::impl::run_timers() {
  const auto now = std::chrono::steady_clock::now();
  std::uint64_t newest = 0;
  {
    std::lock_guard locked{guard_};
    newest = last_timer_;
  }
  for (;;) {
    std::function<void()> work;
    {
      std::lock_guard locked{guard_};
      if (timers_.empty() || timers_.begin()->first.first > now) return;
      if (timers_.begin()->first.second > newest) return;
      auto due = timers_.extract(timers_.begin());
      timer_times_.erase(due.key().second);
      work = std::move(due.mapped());
    }
    net::run(work);
  }
}

void reactor::impl::run_posted() {
  {
    std::lock_guard locked{guard_};
    running_.swap(posted_);
  }
  for (auto& work : running_) net::run(std::exchange(work, nullptr));
  running_.clear();
}

result<std::unique_ptr<reactor>> reactor::start() {
  const int poll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (poll_fd < 0) return no_reactor("descriptor", std::strerror(errno));
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = wake_id;
  if (wake_fd < 0 || epoll_ctl(poll_fd, EPOLL_CTL_ADD, wake_fd, &event) != 0) {
    const auto why = no_reactor("descriptor", std::strerror(errno));
    ::close(poll_fd);
    if (wake_fd >= 0) ::close(wake_fd);
    return why;
  }
  auto inside = std::make_unique<impl>(poll_fd, wake_fd);
  try {
    inside->start();
  } catch (const std::system_error& none) {
    return no_reactor("thread", none.what());
  }
  return std::unique_ptr<reactor>{new reactor{std::move(inside)}};
}

reactor::reactor(std::unique_ptr<impl> inside) : impl_(std::move(inside)) {}

reactor::~reactor() {
  if (impl_->forked()) {
    // The thread is not in this process, and whatever lock it held will stay locked: leave everything where it is.
    impl_.release()->close_quietly();
    return;
  }
  impl_->stop();
}

reactor::timer_id reactor::at(steady_time when, std::function<void()> work) {
  return impl_->forked() ? 0 : impl_->at(when, std::move(work));
}

bool reactor::cancel(timer_id which) noexcept { return !impl_->forked() && impl_->cancel(which); }

void reactor::post(std::function<void()> work) {
  if (!impl_->forked()) impl_->post(std::move(work));
}

}  // namespace holdfast::net

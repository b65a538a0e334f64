#include "engines/consul/agent_loop.hpp"

#include "engines/consul/agent_jobs.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace holdfast::engines::consul {

namespace {

error no_agent_loop(std::string_view what, const char* why) {
  return not_done{
      errc::unavailable,
      fmt::format("The transport cannot be started: no {} is to be had: {}.", what, why)};
}

}  // namespace

steady_time agent::loop::in(nanoseconds patience) noexcept {
  const auto now = std::chrono::steady_clock::now();
  return patience > steady_time::max() - now ? steady_time::max() : now + patience;
}

// ---- beginning and end

agent::loop::loop(agent& of) : of_(of) {}

result<std::unique_ptr<agent::loop>> agent::loop::start(agent& of) {
  std::unique_ptr<loop> self{new loop{of}};
  if (auto ok = self->open(); !ok) return std::move(ok).error();
  try {
    self->begin();
  } catch (const std::system_error& none) {
    return no_agent_loop("thread", none.what());
  }
  return self;
}

result<void> agent::loop::open() {
  poll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake_fd_;
  if (poll_fd_ < 0 || wake_fd_ < 0 || epoll_ctl(poll_fd_, EPOLL_CTL_ADD, wake_fd_, &event) != 0)
    return no_agent_loop("descriptor", std::strerror(errno));
  driver_ = curl_multi_init();
  if (driver_ == nullptr) return no_agent_loop("libcurl handle", "no memory");
  curl_multi_setopt(driver_, CURLMOPT_SOCKETFUNCTION, &loop::on_socket);
  curl_multi_setopt(driver_, CURLMOPT_SOCKETDATA, this);
  curl_multi_setopt(driver_, CURLMOPT_TIMERFUNCTION, &loop::on_curl_time);
  curl_multi_setopt(driver_, CURLMOPT_TIMERDATA, this);
  curl_multi_setopt(driver_, CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_NOTHING));
  limit_connections();
  return {};
}

// No signal of the host program reaches the thread.
void agent::loop::begin() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread{[this] { run(); }};
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "holdfast-consul");
}

void agent::loop::stop() noexcept {
  {
    const std::lock_guard lock{guard_};
    stopping_ = true;
    wake();
  }
  const std::lock_guard only_one{joining_};
  if (thread_.joinable()) thread_.join();
}

agent::loop::~loop() {
  stop();
  idle_.clear();
  if (driver_ != nullptr) curl_multi_cleanup(driver_);  // still tells epoll
  if (wake_fd_ >= 0) ::close(wake_fd_);
  if (poll_fd_ >= 0) ::close(poll_fd_);
}

// ---- on any thread

// REQUIRES: guard_ is held.
void agent::loop::wake() noexcept {
  if (!asleep_) return;  // it will look at everything before it sleeps
  asleep_ = false;
  const std::uint64_t count = 1;
  static_cast<void>(
      !::write(wake_fd_, &count, sizeof count));  // only fails when it would wake anyway
}

void agent::loop::post(const question& what, const call& limits, handler& done) noexcept {
  {
    const std::lock_guard lock{guard_};
    if (!stopping_) {
      news_.posted.push_back(new sending{*this, ++last_number_, what, limits, done});
      return wake();
    }
  }
  done.on_answer({client_is_closing(of_.how_)});
}

void agent::loop::note_stop(std::uint64_t number) noexcept {
  const std::lock_guard lock{guard_};
  news_.stopped.push_back(number);
  wake();
}

agent::query_id agent::loop::listen(std::string path, nanoseconds patience,
                                    on_reply done) noexcept {
  query_id which = 0;
  {
    const std::lock_guard lock{guard_};
    which = ++last_number_;
    if (!stopping_) {
      listeners_.emplace(which, std::move(done));
      news_.queries.push_back({which, std::move(path), in(patience)});
      wake();
      return which;
    }
  }
  run_guarded(done, client_is_closing(of_.how_));
  return which;
}

void agent::loop::cancel_listening(query_id which) noexcept {
  on_reply unwanted;  // destroyed without the lock: it may own anything
  const std::lock_guard lock{guard_};
  auto found = listeners_.extract(which);
  if (found.empty()) return;
  unwanted = std::move(found.mapped());
  news_.cancelled.push_back(which);
  wake();
}

std::size_t agent::loop::listening() const noexcept {
  const std::lock_guard lock{guard_};
  return listeners_.size();
}

void agent::loop::run_soon(std::function<void()> work) noexcept {
  const std::lock_guard lock{guard_};
  if (ended_) return;
  news_.soon.push_back(std::move(work));
  wake();
}

agent::timer_id agent::loop::at(steady_time when, std::function<void()> work) {
  const std::lock_guard lock{guard_};
  const auto which = ++last_number_;
  if (stopping_) return which;
  timers_.emplace(timer_key{when, which}, std::move(work));
  timer_times_.emplace(which, when);
  if (when < wakes_at_) wake();
  return which;
}

void agent::loop::cancel(timer_id which) {
  std::function<void()> unwanted;  // destroyed without the lock: it may own anything
  const std::lock_guard lock{guard_};
  const auto known = timer_times_.find(which);
  if (known == timer_times_.end()) return;
  unwanted = std::move(timers_.extract(timer_key{known->second, which}).mapped());
  timer_times_.erase(known);
}

}  // namespace holdfast::engines::consul

// The inside of the reactor, for the channels on it.
//
// Locks: the reactor's mutex is the innermost of all. It is never held while work, a watcher or a resolver's answer
// runs.
#pragma once

#include "net/reactor.hpp"
#include "net/resolver.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace holdfast::net {

// The owner of a descriptor that the reactor polls.
class watcher {
 public:
  virtual void on_event(
      std::uint32_t events) noexcept = 0;  // EPOLLIN, EPOLLOUT, ...; on the reactor's thread

 protected:
  ~watcher() = default;
};

class reactor::impl {
 public:
  impl(int poll_fd, int wake_fd) noexcept;
  ~impl();
  impl(const impl&) = delete;
  impl& operator=(const impl&) = delete;

  void start();          // may throw std::system_error: no thread to be had
  void stop() noexcept;  // runs what is posted, then joins

  timer_id at(steady_time when, std::function<void()> work);
  bool cancel(timer_id which) noexcept;
  void post(std::function<void()> work);
  bool on_thread() const noexcept { return std::this_thread::get_id() == thread_id_; }
  bool forked() const noexcept;  // are we a child of the process that the thread runs in?

  // A watched descriptor is quiet until it is armed, and again after each event (EPOLLONESHOT). watch() and unwatch()
  // are for the reactor's thread, rearm() is for all threads. The descriptor stays open until it is unwatched.
  using watch_id = std::uint64_t;
  result<watch_id> watch(int fd, std::shared_ptr<watcher> owner);
  void unwatch(int fd, watch_id which) noexcept;
  void rearm(int fd, watch_id which, std::uint32_t events) noexcept;

  resolver& name_resolver() noexcept { return name_resolver_; }  // for the reactor's thread

  void
  close_quietly() noexcept;  // of a forked child: lets go of the descriptors, touches nothing else

 private:
  using timer_key = std::pair<steady_time, timer_id>;

  void run() noexcept;
  std::optional<int> prepare_to_sleep();  // for epoll_wait; nothing: it is time to end
  void poll(int timeout) noexcept;
  void run_timers();
  void run_posted();
  void wake() noexcept;

  const int poll_fd_;
  const int wake_fd_;
  const std::uint64_t born_;

  std::mutex guard_;
  bool stopping_ = false;
  bool asleep_ =
      false;  // in epoll_wait, or on the way there; the thread that clears it writes the eventfd
  steady_time wakes_at_{};  // while asleep
  timer_id last_timer_ = 0;
  std::map<timer_key, std::function<void()>> timers_;
  std::unordered_map<timer_id, steady_time> timer_times_;
  std::vector<std::function<void()>> posted_;

  // Of the reactor's thread.
  watch_id last_watch_ = 0;
  std::unordered_map<watch_id, std::shared_ptr<watcher>> watchers_;
  std::vector<std::function<void()>> running_;
  resolver name_resolver_;

  std::thread thread_;
  std::thread::id thread_id_;
};

}  // namespace holdfast::net

// Cuts connections whose call takes too long. Connector/C knows time-outs in whole seconds, set once per connection,
// and no way to be interrupted; a shut down socket ends any call at once.
//
// To arm it costs a few nanoseconds: its thread sleeps until the earliest deadline it knows of, and is woken only by an
// earlier one.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <stop_token>
#include <thread>

namespace holdfast::engines::mysql {

class watchdog {
 public:
  using steady_time = std::chrono::steady_clock::time_point;

  // The deadline of the call that uses a socket; one call at a time.
  class socket_deadline {
   public:
    socket_deadline(watchdog& by, int socket);
    socket_deadline(const socket_deadline&) = delete;
    socket_deadline& operator=(const socket_deadline&) = delete;
    ~socket_deadline();
    // False when the process has no file descriptor left.
    bool is_on() const noexcept { return socket_ >= 0; }

    void arm(steady_time until) noexcept;
    // Was it cut? Then it is of no further use.
    bool disarm() noexcept;
    // Not later than this, if it is armed.
    void shorten(steady_time until) noexcept;
    void cut() noexcept;  // now, whatever it does; from any thread

   private:
    friend class watchdog;
    watchdog& by_;
    // A duplicate: the driver may close its own at any time, and the number may be another socket's at once.
    const int socket_;
    std::atomic<std::int64_t> due_{0};  // steady ns; 0: not armed, -1: cut
  };

  watchdog() = default;
  ~watchdog();

 private:
  void expect(std::int64_t due) noexcept;
  void run();

  std::mutex guard_;
  std::condition_variable changed_;
  std::set<socket_deadline*> all_;
  std::atomic<std::int64_t> next_{INT64_MAX};  // when the thread will look
  bool ending_ = false;
  std::thread thread_;
};

// While it lives, a stop shortens the call to a quarter of a second.
class stop_shortens {
 public:
  stop_shortens(const std::stop_token& stop, watchdog::socket_deadline& what)
      : callback_(stop, shorten{&what}) {}

 private:
  struct shorten {
    watchdog::socket_deadline* what;
    void operator()() const noexcept {
      what->shorten(std::chrono::steady_clock::now() + std::chrono::milliseconds{250});
    }
  };
  std::stop_callback<shorten> callback_;
};

}  // namespace holdfast::engines::mysql

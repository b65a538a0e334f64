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

  // What is watched: one socket, used for one call at a time.
  class leash {
   public:
    leash(watchdog& by, int socket);
    leash(const leash&) = delete;
    leash& operator=(const leash&) = delete;
    ~leash();
    // False when the process has no file descriptor left.
    bool is_on() const noexcept { return socket_ >= 0; }

    void arm(steady_time until) noexcept;
    // Was it cut? Then it is of no further use.
    bool disarm() noexcept;
    // Not later than this, if it is armed.
    void hasten(steady_time until) noexcept;
    void cut() noexcept;  // now, whatever it does; from any thread

   private:
    friend class watchdog;
    watchdog& by_;
    // Our own: the driver closes its one whenever it likes, and the number may be somebody else's at once.
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
  std::set<leash*> all_;
  std::atomic<std::int64_t> next_{INT64_MAX};  // when the thread will look
  bool ending_ = false;
  std::thread thread_;
};

// While it lives, a stop shortens the call to what is left of `patience`.
class stop_hastens {
 public:
  stop_hastens(const std::stop_token& stop, watchdog::leash& what)
      : callback_(stop, hasten{&what}) {}

 private:
  struct hasten {
    watchdog::leash* what;
    void operator()() const noexcept {
      what->hasten(std::chrono::steady_clock::now() + std::chrono::milliseconds{250});
    }
  };
  std::stop_callback<hasten> callback_;
};

}  // namespace holdfast::engines::mysql

// Signals as messages in a file descriptor, so that nothing ever runs inside a signal handler.
#pragma once

#include <atomic>
#include <csignal>
#include <optional>
#include <stop_token>
#include <thread>

namespace holdfast::cli {

// An open file descriptor that closes itself.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int fd) noexcept : fd_(fd) {}
  descriptor(descriptor&& other) noexcept : fd_(other.release()) {}
  descriptor& operator=(descriptor&& other) noexcept;
  ~descriptor();
  int get() const noexcept { return fd_; }
  int release() noexcept;
  void close() noexcept;

 private:
  int fd_ = -1;
};

// An event that threads can poll for. Throws std::system_error.
descriptor make_event();
void raise_event(const descriptor& event) noexcept;

// From construction on, the signals of interest wait in fd() instead of doing what they usually do. Construct it
// before any other thread exists: those inherit the mask, and so never take a signal away from us.
class signal_inbox {
 public:
  signal_inbox();
  ~signal_inbox();
  signal_inbox(const signal_inbox&) = delete;
  signal_inbox& operator=(const signal_inbox&) = delete;

  int fd() const noexcept { return fd_.get(); }
  std::optional<int> next() noexcept;  // never blocks
  // As it was before; for the programs we start.
  const sigset_t& original_mask() const noexcept { return original_; }

 private:
  sigset_t original_{};
  descriptor fd_;
};

// INT, TERM, HUP, QUIT: the sender wants us to end.
bool means_end(int signal) noexcept;

// Stops this process as ^Z would, until a shell continues it. Does nothing where there is none (an orphaned process
// group). With `whole_group` the other members of our job stop as well.
void stop_like_ctrl_z(bool whole_group) noexcept;

// While it lives, a signal that means "end" requests stop. For waits: the main thread sits in the library.
class cancel_on_signal {
 public:
  explicit cancel_on_signal(signal_inbox& inbox);
  ~cancel_on_signal();
  std::stop_token token() const { return stop_.get_token(); }
  // The signal, or 0. Final once finish() has returned.
  int signal() const noexcept { return signal_; }
  void finish();

 private:
  void watch();
  signal_inbox& inbox_;
  descriptor done_;
  std::stop_source stop_;
  std::atomic<int> signal_{0};
  std::thread watcher_;
};

}  // namespace holdfast::cli

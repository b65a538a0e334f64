// What the baseline needs around its measurements: a folder, a board shared by processes, and the processes.
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace baseline {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

[[noreturn]] inline void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

inline std::int64_t now() { return steady_clock::now().time_since_epoch().count(); }

// In a mapped file; a new one is full of zeros.
struct board {
  std::atomic<std::uint32_t> ready;
  std::atomic<std::uint32_t> turn;  // of the bare futex ping-pong
  std::atomic<bool> stop;
  std::atomic<std::int32_t> last;  // who had the lock last
  std::atomic<std::int64_t> released_at;
  std::atomic<double> p50;                // of the first of two contenders, in ns
  std::atomic<std::uint64_t> handoffs;    // that it is the median of
  std::atomic<std::int64_t> acquired_at;  // by the waiter, after a kill
  pthread_mutex_t bare;
};

class folder {
 public:
  folder() : path_((std::filesystem::temp_directory_path() / "holdfast-bench-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) fail("A temporary folder cannot be created");
  }
  ~folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  const std::string& path() const noexcept { return path_; }
  std::string store() const { return "file:" + path_ + "/store"; }

 private:
  std::string path_;
};

inline board& open_board(const std::string& path) {
  const int fd = ::open((path + "/board").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(board)) != 0) fail("The board cannot be created");
  void* memory = ::mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) fail("The board cannot be mapped");
  ::close(fd);
  return *static_cast<board*>(memory);
}

inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen, nullptr, nullptr,
            0);
}

inline void futex_wake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr,
            nullptr, 0);
}

// This program again, in another role. Ends with us, and with this object.
class process {
 public:
  process(const char* role, const folder& where) {
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) fail("A process cannot be started");
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::execl("/proc/self/exe", "file_baseline", role, where.path().c_str(), nullptr);
    ::_exit(127);
  }
  ~process() { kill(); }
  process(const process&) = delete;
  process& operator=(const process&) = delete;

  void kill() noexcept {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }
  void wait() noexcept { ::waitpid(std::exchange(pid_, -1), nullptr, 0); }
  pid_t pid() const noexcept { return pid_; }

 private:
  pid_t pid_ = -1;
};

// A role that failed must not make us wait for ever.
template <class Condition>
void wait_until(Condition&& met) {
  const auto deadline = steady_clock::now() + std::chrono::seconds{20};
  while (!met()) {
    if (steady_clock::now() > deadline)
      throw std::runtime_error("A process of the benchmark did not answer.");
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// ns for one call of `pair`: the median of many short batches, so that being off the processor does not count.
template <class Pair>
double ns_per(std::chrono::milliseconds time, Pair&& pair) {
  constexpr int batch = 50;
  std::vector<double> batches;
  const auto end = steady_clock::now() + time;
  for (auto begin = steady_clock::now(); begin < end;) {
    for (int i = 0; i < batch; ++i) pair();
    const auto now = steady_clock::now();
    batches.push_back(static_cast<double>((now - begin).count()) / batch);
    begin = now;
  }
  return median(std::move(batches));
}

// Times from letting go to having, of those who waited already when it was let go. Each side keeps its own and leaves
// the median on the board.
class handoff_clock {
 public:
  explicit handoff_clock(std::atomic<std::int64_t>& released_at) : released_at_(released_at) {}
  void asked() noexcept { asked_ = now(); }
  // REQUIRES: these two while having it.
  void got(bool from_other) {
    const auto released = released_at_.load(std::memory_order_relaxed);
    if (from_other && asked_ < released) times_.push_back(static_cast<double>(now() - released));
  }
  void let_go() noexcept { released_at_.store(now(), std::memory_order_relaxed); }
  double p50() const { return median(times_); }
  std::size_t count() const noexcept { return times_.size(); }

 private:
  std::atomic<std::int64_t>& released_at_;
  std::int64_t asked_ = 0;
  std::vector<double> times_;
};

}  // namespace baseline

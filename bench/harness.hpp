// What the baselines need around their measurements: a folder, a state shared by processes, and the processes.
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
struct shared_state {
  std::atomic<std::uint32_t> ready;
  std::atomic<std::uint32_t> turn;  // of the bare futex ping-pong
  std::atomic<bool> stop;
  std::atomic<std::int32_t> last;  // the contender that had the lock last
  std::atomic<std::int64_t> released_at;
  std::atomic<double> p50;                // of the first of two contenders, in ns
  std::atomic<std::uint64_t> handoffs;    // that it is the median of
  std::atomic<std::int64_t> acquired_at;  // by the waiter, after a kill
  pthread_mutex_t bare;
  std::atomic<std::uint64_t> changes;  // of the holder: having it again is not counted
  // Of all contenders, for quantiles over all of them.
  std::atomic<std::uint32_t> time_count;
  std::array<float, std::size_t{1} << 20U> times;
};

class folder {
 public:
  folder() : folder(std::filesystem::temp_directory_path()) {}
  explicit folder(const std::filesystem::path& under)
      : path_((under / "holdfast-bench-XXXXXX").string()) {
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

inline shared_state& open_shared_state(const std::string& path) {
  const int fd = ::open((path + "/shared-state").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(shared_state)) != 0)
    fail("The shared state cannot be created");
  void* memory = ::mmap(nullptr, sizeof(shared_state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) fail("The shared state cannot be mapped");
  ::close(fd);
  return *static_cast<shared_state*>(memory);
}

inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen, nullptr, nullptr,
            0);
}

inline void futex_wake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr,
            nullptr, 0);
}

// A program beside us. Ends with us, and with this object.
class process {
 public:
  // From the PATH, unless its name has a slash.
  explicit process(std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) fail("A process cannot be started");
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  // This program again, in another role.
  process(const char* role, const folder& where)
      : process(std::vector<std::string>{"/proc/self/exe", role, where.path()}) {}
  process(const char* role, const folder& where, const std::string& more)
      : process(std::vector<std::string>{"/proc/self/exe", role, where.path(), more}) {}
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

// Of the loopback, for a server of our own. Free now; it is not reserved.
inline std::uint16_t free_port() {
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  if (probe < 0 || ::bind(probe, reinterpret_cast<sockaddr*>(&at), size) != 0 ||
      ::getsockname(probe, reinterpret_cast<sockaddr*>(&at), &size) != 0)
    fail("No port can be had");
  ::close(probe);
  return ntohs(at.sin_port);
}

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

// Times from letting go to having, of contenders that waited already when it was let go. Each side keeps its own and
// leaves the median in the shared state.
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
  // Adds its own to those of all contenders.
  void add_to(shared_state& shared) const {
    const auto at = shared.time_count.fetch_add(static_cast<std::uint32_t>(times_.size()));
    for (std::size_t i = 0; i < times_.size() && at + i < shared.times.size(); ++i)
      shared.times[at + i] = static_cast<float>(times_[i]);
  }

 private:
  std::atomic<std::int64_t>& released_at_;
  std::int64_t asked_ = 0;
  std::vector<double> times_;
};

}  // namespace baseline

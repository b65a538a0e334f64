// A program that a test starts beside itself, and that never outlives it.
//
// Killed by its id when the object goes, and by the kernel when the thread that started it ends (PR_SET_PDEATHSIG knows
// threads, not processes: start what shall live on from the main thread).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::testing {

// Where the shell would find it; nothing when it would not.
std::optional<std::string> find_program(const std::string& name);
std::string text_of_file(const std::string& path);

class process {
 public:
  process() = default;
  // `words` begin with the program's path. What it prints is appended to the file `output`.
  process(std::vector<std::string> words, const std::string& output);
  process(process&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  process& operator=(process&& other) noexcept;
  ~process() { kill(); }

  pid_t pid() const noexcept { return pid_; }
  bool is_running();  // paused counts
  void pause();       // SIGSTOP, and waits until it has stopped
  void resume();      // SIGCONT
  void kill();        // SIGKILL, and waits until it is gone
  // Waits for its end: the exit code, 128 + n when signal n ended it; nothing when it does not end in time.
  std::optional<int> wait(std::chrono::nanoseconds limit = std::chrono::seconds{10});

 private:
  bool reap(int flags);
  pid_t pid_ = -1;
  int status_ = 0;
};

}  // namespace holdfast::testing

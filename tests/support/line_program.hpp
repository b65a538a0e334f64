// A program beside the test that obeys one-line commands over a pipe and answers in lines.
//
//   line_program other{{"/usr/bin/python3", "peer.py"}};
//   EXPECT_EQ(other.ask("take a lock /p"), "taken a");
//   other.kill();                                       // SIGKILL, and reaped
//
// It is killed with the test, whatever happens: by its id when the object goes, by the kernel when the test process
// dies (or the thread that started it, see process.hpp).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::testing {

class line_program {
 public:
  // `words` begin with the program's path. What it prints as errors appears among those of the test.
  explicit line_program(std::vector<std::string> words);
  line_program(const line_program&) = delete;
  line_program& operator=(const line_program&) = delete;
  ~line_program();

  void tell(const std::string& command);
  // The next answer; nothing when none came in time.
  std::optional<std::string> hear(std::chrono::nanoseconds limit = std::chrono::seconds{10});
  std::string ask(const std::string& command);

  void pause();   // SIGSTOP, and waits until it has stopped
  void resume();  // SIGCONT
  void kill();    // SIGKILL, and waits until it is gone
  pid_t pid() const noexcept { return pid_; }

 private:
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string unread_;
};

}  // namespace holdfast::testing

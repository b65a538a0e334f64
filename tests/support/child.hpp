// A second process for tests: this very binary, started again as a child that obeys one-line
// commands over a pipe.
//
//   child other{url};
//   EXPECT_EQ(other.ask("acquire stock 10s"), "granted");   // NAME TTL
//   other.kill();                                          // SIGKILL, and reaped
//
// It is killed with the test, whatever happens: by its id when the object goes, by the kernel when
// the test process dies.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

namespace holdfast::testing {

class child {
 public:
  explicit child(const std::string& url);
  child(const child&) = delete;
  child& operator=(const child&) = delete;
  ~child();

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

// For main(): runs as such a child when the arguments say so. The exit code, or nothing when this
// is no child.
std::optional<int> run_as_child(int argc, char** argv);

}  // namespace holdfast::testing

// Runs the real `holdfast` as a user types it.
//
// Each test has a sandbox: a folder with a store of its own, and the duty to leave no process behind. The test
// process is the reaper of all its descendants, so even a grandchild that lost its parents is found at the end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace e2e {

using std::chrono::seconds;

struct outcome {
  int code = -1;
  std::string out;
  std::string err;
};

// True when the condition holds within the deadline. The only way a test here waits.
bool eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds limit = seconds{20});

bool alive(pid_t pid);

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// A running command. Killed, if still there, when it goes out of scope.
class program {
 public:
  program(pid_t pid, std::string out_path, std::string err_path)
      : pid_(pid), out_path_(std::move(out_path)), err_path_(std::move(err_path)) {}
  ~program();
  program(const program&) = delete;
  program& operator=(const program&) = delete;

  pid_t pid() const noexcept { return pid_; }
  void send(int signal) const;
  std::string out() const;
  std::string err() const;
  // Waits for its end; -1 when it does not come in time. 128 + n when signal n ended it.
  outcome wait(std::chrono::milliseconds limit = seconds{30});
  bool ended();

 private:
  pid_t pid_;
  std::string out_path_, err_path_;
  int code_ = -1;
  bool ended_ = false;
};

class sandbox {
 public:
  sandbox();
  ~sandbox();  // fails the test when a process is left behind
  sandbox(const sandbox&) = delete;
  sandbox& operator=(const sandbox&) = delete;

  const std::string& folder() const noexcept { return folder_; }
  std::string path(std::string_view name) const { return folder_ + '/' + std::string{name}; }
  std::string store() const { return "file:" + folder_ + "/store"; }

  // `holdfast WORDS...` on this sandbox's store.
  std::unique_ptr<program> start(std::vector<std::string> words);
  outcome run(std::vector<std::string> words);
  // A line of shell, with holdfast in the PATH.
  std::unique_ptr<program> start_shell(const std::string& line);
  outcome shell(const std::string& line);
  // Set for everything started from now on; "" unsets.
  void set(const std::string& variable, const std::string& value);

  // The content of a file in the folder, "" when there is none.
  std::string read(std::string_view name) const;
  // The process id that a command has written into a file, once it is there. Throws when there is none.
  pid_t pid_in(std::string_view name) const;
  // A line of shell that goes no further until let_go() of the same name; for one process at a time.
  std::string until_let_go(const std::string& name = "go");
  // False when none came to wait for it in time.
  bool let_go(const std::string& name = "go") const;
  // How many hold and wait for a name, according to `holdfast show --json`.
  std::pair<std::size_t, std::size_t> holders_and_waiters(const std::string& name);

 private:
  std::unique_ptr<program> launch(const std::vector<std::string>& words);
  std::string folder_;
  std::vector<pid_t> were_before_;  // a server that all tests of this process share
  std::vector<std::pair<std::string, std::string>> variables_;
  int started_ = 0;
};

// A terminal with holdfast (or another program) on it: what people have in front of them.
class terminal {
 public:
  terminal(const sandbox& where, std::vector<std::string> words, const std::string& what = {});
  ~terminal();
  terminal(const terminal&) = delete;
  terminal& operator=(const terminal&) = delete;
  void type(std::string_view keys) const;
  bool shows(std::string_view text, std::chrono::milliseconds limit = seconds{20});
  const std::string& seen() const noexcept { return seen_; }
  void forget() { seen_.clear(); }  // what was seen so far
  int wait();                       // its exit code

 private:
  void read_some(int milliseconds);
  int fd_ = -1;
  pid_t pid_ = -1;
  std::string seen_;
};

}  // namespace e2e

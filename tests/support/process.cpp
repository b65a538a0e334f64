#include "support/process.hpp"

#include "support/wait_until.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace holdfast::testing {

namespace {

void check(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what + ": " + std::strerror(errno));
}

// Between fork and exec: only what is safe while other threads of the parent may hold any lock.
[[noreturn]] void become(char* const* arguments, int output, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it died before the line above
  // The mask and ignored signals are inherited, and servers must not notice how a test had set its own.
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execv(arguments[0], arguments);
  ::_exit(127);
}

}  // namespace

std::string text_of_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream{path}.rdbuf();
  return text.str();
}

std::optional<std::string> find_program(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders{path != nullptr ? path : ""};
  for (std::string folder; std::getline(folders, folder, ':');) {
    auto candidate = folder + '/' + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return std::nullopt;
}

process::process(std::vector<std::string> words, const std::string& output) {
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int log = ::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  check(log >= 0, output);
  const auto parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become(arguments.data(), log, parent);
  const int reason = errno;
  ::close(log);
  errno = reason;
  check(pid_ > 0, "fork");
}

process& process::operator=(process&& other) noexcept {
  if (this != &other) {
    kill();
    pid_ = std::exchange(other.pid_, -1);
  }
  return *this;
}

// Did it end? Its status is kept then, and its id may be another process's by now.
bool process::reap(int flags) {
  if (pid_ <= 0) return true;
  pid_t ended = 0;
  do {
    ended = ::waitpid(pid_, &status_, flags);
  } while (ended < 0 && errno == EINTR);
  if (ended == 0) return false;
  pid_ = -1;
  return true;
}

bool process::is_running() { return !reap(WNOHANG); }

void process::pause() {
  check(pid_ > 0 && ::kill(pid_, SIGSTOP) == 0, "SIGSTOP");
  int status = 0;
  check(::waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status), "waiting for the stop");
}

void process::resume() { check(pid_ > 0 && ::kill(pid_, SIGCONT) == 0, "SIGCONT"); }

void process::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  reap(0);
}

std::optional<int> process::wait(std::chrono::nanoseconds limit) {
  if (!wait_until([this] { return !is_running(); }, limit)) return std::nullopt;
  return WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
}

}  // namespace holdfast::testing

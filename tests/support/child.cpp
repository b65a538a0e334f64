#include "support/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace holdfast::testing {

namespace {

constexpr const char* child_flag = "--holdfast-child";

void check(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(std::string{what} + ": " + std::strerror(errno));
}

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  check(::pipe2(ends.data(), O_CLOEXEC) == 0, "pipe2");
  return ends;
}

// Between fork and exec: only what is safe while other threads of the parent may hold any lock.
[[noreturn]] void become_child(char* const* arguments, int input, int output) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(input, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::execv("/proc/self/exe", arguments);
  ::_exit(127);
}

}  // namespace

child::child(const std::string& url) {
  const auto commands = make_pipe();
  const auto answers = make_pipe();
  std::string program = "child", flag = child_flag, store = url;
  std::array<char*, 4> arguments{program.data(), flag.data(), store.data(), nullptr};
  pid_ = ::fork();
  check(pid_ >= 0, "fork");
  if (pid_ == 0) become_child(arguments.data(), commands[0], answers[1]);
  ::close(commands[0]);
  ::close(answers[1]);
  to_ = commands[1];
  from_ = answers[0];
}

child::~child() {
  kill();
  ::close(to_);
  ::close(from_);
}

void child::tell(const std::string& command) {
  const auto line = command + '\n';
  check(::write(to_, line.data(), line.size()) == static_cast<ssize_t>(line.size()), "write");
}

std::optional<std::string> child::hear(std::chrono::nanoseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    if (const auto end = unread_.find('\n'); end != std::string::npos) {
      auto line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    const auto left = deadline - std::chrono::steady_clock::now();
    pollfd ready{from_, POLLIN, 0};
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    if (wait <= 0 || ::poll(&ready, 1, static_cast<int>(wait)) <= 0) return std::nullopt;
    std::array<char, 512> buffer{};
    const auto count = ::read(from_, buffer.data(), buffer.size());
    if (count <= 0) return std::nullopt;
    unread_.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

std::string child::ask(const std::string& command) {
  tell(command);
  return hear().value_or("(no answer)");
}

void child::pause() {
  check(::kill(pid_, SIGSTOP) == 0, "SIGSTOP");
  int status = 0;
  check(::waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status), "waiting for the stop");
}

void child::resume() { check(::kill(pid_, SIGCONT) == 0, "SIGCONT"); }

void child::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) == pid_ && !WIFEXITED(status) && !WIFSIGNALED(status)) {
  }
  pid_ = -1;
}

int obey(const std::string& url);  // child_main.cpp

std::optional<int> run_as_child(int argc, char** argv) {
  if (argc != 3 || std::string_view{argv[1]} != child_flag) return std::nullopt;
  return obey(argv[2]);
}

}  // namespace holdfast::testing

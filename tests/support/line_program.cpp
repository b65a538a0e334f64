#include "support/line_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace holdfast::testing {

namespace {

void check(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(std::string{what} + ": " + std::strerror(errno));
}

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  check(::pipe2(ends.data(), O_CLOEXEC) == 0, "pipe2");
  return ends;
}

// Between fork and exec: only what is safe while other threads of the parent may hold any lock.
[[noreturn]] void become_obedient(char* const* arguments, int input, int output) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(input, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::execv(arguments[0], arguments);
  ::_exit(127);
}

}  // namespace

line_program::line_program(std::vector<std::string> words) {
  const auto commands = make_pipe();
  const auto answers = make_pipe();
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_ = ::fork();
  check(pid_ >= 0, "fork");
  if (pid_ == 0) become_obedient(arguments.data(), commands[0], answers[1]);
  ::close(commands[0]);
  ::close(answers[1]);
  to_ = commands[1];
  from_ = answers[0];
}

line_program::~line_program() {
  kill();
  ::close(to_);
  ::close(from_);
}

void line_program::tell(const std::string& command) {
  const auto line = command + '\n';
  check(::write(to_, line.data(), line.size()) == static_cast<ssize_t>(line.size()), "write");
}

std::optional<std::string> line_program::hear(std::chrono::nanoseconds limit) {
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

std::string line_program::ask(const std::string& command) {
  tell(command);
  return hear().value_or("(no answer)");
}

void line_program::pause() {
  check(::kill(pid_, SIGSTOP) == 0, "SIGSTOP");
  int status = 0;
  check(::waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status), "waiting for the stop");
}

void line_program::resume() { check(::kill(pid_, SIGCONT) == 0, "SIGCONT"); }

void line_program::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) == pid_ && !WIFEXITED(status) && !WIFSIGNALED(status)) {
  }
  pid_ = -1;
}

}  // namespace holdfast::testing

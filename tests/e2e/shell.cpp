#include "e2e/shell.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

namespace e2e {

namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

const std::string cli = HOLDFAST_CLI;

std::string content(const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

int code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (auto& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

void redirect(int fd, const char* path, int flags) {
  const int file = ::open(path, flags, 0600);
  ::dup2(file, fd);
  ::close(file);
}

// Processes that have nobody but us.
std::vector<pid_t> children() {
  std::vector<pid_t> found;
  for (const auto& thread : std::filesystem::directory_iterator{"/proc/self/task"}) {
    std::ifstream list{thread.path() / "children"};
    for (pid_t pid = 0; list >> pid;) found.push_back(pid);
  }
  return found;
}

void reap_the_dead() {
  for (const pid_t pid : children()) ::waitpid(pid, nullptr, WNOHANG);
}

std::string command_of(pid_t pid) {
  auto words = content("/proc/" + std::to_string(pid) + "/cmdline");
  for (auto& c : words)
    if (c == '\0') c = ' ';
  return words;
}

}  // namespace

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto deadline = steady_clock::now() + limit;
  for (;;) {
    if (condition()) return true;
    if (steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(5ms);
  }
}

bool alive(pid_t pid) {
  // A zombie does nothing any more; the third field of its stat says so.
  const auto stat = content("/proc/" + std::to_string(pid) + "/stat");
  const auto state = stat.rfind(')');
  return state != std::string::npos && state + 2 < stat.size() && stat[state + 2] != 'Z' &&
         stat[state + 2] != 'X';
}

program::~program() {
  if (ended()) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void program::send(int signal) const { ::kill(pid_, signal); }
std::string program::out() const { return content(out_path_); }
std::string program::err() const { return content(err_path_); }

bool program::ended() {
  int status = 0;
  if (!ended_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
    ended_ = true;
    code_ = code_of(status);
  }
  return ended_;
}

outcome program::wait(std::chrono::milliseconds limit) {
  eventually([this] { return ended(); }, limit);
  return {code_, out(), err()};
}

sandbox::sandbox()
    : folder_((std::filesystem::temp_directory_path() / "holdfast-e2e-XXXXXX").string()),
      were_before_(children()) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (::mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("no temporary folder");
  const auto bin = std::filesystem::path{cli}.parent_path().string();
  set("PATH", bin + ':' + std::getenv("PATH"));
  set("HOLDFAST_STORE", store());
  set("NO_COLOR", "1");
}

sandbox::~sandbox() {
  const auto left = [this] {
    auto found = children();
    std::erase_if(found, [this](pid_t pid) { return std::ranges::count(were_before_, pid) > 0; });
    return found;
  };
  const bool gone = eventually([&] {
    reap_the_dead();
    return left().empty();
  });
  if (!gone) {
    for (const pid_t pid : left()) {
      ADD_FAILURE() << "left behind: " << pid << ' ' << command_of(pid);
      ::kill(pid, SIGKILL);
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void sandbox::set(const std::string& variable, const std::string& value) {
  std::erase_if(variables_, [&](const auto& one) { return one.first == variable; });
  variables_.emplace_back(variable, value);
}

std::unique_ptr<program> sandbox::launch(const std::vector<std::string>& given) {
  const auto number = std::to_string(started_++);
  const auto out = path("out." + number);
  const auto err = path("err." + number);
  auto words = given;
  const auto argv = pointers(words);
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("no more processes");
  if (pid == 0) {
    // The test process has no threads of its own here, so the child may do as it likes.
    redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
    redirect(STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC);
    redirect(STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC);
    for (const auto& [name, value] : variables_)
      value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
    if (::chdir(folder_.c_str()) == 0) ::execv(argv[0], argv.data());
    ::_exit(99);
  }
  return std::make_unique<program>(pid, out, err);
}

std::unique_ptr<program> sandbox::start(std::vector<std::string> words) {
  words.insert(words.begin(), cli);
  return launch(words);
}

outcome sandbox::run(std::vector<std::string> words) { return start(std::move(words))->wait(); }

std::unique_ptr<program> sandbox::start_shell(const std::string& line) {
  return launch({"/bin/sh", "-c", line});
}

outcome sandbox::shell(const std::string& line) { return start_shell(line)->wait(); }

std::string sandbox::read(std::string_view name) const { return content(path(name)); }

pid_t sandbox::pid_in(std::string_view name) const {
  // Written in full only when the line has its end.
  if (!eventually([&] { return read(name).ends_with('\n'); }))
    throw std::runtime_error(std::string{name} + " was never written");
  const auto pid = static_cast<pid_t>(std::stol(read(name)));
  // Tests send signals to it, and to 0 and -1 that would be to everybody.
  if (pid <= 1) throw std::runtime_error(std::string{name} + " has no process id");
  return pid;
}

// A reader of a fifo sleeps until a writer has come and gone.
std::string sandbox::until_let_go(const std::string& name) {
  if (::mkfifo(path(name).c_str(), 0600) != 0) throw std::runtime_error("no fifo " + path(name));
  return "cat " + name;
}

bool sandbox::let_go(const std::string& name) const {
  return eventually([&] {
    const int fd = ::open(path(name).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    return fd >= 0 && ::close(fd) == 0;
  });
}

std::pair<std::size_t, std::size_t> sandbox::holders_and_waiters(const std::string& name) {
  const auto shown = run({"show", name, "--json"});
  if (shown.code != 0) {
    ADD_FAILURE() << "show ended with " << shown.code << ": " << shown.err;
    return {0, 0};
  }
  const auto lock = nlohmann::json::parse(shown.out);
  return {lock["holders"].size(), lock["waiters"].size()};
}

terminal::terminal(const sandbox& where, std::vector<std::string> words, const std::string& what) {
  words.insert(words.begin(), what.empty() ? cli : what);
  const auto argv = pointers(words);
  const winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  pid_ = ::forkpty(&fd_, nullptr, nullptr, &size);
  if (pid_ != 0) return;
  ::setenv("HOLDFAST_STORE", where.store().c_str(), 1);
  ::setenv("TERM", "xterm", 1);
  ::execv(argv[0], argv.data());
  ::_exit(99);
}

terminal::~terminal() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(fd_);
}

void terminal::type(std::string_view keys) const {
  if (::write(fd_, keys.data(), keys.size()) < 0) ADD_FAILURE() << "the terminal takes no keys";
}

void terminal::read_some(int milliseconds) {
  pollfd event{fd_, POLLIN, 0};
  if (::poll(&event, 1, milliseconds) <= 0) return;
  std::array<char, 4096> bytes{};
  const auto got = ::read(fd_, bytes.data(), bytes.size());
  if (got > 0) seen_.append(bytes.data(), static_cast<std::size_t>(got));
}

bool terminal::shows(std::string_view text, std::chrono::milliseconds limit) {
  return eventually(
      [&] {
        read_some(5);
        return seen_.find(text) != std::string::npos;
      },
      limit);
}

int terminal::wait() {
  int status = 0;
  const bool ended = eventually([&] {
    read_some(5);
    return ::waitpid(pid_, &status, WNOHANG) == pid_;
  });
  if (!ended) return -1;
  pid_ = -1;
  read_some(50);
  return code_of(status);
}

}  // namespace e2e

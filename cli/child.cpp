#include "child.hpp"

#include "exit_codes.hpp"
#include "output.hpp"
#include "text.hpp"

#include <holdfast/error.hpp>
#include <holdfast/give_back.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace holdfast::cli {

namespace {

// Both forms: the text owns the bytes, the pointers are what exec wants. Built before the fork, because after it, in
// a process that had other threads, nothing may allocate.
struct exec_list {
  explicit exec_list(std::vector<std::string> items) : text(std::move(items)) {
    for (auto& item : text) pointers.push_back(item.data());
    pointers.push_back(nullptr);
  }
  std::vector<std::string> text;
  std::vector<char*> pointers;
};

exec_list merged(const environment& changes) {
  std::vector<std::string> items;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view item{*entry};
    if (!changes.contains(std::string{item.substr(0, item.find('='))})) items.emplace_back(item);
  }
  for (const auto& [name, value] : changes)
    if (value) items.push_back(name + '=' + *value);
  return exec_list{std::move(items)};
}

exec_list through_shell(const program& what) {
  std::vector<std::string> words{"/bin/sh", what.path};
  words.insert(words.end(), what.words.begin() + 1, what.words.end());
  return exec_list{std::move(words)};
}

program_error cannot_run(const std::string& word, int error) {
  if (error == ENOENT || error == ENOTDIR)
    return {exit_code::not_found, fmt::format("The command \"{}\" was not found.", word)};
  return {exit_code::not_executable,
          fmt::format("The command \"{}\" cannot be run: {}.", word, std::strerror(error))};
}

// 0 when it is a file we may execute, else why not.
int executable(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) return errno;
  if (S_ISDIR(about.st_mode)) return EISDIR;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

// Everything the child needs after the fork, as plain data: from there on only async-signal-safe calls.
struct launch {
  const char* path;
  char* const* words;
  char* const* shell_words;
  char* const* variables;
  const sigset_t* mask;
  int terminal;
  int when_orphaned;
  pid_t parent;
  int error_pipe;
  guard_process* guard;
};

[[noreturn]] void exec_child(const launch& plan) noexcept {
  ::setpgid(0, 0);
  // From here, and not from our parent: the command must not run a moment without its guard.
  plan.guard->watch(::getpid());
  if (plan.terminal >= 0) ::tcsetpgrp(plan.terminal, ::getpid());  // SIGTTOU is blocked still
  if (plan.when_orphaned != 0) {
    ::prctl(PR_SET_PDEATHSIG, plan.when_orphaned);
    if (::getppid() != plan.parent) ::_exit(exit_code::lost);  // it died before we had asked
  }
  std::signal(SIGPIPE, was_broken_pipe_ignored() ? SIG_IGN : SIG_DFL);
  ::sigprocmask(SIG_SETMASK, plan.mask, nullptr);
  ::execve(plan.path, plan.words, plan.variables);
  // A script without a #! line: shells run it themselves, and so does execvp.
  if (errno == ENOEXEC) ::execve("/bin/sh", plan.shell_words, plan.variables);
  const int error = errno;
  [[maybe_unused]] const auto written = ::write(plan.error_pipe, &error, sizeof error);
  ::_exit(exit_code::not_executable);
}

std::array<descriptor, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), "A pipe cannot be created");
  return {descriptor{ends[0]}, descriptor{ends[1]}};
}

}  // namespace

program find_program(const std::vector<std::string>& words) {
  const std::string& word = words.front();
  if (word.empty()) throw cannot_run(word, ENOENT);
  if (word.find('/') != std::string::npos) {
    if (const int error = executable(word); error != 0) throw cannot_run(word, error);
    return {word, words};
  }
  const char* variable = std::getenv("PATH");
  std::string_view rest = variable == nullptr ? "/usr/local/bin:/usr/bin:/bin" : variable;
  int verdict = ENOENT;
  for (bool more = true; more;) {
    const auto colon = rest.find(':');
    const auto folder = rest.substr(0, colon);
    more = colon != std::string_view::npos;
    if (more) rest.remove_prefix(colon + 1);
    const auto path = (folder.empty() ? std::string{"."} : std::string{folder}) + '/' + word;
    const int error = executable(path);
    if (error == 0) return {path, words};
    if (error == EACCES) verdict = EACCES;  // found, in a way; a later folder may do better
  }
  throw cannot_run(word, verdict);
}

pid_t start(const program& what, const environment& changes, const signal_inbox& signals,
            int terminal, int when_orphaned, guard_process& guard) {
  const exec_list words{what.words};
  const auto shell_words = through_shell(what);
  const auto variables = merged(changes);
  auto [error_in, error_out] = make_pipe();
  const launch plan{what.path.c_str(),
                    words.pointers.data(),
                    shell_words.pointers.data(),
                    variables.pointers.data(),
                    &signals.original_mask(),
                    terminal,
                    when_orphaned,
                    ::getpid(),
                    error_out.get(),
                    &guard};
  const pid_t pid = ::fork();
  if (pid < 0)
    throw std::system_error(errno, std::generic_category(), "A process cannot be started");
  if (pid == 0) exec_child(plan);
  ::setpgid(pid, pid);  // the child does so as well: either way the group exists from here on
  error_out.close();
  int error = 0;
  if (::read(error_in.get(), &error, sizeof error) == static_cast<ssize_t>(sizeof error)) {
    ::waitpid(pid, nullptr, 0);
    throw cannot_run(what.words.front(), error);
  }
  return pid;
}

namespace {

// Does any process of the group still run? A zombie does not count: in many containers process 1 never reaps it.
bool group_runs(pid_t group) {
  if (!group_exists(group)) return false;
  std::error_code ignored;
  for (const auto& process : std::filesystem::directory_iterator{"/proc", ignored}) {
    if (process.path().filename().string().find_first_not_of("0123456789") != std::string::npos)
      continue;
    std::string stat;
    std::getline(std::ifstream{process.path() / "stat"}, stat);
    std::istringstream rest{stat.substr(std::min(stat.rfind(')') + 1, stat.size()))};
    char state = 'X';
    pid_t parent = 0, of = 0;
    if (rest >> state >> parent >> of && of == group && state != 'Z' && state != 'X') return true;
  }
  return false;
}

// Whether it has ended for sure.
bool end_group(pid_t group, std::chrono::nanoseconds grace) {
  const auto ended_by = [group](std::chrono::steady_clock::time_point deadline) {
    while (group_runs(group)) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      ::poll(nullptr, 0, 10);
    }
    return true;
  };
  ::kill(-group, SIGTERM);
  ::kill(-group, SIGCONT);  // a stopped process cannot act on SIGTERM
  if (ended_by(in(grace))) return true;
  ::kill(-group, SIGKILL);
  return ended_by(in(std::chrono::seconds{1}));
}

// The store may take the parent's session for alive a moment longer; after some seconds it notices the death itself.
void give_back_for_killed_parent(const guard_process::lock_address& lock, const owner_id& owner) {
  const auto deadline = in(std::chrono::seconds{3});
  while (std::chrono::steady_clock::now() < deadline) {
    const auto done = give_back(lock.store, lock.name, owner, std::chrono::seconds{1});
    if (done || done.error().code() == errc::not_held) return;
    ::poll(nullptr, 0, 50);
  }
}

}  // namespace

// The guard's whole life. It is a fork of a process that had one thread, so it may do what any program may.
void guard_process::run_guard(int messages, duty what, std::chrono::nanoseconds grace,
                              const std::string& warning, const lock_address& lock) noexcept {
  ::setpgid(0, 0);
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_NAME, "holdfast-guard");
  // A reader of our output must see its end when holdfast ends. Sockets must not get these numbers.
  const int dev_null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(dev_null, STDIN_FILENO);
  ::dup2(dev_null, STDOUT_FILENO);
  pid_t group = 0;
  owner_id owner{};
  message received{};
  while (::read(messages, &received, sizeof received) == static_cast<ssize_t>(sizeof received)) {
    if (received.about_owner) {
      owner = received.owner;
    } else {
      group = received.group;
    }
  }
  if (what == duty::end_the_group) {
    const bool ended = group <= 0 || end_group(group, grace);
    if (ended && owner != owner_id{}) give_back_for_killed_parent(lock, owner);
  } else if (group > 0) {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, warning.data(), warning.size());
  }
  ::_exit(0);
}

guard_process::guard_process(duty what, std::chrono::nanoseconds grace, std::string warning,
                             lock_address lock) {
  warning = fmt::format("holdfast: warning: {}\n", printable(warning));
  auto [read_end, write_end] = make_pipe();
  pid_ = ::fork();
  if (pid_ < 0)
    throw std::system_error(errno, std::generic_category(), "A process cannot be started");
  if (pid_ == 0) {
    write_end.close();
    run_guard(read_end.get(), what, grace, warning, lock);
  }
  pipe_ = std::move(write_end);
}

guard_process::~guard_process() {
  dismiss();
  forget_grant();
  pipe_.close();
  ::waitpid(pid_, nullptr, 0);
}

void guard_process::watch(pid_t group) noexcept { send({group, false, {}}); }

void guard_process::release_if_killed(const owner_id& owner) noexcept { send({0, true, owner}); }

void guard_process::send(const message& what) noexcept {
  [[maybe_unused]] const auto written = ::write(pipe_.get(), &what, sizeof what);
}

std::chrono::steady_clock::time_point in(std::chrono::nanoseconds length) noexcept {
  using std::chrono::steady_clock;
  const auto now = steady_clock::now();
  return length < steady_clock::time_point::max() - now ? now + length
                                                        : steady_clock::time_point::max();
}

bool group_exists(pid_t group) noexcept { return ::kill(-group, 0) == 0 || errno == EPERM; }

}  // namespace holdfast::cli

// Several processes add to one counter in a file: read it, add one, write it back.
//
// First without a lock, and updates get lost. Then under a lock in an embedded store, and none is; although one
// process is killed with SIGKILL on the way, while it holds the lock. Everything lives in a temporary folder.
#include <holdfast/holdfast.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using std::chrono::steady_clock;

namespace {

constexpr std::size_t processes = 5;  // the last one is the victim
constexpr std::uint64_t additions = 10'000;

// What parent and workers tell each other, in a mapped file. New files are full of zeros, and so is this.
struct shared_state {
  std::atomic<bool> go;
  std::atomic<bool> victim_holds;
  std::atomic<std::int64_t> killed_at;     // of the steady clock, the same for all processes
  std::atomic<std::int64_t> next_came_at;  // the first one to have the lock after that
  std::array<std::atomic<std::uint64_t>, processes> added;
  std::atomic<std::size_t> ready;
};

std::int64_t now() { return steady_clock::now().time_since_epoch().count(); }

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

shared_state& open_shared_state(const std::string& folder) {
  const int fd = ::open((folder + "/shared-state").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(shared_state)) != 0)
    fail("The shared state cannot be created");
  void* memory = ::mmap(nullptr, sizeof(shared_state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) fail("The shared state cannot be mapped");
  ::close(fd);
  return *static_cast<shared_state*>(memory);
}

// The shared resource: a number in a file, as text. It protects itself in no way at all.
class counter_file {
 public:
  explicit counter_file(const std::string& folder)
      : fd_(::open((folder + "/counter").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (fd_ < 0) fail("The counter cannot be opened");
  }
  ~counter_file() { ::close(fd_); }
  counter_file(const counter_file&) = delete;
  counter_file& operator=(const counter_file&) = delete;

  std::uint64_t read() const {
    std::array<char, 21> text{};
    const auto size = ::pread(fd_, text.data(), text.size(), 0);
    std::uint64_t value = 0;
    if (size > 0) std::from_chars(text.data(), text.data() + size, value);
    return value;
  }
  void write(std::uint64_t value) const {
    std::array<char, 22> text{};
    const int size =
        std::snprintf(text.data(), text.size(), "%020llu", static_cast<unsigned long long>(value));
    if (::pwrite(fd_, text.data(), static_cast<std::size_t>(size), 0) != size)
      fail("The counter cannot be written");
  }

 private:
  int fd_;
};

void wait_for_go(shared_state& shared) {
  ++shared.ready;
  while (!shared.go) std::this_thread::sleep_for(1ms);
}

int work_without_lock(const std::string& folder, std::size_t index) {
  auto& shared = open_shared_state(folder);
  const counter_file counter{folder};
  wait_for_go(shared);
  for (std::uint64_t i = 0; i < additions; ++i) {
    counter.write(counter.read() + 1);
    ++shared.added[index];
  }
  return 0;
}

int work_with_lock(const std::string& folder, std::size_t index) {
  auto& shared = open_shared_state(folder);
  const counter_file counter{folder};
  const auto client = holdfast::client::open("file:" + folder + "/store");
  holdfast::mutex lock{client, "counter"};
  wait_for_go(shared);
  for (std::uint64_t i = 0; i < additions; ++i) {
    const std::lock_guard guard{lock};
    if (shared.killed_at != 0 && shared.next_came_at == 0) shared.next_came_at = now();
    const auto value = counter.read();
    if (index == processes - 1 && i == additions / 2) {
      shared.victim_holds = true;  // it has read, will never write, and waits for the end
      for (;;) ::pause();
    }
    counter.write(value + 1);
    ++shared.added[index];
  }
  return 0;
}

pid_t start_worker(const std::string& folder, const char* how, std::size_t index) {
  const auto number = std::to_string(index);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) fail("A process cannot be started");
  if (pid > 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // no worker stays behind when we are interrupted
  if (::getppid() != parent) ::_exit(1);
  ::execl("/proc/self/exe", "counter_race", how, folder.c_str(), number.c_str(), nullptr);
  ::_exit(127);
}

struct round {
  std::uint64_t added = 0;
  std::uint64_t in_file = 0;
  std::chrono::duration<double> took{};
  std::chrono::duration<double, std::micro> takeover{};
  bool clean = true;
  std::uint64_t lost() const { return added > in_file ? added - in_file : in_file - added; }
};

void kill_when_holding(shared_state& shared, pid_t victim) {
  const auto deadline = steady_clock::now() + 30s;
  while (!shared.victim_holds && steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(20ms);  // let the others queue up behind it
  shared.killed_at = now();
  ::kill(victim, SIGKILL);
}

round run_round(const std::string& folder, const char* how, bool with_victim) {
  std::filesystem::create_directory(folder);
  auto& shared = open_shared_state(folder);
  std::vector<pid_t> workers;
  const std::size_t count = with_victim ? processes : processes - 1;
  for (std::size_t i = 0; i < count; ++i) workers.push_back(start_worker(folder, how, i));
  while (shared.ready < count) {
    std::this_thread::sleep_for(1ms);
    // Not reaped here, only looked at: a worker that ends before the start cannot have opened the store.
    siginfo_t ended{};
    if (::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0)
      throw std::runtime_error("A worker ended before its work began.");
  }
  const auto start = steady_clock::now();
  shared.go = true;
  if (with_victim) kill_when_holding(shared, workers.back());
  round out;
  for (std::size_t i = 0; i < count; ++i) {
    int status = 0;
    ::waitpid(workers[i], &status, 0);
    const bool victim = with_victim && i == processes - 1;
    if (!victim && status != 0) out.clean = false;
    out.added += shared.added[i];
  }
  out.took = steady_clock::now() - start;
  out.in_file = counter_file{folder}.read();
  out.takeover = std::chrono::nanoseconds{shared.next_came_at - shared.killed_at};
  ::munmap(&shared, sizeof(shared_state));
  return out;
}

// Our own folder, gone at the end.
struct temporary_folder {
  temporary_folder()
      : path((std::filesystem::temp_directory_path() / "holdfast-race-XXXXXX").string()) {
    if (::mkdtemp(path.data()) == nullptr) fail("A temporary folder cannot be created");
  }
  ~temporary_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  std::string path;
};

void print_row(const char* name, const round& r) {
  std::printf("%-16s %12llu %12llu %12llu %9.2f s\n", name,
              static_cast<unsigned long long>(r.added), static_cast<unsigned long long>(r.in_file),
              static_cast<unsigned long long>(r.lost()), r.took.count());
}

int race() {
  const temporary_folder folder;
  std::cout << processes - 1 << " processes add to one counter in a file, " << additions
            << " times each.\n"
            << std::flush;
  const auto bare = run_round(folder.path + "/bare", "without", false);
  std::cout << "Once more under a lock, with a fifth process that is killed while it holds it.\n\n"
            << std::flush;
  const auto locked = run_round(folder.path + "/locked", "with", true);

  std::printf("%-16s %12s %12s %12s %11s\n", "", "added", "in the file", "lost", "time");
  print_row("without a lock", bare);
  print_row("with Holdfast", locked);
  std::printf("\nThe killed holder's lock was in the next process's hands %.0f us after SIGKILL.\n",
              locked.takeover.count());
  const bool good = locked.lost() == 0 && locked.clean && locked.takeover.count() > 0;
  std::cout << (good ? "No update was lost under the lock.\n"
                     : "Something went wrong under the lock.\n");
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string how = argc > 1 ? argv[1] : "";
  if (argc == 4 && how == "without") return work_without_lock(argv[2], std::stoul(argv[3]));
  if (argc == 4 && how == "with") return work_with_lock(argv[2], std::stoul(argv[3]));
  return race();
} catch (const std::exception& e) {
  std::cerr << "counter_race: " << e.what() << '\n';
  return 1;
}

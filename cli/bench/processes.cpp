// Benchmark: one lock handed from process to process.
//
// The contenders are this same program, started with the hidden command bench-worker. They share memory with us: how
// many are ready, when to begin and end, and what each has seen. They take the store's URL from the environment, where
// other users cannot read it, and the kernel ends them with us, whatever ends us.
#include "bench/bench.hpp"

#include "exit_codes.hpp"
#include "signals.hpp"
#include "text.hpp"

#include <holdfast/mutex.hpp>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <new>
#include <system_error>
#include <thread>

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace holdfast::cli {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_workers = 1024;

struct worker_row {
  std::uint64_t served = 0;  // by hand-off
  std::uint64_t takes = 0;
  bool failed = false;
  latency_histogram waits;
  latency_histogram handoffs;
};

struct shared_state {
  std::atomic<std::int32_t> ready{0};
  std::atomic<std::int64_t> ends_at{0};  // steady clock, the same for all processes; 0: not yet
  std::atomic<bool> stop{false};
  last_release last;
};

// The shared state and, behind it, one row for each worker.
class shared_memory {
 public:
  shared_memory(int fd, std::size_t workers)
      : size_(sizeof(shared_state) + workers * sizeof(worker_row)) {
    memory_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory_ == MAP_FAILED)
      throw std::system_error(errno, std::generic_category(), "Shared memory cannot be mapped");
  }
  ~shared_memory() { ::munmap(memory_, size_); }
  shared_memory(const shared_memory&) = delete;
  shared_memory& operator=(const shared_memory&) = delete;

  shared_state& head() const noexcept { return *static_cast<shared_state*>(memory_); }
  worker_row& row(std::size_t i) const noexcept {
    return *std::launder(
        reinterpret_cast<worker_row*>(static_cast<char*>(memory_) + sizeof(shared_state)) + i);
  }

 private:
  std::size_t size_;
  void* memory_;
};

descriptor make_memory(std::size_t workers) {
  // Not closed on exec: the workers find it under the same number.
  descriptor memory{::memfd_create("holdfast-bench", 0)};
  if (memory.get() < 0 ||
      ::ftruncate(memory.get(),
                  static_cast<off_t>(sizeof(shared_state) + workers * sizeof(worker_row))) != 0)
    throw std::system_error(errno, std::generic_category(), "Shared memory cannot be created");
  return memory;
}

// The processes; all of them are gone when this is.
class worker_processes {
 public:
  ~worker_processes() {
    for (const auto pid : pids_) ::kill(pid, SIGKILL);
    for (const auto pid : pids_) ::waitpid(pid, nullptr, 0);
  }
  worker_processes() = default;
  worker_processes(const worker_processes&) = delete;
  worker_processes& operator=(const worker_processes&) = delete;

  void add(const bench_setting& setting, int memory, std::size_t index) {
    std::vector<std::string> words{"holdfast",
                                   "bench-worker",
                                   setting.name("processes"),
                                   "--board",
                                   std::to_string(memory),
                                   "--index",
                                   std::to_string(index),
                                   "--parent",
                                   std::to_string(::getpid())};
    std::vector<std::string> variables{"HOLDFAST_STORE=" + setting.args.store_text()};
    for (char** entry = environ; *entry != nullptr; ++entry)
      if (!std::string_view{*entry}.starts_with("HOLDFAST_STORE=")) variables.emplace_back(*entry);
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> out;
      for (auto& text : texts) out.push_back(text.data());
      out.push_back(nullptr);
      return out;
    };
    pid_t pid = 0;
    const int failed = ::posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr,
                                     pointers(words).data(), pointers(variables).data());
    if (failed != 0)
      throw std::system_error(failed, std::generic_category(), "A worker cannot be started");
    pids_.push_back(pid);
  }

  // True when all have ended by themselves.
  bool ended_by(steady_clock::time_point deadline) {
    while (steady_clock::now() < deadline) {
      std::erase_if(pids_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) == pid; });
      if (pids_.empty()) return true;
      std::this_thread::sleep_for(2ms);
    }
    return false;
  }
  std::size_t alive() const noexcept { return pids_.size(); }

 private:
  std::vector<pid_t> pids_;
};

bool wait_until_ready(const bench_setting& setting, const shared_state& head,
                      worker_processes& workers, unsigned n) {
  const auto deadline = steady_clock::now() + 20s;
  while (head.ready < static_cast<std::int32_t>(n)) {
    if (setting.stop.stop_requested() || steady_clock::now() > deadline) return false;
    if (workers.ended_by(steady_clock::now() + 1ms) || workers.alive() < n) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

void add_up(const shared_memory& shared, unsigned n, bench_row& row) {
  std::vector<std::uint64_t> served;
  latency_histogram waits;
  std::uint64_t takes = 0;
  for (unsigned i = 0; i < n; ++i) {
    const auto& worker = shared.row(i);
    served.push_back(worker.served);
    row.operations += worker.served;
    row.latency.merge(worker.handoffs);
    waits.merge(worker.waits);
    takes += worker.takes;
    if (worker.failed) row.note = "a worker failed; ";
  }
  row.fairness = fairness_of(served);
  const auto time = [](double ns) { return brief(nanoseconds{static_cast<std::int64_t>(ns)}); };
  const auto free = found_free(row.operations, takes);
  row.note += fmt::format("a waiter waits {} (p50), {} (p99){}{}", time(waits.quantile(0.5)),
                          time(waits.quantile(0.99)), free.empty() ? "" : "; ", free);
}

void handoff(const bench_setting& setting, bench_row& row, unsigned n) {
  if (!setting.store.capabilities().cross_process) {
    row.skipped = "this store serves one process only";
    return;
  }
  const auto memory = make_memory(n);
  const shared_memory shared{memory.get(), n};
  auto& head = *new (&shared.head()) shared_state;
  for (unsigned i = 0; i < n; ++i) new (&shared.row(i)) worker_row;
  worker_processes workers;
  for (unsigned i = 0; i < n; ++i) workers.add(setting, memory.get(), i);
  if (!wait_until_ready(setting, head, workers, n)) {
    row.skipped =
        fmt::format("only {} of {} workers could open the store in time", head.ready.load(), n);
    return;
  }
  const auto start = steady_clock::now();
  head.ends_at = (start + setting.each).time_since_epoch().count();
  while (steady_clock::now() < start + setting.each && !setting.stop.stop_requested())
    std::this_thread::sleep_for(5ms);
  head.stop = true;
  const bool orderly = workers.ended_by(steady_clock::now() + 10s);
  row.elapsed = setting.each;
  add_up(shared, n, row);
  if (!orderly) row.note += fmt::format("; {} workers did not end in time", workers.alive());
}

void contend(const client& store, const std::string& name, shared_state& head, worker_row& mine,
             std::int32_t index) {
  mutex lock{store, name};
  ++head.ready;
  while (head.ends_at == 0 && !head.stop) std::this_thread::sleep_for(1ms);
  const steady_clock::time_point end{nanoseconds{head.ends_at}};
  while (!head.stop) {
    const auto begin = steady_clock::now();
    if (begin >= end) break;
    auto held = lock.acquire({.wait = end - begin + 5s});
    if (!held) {
      mine.failed = true;
      break;
    }
    if (head.last.taken_by(index, begin, mine.handoffs)) {
      mine.waits.add(steady_clock::now() - begin);
      ++mine.served;
    }
    ++mine.takes;
    head.last.let_go();
    if (!held->release()) mine.failed = true;
  }
}

}  // namespace

std::vector<bench_job> process_jobs(const arguments& args) {
  std::vector<bench_job> jobs;
  for (const auto n : args.list("--waiters", {2, 8, 32, 128})) {
    if (n > most_workers)
      throw usage_error(fmt::format("--waiters takes at most {} processes.", most_workers));
    jobs.push_back({"processes", "hand-off, one name", fmt::format("{} processes", n),
                    [n](const auto& setting, auto& row) { handoff(setting, row, n); }});
  }
  return jobs;
}

int bench_worker(const arguments& args) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != args.integer("--parent", 0, 1, 1 << 30)) return exit_code::internal;
  const auto index = static_cast<std::size_t>(args.integer("--index", 0, 0, most_workers));
  const shared_memory shared{static_cast<int>(args.integer("--board", 0, 3, 1 << 20)), index + 1};
  const auto store = args.open_store();
  contend(store, args.text("NAME"), shared.head(), shared.row(index),
          static_cast<std::int32_t>(index));
  return exit_code::ok;
}

}  // namespace holdfast::cli

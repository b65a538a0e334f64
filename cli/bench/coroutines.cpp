// Benchmark: many coroutines on one thread, each with a lock name of its own.
#include "bench/bench.hpp"

#include <holdfast/mutex.hpp>
#include <holdfast/task.hpp>

#include <fmt/format.h>

#include <condition_variable>
#include <coroutine>
#include <deque>
#include <memory>
#include <mutex>

namespace holdfast::cli {

namespace {

using namespace std::chrono_literals;

// Where coroutines take turns. An acquire that succeeds at once does not suspend, so without this the first
// coroutine would run alone until the end.
class run_queue {
 public:
  struct turn {
    run_queue& queue;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> suspended) const { queue.push(suspended); }
    void await_resume() const noexcept {}
  };
  turn next_turn() noexcept { return {*this}; }

  void expect(std::size_t n) noexcept { alive_ = n; }
  void ended() {
    const std::lock_guard lock{guard_};
    --alive_;
    changed_.notify_one();
  }
  void run() {
    std::unique_lock lock{guard_};
    for (;;) {
      changed_.wait(lock, [this] { return !ready_.empty() || alive_ == 0; });
      if (ready_.empty()) return;
      const auto next = ready_.front();
      ready_.pop_front();
      lock.unlock();
      next.resume();
      lock.lock();
    }
  }

 private:
  void push(std::coroutine_handle<> suspended) {
    const std::lock_guard lock{guard_};
    ready_.push_back(suspended);
    changed_.notify_one();
  }
  std::mutex guard_;
  std::condition_variable changed_;
  std::deque<std::coroutine_handle<>> ready_;
  std::size_t alive_ = 0;
};

struct contender {
  contender(const client& store, std::string name) : lock(store, std::move(name)) {}
  mutex lock;
  latency_histogram latency;
  std::uint64_t served = 0;
  std::optional<error> failure;
};

task<> compete(contender& self, run_queue& queue, steady_clock::time_point deadline,
               const std::stop_token& stop) {
  const acquire_options options{.wait = 10s};
  while (!self.failure && !stop.stop_requested()) {
    co_await queue.next_turn();
    const auto begin = steady_clock::now();
    if (begin >= deadline) break;
    auto held = co_await self.lock.async_acquire(options);
    if (!held) {
      self.failure = held.error();
      break;
    }
    // Dropped: the release is sent. To wait for its answer here would make all the others wait.
    *held = lease{};
    self.latency.add(steady_clock::now() - begin);
    ++self.served;
  }
  queue.ended();
}

void many_coroutines(const bench_setting& setting, bench_row& row, unsigned n) {
  std::vector<std::unique_ptr<contender>> all;
  for (unsigned i = 0; i < n; ++i)
    all.push_back(
        std::make_unique<contender>(setting.store, setting.name(fmt::format("coroutines/{}", i))));
  run_queue queue;
  queue.expect(n);
  const auto start = steady_clock::now();
  for (auto& rival : all) spawn(compete(*rival, queue, start + setting.each, setting.stop));
  queue.run();
  row.elapsed = steady_clock::now() - start;
  std::vector<std::uint64_t> served;
  for (const auto& rival : all) {
    if (rival->failure) throw lock_error(*rival->failure);
    row.operations += rival->served;
    row.latency.merge(rival->latency);
    served.push_back(rival->served);
  }
  if (n > 1) row.fairness = fairness_of(served);
}

}  // namespace

std::vector<bench_job> coroutine_jobs(const arguments& args) {
  std::vector<bench_job> jobs;
  for (const auto n : args.list("--coroutines", {1, 64, 1000}))
    jobs.push_back({"coroutines", "distinct names", fmt::format("{} coroutines", n),
                    [n](const auto& setting, auto& row) { many_coroutines(setting, row, n); }});
  return jobs;
}

}  // namespace holdfast::cli

// The benchmarks, each on any store through the public API.
#pragma once

#include "args.hpp"
#include "bench/report.hpp"

#include <holdfast/client.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

namespace holdfast::cli {

using std::chrono::steady_clock;

// What all measurements share.
struct bench_setting {
  const arguments& args;
  const client& store;
  nanoseconds each;      // time for one row
  std::string prefix;    // of all lock names, unlike any other run's
  std::stop_token stop;  // ^C

  std::string name(std::string_view rest) const { return prefix + std::string{rest}; }
};

// One row to be measured. It throws lock_error when the store fails or cannot do that.
struct bench_job {
  std::string which;  // for --only
  std::string what;
  std::string setup;
  std::function<void(const bench_setting&, bench_row&)> measure;
};

std::vector<bench_job> uncontended_jobs();
std::vector<bench_job> thread_jobs(const arguments& args);
std::vector<bench_job> coroutine_jobs(const arguments& args);
std::vector<bench_job> reentry_jobs();
std::vector<bench_job> local_jobs();
std::vector<bench_job> process_jobs(const arguments& args);
std::vector<bench_job> renewal_jobs(const arguments& args);

// Repeats `pair` until the time is over, in batches long enough that looking at the clock costs nothing.
template <class Pair>
void repeat(const bench_setting& setting, bench_row& row, Pair&& pair) {
  const auto start = steady_clock::now();
  pair();
  pair();
  auto once = (steady_clock::now() - start) / 2;
  const auto deadline = start + setting.each;
  while (!setting.stop.stop_requested()) {
    const auto batch =
        std::clamp<std::int64_t>(20'000 / std::max<std::int64_t>(once.count(), 1), 1, 1000);
    const auto begin = steady_clock::now();
    for (std::int64_t i = 0; i < batch; ++i) pair();
    const auto end = steady_clock::now();
    once = (end - begin) / batch;
    row.latency.add(once, static_cast<std::uint64_t>(batch));
    row.operations += static_cast<std::uint64_t>(batch);
    if (end >= deadline) break;
  }
  row.elapsed = steady_clock::now() - start;
}

// Which contender had the lock last, and when it was let go: tells hand-off from taking a free lock. Plain data for
// shared memory.
//
// On a machine with few free processors, contenders often do not meet: each takes a free lock over and over during its
// time slice. Only a contender that was waiting already when the lock was let go counts as served by hand-off.
struct last_release {
  std::atomic<std::int64_t> released_at{0};
  std::atomic<std::int32_t> last{-1};

  // REQUIRES: both while holding the lock. `asked` is when `contender` began to wait. Returns whether it was
  // handed over.
  bool taken_by(std::int32_t contender, steady_clock::time_point asked,
                latency_histogram& handoff) noexcept {
    const steady_clock::time_point released{
        nanoseconds{released_at.load(std::memory_order_relaxed)}};
    const auto before = last.exchange(contender, std::memory_order_relaxed);
    if (before == contender || before < 0 || asked >= released) return false;
    handoff.add(steady_clock::now() - released);
    return true;
  }
  void let_go() noexcept {
    released_at.store(steady_clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  }
};

}  // namespace holdfast::cli

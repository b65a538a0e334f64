// Benchmarks inside one process: pairs, threads, re-entry, hand-off between threads, renewals.
#include "bench/bench.hpp"

#include "text.hpp"

#include <holdfast/mutex.hpp>
#include <holdfast/recursive_mutex.hpp>

#include <fmt/format.h>

#include <exception>
#include <latch>
#include <memory>
#include <mutex>
#include <thread>

namespace holdfast::cli {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t names_each = 16;

void lock_unlock(const bench_setting& setting, bench_row& row) {
  mutex lock{setting.store, setting.name("pair")};
  repeat(setting, row, [&] {
    lock.lock();
    lock.unlock();
  });
}

void acquire_release(const bench_setting& setting, bench_row& row) {
  mutex lock{setting.store, setting.name("pair")};
  const acquire_options options{.wait = 10s};
  repeat(setting, row, [&] { lock.acquire(options).value().release().value(); });
}

// Runs `body(i)` on n threads that start together. The first exception is thrown on.
template <class Body>
void on_threads(unsigned n, Body&& body) {
  std::latch start{static_cast<std::ptrdiff_t>(n)};
  std::mutex guard;
  std::exception_ptr failure;
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < n; ++i)
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        try {
          body(i);
        } catch (...) {
          const std::lock_guard lock{guard};
          if (!failure) failure = std::current_exception();
        }
      });
  }
  if (failure) std::rethrow_exception(failure);
}

void many_threads(const bench_setting& setting, bench_row& row, unsigned n) {
  std::vector<bench_row> rows(n);
  const auto start = steady_clock::now();
  on_threads(n, [&](unsigned i) {
    std::vector<std::unique_ptr<mutex>> locks;
    for (std::size_t k = 0; k < names_each; ++k)
      locks.push_back(
          std::make_unique<mutex>(setting.store, setting.name(fmt::format("threads/{}/{}", i, k))));
    std::size_t next = 0;
    repeat(setting, rows[i], [&] {
      auto& lock = *locks[next++ % names_each];
      lock.lock();
      lock.unlock();
    });
  });
  row.elapsed = steady_clock::now() - start;
  std::vector<std::uint64_t> served;
  for (const auto& thread_row : rows) {
    row.operations += thread_row.operations;
    row.latency.merge(thread_row.latency);
    served.push_back(thread_row.operations);
  }
  if (n > 1) row.fairness = fairness_of(served);
}

void reentry(const bench_setting& setting, bench_row& row) {
  recursive_mutex lock{setting.store, setting.name("reentry")};
  const std::lock_guard outer{lock};
  repeat(setting, row, [&] {
    lock.lock();
    lock.unlock();
  });
}

void local_handoff(const bench_setting& setting, bench_row& row, unsigned n) {
  mutex lock{setting.store, setting.name("local")};
  last_release last;
  std::vector<latency_histogram> handoffs(n);
  std::vector<std::uint64_t> served(n);
  std::uint64_t takes = 0;  // guarded by the lock
  const auto start = steady_clock::now();
  const auto deadline = start + setting.each;
  on_threads(n, [&](unsigned i) {
    while (!setting.stop.stop_requested()) {
      const auto asked = steady_clock::now();
      if (asked >= deadline) break;
      const std::lock_guard guard{lock};
      if (last.taken_by(static_cast<std::int32_t>(i), asked, handoffs[i])) ++served[i];
      ++takes;
      last.let_go();
    }
  });
  row.elapsed = steady_clock::now() - start;
  for (unsigned i = 0; i < n; ++i) {
    row.operations += served[i];
    row.latency.merge(handoffs[i]);
  }
  row.note = found_free(row.operations, takes);
  row.fairness = fairness_of(served);
}

// Takes up to n locks, for at most some seconds: a store behind a slow network need not have them all.
std::vector<lease> take(const bench_setting& setting, const client& store, std::size_t n,
                        nanoseconds ttl) {
  std::vector<lease> held;
  held.reserve(n);
  const auto deadline = steady_clock::now() + 10s;
  while (held.size() < n && steady_clock::now() < deadline && !setting.stop.stop_requested()) {
    mutex lock{store, setting.name(fmt::format("held/{}", held.size()))};
    held.push_back(lock.acquire({.wait = 5s, .ttl = ttl}).value());
  }
  return held;
}

void renewals(const bench_setting& setting, bench_row& row, std::size_t n) {
  const auto ttl = std::clamp<nanoseconds>(3s, setting.store.capabilities().min_ttl,
                                           setting.store.capabilities().max_ttl);
  const auto store = client::open(setting.args.store_text());  // its metrics are this row's alone
  const auto before = steady_clock::now();
  auto held = take(setting, store, n, ttl);
  const auto taken = steady_clock::now() - before;
  const auto start = steady_clock::now();
  const auto base = store.metrics();
  while (store.metrics().renewed < base.renewed + held.size() &&
         steady_clock::now() < start + 3 * ttl && !setting.stop.stop_requested())
    std::this_thread::sleep_for(5ms);
  row.elapsed = steady_clock::now() - start;
  const auto seen = store.metrics();
  row.operations = seen.renewed - base.renewed;
  const auto calls = seen.renew.count;
  if (calls > 0) {
    row.latency.add(seen.renew.quantile(0.5), calls);
    row.note = fmt::format("{} calls of {} each; {} locks taken in {}, ttl {}, lost {}", calls,
                           brief(seen.renew.sum / static_cast<std::int64_t>(calls)), held.size(),
                           brief(taken), brief(ttl), seen.lost);
  } else {
    row.note = fmt::format("no renewal was seen within {}", brief(3 * ttl));
  }
}

}  // namespace

std::vector<bench_job> uncontended_jobs() {
  return {{"uncontended", "uncontended pair", "lock, unlock", &lock_unlock},
          {"uncontended", "uncontended pair", "acquire, release", &acquire_release}};
}

std::vector<bench_job> thread_jobs(const arguments& args) {
  std::vector<bench_job> jobs;
  for (const auto n : args.list("--threads", {1, 8, 64}))
    jobs.push_back({"threads", "distinct names", fmt::format("{} threads", n),
                    [n](const auto& setting, auto& row) { many_threads(setting, row, n); }});
  return jobs;
}

std::vector<bench_job> reentry_jobs() {
  return {{"reentry", "re-entry", "lock, unlock", &reentry}};
}

std::vector<bench_job> local_jobs() {
  std::vector<bench_job> jobs;
  for (const unsigned n : {2U, 8U})
    jobs.push_back({"local", "hand-off, one name", fmt::format("{} threads", n),
                    [n](const auto& setting, auto& row) { local_handoff(setting, row, n); }});
  return jobs;
}

std::vector<bench_job> renewal_jobs(const arguments& args) {
  const auto n = static_cast<std::size_t>(args.integer("--held", 10'000, 1, 1'000'000));
  return {{"renewals", "renewals", fmt::format("{} locks held", n),
           [n](const auto& setting, auto& row) { renewals(setting, row, n); }}};
}

}  // namespace holdfast::cli

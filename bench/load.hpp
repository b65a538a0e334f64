// The loads that are put on every store, and on what it is compared with.
#pragma once

#include "harness.hpp"

#include <holdfast/holdfast.hpp>

#include <fmt/format.h>

#include <functional>
#include <list>
#include <memory>
#include <semaphore>

namespace baseline {

// ---------------------------------------------------------------- many at once, a name each

// Pairs per second of `n` threads, each of which runs what `make(i)` gives, for the time.
inline double pairs_per_second(unsigned n, nanoseconds time,
                               const std::function<std::function<void()>(unsigned)>& make) {
  std::vector<std::function<void()>> bodies;
  for (unsigned i = 0; i < n; ++i) bodies.push_back(make(i));
  for (auto& body : bodies) body();  // connected, and known to the server
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> done{0};
  const auto begin = now();
  std::vector<std::jthread> threads;
  for (auto& body : bodies)
    threads.emplace_back([&] {
      std::uint64_t mine = 0;
      for (; !stop.load(std::memory_order_relaxed); ++mine) body();
      done += mine;
    });
  std::this_thread::sleep_for(time);
  stop = true;
  threads.clear();
  return static_cast<double>(done) * 1e9 / static_cast<double>(now() - begin);
}

inline double our_threads(const holdfast::client& client, unsigned n, nanoseconds time) {
  return pairs_per_second(n, time, [&](unsigned i) -> std::function<void()> {
    auto lock = std::make_shared<holdfast::mutex>(client, fmt::format("thread-{}", i));
    return [lock] {
      lock->lock();
      lock->unlock();
    };
  });
}

inline holdfast::task<> take_turns(holdfast::mutex& lock, const std::atomic<bool>& stop,
                                   std::atomic<std::uint64_t>& done,
                                   std::counting_semaphore<>& ended) {
  std::uint64_t mine = 0;
  while (!stop.load(std::memory_order_relaxed)) {
    auto held = co_await lock.async_acquire();
    if (!held) break;
    ++mine;
    // Dropped at the end of the turn: the release is sent, not awaited.
  }
  done += mine;
  ended.release();
}

inline double our_coroutines(const holdfast::client& client, unsigned n, nanoseconds time) {
  std::vector<std::unique_ptr<holdfast::mutex>> locks;
  for (unsigned i = 0; i < n; ++i)
    locks.push_back(std::make_unique<holdfast::mutex>(client, fmt::format("coroutine-{}", i)));
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> done{0};
  std::counting_semaphore<> ended{0};
  const auto begin = now();
  for (auto& lock : locks) holdfast::spawn(take_turns(*lock, stop, done, ended));
  std::this_thread::sleep_for(time);
  stop = true;
  for (unsigned i = 0; i < n; ++i) ended.acquire();
  return static_cast<double>(done) * 1e9 / static_cast<double>(now() - begin);
}

// ---------------------------------------------------------------- one name, many processes

// A contender's life: locks and unlocks again and again, and counts in the shared state.
template <class Lock>
void contend(shared_state& shared, Lock& lock) {
  const auto me = static_cast<std::int32_t>(::getpid());
  handoff_clock times{shared.released_at};
  ++shared.ready;
  while (!shared.stop) {
    times.asked();
    lock.lock();
    const bool from_other = shared.last.exchange(me, std::memory_order_relaxed) != me;
    times.got(from_other);
    if (from_other) ++shared.changes;
    ++shared.handoffs;
    times.let_go();
    lock.unlock();
  }
  times.add_to(shared);
}

// The role of that name, for main().
inline void contend_with_ours(const std::string& path, const std::string& url) {
  holdfast::mutex lock{holdfast::client::open(url, {.handoff_limit = 0}), "contended"};
  contend(open_shared_state(path), lock);
}

struct contention {
  double handoffs = 0;  // in the window
  double per_second = 0;
  // Of the holder; fewer where one contender may have it again and again.
  double changes_per_second = 0;
  double p50 = 0, p99 = 0;  // ns from letting go to having, of contenders that waited already
};

// `n` processes of that role fight for one name; `begin` and `end` are called around the window that counts.
inline contention measure_contention(unsigned n, const char* role, const std::string& url,
                                     nanoseconds window, const std::function<void()>& begin = {},
                                     const std::function<void()>& end = {}) {
  const folder where;
  auto& shared = open_shared_state(where.path());
  std::list<process> all;
  for (unsigned i = 0; i < n; ++i) all.emplace_back(role, where, url);
  wait_until([&] { return shared.ready == n; });
  wait_until([&] { return shared.handoffs >= 2 * n; });  // past the start: all are queued
  if (begin) begin();
  const auto started = now();
  const auto before = shared.handoffs.load(), changed = shared.changes.load();
  std::this_thread::sleep_for(window);
  contention out;
  out.handoffs = static_cast<double>(shared.handoffs - before);
  const auto took = static_cast<double>(now() - started);
  out.per_second = out.handoffs * 1e9 / took;
  out.changes_per_second = static_cast<double>(shared.changes - changed) * 1e9 / took;
  if (end) end();
  shared.stop = true;
  for (auto& contender : all) contender.wait();
  std::vector<float> times{
      shared.times.begin(),
      shared.times.begin() + std::min<std::ptrdiff_t>(shared.time_count, 1 << 20)};
  std::sort(times.begin(), times.end());
  if (!times.empty()) {
    out.p50 = static_cast<double>(times[times.size() / 2]);
    out.p99 = static_cast<double>(times[times.size() * 99 / 100]);
  }
  ::munmap(&shared, sizeof(shared_state));
  return out;
}

}  // namespace baseline

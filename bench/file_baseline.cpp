// The embedded store against what it is built from, side by side in one run.
//
// Machines differ and are rarely idle, so what counts are ratios: each round measures both sides one after the
// other, and the median of the rounds' ratios is shown. Always exits with 0: a time is a measurement, not a test.
//
//   file_baseline [--json]
#include "harness.hpp"
#include "report.hpp"

#include <holdfast/holdfast.hpp>

#include <fmt/format.h>
#include <sys/file.h>

#include <cstdio>
#include <functional>
#include <latch>
#include <mutex>
#include <string_view>
#include <thread>

using namespace std::chrono_literals;
using namespace baseline;

namespace {

constexpr int rounds = 9;
constexpr auto slice = 60ms;

// ---------------------------------------------------------------- uncontended pairs

void make_robust(pthread_mutex_t& lock) {
  pthread_mutexattr_t kind;
  ::pthread_mutexattr_init(&kind);
  ::pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&lock, &kind);
  ::pthread_mutexattr_destroy(&kind);
}

void uncontended(const folder& where, std::vector<finding>& out) {
  auto& bare = open_shared_state(where.path()).bare;
  make_robust(bare);
  const int file = ::open((where.path() + "/flock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) fail("The file for flock cannot be created");
  const auto client = holdfast::client::open(where.store());
  holdfast::mutex lock{client, "pair"};
  std::vector<double> mutexes, flocks, ours, to_mutex, to_flock;
  for (int i = 0; i < rounds; ++i) {
    mutexes.push_back(ns_per(slice, [&] {
      ::pthread_mutex_lock(&bare);
      ::pthread_mutex_unlock(&bare);
    }));
    flocks.push_back(ns_per(slice, [&] {
      ::flock(file, LOCK_EX);
      ::flock(file, LOCK_UN);
    }));
    ours.push_back(ns_per(slice, [&] {
      lock.lock();
      lock.unlock();
    }));
    to_mutex.push_back(ours.back() / mutexes.back());
    to_flock.push_back(ours.back() / flocks.back());
  }
  ::close(file);
  const auto pair = fmt::format("{:.0f} ns", median(ours));
  out.push_back({"uncontended pair / robust pthread mutex",
                 fmt::format("{} / {:.0f} ns", pair, median(mutexes)), median(to_mutex), 6, "x"});
  out.push_back({"uncontended pair / flock(2)", fmt::format("{} / {:.0f} ns", pair, median(flocks)),
                 median(to_flock), 1, "x", bound::below});
}

// ---------------------------------------------------------------- hand-off between two processes

void leave_result(shared_state& shared, const handoff_clock& times, bool first) {
  if (!first) return;
  shared.p50 = times.p50();
  shared.handoffs = times.count();
}

// One side of the bare ping-pong: waits for its turn, gives it to the other.
void ping_pong(shared_state& shared, bool first) {
  handoff_clock times{shared.released_at};
  times.asked();
  while (!shared.stop) {
    const auto turn = shared.turn.load();
    if ((turn % 2 == 0) != first) {
      futex_wait(shared.turn, turn);
      continue;
    }
    times.got(true);
    times.let_go();
    shared.turn = turn + 1;
    futex_wake(shared.turn);
    times.asked();
  }
  ++shared.turn;  // so that the other side does not sleep on
  futex_wake(shared.turn);
  leave_result(shared, times, first);
}

// One side of the same with our lock: a side that asks again queues behind the other.
void lock_pong(shared_state& shared, holdfast::mutex& lock, bool first) {
  handoff_clock times{shared.released_at};
  const std::int32_t me = first ? 1 : 2;
  while (!shared.stop) {
    times.asked();
    const std::lock_guard guard{lock};
    times.got(shared.last.exchange(me, std::memory_order_relaxed) != me);
    times.let_go();
  }
  leave_result(shared, times, first);
}

// The p50 of a hand-off in ns while two processes of those roles play.
double two_processes(const folder& where, const char* first, const char* second) {
  auto& shared = open_shared_state(where.path());
  shared.stop = false;
  shared.turn = 0;
  shared.ready = 0;
  process ping{first, where};
  process pong{second, where};
  wait_until([&] { return shared.ready == 2; });
  std::this_thread::sleep_for(200ms);
  shared.stop = true;
  ping.wait();
  pong.wait();
  const double p50 = shared.p50;
  if (shared.handoffs == 0) throw std::runtime_error("The two processes never met at the lock.");
  ::munmap(&shared, sizeof(shared_state));
  return p50;
}

void handoff(const folder& where, std::vector<finding>& out) {
  std::vector<double> bare, ours, ratios;
  for (int i = 0; i < rounds; ++i) {
    bare.push_back(two_processes(where, "ping", "pong"));
    ours.push_back(two_processes(where, "lock-ping", "lock-pong"));
    ratios.push_back(ours.back() / bare.back());
  }
  out.push_back({"hand-off between processes / bare futex",
                 fmt::format("{:.1f} us / {:.1f} us", median(ours) / 1e3, median(bare) / 1e3),
                 median(ratios), 2, "x"});
}

// ---------------------------------------------------------------- a killed holder

void takeover(const folder& where, std::vector<finding>& out) {
  auto& shared = open_shared_state(where.path());
  const auto client = holdfast::client::open(where.store());
  std::vector<double> times;
  for (int i = 0; i < 20; ++i) {
    shared.ready = 0;
    shared.acquired_at = 0;
    process holder{"holder", where};
    wait_until([&] { return shared.ready == 1; });
    process waiter{"waiter", where};
    wait_until([&] { return !client.inspect("takeover").value().waiters.empty(); });
    std::this_thread::sleep_for(5ms);  // queued is not asleep yet
    const auto killed_at = now();
    holder.kill();
    wait_until([&] { return shared.acquired_at != 0; });
    times.push_back(static_cast<double>(shared.acquired_at - killed_at));
    waiter.wait();
  }
  ::munmap(&shared, sizeof(shared_state));
  const auto worst = *std::max_element(times.begin(), times.end());
  out.push_back({"SIGKILL of the holder until the waiter has it",
                 fmt::format("p50 {:.0f} us, max {:.0f} us", median(times) / 1e3, worst / 1e3),
                 median(times) / 1e6, 1, "ms", bound::below});
}

// ---------------------------------------------------------------- inside one process

void local(const folder& where, std::vector<finding>& out) {
  const auto client = holdfast::client::open(where.store());
  holdfast::recursive_mutex again{client, "again"};
  {
    const std::lock_guard outer{again};
    const auto ns = ns_per(slice, [&] {
      again.lock();
      again.unlock();
    });
    out.push_back({"re-entry pair", fmt::format("{:.0f} ns", ns), ns / 1e3, 1, "us", bound::below});
  }
  holdfast::mutex lock{client, "local"};
  std::atomic<bool> stop{false};
  std::atomic<std::int64_t> released_at{0};
  int last = -1;  // guarded by the lock
  double p50 = 0;
  const auto play = [&](int me) {
    handoff_clock times{released_at};
    while (!stop) {
      times.asked();
      const std::lock_guard guard{lock};
      times.got(std::exchange(last, me) != me);
      times.let_go();
    }
    if (me == 0) p50 = times.p50();
  };
  {
    const std::jthread first{play, 0};
    const std::jthread second{play, 1};
    std::this_thread::sleep_for(500ms);
    stop = true;
  }
  out.push_back({"hand-off between two threads", fmt::format("{:.0f} ns", p50), p50 / 1e3, 1, "us",
                 bound::below});
}

// ---------------------------------------------------------------- roles and output

int play_role(std::string_view role, const std::string& path) {
  auto& shared = open_shared_state(path);
  if (role == "ping" || role == "pong") {
    ++shared.ready;
    ping_pong(shared, role == "ping");
    return 0;
  }
  const auto client = holdfast::client::open("file:" + path + "/store");
  holdfast::mutex lock{client, role.starts_with("lock-") ? "pong" : "takeover"};
  if (role.starts_with("lock-")) {
    ++shared.ready;
    lock_pong(shared, lock, role == "lock-ping");
  } else if (role == "holder") {
    lock.lock();
    ++shared.ready;
    for (;;) ::pause();
  } else if (role == "waiter") {
    lock.lock();
    shared.acquired_at = now();
    lock.unlock();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (argc == 3) return play_role(first, argv[2]);
  const folder where;
  std::vector<finding> found;
  for (const auto& chapter : {&uncontended, &handoff, &takeover, &local}) chapter(where, found);
  print(found, first == "--json");
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "file_baseline: {}\n", e.what());
  return argc == 3 ? 1 : 0;
}

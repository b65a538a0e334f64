// What breaks here: the leader, again and again, stopped for longer than the ttl and killed, under clients that fight
// for one lock. What must hold, decided from the record of all grants: no two believe at once (C3), tokens rise in the
// order of the grants (C1), and after the last healing everybody is served (C7).
//
// One exception is the server's (etcd 3.4 to 3.5.7, issue 15247): an old leader that wakes from a stall may end a lease
// which was renewed an instant before. Then the next holder has its lock, and rightly so; the old one must learn of it
// from the store, within a second. Such pairs are counted and shown.
#include "faults/etcd_faults.hpp"

#include <gtest/gtest-spi.h>

#include <thread>

namespace holdfast::testing {
namespace {

class etcd_history : public etcd_faults {};

struct belief {
  fencing_token token;
  steady_time begin;      // the grant was in our hands
  steady_time last;       // the last time that valid() was seen to be true
  bool was_told = false;  // of a loss
  std::size_t client = 0;
};

class history {
 public:
  void add(const belief& one) {
    const std::lock_guard lock{guard_};
    all_.push_back(one);
  }
  std::size_t size() const {
    const std::lock_guard lock{guard_};
    return all_.size();
  }
  // REQUIRES: nobody adds any more, and there is something.
  void check() {
    std::ranges::sort(all_, {}, &belief::begin);
    int excused = 0;
    const belief* longest = nullptr;  // of those that began before
    for (const auto& one : all_) {
      if (longest != nullptr) excused += judge(*longest, one);
      if (longest == nullptr || one.last > longest->last) longest = &one;
    }
    for (std::size_t i = 1; i < all_.size(); ++i)
      EXPECT_LT(all_[i - 1].token, all_[i].token) << "grants " << i << " and " << i + 1;
    ::testing::Test::RecordProperty("leases_ended_early_by_the_server", excused);
    EXPECT_LE(excused, static_cast<int>(all_.size() / 20)) << "it is rare, or it is ours";
  }

 private:
  // 1 for a pair that only the server can be blamed for.
  static int judge(const belief& before, const belief& after) {
    if (before.last < after.begin) return 0;
    const auto both = before.last - after.begin;
    EXPECT_TRUE(before.was_told && both < 1s)
        << "clients " << before.client << " and " << after.client << " believed at once for "
        << std::chrono::duration_cast<std::chrono::microseconds>(both).count() << " us";
    return 1;
  }

  mutable std::mutex guard_;
  std::vector<belief> all_;
};

// A checker that finds nothing must be able to find something.
void check_two_beliefs(std::uint64_t second_token, nanoseconds overlap, bool was_told) {
  const auto then = std::chrono::steady_clock::now();
  history record;
  for (int i = 0; i < 20; ++i)  // of which one may be excused
    record.add({{static_cast<std::uint64_t>(i) + 1}, then + i * 1s, then + i * 1s + 1ms, false, 0});
  record.add({{30}, then + 30s, then + 40s, was_told, 1});
  record.add({{second_token}, then + 40s - overlap, then + 41s, false, 2});
  record.check();
}

TEST(etcd_history_checker, tells_right_from_wrong) {
  check_two_beliefs(31, -1ms, false);
  check_two_beliefs(31, 10ms, true);
  EXPECT_NONFATAL_FAILURE(check_two_beliefs(31, 10ms, false), "clients 1 and 2 believed at once");
  EXPECT_NONFATAL_FAILURE(check_two_beliefs(31, 2s, true), "clients 1 and 2 believed at once");
  EXPECT_NONFATAL_FAILURE(check_two_beliefs(29, -1ms, false), "grants");
}

// Holds it for a while and watches its own validity, as a careful user would.
belief watch_over(lease& held, std::size_t client, nanoseconds length) {
  belief seen{held.token(), std::chrono::steady_clock::now(), {}, false, client};
  seen.last = seen.begin;
  const auto end = seen.begin + length;
  for (auto now = seen.begin; now < end; now = std::chrono::steady_clock::now()) {
    if (!held.valid()) break;
    seen.last = now;
    std::this_thread::sleep_for(200us);
  }
  seen.was_told = held.lost().stop_requested();
  return seen;
}

class fighters {
 public:
  fighters(const std::string& url, std::size_t count, history& record) {
    for (std::size_t i = 0; i < count; ++i)
      threads_.emplace_back([this, url, i, &record] { fight(url, i, record); });
  }
  ~fighters() { stop(); }
  fighters(const fighters&) = delete;
  fighters& operator=(const fighters&) = delete;
  void stop() {
    done_ = true;
    for (auto& one : threads_)
      if (one.joinable()) one.join();
  }
  // Since the last look.
  bool everybody_was_served() const {
    return std::ranges::all_of(served_, [](const auto& one) { return one > 0; });
  }
  void forget() {
    for (auto& one : served_) one = 0;
  }

 private:
  void fight(const std::string& url, std::size_t i, history& record) {
    const auto self = client::open(url + "?session=2s", {.handoff_limit = 0});
    mutex lock{self, "stock"};
    for (int turn = 0; !done_; ++turn) {
      auto held = lock.acquire({.wait = 1s, .ttl = 2s});
      if (!held) continue;  // no majority at the moment
      // Now and then for longer than the ttl: whatever happens to the leader shall happen to a holder, too.
      const bool long_one = (static_cast<std::size_t>(turn) + 7 * i) % 25 == 24;
      record.add(watch_over(*held, i, long_one ? 2500ms : 10ms));
      ++served_[i];
      static_cast<void>(held->release());
    }
  }

  std::atomic<bool> done_{false};
  std::array<std::atomic<int>, 4> served_{};
  std::vector<std::thread> threads_;
};

TEST_F(etcd_history, never_two_holders_through_stopped_and_killed_leaders) {
  etcd_server cluster{{.nodes = 3}};
  history record;
  fighters all{cluster.url(), 4, record};
  for (int round = 0; round < 4; ++round) {
    const auto floor = record.size();
    ASSERT_TRUE(wait_until([&] { return record.size() > floor + 30; }, 2 * patience))
        << "a run without load";
    const auto leader = cluster.leader();
    if (round % 2 == 0) {
      cluster.stop(leader);
      const auto stopped = std::chrono::steady_clock::now();
      wait_until([&] { return std::chrono::steady_clock::now() - stopped > 4s; });
      cluster.resume(leader);
    } else {
      cluster.kill(leader);
      const auto after = record.size();
      EXPECT_TRUE(wait_until([&] { return record.size() > after + 10; })) << "two are enough";
      cluster.restart(leader);
    }
  }
  ASSERT_TRUE(wait_until(
      [&] { return cluster.is_healthy(0) && cluster.is_healthy(1) && cluster.is_healthy(2); }));
  all.forget();
  EXPECT_TRUE(wait_until([&] { return all.everybody_was_served(); }));
  all.stop();
  record.check();
  RecordProperty("grants", static_cast<int>(record.size()));
  EXPECT_TRUE(leaves_nothing(cluster)) << left_behind(cluster);
}

// The same with no majority for longer than the ttl, twice, and everybody dead at the end.
TEST_F(etcd_history, never_two_holders_through_lost_majorities) {
  etcd_server cluster{{.nodes = 3}};
  history record;
  fighters all{cluster.url(), 4, record};
  for (int round = 0; round < 3; ++round) {
    const auto floor = record.size();
    ASSERT_TRUE(wait_until([&] { return record.size() > floor + 30; }, 2 * patience))
        << "a run without load";
    if (round == 2) {
      cluster.kill_all();
      cluster.restart_all();
      continue;
    }
    const auto leader = cluster.leader(), other = (leader + 1) % 3;
    cluster.stop(leader), cluster.stop(other);
    const auto stopped = std::chrono::steady_clock::now();
    wait_until([&] { return std::chrono::steady_clock::now() - stopped > 3s; });
    cluster.resume(other), cluster.resume(leader);
  }
  all.forget();
  EXPECT_TRUE(wait_until([&] { return all.everybody_was_served(); }));
  all.stop();
  record.check();
  RecordProperty("grants", static_cast<int>(record.size()));
  EXPECT_TRUE(leaves_nothing(cluster)) << left_behind(cluster);
}

}  // namespace
}  // namespace holdfast::testing

// What breaks here: services, at random. They are killed, asked to end, and stopped for less and for more than a lease
// lasts, under clients of ours and under clients of other people, who all fight for one lock. What must hold, decided
// from the record of all that they believed: no two believe at once (C3), tokens rise in the order of the grants
// (C1), and after the last healing everybody is served (C7).
#include "faults/history.hpp"
#include "faults/serve_faults.hpp"

#include "support/redis_server.hpp"

#include <algorithm>
#include <deque>
#include <random>

namespace holdfast::testing {
namespace {

// Clients as other people write them: they count from when they sent, stop when the time is over, and renew in
// between.
class http_fighters {
 public:
  explicit http_fighters(history& record) : record_(record) {}
  http_fighters(const http_fighters&) = delete;
  http_fighters& operator=(const http_fighters&) = delete;
  ~http_fighters() { stop(); }

  void add(std::uint16_t port) {
    auto& self = all_.emplace_back();
    self.thread = std::thread{[this, &self, port, i = all_.size() - 1] { fight(self, port, i); }};
  }
  void stop() {
    done_ = true;
    for (auto& one : all_)
      if (one.thread.joinable()) one.thread.join();
  }
  void forget() {
    for (auto& one : all_) one.served = 0;
  }
  bool everybody_was_served() const {
    return std::ranges::all_of(all_, [](const auto& one) { return one.served > 0; });
  }
  std::string story() const {
    std::string out;
    for (const auto& one : all_)
      out += fmt::format("served {}, without an answer {}, refused {}\n", one.served.load(),
                         one.unanswered.load(), one.refused.load());
    return out;
  }

 private:
  struct fighter {
    std::atomic<int> served{0}, unanswered{0}, refused{0};
    std::thread thread;
  };
  static constexpr std::size_t long_turn_every = 40;

  void fight(fighter& self, std::uint16_t port, std::size_t i) {
    http_line line{port, 3s};
    for (std::size_t round = 0; !done_; ++round) {
      const auto request = fmt::format("client-{}-{}", i, round);
      said got;
      turn seen{.name = "stock"};
      // The same question until it is answered.
      while (!done_ && !got) {
        seen.asked = std::chrono::steady_clock::now();
        got = line.acquire("stock", 1s, 2s, request);
        if (got) break;
        ++self.unanswered;
        std::this_thread::sleep_for(5ms);
      }
      if (got.status != 200) {
        if (got) ++self.refused;
        if (got.status == 503)
          std::this_thread::sleep_for(20ms);  // it was told to come again later
        continue;
      }
      seen.token = {got.number("token")};
      seen.client = 100 + i;
      hold(line, got, seen, round % long_turn_every == 7 * i % long_turn_every ? 2500ms : 5ms);
      static_cast<void>(line.release(got.text("lease")));
      ++self.served;
      record_.add(seen);
    }
  }
  static void hold(http_line& line, const said& got, turn& seen, nanoseconds length) {
    auto valid_until = seen.asked + std::chrono::milliseconds{got.number("valid_ms")};
    auto renew_at = seen.asked + 700ms;
    seen.begin = seen.last = std::chrono::steady_clock::now();
    if (seen.begin >= valid_until) {
      seen.begin = {};  // it never believed
      return;
    }
    const auto end = seen.begin + length;
    for (auto now = seen.begin; now < end; now = std::chrono::steady_clock::now()) {
      if (now >= valid_until) break;
      seen.last = now;
      if (now < renew_at) {
        std::this_thread::sleep_for(200us);  // a sample: the record is as sharp as this
        continue;
      }
      const auto asked = std::chrono::steady_clock::now();
      const auto said = line.renew(got.text("lease"));
      if (said.status == 200)
        valid_until = asked + std::chrono::milliseconds{said.number("valid_ms")};
      if (said.status == 404 || said.status == 410) break;
      renew_at = said.status == 200 ? asked + 700ms : std::chrono::steady_clock::now() + 20ms;
    }
    seen.was_lost = seen.was_told = std::chrono::steady_clock::now() < end;
  }

  history& record_;
  std::atomic<bool> done_{false};
  std::deque<fighter> all_;  // threads refer to its elements
};

class serve_history : public serve_faults {
 protected:
  bool goes_on(std::size_t grants) const {
    const auto floor = record_.size();
    return wait_until([&] { return record_.size() > floor + grants; }, 3 * patience);
  }
  static void stop_for(serve_process& service, nanoseconds length) {
    service.stop();
    const auto stopped = std::chrono::steady_clock::now();
    wait_until([&] { return std::chrono::steady_clock::now() - stopped > length; }, 2 * length);
    service.resume();
  }
  enum class blow : std::uint8_t { kill, long_kill, ending, short_stop, long_stop };
  // At a moment that nobody has chosen. The long ones are longer than a lease, and hit one who holds.
  void strike(serve_process& service, blow how, fighters& ours, std::size_t holder) {
    const bool is_long = how == blow::long_kill || how == blow::long_stop;
    EXPECT_TRUE(!is_long || ours.let_linger(holder)) << ours.story();
    std::this_thread::sleep_for(std::chrono::microseconds{random_() % 300'000});
    if (how == blow::short_stop) return stop_for(service, 800ms);
    if (how == blow::long_stop) return stop_for(service, 3500ms);
    if (how == blow::ending) {
      service.terminate();
      service.wait(2s);
    } else {
      service.kill();
    }
    if (how == blow::long_kill) std::this_thread::sleep_for(2500ms);
    service.restart();
  }
  std::vector<blow> in_any_order(std::vector<blow> all) {
    std::ranges::shuffle(all, random_);
    return all;
  }
  void check(fighters& ours, http_fighters& theirs, const serve_process& service) {
    ours.forget(), theirs.forget();
    EXPECT_TRUE(wait_until(
        [&] { return ours.everybody_was_served() && theirs.everybody_was_served(); }, 4 * patience))
        << ours.story() << theirs.story();
    ours.stop(), theirs.stop();
    EXPECT_EQ(record_.check(), 0);
    EXPECT_GT(record_.losses(), 0U) << "what hit no holder proves nothing";
    RecordProperty("grants", static_cast<int>(record_.size()));
    RecordProperty("losses", static_cast<int>(record_.losses()));
    EXPECT_TRUE(leaves_nothing(service, 2 * patience)) << left_behind(service);
  }

  std::mt19937 random_{[] {
    const auto seed = std::random_device{}();
    RecordProperty("seed", std::to_string(seed));
    return seed;
  }()};
  history record_;
};

TEST_F(serve_history, never_two_holders_while_the_service_is_struck_at_random) {
  serve_process service;
  fighters ours{record_, 0, "?grace=2s"};
  http_fighters theirs{record_};
  for (int i = 0; i < 3; ++i) ours.add(service.url());
  for (int i = 0; i < 4; ++i) theirs.add(service.port());
  for (const auto how : in_any_order({blow::kill, blow::kill, blow::long_kill, blow::ending,
                                      blow::short_stop, blow::long_stop})) {
    ASSERT_TRUE(goes_on(30)) << "a run without load\n" << ours.story() << theirs.story();
    strike(service, how, ours, random_() % 3);
  }
  check(ours, theirs, service);
}

TEST_F(serve_history, never_two_holders_while_two_services_on_one_store_are_struck) {
  if (const auto redis = redis_server::available(); !redis) GTEST_SKIP() << redis.why;
  const redis_server store;
  serve_process one{{.store = store.url()}}, two{{.store = store.url()}};
  fighters ours{record_, 0, "?grace=2s"};
  http_fighters theirs{record_};
  for (const auto* each : {&one, &two}) {
    for (int i = 0; i < 2; ++i) ours.add(each->url());
    for (int i = 0; i < 2; ++i) theirs.add(each->port());
  }
  bool is_one = false;
  for (const auto how :
       in_any_order({blow::kill, blow::long_kill, blow::ending, blow::long_stop})) {
    ASSERT_TRUE(goes_on(30)) << "a run without load\n" << ours.story() << theirs.story();
    is_one = !is_one;
    strike(is_one ? one : two, how, ours, is_one ? 0 : 2);
  }
  check(ours, theirs, one);
}

}  // namespace
}  // namespace holdfast::testing

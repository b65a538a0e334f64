// Clients that fight for one lock, and a record of all that they believed.
#pragma once

#include "faults/faults.hpp"

#include "support/judge.hpp"

#include <atomic>
#include <deque>
#include <mutex>
#include <thread>

namespace holdfast::testing {

class history : public record {
 public:
  // `mercy`: what this kind of server does that nobody can help.
  explicit history(const leniency& mercy = {}) : mercy_(mercy) {}
  // REQUIRES: nobody adds any more. Returns how many leases the server ended early.
  int check() const {
    const auto found = judge(all(), mercy_);
    for (const auto& one : found.complaints) ADD_FAILURE() << one;
    ::testing::Test::RecordProperty("leases_ended_early_by_the_server",
                                    static_cast<int>(found.excused));
    return static_cast<int>(found.excused);
  }

 private:
  const leniency mercy_;
};

// Holds it for a while and watches its own validity, as a careful user would.
inline turn watch_over(lease& held, std::size_t client, steady_time asked, nanoseconds length) {
  turn seen{.name = held.name()};
  seen.token = held.token();
  seen.client = client;
  seen.asked = asked;
  seen.begin = seen.last = std::chrono::steady_clock::now();
  const auto end = seen.begin + length;
  for (auto now = seen.begin; now < end; now = std::chrono::steady_clock::now()) {
    if (!held.valid()) break;
    seen.last = now;
    std::this_thread::sleep_for(200us);  // a sample: the record is as sharp as this
  }
  seen.was_told = held.lost().stop_requested();
  seen.was_lost = !held.valid();
  return seen;
}

class fighters {
 public:
  // Each holds the lock for an instant, and in one turn of `long_turn_every` for longer than the ttl: whatever happens
  // shall happen to a holder, too. 0: only when it is told to.
  fighters(history& record, std::size_t long_turn_every, std::string options = "?session=2s")
      : record_(record), long_turn_every_(long_turn_every), options_(std::move(options)) {}
  ~fighters() { stop(); }
  fighters(const fighters&) = delete;
  fighters& operator=(const fighters&) = delete;
  // One more, in the network of the calling thread.
  void add(const std::string& url) {
    auto& self = all_.emplace_back();
    self.thread = std::thread{[this, &self, url, i = all_.size() - 1] { fight(self, url, i); }};
  }
  void stop() {
    done_ = true;
    for (auto& one : all_)
      if (one.thread.joinable()) one.thread.join();
  }
  // Makes its next turn a long one, and returns when it has begun. It ends long after somebody else would have the lock
  // if its holder were cut off.
  bool let_linger(std::size_t i) {
    all_.at(i).shall_linger = true;
    return wait_until([&] { return all_.at(i).lingers.load(); }, 2 * patience);
  }
  // Since the last look.
  bool everybody_was_served() const {
    return std::ranges::all_of(all_, [](const auto& one) { return one.served > 0; });
  }
  void forget() {
    for (auto& one : all_) one.served = 0;
  }
  // For messages: what each of them got, and why it did not get more.
  std::string story() const {
    std::string text;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const std::lock_guard lock{guard_};
      text += "client " + std::to_string(i) + ": served " + std::to_string(all_[i].served) +
              ", refused " + std::to_string(all_[i].refused) +
              ", at last: " + all_[i].last_refusal + "\n";
    }
    return text;
  }

 private:
  struct fighter {
    std::atomic<int> served{0};
    std::atomic<bool> shall_linger{false}, lingers{false};
    int refused = 0;           // guarded
    std::string last_refusal;  // guarded
    std::thread thread;
  };

  void fight(fighter& self, const std::string& url, std::size_t i) {
    const client_options how{.handoff_limit = 0};
    auto store = client::try_open(url + options_, how);
    // A store that has just been started may need a moment more.
    wait_until([&] { return store || (store = client::try_open(url + options_, how)); });
    mutex lock{store.value(), "stock"};
    for (std::size_t turn = 0; !done_; ++turn) {
      const auto asked = std::chrono::steady_clock::now();
      auto held = lock.acquire({.wait = 1s, .ttl = 2s});
      if (!held) {  // no majority at the moment
        const std::lock_guard quiet{guard_};
        ++self.refused, self.last_refusal = held.error().message();
        continue;
      }
      const bool by_turn = long_turn_every_ > 0 && (turn + 7 * i + 1) % long_turn_every_ == 0;
      self.lingers = self.shall_linger.exchange(false);
      auto seen = watch_over(*held, i, asked, self.lingers ? 6s : by_turn ? 2500ms : 10ms);
      self.lingers = false;
      ++self.served;
      const auto released = held->release();
      const auto said = released ? errc{} : released.error().code();
      seen.was_told = seen.was_told || said == errc::not_held || said == errc::lost;
      record_.add(seen);
    }
  }

  mutable std::mutex guard_;
  history& record_;
  const std::size_t long_turn_every_;
  const std::string options_;
  std::atomic<bool> done_{false};
  std::deque<fighter> all_;  // threads refer to its elements
};

}  // namespace holdfast::testing

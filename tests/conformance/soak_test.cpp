// What breaks here: everything at once, at random. Clients of one store fight for a few names with mixed modes, ttls
// from 300 ms to minutes, cancelled and timed-out waits, upgrades and downgrades, while the network in front of half of
// them delays, swallows, cuts, and keeps requests to deliver them later. What must hold is decided by support/judge.hpp
// from what the clients believed; and at the end nothing is left behind and everybody is served.
//
// HOLDFAST_SOAK_SECONDS (2) and HOLDFAST_SOAK_SEED prolong or repeat a run.
#include "conformance/conformance.hpp"

#include "support/fault_proxy.hpp"
#include "support/judge.hpp"

#include <cstdlib>
#include <iostream>
#include <random>
#include <regex>

namespace holdfast::testing {
namespace {

constexpr std::size_t permits = 3;

long number_from(const char* variable, long otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atol(text);
}

// A proxy in front of every server that the URL names, and the URL by way of them.
class bad_network {
 public:
  explicit bad_network(const std::string& url) {
    const std::regex server{R"(127\.0\.0\.1:(\d+))"};
    auto rest = url;
    for (std::smatch at; std::regex_search(rest, at, server); rest = at.suffix()) {
      auto& proxy = *proxies_.emplace_back(
          std::make_unique<fault_proxy>(static_cast<std::uint16_t>(std::stoul(at[1]))));
      url_ += std::string{at.prefix()} + "127.0.0.1:" + std::to_string(proxy.port());
    }
    url_ += rest;
  }
  bool exists() const { return !proxies_.empty(); }
  const std::string& url() const { return url_; }
  template <class F>
  void all(F&& change) {
    for (const auto& one : proxies_) change(*one);
  }

 private:
  std::vector<std::unique_ptr<fault_proxy>> proxies_;
  std::string url_;
};

// Cancels what is given to it after a while.
class canceller {
 public:
  std::stop_token soon(std::chrono::microseconds after) {
    std::stop_source source;
    const std::lock_guard lock{guard_};
    due_.emplace(std::chrono::steady_clock::now() + after, source);
    return source.get_token();
  }

 private:
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<std::stop_source> now;
      {
        const std::lock_guard lock{guard_};
        while (!due_.empty() && due_.begin()->first <= std::chrono::steady_clock::now())
          now.push_back(due_.extract(due_.begin()).mapped());
      }
      for (auto& one : now) one.request_stop();
      std::this_thread::sleep_for(1ms);
    }
  }
  std::mutex guard_;
  std::multimap<steady_time, std::stop_source> due_;
  std::jthread thread_{[this](const std::stop_token& stop) { run(stop); }};
};

class soak : public conformance {
 protected:
  struct tally {
    std::atomic<int> faults{0}, refused{0}, cancelled{0}, changed{0};
  };

  std::chrono::seconds length{number_from("HOLDFAST_SOAK_SECONDS", 2)};
  unsigned seed = static_cast<unsigned>(
      number_from("HOLDFAST_SOAK_SEED", static_cast<long>(std::random_device{}())));
  record history;
  tally count;
  canceller cancels;
  std::atomic<bool> done{false};

  // One client's threads.
  class fighter {
   public:
    fighter(soak& in, const client& as, std::size_t number, unsigned seed)
        : in_(in),
          as_(as),
          number_(number),
          random_(seed),
          plain_(as, in.name("mutex")),
          caps_(as.capabilities()) {
      if (caps_.shared) sharing_ = std::make_unique<shared_mutex>(as, in.name("shared"));
      if (caps_.permits)
        several_ = std::make_unique<counting_semaphore>(as, in.name("permits"), permits);
    }
    void run() {
      while (!in_.done) take_a_turn();
    }

   private:
    int any(int n) { return std::uniform_int_distribution<int>{0, n - 1}(random_); }

    acquire_options options() {
      const nanoseconds ttls[]{300ms, 600ms, 2s, 10s, 120s};
      const nanoseconds waits[]{0ms, 2ms, 20ms, 300ms, 2s};
      acquire_options out;
      out.ttl = std::clamp<nanoseconds>(ttls[any(5)], caps_.min_ttl, caps_.max_ttl);
      out.wait = waits[any(5)];
      out.own_token = true;
      if (any(3) == 0) out.order = queue_order::barging;
      if (any(5) == 0) out.stop = in_.cancels.soon(std::chrono::microseconds{any(20'000)});
      return out;
    }

    void take_a_turn() {
      turn mine;
      mine.client = number_;
      mine.asked = std::chrono::steady_clock::now();
      auto held = acquire(mine);
      if (!held) {
        ++in_.count.refused;
        if (held.error().code() == errc::cancelled) ++in_.count.cancelled;
        return;
      }
      mine.token = held->token();
      mine.name = held->name();
      believe(*held, mine, any(20) == 0 ? 700ms : std::chrono::milliseconds{any(8)});
      if (mine.weight == mine.capacity && mine.name == in_.name("shared") && any(3) == 0)
        mine = downgrade(*held, mine);
      end(*held, mine);
    }

    result<lease> acquire(turn& mine) {
      const auto how = options();
      switch (any(4)) {
        case 0:
          if (several_) {
            mine.capacity = permits;
            mine.weight = static_cast<std::uint64_t>(1 + any(2));
            return several_->acquire_permits(mine.weight, how);
          }
          break;
        case 1:
          if (sharing_) {
            mine.capacity = 100;  // any number of readers, one writer
            mine.weight = 1;
            return sharing_->acquire_shared(how);
          }
          break;
        case 2:
          if (sharing_) {
            mine.capacity = mine.weight = 100;
            return any(2) == 0 && caps_.upgrade ? upgraded(mine, how) : sharing_->acquire(how);
          }
          break;
        default:
          break;
      }
      return plain_.acquire(how);
    }

    // As a writer, by way of an upgradeable read.
    result<lease> upgraded(turn& mine, const acquire_options& how) {
      auto held = sharing_->acquire_upgradeable(how);
      if (!held) return held;
      mine.asked = std::chrono::steady_clock::now();
      auto outcome = sharing_->upgrade(*held, {.wait = how.wait, .stop = how.stop});
      if (!outcome) return std::move(outcome).error();
      ++in_.count.changed;
      return held;
    }

    // Writes the writer down, and goes on as a reader. A reader's token is the writer's, so it is no grant of its own.
    turn downgrade(lease& held, const turn& writer) {
      in_.history.add(writer);
      auto reader = writer;
      const auto outcome = sharing_->downgrade(held, lock_mode::shared);
      reader.begin = reader.last = {};  // it may have been lost
      reader.weight = 1;
      reader.token = {0};
      if (outcome) ++in_.count.changed;
      if (held.mode() == lock_mode::shared) believe(held, reader, 2ms);
      return reader;
    }

    static void believe(const lease& held, turn& mine, std::chrono::milliseconds length) {
      if (!held.valid()) {
        mine.begin = mine.last = {};
        return;
      }
      const auto begin = std::chrono::steady_clock::now();
      if (!held.valid()) return;
      mine.begin = mine.last = begin;
      for (auto now = begin; now < begin + length; now = std::chrono::steady_clock::now()) {
        if (!held.valid()) return;
        mine.last = now;
        std::this_thread::sleep_for(200us);  // a sample: the record is as sharp as this
      }
    }

    void end(lease& held, turn& mine) {
      if (any(4) == 0) static_cast<void>(held.renew());
      mine.was_told = held.lost().stop_requested();
      mine.was_lost = !held.valid();
      if (any(3) == 0) {
        held = lease{};
      } else if (const auto said = held.release(); !said) {
        mine.was_told = mine.was_told || said.error().code() == errc::lost;
      }
      in_.history.add(mine);
    }

    soak& in_;
    client as_;
    std::size_t number_;
    std::mt19937 random_;
    mutex plain_;
    capabilities caps_;
    std::unique_ptr<shared_mutex> sharing_;
    std::unique_ptr<counting_semaphore> several_;
  };

  void expect_all_served();
  // Who holds, and who waits.
  std::string seen(const std::string& lock) const {
    const auto there = open().inspect(lock);
    if (!there) return there.error().message();
    std::string out;
    for (const auto& one : there->holders) out += "holds " + to_string(one.owner) + "; ";
    for (const auto& one : there->waiters) out += "waits " + to_string(one.owner) + "; ";
    return out;
  }
  void break_things(bad_network& net) {
    std::mt19937 random{seed};
    const auto any = [&](int n) { return std::uniform_int_distribution<int>{0, n - 1}(random); };
    const auto end = std::chrono::steady_clock::now() + length;
    const auto pass = [&](std::chrono::milliseconds time) {
      const auto until = std::min(end, std::chrono::steady_clock::now() + time);
      std::this_thread::sleep_until(until);
    };
    while (std::chrono::steady_clock::now() < end) {
      pass(std::chrono::milliseconds{50 + any(300)});
      const auto time = std::chrono::milliseconds{20 + any(any(4) == 0 ? 2500 : 400)};
      ++count.faults;
      switch (any(5)) {
        case 0:
          net.all([&](auto& p) { p.delay(fault_proxy::replies, time / 4); });
          break;
        case 1:
          net.all([](auto& p) { p.hold(fault_proxy::requests); });
          break;
        case 2:
          net.all([](auto& p) { p.drop(fault_proxy::replies); });
          break;
        case 3:
          net.all([](auto& p) { p.freeze(); });
          break;
        default:
          net.all([](auto& p) { p.cut(); });
          break;
      }
      pass(time);
      net.all([&](auto& p) {
        p.heal();
        if (any(3) == 0) p.cut();
      });
    }
    net.all([](auto& p) { p.heal(), p.cut(); });
  }
};
FOR_EVERY_ENGINE(soak);

TEST_P(soak, nobody_believes_beside_whom_it_excludes_and_nothing_is_left) {
  bad_network net{url()};
  constexpr std::size_t clients = 4;
  std::vector<client> fighting;
  {
    std::vector<std::jthread> pool;
    const client_options options{.call_timeout = 1500ms};
    for (std::size_t i = 0; i < clients; ++i) {
      const bool badly = net.exists() && i % 2 == 0;
      const auto& as =
          fighting.emplace_back(badly ? client::open(net.url(), options) : open(options));
      for (unsigned t = 0; t < 2; ++t)
        pool.emplace_back([this, as, i, t] {
          fighter{*this, as, i, seed + static_cast<unsigned>(10 * i) + t}.run();
        });
    }
    break_things(net);
    done = true;
  }
  const auto all = history.all();
  const auto found = judge(all);
  std::cout << GetParam().name << ": seed " << seed << ", " << all.size() << " grants, "
            << history.losses() << " lost, " << count.faults << " faults, " << count.refused
            << " refused (" << count.cancelled << " cancelled), " << count.changed
            << " changes of mode\n";
  for (const auto& one : found.complaints) ADD_FAILURE() << one << " (seed " << seed << ")";
  EXPECT_GT(all.size(), 3U) << "nothing was tried";
  // Everybody is served, and then nothing is there: first by the care of clients that live (one that ends has half a
  // second to clear up, and where only the ttl ends a grant two minutes of it may stay), then also without them.
  expect_all_served();
  fighting.clear();
  expect_all_served();
}

void soak::expect_all_served() {
  const auto last = open();
  for (const auto* word : {"mutex", "shared", "permits"}) {
    if (std::string_view{word} == "permits" && !caps().permits) continue;
    if (std::string_view{word} == "permits") {
      counting_semaphore several{last, name(word), permits};
      EXPECT_TRUE(is_ok(several.acquire_permits(permits, {.wait = 3 * patience}))) << seed;
    } else {
      mutex lock{last, name(word)};
      EXPECT_TRUE(is_ok(lock.acquire({.wait = 3 * patience}))) << word << ", seed " << seed;
    }
    if (!caps().listing) continue;
    EXPECT_TRUE(wait_until([&] { return no_trace_of(name(word)); }))
        << word << ", seed " << seed << ": " << seen(name(word));
  }
}

}  // namespace
}  // namespace holdfast::testing

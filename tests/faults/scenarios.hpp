// Bad days that every store with a server can have, told once. A test brings the server, the network in front of it
// and a client by way of that network, with the options and times that suit its store. What a scenario asks the server
// (is_locked, is_proven, one_waits, leaves_nothing, left_behind) is said in the header of each engine.
#pragma once

#include "faults/faults.hpp"

#include "support/child.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace holdfast::testing::scenarios {

// A child's "granted TOKEN".
inline fencing_token token_in(const std::string& answer) { return {std::stoull(answer.substr(8))}; }

// A child at `url` holds and is stopped for longer than its ttl; its connections stay open. `a` gets the lock.
template <class Server>
void holder_is_paused(const Server& server, const client& a, const std::string& url,
                      const std::string& ttl) {
  mutex lock{a, "stock"};
  child paused{url};
  const auto answer = paused.ask("acquire stock " + ttl);
  ASSERT_TRUE(answer.starts_with("granted ")) << answer;
  auto waiting = acquire_later(lock);
  ASSERT_TRUE(one_waits(server, "stock"));
  paused.pause();
  auto held = get(waiting);
  ASSERT_TRUE(is_ok(held));
  EXPECT_GT(held->token(), token_in(answer));
  paused.tell("valid stock");  // lies in the pipe: the first thing it does when it wakes
  paused.resume();
  EXPECT_EQ(paused.hear(), "false");
  EXPECT_TRUE(wait_until([&] { return paused.ask("lost stock") == "true"; }));
  EXPECT_EQ(paused.ask("release stock"), "lost");
  EXPECT_TRUE(held->valid());
  EXPECT_TRUE(is_proven(server, *held)) << "it was not touched";
  EXPECT_TRUE(paused.ask("acquire other " + ttl).starts_with("granted ")) << "it goes on";
  EXPECT_TRUE(is_ok(held->release()));
}

// Some stores look before they ask for a lock without a wait: then the answer to that look is the one that is lost.
enum class attempts { at_once, after_a_look };

// The lock is taken and nobody hears of it. How often whoever goes on waiting found its own entry is `adopted`.
template <class Server>
void answers_are_swallowed(const Server& server, fault_proxy& net, const client& a, int rounds,
                           int& adopted, attempts tries = attempts::at_once) {
  for (int round = 0; round < rounds; ++round) {
    mutex lock{a, "stock-" + std::to_string(round)};
    mutex warm{a, "warm"};  // what a store wants to know before it gives a lock, it knows then
    ASSERT_TRUE(wait_until([&] {
      return warm.try_acquire().has_value() && a.inspect(lock.name()).has_value();
    })) << "connected";
    net.drop(fault_proxy::replies);
    const bool waits = round % 2 == 0 || tries == attempts::after_a_look;
    auto waiting = acquire_later(lock, {.wait = waits ? nanoseconds{patience} : 0ms, .ttl = 60s});
    ASSERT_TRUE(wait_until([&] { return is_locked(server, lock.name()); })) << "it was executed";
    if (!waits) {
      EXPECT_TRUE(fails_with(get(waiting), errc::outcome_unknown));
      net.heal(), net.cut();
    } else {
      net.heal(), net.cut();
      auto held = get(waiting);
      // Within the patience for a store that does not answer; else it gives up, and then says so.
      if (held) {
        ++adopted;
        EXPECT_TRUE(is_proven(server, *held));
        EXPECT_TRUE(held->valid());
        static_cast<void>(held->release());  // perhaps cut as well
      } else {
        EXPECT_EQ(held.error().code(), errc::outcome_unknown) << held.error().message();
      }
    }
    EXPECT_TRUE(wait_until([&] { return !is_locked(server, lock.name()); })) << "an orphan";
  }
}

// Each answer says which lock it is about: the token of its holder, and its label. `holder` has all the locks, and its
// network is good; `a` asks about them, and waits for an answer for less than `delay`.
inline void answers_come_late(fault_proxy& net, const client& holder, const client& a, int rounds,
                              std::chrono::milliseconds delay) {
  constexpr std::size_t names = 24, threads = 6;
  const auto label = [](std::size_t i) { return "label " + std::to_string(i); };
  std::vector<lease> leases;
  for (std::size_t i = 0; i < names; ++i) {
    mutex lock{holder, "stock-" + std::to_string(i)};
    leases.push_back(lock.acquire({.ttl = 60s, .label = label(i)}).value());
  }
  std::atomic<bool> done{false};
  std::atomic<int> right{0}, wrong{0}, late{0};
  std::vector<std::thread> askers;
  for (std::size_t t = 0; t < threads; ++t) {
    askers.emplace_back([&, t] {
      for (std::size_t i = t; !done; i = (i * 7 + t + 1) % names) {
        const auto info = a.inspect(leases[i].name());
        if (!info) {
          ++late;
        } else {
          const bool fits = info->holders.size() == 1 &&
                            info->holders[0].token == leases[i].token() &&
                            info->holders[0].label == label(i);
          ++(fits ? right : wrong);
        }
      }
    });
  }
  for (int round = 0; round < rounds; ++round) {
    const auto before = right.load();
    EXPECT_TRUE(wait_until([&] { return right > before + 50; })) << "undisturbed";
    const auto given_up = late.load();
    net.delay(fault_proxy::replies, delay);
    EXPECT_TRUE(wait_until([&] { return late > given_up + 10; })) << "delayed";
    net.delay(fault_proxy::replies, 0ms);
  }
  done = true;
  for (auto& one : askers) one.join();
  const auto lost = std::ranges::count_if(leases, [](const auto& one) { return !one.valid(); });
  EXPECT_EQ(wrong, 0) << right << " right, " << late << " late, " << lost << " leases were lost";
}

template <class Server>
void bytes_come_one_at_a_time(const Server& server, fault_proxy& net, const std::string& url) {
  net.trickle();
  const auto a = client::open(url), b = client::open(url);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  token_log tokens;
  for (int round = 0; round < 3; ++round) {
    auto held = ours.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    auto waiting = acquire_later(theirs);
    ASSERT_TRUE(one_waits(server, "stock"));
    EXPECT_TRUE(is_ok(held->renew()));
    ASSERT_TRUE(is_ok(held->release()));
    auto other = get(waiting);
    ASSERT_TRUE(is_ok(other));
    tokens.add(other->token());
    EXPECT_TRUE(is_ok(other->release()));
  }
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

// After how many bytes of the answer the connection is reset in each round, when the lock is taken and when it is given
// back.
struct reset_points {
  std::size_t acquire = 0, release = 0;
};

template <class Server>
void answers_are_torn(const Server& server, fault_proxy& net, const client& a,
                      const std::vector<reset_points>& rounds) {
  token_log tokens;
  mutex lock{a, "stock"};
  bool waits_for_the_release = true;
  for (const auto& after : rounds) {
    net.cut_after(after.acquire);
    auto held = lock.acquire({.wait = patience, .ttl = 60s, .own_token = true});
    ASSERT_TRUE(is_ok(held)) << "cut after " << after.acquire;
    tokens.add(held->token());
    EXPECT_TRUE(is_proven(server, *held)) << "cut after " << after.acquire;
    net.cut_after(after.release);
    if (waits_for_the_release) {
      static_cast<void>(held->release());
    } else {
      *held = lease{};
    }
    waits_for_the_release = !waits_for_the_release;
    net.heal();
    EXPECT_TRUE(wait_until([&] { return !is_locked(server, "stock"); }))
        << "cut after " << after.release;
  }
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

// The waiter is `b`, by way of the network.
template <class Server>
void connections_are_half_open(const Server& server, fault_proxy& net, const client& b,
                               nanoseconds ttl) {
  const auto a = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire();
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs, {.ttl = ttl});
  ASSERT_TRUE(one_waits(server, "stock"));
  const auto before = net.connections();
  net.drop(fault_proxy::requests), net.drop(fault_proxy::replies);
  const auto sent = net.bytes(fault_proxy::replies);
  ASSERT_TRUE(is_ok(held->release()));
  ASSERT_TRUE(wait_until([&] { return net.bytes(fault_proxy::replies) > sent; })) << "the news";
  // Nobody resets anything: the connection that lost bytes stays silent for good, new ones work.
  net.heal();
  auto other = get(waiting);
  if (!other) {
    EXPECT_TRUE(other.error().code() == errc::unavailable ||
                other.error().code() == errc::outcome_unknown)
        << other.error().message();
  }
  EXPECT_TRUE(
      wait_until([&] { return other || (other = theirs.acquire({.wait = 1s})); }, 3 * patience));
  EXPECT_TRUE(is_ok(other));
  EXPECT_GT(net.connections(), before);
}

// Cut: the server sees the connections end. Silent: they stay open, and only the ttl can tell.
enum class isolation { cut, silent };

// The holder, `a`, is alive and believes in its lease; the network to it is gone.
template <class Server>
void holder_is_cut_off(const Server& server, fault_proxy& net, const client& a, int rounds,
                       isolation how, nanoseconds ttl) {
  const auto b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  token_log tokens;
  for (int round = 0; round < rounds; ++round) {
    auto held = ours.acquire({.wait = 3 * patience, .ttl = ttl});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    const loss_recorder loss{*held};
    steady_time granted{};
    bool was_valid = true;
    std::thread waits{[&] {
      auto other = theirs.acquire({.wait = 3 * patience});
      was_valid = held->valid();
      granted = std::chrono::steady_clock::now();
      EXPECT_TRUE(is_ok(other));
      if (!other) return;
      tokens.add(other->token());
      EXPECT_TRUE(is_ok(other->release()));
    }};
    EXPECT_TRUE(one_waits(server, "stock") || loss.fired()) << "or it has it already";
    net.refuse();
    if (how == isolation::cut) {
      net.cut();
    } else {
      net.drop(fault_proxy::requests), net.drop(fault_proxy::replies);
    }
    const auto end = end_of_validity(*held);
    waits.join();
    EXPECT_FALSE(was_valid) << "two holders, round " << round;
    EXPECT_LE(end, granted) << "round " << round;
    EXPECT_TRUE(wait_until([&] { return loss.fired(); }));
    net.heal();
    if (how == isolation::silent) net.cut();
  }
}

// Twice as many threads as processors do nothing but count.
inline void processors_are_busy(const client& a, nanoseconds ttl, std::chrono::seconds length) {
  mutex lock{a, "stock"};
  auto held = lock.acquire({.ttl = ttl});
  ASSERT_TRUE(is_ok(held));
  std::atomic<bool> done{false};
  std::vector<std::thread> spinning;
  for (unsigned i = 0; i < 2 * std::max(std::thread::hardware_concurrency(), 1U); ++i)
    spinning.emplace_back([&] {
      while (!done) {
      }
    });
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, length));
  done = true;
  for (auto& one : spinning) one.join();
  EXPECT_FALSE(held->lost().stop_requested());
  EXPECT_TRUE(is_ok(held->release()));
}

}  // namespace holdfast::testing::scenarios

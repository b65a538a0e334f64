// A network that is pulled apart under the nodes of a store, and the clients that live beside them.
#pragma once

#include "faults/history.hpp"

#include "support/network_lab.hpp"

#include <array>
#include <future>
#include <string>

namespace holdfast::testing {

// Nodes are at the places 0, 1 and 2. At the others, and at the hub, are clients only.
template <class Server>
struct cut_up {
  using options = typename Server::options;
  explicit cut_up(std::size_t places = 3, options how = {})
      : lab{places}, servers{placed(std::move(how), lab)} {}

  client open(std::size_t place, const std::string& url, client_options how = {}) const {
    return lab.at(place, [&] { return client::open(url, std::move(how)); });
  }
  // The leader hears of no other node any more, and they do not hear of it. Clients hear all of them.
  void depose(std::size_t leader) {
    for (const auto other : others(leader)) lab.separate(leader, other);
  }
  void reinstate(std::size_t leader) {
    for (const auto other : others(leader)) lab.reunite(leader, other);
  }
  static std::array<std::size_t, 2> others(std::size_t node) {
    return {(node + 1) % 3, (node + 2) % 3};
  }
  bool heals() const {
    return wait_until(
        [&] { return servers.is_healthy(0) && servers.is_healthy(1) && servers.is_healthy(2); });
  }

  network_lab lab;
  Server servers;

 private:
  static options placed(options how, const network_lab& where) {
    how.nodes = 3;
    how.network = &where;
    return how;
  }
};

// Somebody who waits for the lock that `before` holds.
class successor {
 public:
  successor(mutex& lock, const lease& before, nanoseconds ttl)
      : answer_(std::async(std::launch::async, [this, &lock, &before, ttl] {
          auto got = lock.acquire({.wait = 3 * patience, .ttl = ttl});
          was_too_early_ = got && before.valid();
          when_ = std::chrono::steady_clock::now();
          return got;
        })) {}
  // When it was there, the one before must have been over.
  result<lease> get() {
    auto got = testing::get(answer_, 3 * patience);
    EXPECT_FALSE(was_too_early_) << "two valid holders";
    return got;
  }
  steady_time when() const { return when_; }  // REQUIRES: get() has returned a lease

 private:
  bool was_too_early_ = false;
  steady_time when_{};
  std::future<result<lease>> answer_;
};

// A node that is back needs a while to hear of the others, as long as it was away. An acquire may end before that.
inline result<lease> acquire_at_last(mutex& lock) {
  const acquire_options how{.wait = patience, .ttl = 2s};
  auto got = lock.acquire(how);
  wait_until([&] { return got || (got = lock.acquire(how)); }, 3 * patience);
  return got;
}

// ---- the leader is cut off; clients are not

enum class leader_is_cut { from_nodes, from_all };

template <class Server>
void isolate(cut_up<Server>& all, std::size_t leader, leader_is_cut how) {
  if (how == leader_is_cut::from_all) {
    all.lab.cut(leader);
  } else {
    all.depose(leader);
  }
}

template <class Server>
void heal(cut_up<Server>& all, std::size_t leader, leader_is_cut how) {
  if (how == leader_is_cut::from_all) {
    all.lab.join(leader);
  } else {
    all.reinstate(leader);
  }
}

// The session is long enough to find the next leader, and for it to be found.
template <class Server>
void expect_a_kept_lease(cut_up<Server>& all, const std::string& url, nanoseconds ttl,
                         leader_is_cut how) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto a = all.open(network_lab::hub, url), b = all.open(network_lab::hub, url);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  token_log tokens;
  for (int round = 0; round < 2; ++round) {
    auto held = ours.acquire({.wait = patience, .ttl = ttl});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    successor next{theirs, *held, ttl};
    ASSERT_TRUE(one_waits(all.servers, "stock"));
    const auto leader = all.servers.leader();
    isolate(all, leader, how);
    const auto cut = now();
    EXPECT_TRUE(wait_until([&] { return !held->valid() || held->valid_until() > cut + ttl; }));
    EXPECT_TRUE(held->valid()) << "two of three are enough; round " << round;
    EXPECT_NE(all.servers.leader(), leader) << "a run without faults";
    const auto releasing = now();
    EXPECT_TRUE(is_ok(held->release()));
    auto other = next.get();
    ASSERT_TRUE(is_ok(other));
    tokens.add(other->token());
    ::testing::Test::RecordProperty(
        "served_after_ms_" + std::to_string(round),
        std::to_string(
            std::chrono::duration_cast<std::chrono::milliseconds>(next.when() - releasing)
                .count()));
    EXPECT_TRUE(is_ok(other->release()));
    heal(all, leader, how);
    ASSERT_TRUE(all.heals());
  }
  EXPECT_TRUE(leaves_nothing(all.servers)) << left_behind(all.servers);
}

// ---- everybody fights

// Three live beside a node each and know no other; three live elsewhere and know all.
template <class Server>
void let_all_fight(cut_up<Server>& all, fighters& everybody) {
  for (std::size_t place = 0; place < 5; ++place)
    all.lab.at(place,
               [&] { everybody.add(place < 3 ? all.servers.url(place) : all.servers.url()); });
  all.lab.at(network_lab::hub, [&] { everybody.add(all.servers.url()); });
}

inline bool is_busy(const history& record, std::size_t grants) {
  const auto before = record.size();
  return wait_until([&] { return record.size() > before + grants; }, 2 * patience);
}

// Nobody is granted anything for longer than a session lives.
inline bool falls_silent(const history& record) {
  return wait_until([&] {
    const auto before = record.size();
    return stays_true([&] { return record.size() == before; }, 2500ms);
  });
}

}  // namespace holdfast::testing

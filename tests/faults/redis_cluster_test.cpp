// What breaks here: nodes of a Redis Cluster, and slots that move. What must hold: what happens to one shard does not
// touch the others; clients follow the slots; a lease whose key has moved, or which the replica knows, lives on; what
// cannot be served is an error that says so.
#include "faults/history.hpp"
#include "faults/partition.hpp"

#include "engines/redis/slots.hpp"
#include "support/redis_cluster.hpp"

#include <fmt/format.h>

namespace holdfast::testing {
namespace {

class redis_cluster_faults : public ::testing::Test {
 protected:
  void SetUp() override { need(redis_server::available(), "cluster"); }

  // A name of which this master has the slot.
  static std::string name_on(const redis_cluster& store, std::size_t master,
                             const std::string& begin = "stock") {
    for (int i = 0;; ++i)
      if (auto name = fmt::format("{}-{}", begin, i); store.master_of_lock(name) == master)
        return name;
  }
  static std::string key_of(const std::string& name) {
    return fmt::format("hf:{}l:{}", engines::redis::tag_text(engines::redis::tag_of(name)), name);
  }
  // What is claimed is in the store.
  static ::testing::AssertionResult has_token(const redis_server& node, const lease& held) {
    const auto stored = redis_command(node, {"GET", key_of(held.name())});
    if (stored.find(std::to_string(held.token().value)) != std::string::npos)
      return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << "the token is " << held.token().value << ", the store has " << stored;
  }
  static bool has_copy(redis_cluster& store, std::size_t master, const std::string& name) {
    return wait_until([&] {
      return redis_command(store.node(store.replica_of(master)), {"DBSIZE"}) ==
                 redis_command(store.node(master), {"DBSIZE"}) &&
             redis_command(store.node(master), {"EXISTS", key_of(name)}) == "1";
    });
  }
};

TEST_F(redis_cluster_faults,
       dead_master_costs_the_other_shards_nothing_and_its_replica_takes_over) {
  redis_cluster store;
  const auto a = client::open(store.url());
  std::vector<std::unique_ptr<mutex>> locks;
  std::vector<lease> held;
  for (std::size_t i = 0; i < store.masters(); ++i) {
    locks.push_back(std::make_unique<mutex>(a, name_on(store, i)));
    // That of the dead one is asked about when its replica is there.
    auto got = locks.back()->acquire({.wait = patience, .ttl = i == 0 ? 60s : 2s});
    ASSERT_TRUE(is_ok(got));
    held.push_back(std::move(*got));
  }
  ASSERT_TRUE(has_copy(store, 0, held[0].name()));
  store.node(0).kill();
  mutex other{a, name_on(store, 1, "other")};
  for (int i = 0; i < 10; ++i) {
    const auto asked = std::chrono::steady_clock::now();
    EXPECT_TRUE(is_ok(other.acquire({.wait = patience, .ttl = 2s})));
    EXPECT_LE(std::chrono::steady_clock::now() - asked, 1s) << "it waits for nothing";
  }
  EXPECT_TRUE(stays_true([&] { return held[1].valid() && held[2].valid(); }, 4s))
      << "renewed twice and more";
  ASSERT_TRUE(store.has_taken_over(0));
  ASSERT_TRUE(wait_until([&] { return held[0].renew().has_value(); }, 2 * patience));
  EXPECT_TRUE(has_token(store.node(store.replica_of(0)), held[0]));
  for (auto& each : held) EXPECT_TRUE(is_ok(each.release()));
}

// A node that stands still says nothing, and its connections stay.
TEST_F(redis_cluster_faults, node_that_stands_still_delays_no_renewal_of_the_others) {
  redis_cluster store;
  const auto a = client::open(store.url(), {.call_timeout = 5s});
  mutex first{a, name_on(store, 0)}, second{a, name_on(store, 1)};
  auto lost = first.acquire({.wait = patience, .ttl = 1s});
  auto kept = second.acquire({.wait = patience, .ttl = 1s});
  ASSERT_TRUE(is_ok(lost));
  ASSERT_TRUE(is_ok(kept));
  const loss_recorder loss{*lost};
  store.node(0).stop();
  EXPECT_TRUE(stays_true([&] { return kept->valid(); }, 4s));
  expect_loss_on_time(*lost, loss);
  store.node(0).resume();
}

TEST_F(redis_cluster_faults, tokens_rise_from_node_to_node) {
  redis_cluster store;
  const auto a = client::open(store.url());
  mutex lock{a, name_on(store, 1)};
  token_log tokens;
  const auto take = [&] {
    for (int i = 0; i < 5; ++i) {
      auto held = acquire_at_last(lock);
      ASSERT_TRUE(is_ok(held));
      tokens.add(held->token());
    }
  };
  take();
  store.node(1).kill();
  ASSERT_TRUE(store.has_taken_over(1));
  take();
}

// Its keys go one by one; a lock has several.
TEST_F(redis_cluster_faults, slot_that_moves_is_followed_by_holder_and_waiter) {
  redis_cluster store;
  const auto name = name_on(store, 0);
  const auto a = client::open(store.url()), b = client::open(store.url());
  mutex ours{a, name}, theirs{b, name};
  auto held = ours.acquire({.wait = patience, .ttl = 20s});
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs, {.ttl = 20s});
  const auto queue =
      fmt::format("hf:{}q:{}", engines::redis::tag_text(engines::redis::tag_of(name)), name);
  ASSERT_TRUE(wait_until([&] { return redis_command(store.node(0), {"ZCARD", queue}) == "1"; }));
  const auto slot = redis_cluster::slot_of_lock(name);
  store.move_slot(slot, 0, 2, [&] {
    mutex beside{a, name};
    EXPECT_FALSE(beside.try_acquire().has_value());
    EXPECT_TRUE(held->valid());
  });
  ASSERT_TRUE(wait_until([&] { return held->renew().has_value(); }));
  EXPECT_TRUE(held->valid());
  EXPECT_FALSE(is_ready(waiting)) << "the lock is held";
  EXPECT_TRUE(is_ok(held->release()));
  auto next = get(waiting);
  ASSERT_TRUE(is_ok(next));
  EXPECT_GT(next->token(), held->token());
  EXPECT_TRUE(has_token(store.node(2), *next));
}

TEST_F(redis_cluster_faults, several_locks_over_slots_are_all_taken_or_none) {
  redis_cluster store;
  const auto a = client::open(store.url()), b = client::open(store.url());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < store.masters(); ++i) names.push_back(name_on(store, i));
  auto all = lock_all(a, names, {.wait = patience});
  ASSERT_TRUE(is_ok(all));
  EXPECT_EQ(all->size(), names.size());
  EXPECT_TRUE(fails_with(lock_all(b, names, {.wait = 0s}), errc::busy));
  all->clear();
  mutex last{a, names.back()};
  auto held = last.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(held));
  EXPECT_FALSE(lock_all(b, names, {.wait = 100ms}).has_value());
  for (std::size_t i = 0; i + 1 < names.size(); ++i)
    EXPECT_TRUE(wait_until([&] { return b.inspect(names[i]).value().holders.empty(); }));
}

// The first question needs a connection: a round trip for the greeting and one for itself, 300 ms each.
TEST_F(redis_cluster_faults, nodes_that_are_far_away_can_be_asked) {
  auto& store = shared_redis_cluster();
  fault_proxy network{store.node(0).port()};
  network.delay(fault_proxy::requests, 150ms), network.delay(fault_proxy::replies, 150ms);
  const auto a = client::try_open(fmt::format("redis+cluster://127.0.0.1:{}", network.port()));
  ASSERT_TRUE(is_ok(a));
  mutex lock{*a, name_on(store, 1)};
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
}

// ---- what cannot be served

TEST_F(redis_cluster_faults, shard_without_a_server_is_unavailable_and_comes_back) {
  redis_cluster store;
  const auto a = client::open(store.url());
  mutex lost{a, name_on(store, 0)}, kept{a, name_on(store, 1)};
  store.node(store.replica_of(0)).kill();
  store.node(0).kill();
  EXPECT_TRUE(refuses(lost.acquire({.wait = 300ms}), errc::unavailable, lost.name(),
                      "redis+cluster://", {}));
  EXPECT_TRUE(is_ok(kept.acquire({.wait = patience})));
  EXPECT_TRUE(fails_with(a.list(), errc::unavailable)) << "a list without a shard would be no list";
  store.node(0).restart();
  ASSERT_TRUE(wait_until([&] { return lost.acquire({.wait = 1s}).has_value(); }, 3 * patience));
}

TEST_F(redis_cluster_faults, one_node_of_the_address_is_enough_to_find_all) {
  redis_cluster store;
  for (const std::size_t i : {0U, 1U}) {  // one after the other: a majority of the masters decides
    store.node(i).kill();
    ASSERT_TRUE(store.has_taken_over(i));
  }
  const auto a = client::open(store.url());
  for (std::size_t i = 0; i < 20; ++i) {
    mutex lock{a, fmt::format("lock-{}", i)};
    EXPECT_TRUE(is_ok(acquire_at_last(lock)));
  }
}

TEST_F(redis_cluster_faults, addresses_that_mean_nothing_are_refused) {
  auto& store = shared_redis_cluster();
  EXPECT_TRUE(refuses(
      client::try_open("redis+cluster://127.0.0.1:" + std::to_string(shared_redis().port())),
      errc::misconfigured, {}, "redis+cluster://", "no node of a cluster"));
  for (const auto* query : {"?db=1", "?grace=3s", "?prefix={x}", "?layout=none"})
    EXPECT_TRUE(fails_with(client::try_open(store.url(query)), errc::misconfigured)) << query;
  // A node taken for a server: the sentence names the right address.
  const auto single = client::try_open(store.node(0).url());
  if (!single) {
    EXPECT_NE(single.error().message().find("redis+cluster://"), std::string::npos);
    return;
  }
  mutex lock{*single, name_on(store, 1)};
  const auto refused = lock.try_acquire();
  EXPECT_TRUE(fails_with(refused, errc::misconfigured));
  if (refused) return;
  EXPECT_NE(refused.error().message().find("redis+cluster://"), std::string::npos);
}

// ---- the layouts of others

TEST_F(redis_cluster_faults, layouts_of_others_keep_all_of_a_lock_in_one_slot) {
  auto& store = shared_redis_cluster();
  for (const auto* layout : {"setnx", "setnx-expire-lua", "getset", "redisson"}) {
    SCOPED_TRACE(layout);
    const auto url = store.url(fmt::format("?prefix={}:&layout={}", layout, layout));
    const auto a = client::open(url), b = client::open(url);
    for (int i = 0; i < 20; ++i) {
      const auto name = fmt::format("stock-{}", i);
      mutex ours{a, name}, theirs{b, name};
      auto held = ours.acquire({.wait = patience, .ttl = 2s});
      ASSERT_TRUE(is_ok(held));
      EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::busy));
      EXPECT_TRUE(is_ok(held->renew()));
      auto waiting = acquire_later(theirs);
      EXPECT_TRUE(is_ok(held->release()));
      auto next = get(waiting);
      ASSERT_TRUE(is_ok(next));
      EXPECT_GT(next->token(), held->token());
    }
    mutex odd{a, "a{b"};
    EXPECT_TRUE(fails_with(odd.try_acquire(), errc::misconfigured));
  }
}

// ---- a network that is pulled apart

class redis_cluster_partition : public redis_cluster_faults {
 protected:
  void SetUp() override {
    redis_cluster_faults::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (const auto lab = network_lab::available(); !lab) GTEST_SKIP() << lab.why;
  }
};

// The master keeps a client, and loses its replica and the other masters. What the holder believes a replica has, too;
// the next one asks for none, because the new master has no replica before the old one is back.
TEST_F(redis_cluster_partition, holder_beside_a_master_that_was_cut_off_learns_of_its_loss) {
  network_lab lab{6};
  redis_cluster store{{.network = &lab}};
  const auto careful = store.url("?wait_replicas=1&wait_timeout=300ms");
  const auto a = lab.at(0, [&] { return client::open(careful); });
  // Longer than a fail-over takes: what is in doubt is settled with the new master.
  const auto b = lab.at(1, [&] { return client::open(store.url(), {.call_timeout = 20s}); });
  const auto name = name_on(store, 0);
  mutex ours{a, name}, theirs{b, name}, beside{a, name_on(store, 1)};
  auto held = ours.acquire({.wait = patience, .ttl = 3s});
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(has_copy(store, 0, name));
  const loss_recorder loss{*held};
  successor next{theirs, *held, 20s};
  lab.cut(0);
  ASSERT_TRUE(wait_until([&] { return loss.fired(); }, 2 * patience));
  ASSERT_TRUE(store.has_taken_over(0));
  auto second = next.get();
  ASSERT_TRUE(is_ok(second));
  EXPECT_GT(second->token(), held->token());
  EXPECT_FALSE(ours.acquire({.wait = 500ms}).has_value()) << "it has no majority of the masters";
  lab.join(0);
  ASSERT_TRUE(wait_until(
      [&] { return redis_command(store.node(0), {"ROLE"}).starts_with("[slave"); }, 3 * patience))
      << "the old master follows the new one";
  EXPECT_FALSE(held->release().has_value());
  EXPECT_TRUE(second->valid());
  EXPECT_TRUE(is_ok(second->renew()));
  EXPECT_TRUE(has_token(store.node(store.replica_of(0)), *second));
  EXPECT_TRUE(is_ok(acquire_at_last(beside))) << "the other shards are reached again";
  EXPECT_TRUE(is_ok(second->release()));
  EXPECT_TRUE(is_ok(acquire_at_last(ours))) << "and this one";
}

// ---- many clients

TEST_F(redis_cluster_faults, never_two_holders_while_masters_are_killed) {
  redis_cluster store;
  history record;
  fighters all{record, 25, "?wait_replicas=1&wait_timeout=300ms"};
  for (int i = 0; i < 4; ++i) all.add(store.url());
  const auto goes_on = [&] {
    const auto floor = record.size();
    return wait_until([&] { return record.size() > floor + 20; }, 4 * patience);
  };
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(goes_on()) << "a run without load\n" << all.story();
    const auto old = store.master_of_lock("stock");
    ASSERT_TRUE(old.has_value());
    store.node(*old).kill();
    ASSERT_TRUE(wait_until(
        [&] {
          const auto now = store.master_of_lock("stock");
          return now && *now != *old;
        },
        3 * patience));
    store.node(*old).restart();
  }
  all.forget();
  EXPECT_TRUE(wait_until([&] { return all.everybody_was_served(); }, 4 * patience)) << all.story();
  all.stop();
  record.check();
}

}  // namespace
}  // namespace holdfast::testing

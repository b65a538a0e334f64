// What breaks here: the master of a replicated Redis, or of a shard, when it has just answered a release, or the leave
// of a waiter, that its replicas do not know. What must hold: no lock stays with an owner that has given it back, and
// no place in a queue with a waiter that has left, while their client lives.
#include "faults/partition.hpp"

#include "engines/redis/slots.hpp"
#include "support/redis_cluster.hpp"
#include "support/replicated_redis.hpp"

#include <optional>
#include <ostream>
#include <string>

namespace holdfast::testing {
namespace {

struct lost_release_case {
  std::string name;
  std::string query;
  std::string key;  // of the lock "stock", where it is held
};

void PrintTo(const lost_release_case& which, std::ostream* out) { *out << which.name; }

std::string tag_of_stock() {
  return std::string{engines::redis::tag_text(engines::redis::tag_of("stock"))};
}

class redis_lost_release : public ::testing::TestWithParam<lost_release_case> {
 protected:
  void SetUp() override { need(redis_server::available(), "redis"); }

  // A client that lives on releases what its replicas still have; then the master dies.
  template <class IsThere, class TakeOver>
  void release_and_kill(const std::string& url, redis_server& old, redis_server& replica,
                        const IsThere& is_there, const TakeOver& take_over) {
    const auto ours = client::open(url), theirs = client::open(url);
    mutex lock{ours, "stock"}, other{theirs, "stock"};
    auto held = lock.acquire({.wait = patience, .ttl = 60s});
    ASSERT_TRUE(is_ok(held));
    ASSERT_TRUE(wait_until([&] { return is_there(replica); }));
    replica.stop();  // so that it does not come back at once
    redis_command(old, {"CLIENT", "KILL", "TYPE", "replica"});
    ASSERT_TRUE(is_ok(held->release()));
    ASSERT_FALSE(is_there(old));
    old.kill();
    replica.resume();
    ASSERT_TRUE(is_there(replica)) << "it has heard of the release: this run proves nothing";
    ASSERT_TRUE(take_over());
    EXPECT_TRUE(wait_until([&] { return other.acquire({.wait = 1s, .ttl = 5s}).has_value(); },
                           2 * patience))
        << "the ttl of what was released is a minute";
  }
};

class redis_lost_release_sentinel : public redis_lost_release {};

TEST_P(redis_lost_release_sentinel, what_a_dead_master_alone_knew_to_be_free_is_free) {
  replicated_redis store{{.replicas = 1}};
  const auto is_there = [](const redis_server& at) {
    return redis_command(at, {"EXISTS", GetParam().key}) == "1";
  };
  release_and_kill(store.url(GetParam().query), store.server(0), store.server(1), is_there,
                   [&] { return store.has_master_other_than(0); });
}

INSTANTIATE_TEST_SUITE_P(each, redis_lost_release_sentinel,
                         ::testing::Values(lost_release_case{"native", "?grace=20s", "hf:l:stock"},
                                           lost_release_case{"setnx", "?layout=setnx", "stock"},
                                           lost_release_case{"redisson", "?layout=redisson",
                                                             "stock"}),
                         [](const auto& which) { return which.param.name; });

class redis_lost_release_cluster : public redis_lost_release {};

TEST_P(redis_lost_release_cluster, what_a_dead_master_alone_knew_to_be_free_is_free) {
  redis_cluster store;
  const auto slot = GetParam().name == "native" ? redis_cluster::slot_of_lock("stock")
                                                : engines::redis::slot_of("p:stock");
  const auto at = store.master_of(slot);
  ASSERT_TRUE(at.has_value());
  // A replica sends questions about keys to its master, but not this one.
  const auto is_there = [slot](const redis_server& node) {
    const auto keys =
        redis_command(node, {"CLUSTER", "GETKEYSINSLOT", std::to_string(slot), "100"});
    return (' ' + keys.substr(1, keys.size() - 2) + ' ').find(' ' + GetParam().key + ' ') !=
           std::string::npos;
  };
  release_and_kill(store.url(GetParam().query), store.node(*at), store.node(store.replica_of(*at)),
                   is_there, [&] { return store.has_taken_over(*at); });
}

INSTANTIATE_TEST_SUITE_P(
    each, redis_lost_release_cluster,
    ::testing::Values(lost_release_case{"native", "", "hf:" + tag_of_stock() + "l:stock"},
                      lost_release_case{"setnx", "?prefix=p:&layout=setnx", "p:stock"}),
    [](const auto& which) { return which.param.name; });

// ---- a fail-over that is asked for

class redis_sentinel_planned : public ::testing::Test {
 protected:
  void SetUp() override { need(redis_server::available(), "sentinel"); }

  // The next master is one already, and clients are not told before spread_the_news(): the sentinels stand still, so
  // the old one answers.
  static std::optional<std::size_t> promoted(replicated_redis& store) {
    std::optional<std::size_t> out;
    wait_until([&] {
      for (std::size_t i = 1; i < store.size() && !out; ++i)
        if (store.server(i).try_command({"ROLE"}).starts_with("[master")) out = i;
      return out.has_value();
    });
    for (std::size_t i = 0; i < store.sentinels(); ++i) store.sentinel(i).stop();
    return out;
  }
  // A sentinel that stood still for two seconds trusts nothing for thirty: a busy machine can do that to it.
  static bool spread_the_news(replicated_redis& store) {
    for (std::size_t i = 0; i < store.sentinels(); ++i) store.sentinel(i).resume();
    return wait_until([&] { return store.has_master_other_than(0); }, 6 * patience);
  }
  static bool all_have(replicated_redis& store, const std::string& key) {
    return wait_until([&] {
      for (std::size_t i = 0; i < store.size(); ++i)
        if (redis_command(store.server(i), {"EXISTS", key}) != "1") return false;
      return true;
    });
  }
  static std::size_t listeners(const redis_server& at) {
    const auto channels = redis_command(at, {"PUBSUB", "CHANNELS", "hf:c:*"});
    std::size_t out = 0;
    for (auto i = channels.find("hf:c:"); i != std::string::npos; i = channels.find("hf:c:", i + 1))
      ++out;
    return out;
  }
  static void begin_fail_over(replicated_redis& store) {
    ASSERT_EQ(redis_command(store.sentinel(0), {"SENTINEL", "FAILOVER", "mymaster"}), "OK");
  }
};

TEST_F(redis_sentinel_planned, what_was_released_on_the_old_master_is_free_on_the_next) {
  replicated_redis store;
  const auto ours = client::open(store.url("?grace=20s"));
  mutex lock{ours, "stock"};
  auto held = lock.acquire({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(all_have(store, "hf:l:stock"));
  begin_fail_over(store);
  const auto next = promoted(store);
  ASSERT_TRUE(next.has_value());
  ASSERT_TRUE(is_ok(held->release()));
  ASSERT_TRUE(is_locked(store.server(*next), "stock")) << "the next master was told: no proof";
  ASSERT_TRUE(spread_the_news(store));
  EXPECT_TRUE(
      wait_until([&] { return lock.acquire({.wait = 1s, .ttl = 60s}).has_value(); }, patience));
}

TEST_F(redis_sentinel_planned, waiter_that_left_on_the_old_master_has_no_place_on_the_next) {
  replicated_redis store;
  const auto url = store.url("?grace=20s");
  const auto a = client::open(url), b = client::open(url), c = client::open(url);
  mutex ours{a, "stock"}, theirs{b, "stock"}, third{c, "stock"};
  auto held = ours.acquire({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  std::stop_source stop;
  auto waiting = acquire_later(theirs, {.ttl = 60s, .stop = stop.get_token()});
  ASSERT_TRUE(all_have(store, "hf:q:stock"));
  begin_fail_over(store);
  const auto next = promoted(store);
  ASSERT_TRUE(next.has_value());
  stop.request_stop();
  ASSERT_TRUE(fails_with(get(waiting), errc::cancelled));
  ASSERT_EQ(redis_command(store.server(*next), {"ZCARD", "hf:q:stock"}), "1")
      << "the next master was told: no proof";
  ASSERT_TRUE(spread_the_news(store));
  ASSERT_TRUE(wait_until([&] { return held->renew().has_value(); }, 2 * patience));
  // Where its client does not listen a waiter is passed over.
  ASSERT_TRUE(wait_until([&] { return listeners(store.server(*next)) == 3; }, 2 * patience));
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(
      wait_until([&] { return third.acquire({.wait = 1s, .ttl = 60s}).has_value(); }, patience));
}

// What is said twice names an owner that is over. The next holder, and the same client's next lease, are others.
TEST_F(redis_sentinel_planned, what_is_said_again_touches_no_lease_that_came_later) {
  replicated_redis store;
  const auto a = client::open(store.url("?grace=20s"));
  mutex lock{a, "stock"};
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(is_ok(acquire_at_last(lock)->release()));
  auto held = lock.acquire({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(all_have(store, "hf:l:stock"));
  begin_fail_over(store);
  ASSERT_TRUE(store.has_master_other_than(0));
  ASSERT_TRUE(wait_until([&] { return held->renew().has_value(); }, 2 * patience));
  auto& master = store.server(*store.master());
  const auto releases = [&] {
    const auto info = redis_command(master, {"INFO", "commandstats"});
    const auto at = info.find("cmdstat_evalsha:calls=");
    return at == std::string::npos ? 0 : std::stoi(info.substr(at + 22));
  };
  ASSERT_TRUE(wait_until([&] { return releases() >= 200; })) << "they are said again";
  EXPECT_TRUE(is_ok(held->renew()));
  EXPECT_TRUE(is_proven(master, *held));
}

}  // namespace
}  // namespace holdfast::testing

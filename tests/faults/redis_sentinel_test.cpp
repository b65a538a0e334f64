// What breaks here: the master of a replicated Redis, its sentinels, and the network between them. What must hold:
// clients follow to the new master and to no other; a lease that the new master knows lives on; a holder on the side of
// a master that was cut off learns of its loss, and what it does afterwards touches no lock of others.
#include "faults/canary.hpp"
#include "faults/history.hpp"
#include "faults/partition.hpp"

#include "support/replicated_redis.hpp"
#include "support/temp_dir.hpp"

#include <fstream>

namespace holdfast::testing {
namespace {

class redis_sentinel : public ::testing::Test {
 protected:
  void SetUp() override { need(redis_server::available(), "sentinel"); }

  static bool all_have(replicated_redis& store, const std::string& name) {
    return wait_until([&] {
      for (std::size_t i = 0; i < store.size(); ++i)
        if (!is_locked(store.server(i), name)) return false;
      return true;
    });
  }
};

TEST_F(redis_sentinel, lease_that_the_replicas_have_lives_through_the_death_of_the_master) {
  replicated_redis store;
  const auto url = store.url("?grace=20s");
  // Longer than a fail-over takes: what is in doubt is settled with the new master.
  const client_options patient{.call_timeout = 20s};
  const auto a = client::open(url, patient), b = client::open(url, patient);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(all_have(store, "stock"));
  auto waiting = acquire_later(theirs, {.ttl = 20s});
  ASSERT_TRUE(one_waits(store.server(0), "stock"));
  ASSERT_EQ(store.master(), 0U);
  store.server(0).kill();
  ASSERT_TRUE(store.has_master_other_than(0));
  auto& master = store.server(*store.master());
  ASSERT_TRUE(wait_until([&] { return held->renew().has_value(); }, 2 * patience));
  EXPECT_TRUE(held->valid());
  EXPECT_TRUE(is_proven(master, *held));
  ASSERT_TRUE(one_waits(master, "stock"));
  EXPECT_TRUE(is_ok(held->release()));
  auto next = get(waiting);
  ASSERT_TRUE(is_ok(next)) << "the waiter is served by the new master";
  EXPECT_GT(next->token(), held->token());
}

// The old one is well, answers, and would refuse writes only after a while.
TEST_F(redis_sentinel, clients_are_told_when_another_server_is_made_the_master) {
  replicated_redis store;
  const auto a = client::open(store.url("?grace=20s"));
  mutex lock{a, "stock"};
  auto held = lock.acquire({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(all_have(store, "stock"));
  ASSERT_EQ(redis_command(store.sentinel(0), {"SENTINEL", "FAILOVER", "mymaster"}), "OK");
  ASSERT_TRUE(store.has_master_other_than(0));
  auto& master = store.server(*store.master());
  ASSERT_TRUE(wait_until([&] { return held->renew().has_value(); }, 2 * patience));
  EXPECT_TRUE(is_proven(master, *held));
  mutex other{a, "other"};
  ASSERT_TRUE(wait_until([&] { return other.acquire({.wait = 1s, .ttl = 20s}).has_value(); }));
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(wait_until([&] { return !is_locked(master, "stock"); }));
}

TEST_F(redis_sentinel, tokens_rise_from_master_to_master) {
  replicated_redis store;
  const auto a = client::open(store.url());
  mutex lock{a, "stock"};
  token_log tokens;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 5; ++i) {
      auto held = acquire_at_last(lock);
      ASSERT_TRUE(is_ok(held));
      tokens.add(held->token());
    }
    const auto old = store.master();
    ASSERT_TRUE(old.has_value());
    store.server(*old).kill();
    ASSERT_TRUE(store.has_master_other_than(*old));
    store.server(*old).restart();
    ASSERT_TRUE(store.has_replicas(2));
  }
  auto held = acquire_at_last(lock);
  ASSERT_TRUE(is_ok(held));
  tokens.add(held->token());
}

// ---- the sentinels themselves

TEST_F(redis_sentinel, without_a_majority_of_sentinels_holders_go_on_and_no_client_connects) {
  replicated_redis store;
  const auto a = client::open(store.url());
  mutex lock{a, "stock"};
  auto held = lock.acquire({.wait = patience, .ttl = 2s});
  ASSERT_TRUE(is_ok(held));
  store.sentinel(0).kill(), store.sentinel(1).kill();
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 3s)) << "the connections are there";
  EXPECT_TRUE(refuses(client::try_open(store.url()), errc::unavailable, {}, "redis+sentinel://",
                      "1 of 3 sentinels"));
  store.sentinel(0).restart();
  EXPECT_TRUE(wait_until([&] { return client::try_open(store.url()).has_value(); }));
}

TEST_F(redis_sentinel, sentinel_that_knows_less_is_not_believed) {
  replicated_redis store;
  store.sentinel(2).stop();
  store.server(0).kill();
  ASSERT_TRUE(store.has_master_other_than(0)) << "two are enough";
  store.sentinel(2).resume();
  const auto a = client::open(store.url());
  mutex lock{a, "stock"};
  auto held = acquire_at_last(lock);
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(is_proven(store.server(*store.master()), *held));
}

// While the sentinel that carries a fail-over out has not seen all replicas follow the new master, it names the old one
// beside the new epoch (SENTINEL MASTER), and the old one calls itself master still. With the usual times that takes
// ten seconds.
TEST_F(redis_sentinel, clients_that_come_in_the_middle_of_a_fail_over_meet_on_one_master) {
  replicated_redis store{{.usual_times = true}};
  auto& leader = store.sentinel(0);
  ASSERT_EQ(redis_command(leader, {"SENTINEL", "FAILOVER", "mymaster"}), "OK");
  ASSERT_TRUE(wait_until([&] { return store.master_by(store.sentinel(1)) != 0U; }, 3 * patience));
  const client_options quick{.call_timeout = 1s};
  int rounds = 0, in_the_middle = 0;
  const auto is_over = [&] {
    const bool names_the_old = store.master_by(leader) == 0U;
    const auto name = fmt::format("stock-{}", rounds++);
    const auto a = client::try_open(store.url({}, 0), quick);
    const auto b = client::try_open(store.url({}, 1), quick);
    if (!a || !b) return false;  // they do not agree yet
    const auto held = mutex{*a, name}.acquire({.wait = 0s, .ttl = 20s});
    const auto other = mutex{*b, name}.acquire({.wait = 0s, .ttl = 20s});
    EXPECT_FALSE(held && other && held->valid() && other->valid()) << "two holders of " << name;
    in_the_middle += names_the_old && held ? 1 : 0;
    return !names_the_old;
  };
  EXPECT_TRUE(wait_until(is_over, 6 * patience));
  EXPECT_GT(in_the_middle, 0) << "of " << rounds << " rounds none met the fault";
}

TEST_F(redis_sentinel, addresses_that_mean_nothing_are_refused) {
  auto& store = shared_replicated_redis();
  auto other = store.url();
  other.replace(other.find("/mymaster"), 9, "/othermaster");
  EXPECT_TRUE(refuses(client::try_open(other), errc::misconfigured, {}, "redis+sentinel://",
                      "no master named"));
  EXPECT_TRUE(fails_with(client::try_open("redis+sentinel://127.0.0.1:1"), errc::misconfigured));
  EXPECT_TRUE(fails_with(client::try_open("redis+sentinel://127.0.0.1:1/a?sentinel_tls=perhaps"),
                         errc::misconfigured));
  EXPECT_TRUE(
      fails_with(client::try_open(fmt::format("redis://127.0.0.1:{},127.0.0.1:{}",
                                              store.server(0).port(), store.server(1).port())),
                 errc::misconfigured));
}

TEST_F(redis_sentinel, passwords_of_servers_and_sentinels_are_two) {
  const std::string secret = "CANARY-of-the-servers", word = "CANARY-of-the-sentinels";
  replicated_redis store{{.replicas = 1,
                          .each = {.config = {"requirepass " + secret}, .password = secret},
                          .watcher = {.config = {"requirepass " + word}, .password = word}}};
  const temp_dir dir;
  std::ofstream{dir.file("a")} << secret << '\n';
  std::ofstream{dir.file("b")} << word << '\n';
  const auto servers = "?password_file=" + dir.file("a");
  const auto sentinels = "&sentinel_password_file=" + dir.file("b");
  const auto a = client::try_open(store.url(servers + sentinels));
  ASSERT_TRUE(is_ok(a));
  mutex lock{*a, "stock"};
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
  for (const auto& query : {servers, "?sentinel_password_file=" + dir.file("b"),
                            servers + "&sentinel_password_file=" + dir.file("a"),
                            "?password_file=" + dir.file("b") + sentinels}) {
    const auto refused = client::try_open(store.url(query));
    EXPECT_TRUE(fails_with(refused, errc::denied)) << query;
    if (refused) continue;
    EXPECT_EQ(refused.error().message().find("CANARY"), std::string::npos);
  }
}

TEST_F(redis_sentinel, everything_over_tls) {
  const temp_dir dir;
  const certificate_authority authority{dir.path()};
  const auto ours = authority.issue("all", "DNS:localhost,IP:127.0.0.1");
  const std::vector<std::string> lines{"tls-cert-file " + ours.file, "tls-key-file " + ours.key,
                                       "tls-ca-cert-file " + authority.file(),
                                       "tls-auth-clients no", "tls-replication yes"};
  replicated_redis store{{.replicas = 1,
                          .each = {.over = redis_server::transport::tls, .config = lines},
                          .watcher = {.over = redis_server::transport::tls, .config = lines}}};
  auto url = store.url("?ca_file=" + authority.file());
  url.replace(0, 5, "rediss");
  const auto a = client::try_open(url);
  ASSERT_TRUE(is_ok(a));
  mutex lock{*a, "stock"};
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
  EXPECT_FALSE(client::try_open(store.url()).has_value()) << "without TLS";
}

// ---- a network that is pulled apart

struct cure {
  std::string name;
  std::vector<std::string> config;
  std::string query;
  std::vector<std::string> watched_with{};
};

class redis_sentinel_partition : public redis_sentinel, public ::testing::WithParamInterface<cure> {
 protected:
  void SetUp() override {
    redis_sentinel::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (const auto lab = network_lab::available(); !lab) GTEST_SKIP() << lab.why;
  }
};

// The old master keeps a client, and loses its replicas and the majority of the sentinels.
TEST_P(redis_sentinel_partition, holder_beside_a_master_that_was_cut_off_learns_of_its_loss) {
  network_lab lab{3};
  replicated_redis store{{.each = {.config = GetParam().config},
                          .watched_with = GetParam().watched_with,
                          .network = &lab}};
  const auto url = store.url("?grace=2s" + GetParam().query);
  const auto a = lab.at(0, [&] { return client::open(url); });
  const auto b = lab.at(1, [&] { return client::open(url); });
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(all_have(store, "stock"));
  const loss_recorder loss{*held};
  successor next{theirs, *held, 60s};
  ASSERT_TRUE(one_waits(store.server(0), "stock"));
  lab.cut(0);
  ASSERT_TRUE(wait_until([&] { return loss.fired(); }, 2 * patience));
  auto second = next.get();
  ASSERT_TRUE(is_ok(second));
  EXPECT_GT(second->token(), held->token());
  lab.join(0);
  ASSERT_TRUE(store.has_replicas(2)) << "the old master follows the new one";
  EXPECT_FALSE(held->release().has_value());
  EXPECT_TRUE(second->valid());
  EXPECT_TRUE(is_ok(second->renew()));
  EXPECT_TRUE(is_proven(store.server(*store.master()), *second));
}

// Longer than the grace, the lag and two seconds together, as the guide asks: so long the old master may go on.
const std::string late_verdict = "sentinel down-after-milliseconds mymaster 5500";

INSTANTIATE_TEST_SUITE_P(each, redis_sentinel_partition,
                         ::testing::Values(cure{"min_replicas",
                                                {"min-replicas-to-write 1",
                                                 "min-replicas-max-lag 1"},
                                                {},
                                                {late_verdict}},
                                           cure{"wait_replicas", {}, "&wait_replicas=1"}),
                         [](const auto& which) { return which.param.name; });

// ---- many clients

// Every grant is on both replicas before it counts.
TEST_F(redis_sentinel, never_two_holders_while_masters_are_killed) {
  replicated_redis store;
  history record;
  fighters all{record, 25, "?grace=2s&wait_replicas=2&wait_timeout=300ms"};
  for (int i = 0; i < 4; ++i) all.add(store.url());
  const auto goes_on = [&] {
    const auto floor = record.size();
    return wait_until([&] { return record.size() > floor + 20; }, 4 * patience);
  };
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(goes_on()) << "a run without load\n" << all.story();
    const auto old = store.master();
    ASSERT_TRUE(old.has_value());
    store.server(*old).kill();
    ASSERT_TRUE(store.has_master_other_than(*old));
    store.server(*old).restart();
    ASSERT_TRUE(store.has_replicas(2));
  }
  all.forget();
  EXPECT_TRUE(wait_until([&] { return all.everybody_was_served(); }, 4 * patience)) << all.story();
  all.stop();
  record.check();
}

}  // namespace
}  // namespace holdfast::testing

// What breaks here: the holder, and the server's promise about its lease. Processes are killed or paused, processors
// taken away, the server grants more time than was asked for. What must hold: the granted ttl counts; a dead holder
// frees its lock within its lease and half a second's tick (L1); a paused one sees the truth when it wakes (S2); a
// client has one lease and one key per owner, and takes all of it along when it goes.
#include "faults/etcd_faults.hpp"
#include "faults/scenarios.hpp"

#include "support/child.hpp"

namespace holdfast::testing {
namespace {

class etcd_lease : public etcd_faults {};

// F12. At the usual pace of heartbeats a server grants 2 s to whoever asks for 1.
TEST_F(etcd_lease, granted_ttl_counts_and_not_the_one_asked_for) {
  const etcd_server server{{.heartbeat = 100ms, .election = 1000ms}};
  fault_proxy net{server.port()};
  const auto a = client::open(etcd_url(net, "session=1s"));
  mutex lock{a, "stock"};
  auto held = lock.acquire({.ttl = 1s});
  ASSERT_TRUE(is_ok(held));
  const auto said = server.etcdctl(
      {"lease", "timetolive", fmt::format("{:x}", entries(server, "stock").at(0).lease)});
  EXPECT_NE(said.find("TTL(2s)"), std::string::npos) << said;
  ASSERT_TRUE(is_ok(held->renew()));
  const auto renewed = std::chrono::steady_clock::now();
  EXPECT_LE(held->valid_until(), renewed + 2s);
  net.refuse(), net.cut();
  const loss_recorder loss{*held};
  expect_loss_on_time(*held, loss);
  EXPECT_TRUE(is_locked(server, "stock")) << "the holder gives up first";
}

TEST_F(etcd_lease, killed_holder_frees_its_lock_when_its_lease_ends) {
  const etcd_server server;
  const auto a = client::open(server.url());
  mutex lock{a, "stock"};
  for (int round = 0; round < 2; ++round) {
    child dies{server.url() + "?session=2s"};
    const auto answer = dies.ask("acquire stock 2s");
    ASSERT_TRUE(answer.starts_with("granted ")) << answer;
    auto waiting = acquire_later(lock);
    ASSERT_TRUE(wait_for_entries(server, "stock", 2));
    dies.kill();
    const auto begin = std::chrono::steady_clock::now();
    auto held = get(waiting);
    const auto took = std::chrono::steady_clock::now() - begin;
    ASSERT_TRUE(is_ok(held));
    EXPECT_LE(took, 2s + a.capabilities().expiry_slack + 1s) << "a busy machine has a second more";
    EXPECT_GT(held->token(), scenarios::token_in(answer));
    EXPECT_TRUE(is_ok(held->release()));
  }
}

TEST_F(etcd_lease, killed_waiter_is_passed_over_when_its_lease_ends) {
  const etcd_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 30s});
  ASSERT_TRUE(is_ok(held));
  child dies{server.url() + "?session=2s"};
  dies.tell("acquire stock 2s");
  ASSERT_TRUE(wait_for_entries(server, "stock", 2));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_entries(server, "stock", 3));
  dies.kill();
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(get(waiting)));
}

TEST_F(etcd_lease, paused_holder_sees_the_truth_when_it_wakes) {
  const etcd_server server;
  const auto a = client::open(server.url());
  for (int round = 0; round < 2; ++round)
    scenarios::holder_is_paused(server, a, server.url() + "?session=2s", "2s");
}

TEST_F(etcd_lease, busy_processors_cost_no_lease_of_two_seconds) {
  const etcd_server server;
  scenarios::processors_are_busy(client::open(server.url() + "?session=2s"), 2s, 4s);
}

TEST_F(etcd_lease, one_lease_and_few_messages_however_many_locks_are_held) {
  const etcd_server server;
  auto a = std::make_unique<client>(client::open(server.url() + "?session=3s"));
  std::vector<lease> leases;
  for (int i = 0; i < 200; ++i) {
    mutex lock{*a, fmt::format("stock-{}", i)};
    leases.push_back(lock.acquire({.ttl = 3s}).value());
  }
  EXPECT_EQ(server.leases().size(), 1U);
  // Each key is watched, which is asked for once.
  ASSERT_TRUE(
      wait_until([&] { return server.metric("etcd_debugging_mvcc_watcher_total ") >= 200; }));
  // Over two sessions, which are six heartbeats of two messages each, and some for being in the middle of one.
  const auto before = server.requests();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(stays_true(
      [&] {
        return std::ranges::all_of(leases, [](const auto& one) { return one.valid(); }) &&
               std::chrono::steady_clock::now() - begin < 7s;
      },
      6s));
  EXPECT_LE(server.requests() - before, 16U);
  a.reset();
  leases.clear();
  EXPECT_TRUE(wait_until([&] { return server.leases().empty(); })) << "the client is gone";
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

TEST_F(etcd_lease, lease_of_minutes_lives_beside_one_that_is_renewed_all_the_time) {
  const etcd_server server;
  const auto a = client::open(server.url() + "?session=6s");
  mutex lasting{a, "lasting"}, brief{a, "brief"};
  auto held = lasting.acquire({.ttl = 5min});
  ASSERT_TRUE(is_ok(held));
  auto other = brief.acquire({.ttl = 300ms});
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 8s)) << "longer than a session";
  EXPECT_EQ(server.leases().size(), 1U);
}

TEST_F(etcd_lease, client_that_only_waits_or_idles_keeps_its_session) {
  const etcd_server server;
  const auto a = client::open(server.url() + "?session=1s"),
             b = client::open(server.url() + "?session=1s");
  const auto idle = client::open(server.url() + "?session=1s");
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire();
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_entries(server, "stock", 2));
  const auto sessions = server.leases();
  ASSERT_EQ(sessions.size(), 3U);
  const auto before = entries(server, "stock").at(1).key;
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 4s)) << "some sessions long";
  EXPECT_EQ(server.leases(), sessions);
  EXPECT_EQ(entries(server, "stock").at(1).key, before) << "still the same place";
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(get(waiting)));
}

TEST_F(etcd_lease, client_that_goes_takes_its_locks_along) {
  const etcd_server server;
  const auto b = client::open(server.url());
  mutex theirs{b, "stock"};
  auto departing = std::make_unique<child>(server.url() + "?session=60s");
  ASSERT_TRUE(departing->ask("acquire stock 60s").starts_with("granted "));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_entries(server, "stock", 2));
  departing->tell("depart");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(is_ok(get(waiting)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s) << "long before its ttl";
}

TEST_F(etcd_lease, two_owners_of_one_client_have_a_key_each) {
  const etcd_server server;
  const auto a = client::open(server.url(), {.handoff_limit = 0});
  mutex one{a, "stock"}, two{a, "stock"};
  auto held = one.acquire();
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(fails_with(two.try_acquire(), errc::busy));
  EXPECT_TRUE(held->valid());
  EXPECT_TRUE(is_proven(server, *held));
  shared_mutex readers{a, "table"}, more{a, "table"};
  auto first = readers.acquire_shared({}), second = more.acquire_shared({});
  ASSERT_TRUE(is_ok(first));
  ASSERT_TRUE(is_ok(second));
  EXPECT_NE(first->token(), second->token());
  EXPECT_TRUE(is_ok(first->release()));
  EXPECT_TRUE(second->valid());
  EXPECT_EQ(a.inspect("table").value().holders.size(), 1U);
}

}  // namespace
}  // namespace holdfast::testing

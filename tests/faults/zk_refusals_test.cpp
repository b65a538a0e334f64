// What breaks here: logins, rights, addresses, limits of the server. What must hold: a typed error with lock and store
// in its sentence, in time, no hang, no busy loop, never two holders; and no password comes out anywhere.
#include "faults/canary.hpp"
#include "faults/zk_faults.hpp"

#include "support/temp_dir.hpp"

#include <holdfast/lock_all.hpp>

#include <fstream>

namespace holdfast::testing {
namespace {

class zk_refusals : public zk_faults {};

std::string login_url(const zookeeper_server& server, const std::string& login,
                      const std::string& rest = "") {
  return fmt::format("zk://{}@127.0.0.1:{}{}", login, server.port(), rest);
}

// ---- rights

TEST_F(zk_refusals, folder_of_another_user_is_denied) {
  const zookeeper_server server;
  zookeeper_hand hand{server};
  hand.log_in("boss:secret");
  hand.create({.path = "/stock", .rights = jute::creator_only()});
  const auto at = fmt::format("127.0.0.1:{}", server.port());
  for (const auto& url : {server.url(), login_url(server, "app:word")}) {
    const auto a = client::open(url);
    mutex lock{a, "stock"}, below{a, "stock/sku-42"}, other{a, "shelf"};
    EXPECT_TRUE(refuses(lock.try_acquire(), errc::denied, "stock", at, "NoAuth"));
    EXPECT_TRUE(refuses(lock.acquire({.wait = patience}), errc::denied, "stock", at, "NoAuth"));
    EXPECT_TRUE(fails_with(below.acquire({.wait = patience}), errc::denied));
    EXPECT_TRUE(fails_with(a.inspect("stock"), errc::denied));
    const std::vector<std::string> names{"shelf", "stock"};
    EXPECT_TRUE(fails_with(lock_all(a, names, {.wait = patience}), errc::denied));
    EXPECT_TRUE(is_ok(other.acquire({.wait = patience}))) << "and nothing of it is left";
  }
  const auto boss = client::open(login_url(server, "boss:secret"));
  EXPECT_TRUE(is_ok(mutex(boss, "stock").acquire({.wait = patience})));
}

// ZooKeeper knows no users: another password is another identity. It shows where the nodes of the first one lie.
TEST_F(zk_refusals, wrong_password_is_denied_what_the_right_one_made) {
  const zookeeper_server server;
  const auto right = client::open(login_url(server, "app:word")),
             wrong = client::open(login_url(server, "app:wrong"));
  mutex ours{right, "stock"}, theirs{wrong, "stock"};
  auto held = ours.acquire();
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::denied));
  EXPECT_TRUE(fails_with(theirs.acquire({.wait = patience}), errc::denied));
  EXPECT_TRUE(fails_with(wrong.revoke("stock"), errc::denied));
  EXPECT_TRUE(held->valid());
  EXPECT_TRUE(is_ok(held->renew()));
  EXPECT_TRUE(is_ok(held->release()));
}

// Both may use the folder, neither may read the nodes of the other: the waiter cannot read the node that it waits for.
// The server tells it nothing about that one, so it asks now and then; but not as fast as it can.
TEST_F(zk_refusals, holder_whose_node_cannot_be_read_is_waited_for) {
  const zookeeper_server server;
  zookeeper_hand{server}.create({.path = "/stock"});
  const auto a = client::open(login_url(server, "app:word")),
             b = client::open(login_url(server, "web:word"));
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire();
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(one_waits(server, "stock"));
  const auto before = server.requests();
  EXPECT_TRUE(stays_true([&] { return held->valid() && !is_ready(waiting); }, 1s));
  EXPECT_LT(server.requests() - before, 200) << "a busy loop";
  ASSERT_TRUE(is_ok(held->release()));
  auto other = get(waiting);
  ASSERT_TRUE(is_ok(other));
  EXPECT_TRUE(other->valid());
  EXPECT_TRUE(is_ok(other->release()));
}

// ---- addresses

TEST_F(zk_refusals, missing_chroot_is_named) {
  const zookeeper_server server;
  const auto opened = client::try_open(server.url() + "/nowhere/at/all");
  EXPECT_TRUE(refuses(opened, errc::misconfigured, "", "/nowhere/at/all", "chroot"));
}

TEST_F(zk_refusals, chroot_that_goes_away_is_named) {
  const zookeeper_server server;
  zookeeper_hand hand{server};
  hand.create({.path = "/app"});
  const auto a = client::open(server.url() + "/app");
  mutex lock{a, "stock"};
  hand.erase("/app");
  EXPECT_TRUE(refuses(lock.acquire({.wait = patience}), errc::misconfigured, "stock", "/app", ""));
  hand.create({.path = "/app"});
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
}

// ---- limits

// The list of a queue is longer than the megabyte that many clients take.
TEST_F(zk_refusals, queue_of_twenty_thousand_is_read) {
  const zookeeper_server server;
  zookeeper_hand hand{server};
  hand.create({.path = "/stock"});
  for (int i = 0; i < 20'000; ++i)
    hand.create({.path = fmt::format("/stock/_c_{:032x}-lock-", i),
                 .mode = jute::create_mode::ephemeral_sequential});
  const auto a = client::open(server.url());
  mutex lock{a, "stock"};
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::busy));
  auto waiting = acquire_later(lock);
  ASSERT_TRUE(wait_until([&] { return a.inspect("stock").value().waiters.size() == 20'000; }));
  EXPECT_FALSE(is_ready(waiting));
  hand.close();  // all of them go
  auto held = get(waiting, 3 * patience);
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(is_proven(server, *held));
}

// The server takes small packets only, and hangs up on others.
TEST_F(zk_refusals, request_that_is_too_long_for_the_server_fails_in_time) {
  const zookeeper_server server{{.flags = {"-Djute.maxbuffer=2000"}}};
  const auto a = client::open(server.url(), {.call_timeout = 1s});
  std::vector<std::string> names;
  for (int i = 0; i < 60; ++i) names.push_back(fmt::format("{:0>100}", i));
  const auto begin = std::chrono::steady_clock::now();
  const auto all = lock_all(a, names, {.wait = 2s});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, patience);
  if (!all) {
    EXPECT_TRUE(all.error().code() == errc::outcome_unknown ||
                all.error().code() == errc::unavailable)
        << all.error().message();
  }
  mutex lock{a, "stock"};
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience}))) << "the client goes on";
}

// ---- the canary

class zk_canary : public zk_faults, protected canary_listener {
  void TearDown() override { expect_silence(); }
};

TEST_F(zk_canary, password_of_every_origin_logs_in_and_is_not_shown) {
  zookeeper_server server;
  const temp_dir dir;
  std::ofstream{dir.file("password")} << canary << '\n';
  ::setenv("HF_TEST_CANARY", canary.c_str(), 1);
  for (const auto& url :
       {login_url(server, "app:" + canary, "?session=2s"),
        login_url(server, "app", "?session=2s&password_file=" + dir.file("password")),
        login_url(server, "app", "?session=2s&password_env=HF_TEST_CANARY")}) {
    const auto told = std::make_shared<listening_observer>();
    auto opened = client::try_open(url, {.call_timeout = 1s, .observer = told});
    ASSERT_TRUE(is_ok(opened));
    hear(opened->url());
    const auto findings = opened->diagnose().value();
    for (const auto& one : findings) hear(one.sentence);
    ASSERT_NO_FATAL_FAILURE(hear_outage(server, url, *opened, 2s));
    hear(told->heard());
    EXPECT_NE(told->heard().find("stock"), std::string::npos);
  }
  ::unsetenv("HF_TEST_CANARY");
  const auto other = client::open(login_url(server, "app:" + canary + "-wrong"));
  hear(mutex(other, "stock").try_acquire());
  hear(other.revoke("stock"));
  hear(server.log());
}

TEST_F(zk_canary, addresses_that_make_no_sense_are_not_quoted_with_their_password) {
  for (const auto& url :
       {fmt::format("zk://app:{}@127.0.0.1:99999", canary),
        fmt::format("zk://app:{}@127.0.0.1:1?graze=1s", canary),
        fmt::format("zk://app:{}@127.0.0.1:1?ca_file=/x", canary),
        fmt::format("zk://app:{}@127.0.0.1:1?password_env=NONE", canary),
        fmt::format("zk://app:{}@127.0.0.1:1?layout=none", canary),
        fmt::format("zk://:{}@127.0.0.1:1", canary),
        fmt::format("zk://app:{}@127.0.0.1:1/zookeeper", canary),
        fmt::format("zk://app:{}@", canary), fmt::format("zk://app:{}%zz@127.0.0.1:1", canary),
        fmt::format("zkk://app:{}@127.0.0.1:1", canary),
        fmt::format("zk://app:{}@127.0.0.1:1,,127.0.0.1:2", canary),
        fmt::format("zk://app:{}@nowhere.invalid", canary),
        fmt::format("zk://app:{}\n@127.0.0.1:1", canary)}) {
    const auto opened = client::try_open(url, {.call_timeout = 1s});
    EXPECT_FALSE(opened) << url;
    hear(opened);
  }
}

}  // namespace
}  // namespace holdfast::testing

// What breaks here: the server is there but refuses: wrong state, wrong rights, wrong data. What must hold: every
// refusal is a typed error with a sentence that names the lock (where there is one) and the store, a retryable one
// goes away when its cause does, and held leases live through what does not concern them.
#include "faults/faults.hpp"

#include "support/reserved_port.hpp"

#include <thread>

namespace holdfast::testing {
namespace {

class redis_refusals : public redis_faults {};

TEST_F(redis_refusals, no_server) {
  redis_server server;
  const auto a = client::open(server.url());
  mutex lock{a, "stock"};
  server.kill();
  EXPECT_TRUE(refuses(lock.try_acquire(), errc::unavailable, "stock", server.url(), ""));
  EXPECT_TRUE(
      refuses(client::try_open(server.url()), errc::unavailable, "", server.url(), "refused"));
}

TEST_F(redis_refusals, server_that_becomes_a_replica) {
  redis_server server;
  const auto a = client::open(server.url());
  mutex lock{a, "stock"};
  redis_command(server, {"REPLICAOF", "127.0.0.1", "1"});
  EXPECT_TRUE(refuses(lock.try_acquire(), errc::unavailable, "stock", server.url(), "replica"));
  EXPECT_TRUE(
      refuses(client::try_open(server.url()), errc::unavailable, "", server.url(), "replica"));
  redis_command(server, {"REPLICAOF", "NO", "ONE"});
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
}

TEST_F(redis_refusals, full_server_refuses_new_locks_and_keeps_those_it_has) {
  redis_server server;
  const auto a = client::open(server.url());
  mutex kept{a, "kept"}, lock{a, "stock"};
  auto held = kept.acquire({.ttl = 600ms});
  ASSERT_TRUE(is_ok(held));
  const auto first = held->valid_until();
  redis_command(server, {"CONFIG", "SET", "maxmemory", "1"});
  EXPECT_TRUE(refuses(lock.try_acquire(), errc::unavailable, "stock", server.url(), "OOM"));
  EXPECT_FALSE(is_locked(server, "stock"));
  EXPECT_TRUE(wait_until([&] { return !held->valid() || held->valid_until() > first + 600ms; }));
  EXPECT_TRUE(held->valid()) << "renewing needs no memory";
  EXPECT_TRUE(is_ok(held->release())) << "neither does giving back";
  EXPECT_TRUE(is_ok(client::try_open(server.url())));
  redis_command(server, {"CONFIG", "SET", "maxmemory", "0"});
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
}

TEST_F(redis_refusals, server_in_the_middle_of_somebodys_endless_script) {
  redis_server server{{.config = {"busy-reply-threshold 20"}}};
  const auto a = client::open(redis_url(server, "grace=10s"));
  mutex lock{a, "stock"};
  std::thread another_program{[&] {
    EXPECT_NE(redis_command(server, {"EVAL", "while true do end", "0"}), "");
  }};
  ASSERT_TRUE(
      wait_until([&] { return redis_command(server, {"PING"}).starts_with("(error) BUSY"); }));
  EXPECT_TRUE(refuses(lock.try_acquire(), errc::unavailable, "stock", server.url(), "BUSY"));
  redis_command(server, {"SCRIPT", "KILL"});
  another_program.join();
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
}

TEST_F(redis_refusals, server_that_wants_more_replicas) {
  redis_server server;
  const auto a = client::open(server.url());
  mutex lock{a, "stock"};
  redis_command(server, {"CONFIG", "SET", "min-replicas-to-write", "1"});
  EXPECT_TRUE(refuses(lock.try_acquire(), errc::unavailable, "stock", server.url(), "NOREPLICAS"));
  redis_command(server, {"CONFIG", "SET", "min-replicas-to-write", "0"});
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
}

TEST_F(redis_refusals, cluster_without_slots) {
  const reserved_port bus;  // the usual one, 10,000 above the server's, may not exist
  redis_server server{
      {.config = {"cluster-enabled yes", "cluster-port " + std::to_string(bus.number())}}};
  EXPECT_TRUE(
      refuses(client::try_open(server.url()), errc::unavailable, "", server.url(), "CLUSTERDOWN"));
}

TEST_F(redis_refusals, no_such_database) {
  redis_server server{{.config = {"databases 4"}}};
  EXPECT_TRUE(is_ok(client::try_open(server.url() + "/3")));
  EXPECT_TRUE(refuses(client::try_open(server.url() + "/4"), errc::misconfigured, "", server.url(),
                      "no such database"));
}

TEST_F(redis_refusals, databases_are_apart) {
  redis_server server;
  const auto a = client::open(server.url() + "/1"), b = client::open(server.url() + "?db=2");
  mutex ours{a, "stock"}, theirs{b, "stock"};
  const auto held = ours.acquire();
  EXPECT_TRUE(is_ok(theirs.try_acquire()));
}

TEST_F(redis_refusals, key_that_is_somebody_elses) {
  redis_server server;
  const auto a = client::open(server.url());
  redis_command(server, {"HSET", "hf:l:cart", "apples", "3"});
  redis_command(server, {"SET", "hf:l:note", "xylophone"});
  for (const std::string name : {"cart", "note"}) {
    mutex lock{a, name};
    EXPECT_TRUE(
        refuses(lock.try_acquire(), errc::misconfigured, name, server.url(), "something else"));
    EXPECT_TRUE(
        refuses(lock.acquire({.wait = patience}), errc::misconfigured, name, server.url(), ""));
  }
  EXPECT_EQ(redis_command(server, {"HGET", "hf:l:cart", "apples"}), "3");
  EXPECT_EQ(redis_command(server, {"GET", "hf:l:note"}), "xylophone");
}

// The token counter is another program's: nothing works, and it says so.
TEST_F(redis_refusals, token_counter_that_is_no_number) {
  redis_server server;
  redis_command(server, {"SET", "hf:t", "tea"});
  const auto opened = client::try_open(server.url());
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message().find(server.url()), std::string::npos);
}

// ---- rights

TEST_F(redis_refusals, password_that_is_missing_or_wrong) {
  const redis_server server{{.config = {"requirepass good"}, .password = "good"}};
  const auto at = "127.0.0.1:" + std::to_string(server.port());
  EXPECT_TRUE(refuses(client::try_open("redis://" + at), errc::denied, "", at, "NOAUTH"));
  EXPECT_TRUE(refuses(client::try_open("redis://:bad@" + at), errc::denied, "", at, "WRONGPASS"));
  EXPECT_TRUE(
      refuses(client::try_open("redis://nobody:good@" + at), errc::denied, "", at, "WRONGPASS"));
  EXPECT_TRUE(is_ok(client::try_open("redis://:good@" + at)));
}

// The least that the native layout needs. docs/guides/redis.md shows this line.
constexpr std::string_view least_rights =
    "user app on >pw resetkeys ~hf:* resetchannels &hf:c:* -@all"
    " +select +time +ping +subscribe +eval +evalsha +scan"
    " +script|load +get +mget +set +del +exists +incr +pttl +pexpire +pexpireat +publish "
    "+pubsub|numsub"
    " +hget +hset +hdel +hexists +hincrby +hgetall +hmget"
    " +zadd +zrem +zscore +zrank +zrange +zrangebyscore +zrevrange +wait";

redis_server::options as_app(std::string_view rights) {
  return {.config = {"user default off", "user admin on >admin ~* &* +@all", std::string{rights}},
          .user = "admin",
          .password = "admin"};
}

std::string app_url(const redis_server& server) {
  return "redis://app:pw@127.0.0.1:" + std::to_string(server.port());
}

// Everything that the layout can do, once.
void use_everything(const std::string& url) {
  const auto a = client::open(url), b = client::open(url);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 400ms});
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::busy));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_until([&] { return a.inspect("stock").value().waiters.size() == 1; }));
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 500ms));
  EXPECT_TRUE(is_ok(held->release()));
  auto other = get(waiting);
  ASSERT_TRUE(is_ok(other));
  EXPECT_EQ(a.list().value().size(), 1U);
  EXPECT_EQ(a.revoke("stock").value(), 1U);
  EXPECT_TRUE(wait_until([&] { return !other->valid(); }));

  shared_mutex readers{a, "catalogue"}, writers{b, "catalogue"};
  auto reading = readers.acquire_shared({});
  ASSERT_TRUE(is_ok(reading));
  EXPECT_TRUE(fails_with(writers.acquire({.wait = 20ms}), errc::timed_out));
  auto upgradeable = writers.acquire_upgradeable({});
  ASSERT_TRUE(is_ok(upgradeable));
  EXPECT_TRUE(is_ok(reading->release()));
  EXPECT_TRUE(is_ok(writers.upgrade(*upgradeable, {.wait = patience})));
  EXPECT_TRUE(is_ok(writers.downgrade(*upgradeable)));

  counting_semaphore seats{a, "seats", 2};
  EXPECT_TRUE(is_ok(seats.acquire_permits(2, {})));
  latch ready{a, "ready", 1};
  auto opening = std::async(std::launch::async, [&] { return latch{b, "ready"}.wait(patience); });
  EXPECT_EQ(ready.count_down().value(), 0);
  EXPECT_TRUE(is_ok(opening.get()));
  EXPECT_TRUE(is_ok(ready.remove()));
  const std::vector<std::string> names{"first", "second"};
  EXPECT_TRUE(is_ok(lock_all(a, names)));
  election chair{a, "chair", "a"};
  auto term = chair.campaign();
  ASSERT_TRUE(is_ok(term));
  auto change = std::async(std::launch::async, [&] {
    return election{b, "chair"}.observe(term->token(), patience);
  });
  EXPECT_TRUE(is_ok(term->release()));
  EXPECT_TRUE(is_ok(change.get()));
}

TEST_F(redis_refusals, least_rights_are_enough) {
  const redis_server server{as_app(least_rights)};
  use_everything(app_url(server));
  EXPECT_EQ(redis_command(server, {"ACL", "LOG"}), "[]") << "something was refused";
}

TEST_F(redis_refusals, least_rights_can_do_nothing_else) {
  const redis_server server{as_app(least_rights)};
  const auto app = [&](std::vector<std::string_view> words) {
    words.insert(words.begin(), {"ACL", "DRYRUN", "app"});
    return redis_command(server, words);
  };
  for (const auto* word : {"FLUSHALL", "KEYS", "CONFIG", "SHUTDOWN", "CLIENT", "DEBUG"})
    EXPECT_NE(app({word, "a", "b"}), "OK") << word;
  EXPECT_NE(app({"GET", "other"}), "OK");
  EXPECT_NE(app({"SUBSCRIBE", "other"}), "OK");
  EXPECT_EQ(app({"GET", "hf:t"}), "OK");
}

// Each right is needed: without it something fails, and what fails says that a right is missing.
TEST_F(redis_refusals, missing_rights_are_named_as_such) {
  const redis_server server{as_app(least_rights)};
  const auto setuser = [&](std::string_view rule) {
    ASSERT_EQ(redis_command(server, {"ACL", "SETUSER", "app", rule}), "OK") << rule;
  };
  for (const std::string right : {"eval", "subscribe", "time", "set"}) {
    setuser("-" + right);
    const auto opened = client::try_open(app_url(server));
    EXPECT_TRUE(fails_with(opened, errc::denied)) << right;
    setuser("+" + right);
  }
  const auto a = client::open(app_url(server));
  mutex lock{a, "stock"};
  for (const std::string right : {"incr", "evalsha", "set"}) {
    setuser("-" + right);
    const auto tried = lock.try_acquire();
    EXPECT_TRUE(fails_with(tried, errc::denied)) << right;
    if (!tried) {
      EXPECT_NE(tried.error().message().find("stock"), std::string::npos);
    }
    setuser("+" + right);
  }
  setuser("resetkeys");
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::denied)) << "keys";
  setuser("~hf:*");
  EXPECT_TRUE(is_ok(lock.try_acquire()));
  setuser("resetchannels");
  EXPECT_TRUE(fails_with(client::try_open(app_url(server)), errc::denied)) << "channels";
}

}  // namespace
}  // namespace holdfast::testing

// The layouts that Redis locks share with programs of others: what we write is what they expect, what they write
// keeps us out, and what is theirs we do not touch. The others are played by raw commands.
#include <holdfast/holdfast.hpp>

#include "engines/redis/engine.hpp"
#include "support/engine_fixture.hpp"
#include "support/expect.hpp"
#include "support/redis_server.hpp"
#include "support/wait_until.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <sstream>
#include <string>
#include <thread>

namespace holdfast::testing {
namespace {

using engines::redis::make_engine;

class layouts : public ::testing::Test {
 protected:
  void SetUp() override {
    need(redis_server::available(), "redis");
    if (!IsSkipped() && !HasFatalFailure()) redis("FLUSHALL");
  }

  template <class... Words>
  static std::string redis(const Words&... words) {
    return redis_command(shared_redis(), {std::string_view{words}...});
  }
  static std::int64_t redis_number(std::initializer_list<std::string_view> words) {
    return std::stoll(redis_command(shared_redis(), words));
  }
  static std::string url(std::string_view options) {
    return fmt::format("{}?layout={}", shared_redis().url(), options);
  }
  static client open(std::string_view options) { return client::open(url(options)); }
  static raw_client raw(std::string_view options, std::uint64_t number = 1) {
    return {make_engine, url(options), system_clock(), number};
  }
  static nanoseconds time_of(auto&& action) {
    const auto begin = std::chrono::steady_clock::now();
    action();
    return std::chrono::steady_clock::now() - begin;
  }
  static auto acquire_later(const client& own, const std::string& name) {
    return std::async(std::launch::async, [own, name] {
      mutex lock{own, name};
      return lock.acquire({.wait = patience});
    });
  }
  // How many listen to a channel, whoever they are.
  static std::size_t listeners(std::string_view channel) {
    const auto reply = redis("PUBSUB", "NUMSUB", channel);
    return static_cast<std::size_t>(std::stoll(reply.substr(reply.rfind(' ') + 1)));
  }
};

TEST_F(layouts, wrong_addresses_are_refused) {
  const auto refused = [](std::string_view options) {
    return fails_with(client::try_open(url(options)), errc::misconfigured);
  };
  EXPECT_TRUE(refused("nosuch"));
  EXPECT_TRUE(refused("setnx&semaphore=plain"));
  EXPECT_TRUE(refused("redisson&semaphore=other"));
  EXPECT_TRUE(refused("setnx&grace=1s"));
  EXPECT_TRUE(refused("redisson&wait_replicas=1"));
  EXPECT_TRUE(refused("setnx&prefix=%0a"));
  EXPECT_TRUE(is_ok(client::try_open(url("redisson&semaphore=plain"))));
}

// ---- setnx

TEST_F(layouts, setnx_looks_like_set_nx_px) {
  const auto a = open("setnx");
  mutex lock{a, "orders"};
  auto held = lock.acquire({.ttl = 10s});
  ASSERT_TRUE(is_ok(held));
  EXPECT_EQ(redis("GET", "orders"), to_string(held->owner()));
  const auto left = redis_number({"PTTL", "orders"});
  EXPECT_GT(left, 8'000);
  EXPECT_LE(left, 10'000);
  EXPECT_GT(held->token().value, 1'600'000'000'000'000U) << "the server's microseconds";
  EXPECT_EQ(redis("SET", "orders", "another", "NX", "PX", "1000"), "(nil)")
      << "others are kept out";
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_EQ(redis("DBSIZE"), "0") << "nothing is left";
}

TEST_F(layouts, setnx_is_kept_out_by_others_and_comes_after_them) {
  const auto a = open("setnx");
  mutex lock{a, "orders"};
  ASSERT_EQ(redis("SET", "orders", "redlock-token", "NX", "PX", "60000"), "OK");
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::busy));
  auto waiting = acquire_later(a, "orders");
  EXPECT_EQ(waiting.wait_for(100ms), std::future_status::timeout);
  EXPECT_EQ(redis("GET", "orders"), "redlock-token");
  ASSERT_EQ(redis("DEL", "orders"), "1");
  EXPECT_TRUE(is_ok(waiting.get()));
}

TEST_F(layouts, setnx_waiter_comes_when_the_others_ttl_ends) {
  const auto a = open("setnx");
  mutex lock{a, "orders"};
  ASSERT_EQ(redis("SET", "orders", "other", "NX", "PX", "300"), "OK");
  const auto took = time_of([&] { EXPECT_TRUE(is_ok(lock.acquire({.wait = patience}))); });
  EXPECT_LT(took, 3s);
}

TEST_F(layouts, setnx_does_not_touch_what_became_anothers) {
  auto a = raw("setnx");
  const auto ask = a.ask("orders");
  const auto got = a.verbs->enter(ask, {}).value();
  ASSERT_EQ(got.what, entered::kind::granted);
  ASSERT_EQ(redis("SET", "orders", "other", "PX", "60000"), "OK");  // ours expired, theirs came
  renewal one;
  one.held = &got.granted;
  ASSERT_TRUE(is_ok(a.verbs->renew({&one, 1}, {})));
  EXPECT_EQ(one.answer, renewal::verdict::lost);
  EXPECT_TRUE(fails_with(a.verbs->release(got.granted, {}), errc::not_held));
  const ticket place{ask.name, ask.owner, 0, {}};
  EXPECT_TRUE(is_ok(a.verbs->leave(place, {})));
  EXPECT_EQ(a.verbs->settle(ask, {}).value().what, entered::kind::busy);
  EXPECT_EQ(redis("GET", "orders"), "other");
}

TEST_F(layouts, setnx_verbs_are_idempotent_by_owner) {
  auto a = raw("setnx"), b = raw("setnx", 2);
  const auto ask = a.ask("orders");
  const auto first = a.verbs->enter(ask, {}).value(), again = a.verbs->enter(ask, {}).value();
  ASSERT_EQ(first.what, entered::kind::granted);
  ASSERT_EQ(again.what, entered::kind::granted);
  EXPECT_LE(again.granted.valid_from + again.granted.ttl,
            std::chrono::steady_clock::now() + again.granted.ttl);
  EXPECT_EQ(a.verbs->settle(ask, {}).value().what, entered::kind::granted);
  auto other = b.ask("orders");
  const auto waits = b.verbs->enter(other, {}).value();
  ASSERT_EQ(waits.what, entered::kind::waiting);
  EXPECT_LE(waits.waiting.recheck_at, std::chrono::steady_clock::now() + 51ms);
  other.wait = false;
  EXPECT_EQ(b.verbs->enter(other, {}).value().what, entered::kind::busy);
  EXPECT_EQ(redis("DBSIZE"), "1") << "a waiter leaves nothing";
}

TEST_F(layouts, setnx_renews_a_batch_with_one_answer_each) {
  auto a = raw("setnx");
  const std::array<std::string, 3> names{"x", "y", "z"};
  std::vector<grant> held;
  for (const auto& name : names) {
    auto ask = a.ask(name);
    ask.ttl = 2s;
    held.push_back(a.verbs->enter(ask, {}).value().granted);
  }
  ASSERT_EQ(redis("PEXPIRE", "x", "500"), "1");
  ASSERT_EQ(redis("DEL", "y"), "1");
  std::vector<renewal> batch(3);
  for (std::size_t i = 0; i < 3; ++i) batch[i].held = &held[i];
  promised<void> done;
  a.verbs->start_renew(batch, {}, done);
  ASSERT_TRUE(is_ok(done.get()));
  EXPECT_EQ(batch[0].answer, renewal::verdict::held);
  EXPECT_EQ(batch[1].answer, renewal::verdict::lost);
  EXPECT_EQ(batch[2].answer, renewal::verdict::held);
  EXPECT_GT(redis_number({"PTTL", "x"}), 1'000);
  EXPECT_EQ(redis("EXISTS", "y"), "0") << "never revived";
}

TEST_F(layouts, setnx_says_whose_fault_a_wrong_type_is) {
  const auto a = open("setnx");
  ASSERT_EQ(redis("HSET", "orders", "a", "1"), "1");
  mutex lock{a, "orders"};
  const auto got = lock.try_acquire();
  ASSERT_TRUE(fails_with(got, errc::misconfigured));
  EXPECT_NE(got.error().message().find("orders"), std::string::npos);
  EXPECT_NE(got.error().message().find(shared_redis().url()), std::string::npos);
}

TEST_F(layouts, setnx_lists_what_has_the_prefix) {
  EXPECT_FALSE(open("setnx").capabilities().listing);
  const auto a = open("setnx&prefix=app:");
  ASSERT_TRUE(a.capabilities().listing);
  mutex one{a, "one"}, two{a, "t*o"};
  auto first = one.acquire(), second = two.acquire();
  ASSERT_EQ(redis("SET", "app:theirs", "x y\n", "PX", "60000"), "OK");
  ASSERT_EQ(redis("SET", "elsewhere", "x"), "OK");
  ASSERT_EQ(redis("HSET", "app:hash", "a", "1"), "1");
  EXPECT_EQ(redis("GET", "app:one"), to_string(first->owner()));
  const auto all = a.list().value();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].name, "one");
  EXPECT_EQ(all[0].holders.at(0).owner, first->owner());
  EXPECT_GT(all[0].holders.at(0).expires_in, 5s);
  EXPECT_EQ(all[1].name, "t*o");
  EXPECT_EQ(all[2].name, "theirs");
  EXPECT_EQ(all[2].holders.at(0).label, "\"x y\\u{a}\"");
  EXPECT_EQ(a.list("t*").value().size(), 1U) << "a star is a star";
  EXPECT_EQ(a.revoke("one").value(), 1U);
  EXPECT_EQ(redis("EXISTS", "app:one"), "0");
  EXPECT_TRUE(fails_with(first->renew(), errc::lost));
}

// ---- setnx-expire-lua

TEST_F(layouts, setnx_expire_lua_counts_whole_seconds) {
  const auto a = open("setnx-expire-lua");
  EXPECT_EQ(a.capabilities().min_ttl, 1s);
  mutex lock{a, "orders"};
  auto held = lock.acquire({.ttl = 1500ms});
  ASSERT_TRUE(is_ok(held));
  EXPECT_EQ(redis("GET", "orders"), to_string(held->owner()));
  EXPECT_GT(redis_number({"PTTL", "orders"}), 1'500) << "rounded up";
  EXPECT_LE(redis_number({"PTTL", "orders"}), 2'000);
  EXPECT_LE(held->valid_until(), std::chrono::steady_clock::now() + 1500ms) << "but not believed";
  EXPECT_EQ(redis("SETNX", "orders", "other"), "0");
  ASSERT_TRUE(is_ok(held->release()));
  ASSERT_EQ(redis("SETNX", "orders", "other"), "1");
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::busy));
}

// ---- getset

std::int64_t wall_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

TEST_F(layouts, getset_value_is_a_number_that_tells_the_end) {
  const auto a = open("getset");
  mutex lock{a, "orders"};
  const auto before = wall_ms();
  auto held = lock.acquire({.ttl = 10s});
  ASSERT_TRUE(is_ok(held));
  const auto value = redis("GET", "orders");
  EXPECT_EQ(value.find_first_not_of("0123456789."), std::string::npos) << value;
  const auto ends = std::stoll(value);
  EXPECT_GE(ends, before + 10'000);
  EXPECT_LE(ends, wall_ms() + 10'000);
  EXPECT_GT(redis_number({"PTTL", "orders"}), 60'000) << "a net, far behind";
  ASSERT_TRUE(is_ok(held->renew()));
  EXPECT_GE(std::stoll(redis("GET", "orders")), ends);
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_EQ(redis("DBSIZE"), "0");
}

TEST_F(layouts, getset_waits_for_the_end_that_another_has_written) {
  const auto a = open("getset");
  mutex lock{a, "orders"};
  for (const auto ends : {wall_ms() + 60'000, (wall_ms() + 60'000) / 1000}) {
    ASSERT_EQ(redis("SET", "orders", std::to_string(ends)), "OK");
    EXPECT_TRUE(fails_with(lock.try_acquire(), errc::busy)) << ends;
  }
  for (const auto ends : {wall_ms() - 10, wall_ms() / 1000 - 2}) {
    ASSERT_EQ(redis("SET", "orders", std::to_string(ends)), "OK");
    EXPECT_TRUE(is_ok(lock.try_acquire())) << ends;
  }
  ASSERT_EQ(redis("SET", "orders", std::to_string(wall_ms() + 200)), "OK");
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
  ASSERT_EQ(redis("SET", "orders", "12ab-not-of-this-recipe"), "OK");
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::busy));
}

TEST_F(layouts, getset_does_not_release_what_a_loser_has_overwritten) {
  const auto a = open("getset");
  mutex lock{a, "orders"};
  auto held = lock.acquire();
  ASSERT_TRUE(is_ok(held));
  const auto theirs = std::to_string(wall_ms() + 60'000);
  ASSERT_NE(redis("GETSET", "orders", theirs), "(nil)");
  EXPECT_TRUE(fails_with(held->renew(), errc::lost));
  EXPECT_FALSE(held->valid());
  EXPECT_EQ(redis("GET", "orders"), theirs);
}

// ---- redisson: locks

constexpr auto java = "6a1f2d3c-0000-4000-8000-00000000cafe:42";

TEST_F(layouts, redisson_lock_is_an_rlock_with_a_token) {
  const auto a = open("redisson");
  mutex lock{a, "orders"};
  auto held = lock.acquire({.ttl = 10s});
  ASSERT_TRUE(is_ok(held));
  const auto hash = redis("HGETALL", "orders");
  ASSERT_EQ(hash.size(),
            std::string{"[ 1]"}.size() + 36 + 1 + std::to_string(held->owner().sequence).size())
      << hash;
  EXPECT_EQ(hash.substr(37), fmt::format(":{} 1]", held->owner().sequence));
  EXPECT_EQ(hash[9], '-');
  EXPECT_EQ(hash[24], '-');
  EXPECT_GT(redis_number({"PTTL", "orders"}), 8'000);
  EXPECT_LE(redis_number({"PTTL", "orders"}), 10'000);
  EXPECT_EQ(redis("GET", "redisson_lock_token:{orders}"), std::to_string(held->token().value));
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_EQ(redis("KEYS", "*"), "[redisson_lock_token:{orders}]") << "the token survives";
  auto next = lock.acquire();
  EXPECT_EQ(next->token().value, held->token().value + 1);
}

TEST_F(layouts, redisson_names_with_braces_are_their_own_hash_tag) {
  const auto a = open("redisson&prefix=app:");
  mutex plain{a, "x"}, tagged{a, "{a}b"};
  auto one = plain.acquire(), two = tagged.acquire();
  EXPECT_EQ(redis("EXISTS", "app:x", "redisson_lock_token:{app:x}", "app:{a}b",
                  "redisson_lock_token:app:{a}b"),
            "4");
  const auto all = a.list().value();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name, "x");
  EXPECT_EQ(all[0].holders.at(0).owner, one->owner());
  EXPECT_EQ(all[0].holders.at(0).token, one->token());
  EXPECT_EQ(all[1].name, "{a}b");
}

TEST_F(layouts, redisson_waiter_is_woken_by_javas_unlock) {
  const auto a = open("redisson");
  mutex lock{a, "orders"};
  ASSERT_EQ(redis("HINCRBY", "orders", java, "1"), "1");
  ASSERT_EQ(redis("PEXPIRE", "orders", "30000"), "1");
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::busy));
  auto waiting = acquire_later(a, "orders");
  ASSERT_TRUE(wait_until([&] { return listeners("redisson_lock__channel:{orders}") == 1; }));
  EXPECT_EQ(waiting.wait_for(100ms), std::future_status::timeout);
  ASSERT_EQ(redis("DEL", "orders"), "1");
  const auto took = time_of([&] {
    ASSERT_EQ(redis("PUBLISH", "redisson_lock__channel:{orders}", "0"), "1");
    EXPECT_TRUE(is_ok(waiting.get()));
  });
  EXPECT_LT(took, 1s) << "long before the 5 s after which it would have looked by itself";
  EXPECT_TRUE(wait_until([&] { return listeners("redisson_lock__channel:{orders}") == 0; }))
      << "nobody waits, nobody listens";
}

TEST_F(layouts, redisson_waiter_comes_when_javas_ttl_ends) {
  const auto a = open("redisson");
  mutex lock{a, "orders"};
  ASSERT_EQ(redis("HINCRBY", "orders", java, "1"), "1");
  ASSERT_EQ(redis("PEXPIRE", "orders", "300"), "1");
  const auto took = time_of([&] { EXPECT_TRUE(is_ok(lock.acquire({.wait = patience}))); });
  EXPECT_LT(took, 3s);
}

TEST_F(layouts, redisson_release_and_renewal_leave_java_alone) {
  auto a = raw("redisson");
  const auto ask = a.ask("orders");
  const auto got = a.verbs->enter(ask, {}).value();
  ASSERT_EQ(got.what, entered::kind::granted);
  EXPECT_EQ(a.verbs->enter(ask, {}).value().granted.token, got.granted.token) << "asked again";
  EXPECT_EQ(redis("HVALS", "orders"), "[1]") << "which is not entering twice";
  ASSERT_EQ(redis("DEL", "orders"), "1");
  ASSERT_EQ(redis("HINCRBY", "orders", java, "1"), "1");
  ASSERT_EQ(redis("PEXPIRE", "orders", "5000"), "1");
  renewal one;
  one.held = &got.granted;
  ASSERT_TRUE(is_ok(a.verbs->renew({&one, 1}, {})));
  EXPECT_EQ(one.answer, renewal::verdict::lost);
  EXPECT_TRUE(fails_with(a.verbs->release(got.granted, {}), errc::not_held));
  EXPECT_EQ(a.verbs->settle(ask, {}).value().what, entered::kind::busy);
  EXPECT_LE(redis_number({"PTTL", "orders"}), 5'000);
  EXPECT_EQ(redis("HGET", "orders", java), "1");
}

// What a program of another make hears on a channel, as redis-cli prints it.
class ear {
 public:
  explicit ear(const std::string& channel)
      : cli_{{find_program("redis-cli").value(), "-s", shared_redis().socket_path(), "SUBSCRIBE",
              channel},
             dir_.file("out")} {}
  bool heard(const std::string& message) const {
    std::ostringstream text;
    text << std::ifstream{dir_.file("out")}.rdbuf();
    return text.str().ends_with('\n' + message + '\n');
  }

 private:
  temp_dir dir_;
  process cli_;
};

TEST_F(layouts, redisson_publishes_what_java_waits_for) {
  if (!find_program("redis-cli")) GTEST_SKIP() << "no redis-cli in the PATH";
  const auto a = open("redisson");
  const std::string lock_channel = "redisson_lock__channel:{orders}";
  const std::string seat_channel = "redisson_sc:{seats}";
  const std::string gate_channel = "redisson_countdownlatch__channel__{gate}";
  const ear lock_ear{lock_channel}, seat_ear{seat_channel}, gate_ear{gate_channel};
  ASSERT_TRUE(wait_until([&] {
    return listeners(lock_channel) + listeners(seat_channel) + listeners(gate_channel) == 3;
  }));
  mutex lock{a, "orders"};
  ASSERT_TRUE(is_ok(lock.acquire()->release()));
  EXPECT_TRUE(wait_until([&] { return lock_ear.heard("0"); }));
  counting_semaphore seats{a, "seats", 4};
  auto three = seats.acquire_permits(3);
  EXPECT_TRUE(wait_until([&] { return seat_ear.heard("4"); })) << "trySetPermits";
  auto one = seats.acquire_permits(1);
  ASSERT_TRUE(is_ok(three->release()));
  EXPECT_TRUE(wait_until([&] { return seat_ear.heard("3"); }));
  latch gate{a, "gate", 2};
  EXPECT_TRUE(wait_until([&] { return gate_ear.heard("1"); })) << "trySetCount";
  EXPECT_EQ(gate.count_down(2).value(), 0);
  EXPECT_TRUE(wait_until([&] { return gate_ear.heard("0"); }));
}

TEST_F(layouts, redisson_waiters_survive_a_lost_connection) {
  redis_server own;
  const auto at = own.url() + "?layout=redisson";
  const auto a = client::open(at);
  const std::string channel = "redisson_lock__channel:{orders}";
  const auto says = [&](std::vector<std::string_view> words) { return own.command(words); };
  ASSERT_EQ(says({"HINCRBY", "orders", java, "1"}), "1");
  ASSERT_EQ(says({"PEXPIRE", "orders", "60000"}), "1");
  auto waiting = acquire_later(a, "orders");
  const auto listens = [&] { return says({"PUBSUB", "NUMSUB", channel}).ends_with(" 1]"); };
  ASSERT_TRUE(wait_until(listens));
  says({"CLIENT", "KILL", "TYPE", "pubsub"});
  ASSERT_TRUE(wait_until(listens)) << "it listens again";
  ASSERT_EQ(says({"DEL", "orders"}), "1");
  const auto took = time_of([&] {
    says({"PUBLISH", channel, "0"});
    EXPECT_TRUE(is_ok(waiting.get()));
  });
  EXPECT_LT(took, 2s);
}

TEST_F(layouts, redisson_says_when_it_may_not_listen) {
  redis_server own{{.config = {"user default off", "user app on >word ~* resetchannels +@all"},
                    .user = "app",
                    .password = "word"}};
  const auto at = fmt::format("redis://app:word@127.0.0.1:{}?layout=redisson", own.port());
  const auto a = client::open(at);
  ASSERT_EQ(own.command({"HINCRBY", "orders", java, "1"}), "1");
  ASSERT_EQ(own.command({"PEXPIRE", "orders", "60000"}), "1");
  mutex lock{a, "orders"};
  EXPECT_TRUE(fails_with(lock.acquire({.wait = patience}), errc::denied));
}

TEST_F(layouts, redisson_awaits_without_blocking) {
  auto a = raw("redisson"), b = raw("redisson", 2);
  const auto held = a.verbs->enter(a.ask("orders"), {}).value();
  const auto ask = b.ask("orders");
  const call limits;
  promised<entered> asked;
  b.verbs->start_enter(ask, limits, asked);
  auto place = asked.get().value();
  ASSERT_EQ(place.what, entered::kind::waiting);
  promised<progress> begun;
  b.verbs->start_await(place.waiting, limits, begun);
  EXPECT_FALSE(begun.get().value().is_granted) << "listening has begun: ask again";
  place = b.verbs->enter(ask, limits).value();
  ASSERT_EQ(place.what, entered::kind::waiting);
  promised<progress> told;
  b.verbs->start_await(place.waiting, limits, told);
  EXPECT_TRUE(stays_true([&] { return !told.is_done(); }, 50ms));
  promised<void> released;
  a.verbs->start_release(held.granted, limits, released);
  EXPECT_TRUE(is_ok(released.get()));
  EXPECT_TRUE(is_ok(told.get()));
  EXPECT_EQ(b.verbs->enter(ask, limits).value().what, entered::kind::granted);
  // What was said between asking and waiting is not lost.
  auto late = a.ask("orders");
  place = a.verbs->enter(late, limits).value();
  promised<progress> first;
  a.verbs->start_await(place.waiting, limits, first);
  static_cast<void>(first.get());
  place = a.verbs->enter(late, limits).value();
  const auto before = listeners("redisson_lock__channel:{orders}");
  EXPECT_EQ(before, 2U);
  redis("PUBLISH", "redisson_lock__channel:{orders}", "0");
  promised<progress> at_once;
  const auto took = time_of([&] {
    a.verbs->start_await(place.waiting, limits, at_once);
    static_cast<void>(at_once.get());
  });
  EXPECT_LT(took, 1s);
}

// ---- redisson: semaphores

TEST_F(layouts, redisson_permits_look_like_an_expirable_semaphore) {
  const auto a = open("redisson");
  counting_semaphore seats{a, "seats", 5};
  auto two = seats.acquire_permits(2, {.ttl = 10s});
  ASSERT_TRUE(is_ok(two));
  EXPECT_EQ(redis("GET", "seats"), "3");
  EXPECT_EQ(redis("ZCARD", "{seats}:timeout"), "2");
  const auto now = wall_ms();
  EXPECT_EQ(
      redis("ZCOUNT", "{seats}:timeout", std::to_string(now + 8'000), std::to_string(now + 10'100)),
      "2");
  EXPECT_EQ(redis("EVAL", "return #redis.call('ZRANGE', KEYS[1], 0, 0)[1]", "1", "{seats}:timeout"),
            "16")
      << "ids have 16 bytes";
  ASSERT_TRUE(is_ok(two->renew()));
  EXPECT_EQ(redis("ZCARD", "{seats}:timeout"), "2");
  ASSERT_TRUE(is_ok(two->release()));
  EXPECT_EQ(redis("GET", "seats"), "5");
  EXPECT_EQ(redis("EXISTS", "{seats}:timeout"), "0");
}

TEST_F(layouts, redisson_permits_are_shared_with_java) {
  const auto a = open("redisson");
  counting_semaphore seats{a, "seats", 2};
  ASSERT_EQ(redis("SET", "seats", "0"), "OK");  // trySetPermits(2), and both are taken
  const auto soon = std::to_string(wall_ms() + 60'000);
  ASSERT_EQ(redis("ZADD", "{seats}:timeout", soon, "0123456789abcdef", soon, "fedcba9876543210"),
            "2");
  EXPECT_TRUE(fails_with(seats.acquire_permits(1, {.wait = 0s}), errc::busy));
  auto waiting =
      std::async(std::launch::async, [&] { return seats.acquire_permits(1, {.wait = patience}); });
  ASSERT_TRUE(wait_until([&] { return listeners("redisson_sc:{seats}") == 1; }));
  EXPECT_EQ(waiting.wait_for(100ms), std::future_status::timeout);
  ASSERT_EQ(redis("ZREM", "{seats}:timeout", "0123456789abcdef"), "1");
  ASSERT_EQ(redis("INCRBY", "seats", "1"), "1");
  const auto took = time_of([&] {
    redis("PUBLISH", "redisson_sc:{seats}", "1");
    EXPECT_TRUE(is_ok(waiting.get()));
  });
  EXPECT_LT(took, 1s);
  counting_semaphore wrong{a, "seats", 3};
  EXPECT_TRUE(fails_with(wrong.acquire_permits(1, {.wait = 0s}), errc::misconfigured));
}

TEST_F(layouts, redisson_permits_of_the_dead_come_back) {
  const auto a = open("redisson");
  counting_semaphore seats{a, "seats", 1};
  ASSERT_EQ(redis("SET", "seats", "0"), "OK");
  ASSERT_EQ(redis("ZADD", "{seats}:timeout", std::to_string(wall_ms() + 300), "0123456789abcdef"),
            "1");
  EXPECT_TRUE(fails_with(seats.acquire_permits(1, {.wait = 0s}), errc::busy));
  EXPECT_TRUE(is_ok(seats.acquire_permits(1, {.wait = patience})));
  EXPECT_TRUE(wait_until([&] { return redis("GET", "seats") == "1"; }));
}

TEST_F(layouts, redisson_plain_semaphore_is_a_number) {
  const auto a = open("redisson&semaphore=plain");
  EXPECT_NE(a.capabilities().limits.find("RSemaphore"), std::string::npos);
  counting_semaphore seats{a, "seats", 3};
  {
    auto two = seats.acquire_permits(2);
    ASSERT_TRUE(is_ok(two));
    EXPECT_EQ(redis("GET", "seats"), "1");
    EXPECT_EQ(redis("EXISTS", "{seats}:timeout"), "0");
    ASSERT_TRUE(is_ok(two->renew()));
    EXPECT_TRUE(fails_with(seats.acquire_permits(2, {.wait = 0s}), errc::busy));
    auto lost = seats.acquire_permits(1, {.max_hold = 20ms});
    EXPECT_TRUE(wait_until([&] { return redis("GET", "seats") == "1"; }))
        << "what is lost is given back";
    EXPECT_TRUE(fails_with(lost->release(), errc::lost));
    ASSERT_TRUE(is_ok(two->release()));
    EXPECT_TRUE(fails_with(two->release(), errc::not_held));
  }
  EXPECT_EQ(redis("GET", "seats"), "3");
}

// ---- redisson: latches

TEST_F(layouts, redisson_latch_counts_with_java) {
  const auto a = open("redisson");
  latch gate{a, "gate", 3};
  EXPECT_EQ(redis("GET", "gate"), "3");
  EXPECT_EQ(gate.count_down().value(), 2);
  EXPECT_EQ(redis("DECR", "gate"), "1");  // RCountDownLatch.countDown
  EXPECT_EQ(gate.value().value(), 1);
  auto waiting = std::async(std::launch::async, [&] { return gate.wait(patience); });
  ASSERT_TRUE(
      wait_until([&] { return listeners("redisson_countdownlatch__channel__{gate}") == 1; }));
  EXPECT_EQ(waiting.wait_for(50ms), std::future_status::timeout);
  ASSERT_EQ(redis("DECR", "gate"), "0");
  ASSERT_EQ(redis("DEL", "gate"), "1");
  const auto took = time_of([&] {
    redis("PUBLISH", "redisson_countdownlatch__channel__{gate}", "0");
    EXPECT_TRUE(is_ok(waiting.get()));
  });
  EXPECT_LT(took, 900ms) << "told, not looked for";
  EXPECT_TRUE(gate.try_wait().value()) << "open, not unmade";
}

TEST_F(layouts, redisson_latch_that_opens_is_deleted_and_stays_open) {
  const auto a = open("redisson");
  latch gate{a, "gate", 1};
  EXPECT_EQ(gate.count_down().value(), 0);
  EXPECT_EQ(redis("EXISTS", "gate"), "0") << "as RCountDownLatch does it";
  EXPECT_TRUE(gate.try_wait().value());
  latch late{a, "gate", 7};
  EXPECT_TRUE(late.try_wait().value()) << "open stays open";
  ASSERT_EQ(redis("SET", "gate", "2", "NX"), "OK");  // trySetCount
  EXPECT_FALSE(late.try_wait().value()) << "set anew";
  ASSERT_TRUE(is_ok(gate.remove()));
  EXPECT_TRUE(fails_with(gate.value(), errc::not_held));
  EXPECT_EQ(redis("DBSIZE"), "0");
}

TEST_F(layouts, redisson_latch_that_is_forgotten_is_not_open) {
  const auto a = open("redisson");
  latch gate{a, "gate", 1, 300ms};
  EXPECT_FALSE(gate.try_wait().value());
  EXPECT_TRUE(stays_true([&] { return !gate.try_wait().value(); }, 500ms));
  EXPECT_TRUE(fails_with(gate.value(), errc::not_held));
}

}  // namespace
}  // namespace holdfast::testing

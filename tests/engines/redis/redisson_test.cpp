// The layout of Redisson: locks, semaphores and latches that Java programs use together with us. Java is played by raw
// commands.
#include "layouts.hpp"

#include <fstream>
#include <sstream>
#include <vector>

namespace holdfast::testing {
namespace {

constexpr auto java = "6a1f2d3c-0000-4000-8000-00000000cafe:42";

// ---- locks

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

// A token that cannot be had costs the lock, not the fence.
TEST_F(layouts, redisson_takes_nothing_without_a_token) {
  for (const auto* options : {"redisson", "redisson&semaphore=plain"})
    for (const auto mode : {lock_mode::exclusive, lock_mode::permits}) {
      redis("FLUSHALL");
      redis("LPUSH", "redisson_lock_token:{orders}", "somebody's");
      auto a = raw(options);
      auto ask = a.ask("orders");
      ask.mode = mode;
      if (mode == lock_mode::permits) ask.weight = 1, ask.capacity = 3;
      const call soon{std::chrono::steady_clock::now() + patience, {}};
      EXPECT_TRUE(fails_with(a.verbs->enter(ask, soon), errc::misconfigured));
      EXPECT_EQ(redis("HLEN", "orders").starts_with("(error)") ? redis("GET", "orders")
                                                               : redis("HLEN", "orders"),
                mode == lock_mode::permits ? "3" : "0")
          << options;
      EXPECT_EQ(redis("EXISTS", "{orders}:timeout"), "0");
    }
}

TEST_F(layouts, redisson_names_with_braces_are_their_own_hash_tag) {
  const auto a = open("redisson&prefix=app:");
  mutex plain{a, "x"}, tagged{a, "{a}b"};
  auto first = plain.acquire(), second = tagged.acquire();
  EXPECT_EQ(redis("EXISTS", "app:x", "redisson_lock_token:{app:x}", "app:{a}b",
                  "redisson_lock_token:app:{a}b"),
            "4");
  const auto all = a.list().value();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name, "x");
  EXPECT_EQ(all[0].holders.at(0).owner, first->owner());
  EXPECT_EQ(all[0].holders.at(0).token, first->token());
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
      << "no waiter, no listener";
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
  renewal asked;
  asked.held = &got.granted;
  ASSERT_TRUE(is_ok(a.verbs->renew({&asked, 1}, {})));
  EXPECT_EQ(asked.answer, renewal::verdict::lost);
  EXPECT_TRUE(fails_with(a.verbs->release(got.granted, {}), errc::not_held));
  EXPECT_EQ(a.verbs->settle(ask, {}).value().what, entered::kind::busy);
  EXPECT_LE(redis_number({"PTTL", "orders"}), 5'000);
  EXPECT_EQ(redis("HGET", "orders", java), "1");
}

TEST_F(layouts, redisson_shows_owners_as_java_prints_them) {
  const auto a = open("redisson");
  ASSERT_EQ(redis("HINCRBY", "orders", java, "1"), "1");
  auto seen = a.inspect("orders").value();
  ASSERT_EQ(seen.holders.size(), 1U);
  EXPECT_EQ(seen.holders[0].owner_text, java);
  EXPECT_EQ(seen.holders[0].owner.sequence, 42U);
  EXPECT_EQ(seen.holders[0].expires_in, no_expiry);
  EXPECT_EQ(seen.holders[0].age, unknown_time);
  ASSERT_EQ(redis("PEXPIRE", "orders", "30000"), "1");
  EXPECT_LE(a.inspect("orders").value().holders.at(0).expires_in, 30s);
  ASSERT_EQ(redis("HSET", "strange", "no uuid", "1"), "1");
  EXPECT_EQ(a.inspect("strange").value().holders.at(0).owner_text, "no uuid");
  mutex lock{a, "ours"};
  auto held = lock.acquire();
  const auto field = redis("HKEYS", "ours");
  EXPECT_EQ('[' + a.inspect("ours").value().holders.at(0).owner_text + ']', field);
}

TEST_F(layouts, redisson_shows_who_reads_and_who_writes) {
  const auto a = open("redisson");
  const std::string other = "6a1f2d3c-0000-4000-8000-00000000beef:7";
  redis("HSET", "book", "mode", "read", java, "1", other, "2");
  auto seen = a.inspect("book").value();
  ASSERT_EQ(seen.holders.size(), 2U) << "the mode is no holder";
  EXPECT_EQ(seen.holders[0].mode, lock_mode::shared);
  EXPECT_EQ(seen.holders[1].mode, lock_mode::shared);
  redis("DEL", "book");
  redis("HSET", "book", "mode", "write", other + ":write", "1");
  seen = a.inspect("book").value();
  ASSERT_EQ(seen.holders.size(), 1U);
  EXPECT_EQ(seen.holders[0].mode, lock_mode::exclusive);
  EXPECT_EQ(seen.holders[0].owner_text, other);
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
  auto seat = seats.acquire_permits(1);
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

// ---- semaphores

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

// RPermitExpirableSemaphore.acquire() without a lease writes an end that never comes.
TEST_F(layouts, redisson_permit_without_a_lease_never_expires) {
  const auto a = open("redisson");
  ASSERT_EQ(redis("SET", "seats", "1"), "OK");
  ASSERT_EQ(redis("ZADD", "{seats}:timeout", "922337203685477", "0123456789abcdef"), "1");
  const auto seen = a.inspect("seats").value();
  EXPECT_EQ(seen.capacity, 2U);
  ASSERT_EQ(seen.holders.size(), 1U);
  EXPECT_EQ(seen.holders[0].expires_in, no_expiry);
  EXPECT_EQ(seen.holders[0].owner_text, "30313233343536373839616263646566") << "as Java shows it";
  counting_semaphore seats{a, "seats", 2};
  EXPECT_TRUE(is_ok(seats.acquire_permits(1, {.wait = 0s})));
  EXPECT_TRUE(fails_with(seats.acquire_permits(2, {.wait = 0s}), errc::busy));
}

TEST_F(layouts, redisson_plain_semaphore_shows_what_is_free) {
  const auto a = open("redisson&semaphore=plain&prefix=app:");
  counting_semaphore seats{a, "seats", 3};
  auto two = seats.acquire_permits(2);
  ASSERT_TRUE(is_ok(two));
  auto seen = a.inspect("seats").value();
  EXPECT_EQ(seen.capacity, 3U);
  EXPECT_EQ(seen.free_permits, 1U);
  EXPECT_TRUE(seen.holders.empty()) << "the store knows none";
  const auto version = seen.version;
  ASSERT_EQ(redis("SET", "app:java", "5"), "OK");  // trySetPermits of Java: the number may be any
  latch gate{a, "gate", 2};
  auto all = a.list().value();
  ASSERT_EQ(all.size(), 2U) << "the latch is none";
  EXPECT_EQ(all[0].name, "java");
  EXPECT_EQ(all[0].capacity, 0U) << "not known";
  EXPECT_EQ(all[0].free_permits, 5U);
  EXPECT_EQ(all[1].name, "seats");
  EXPECT_TRUE(fails_with(a.revoke("seats"), errc::unsupported));
  EXPECT_EQ(redis("GET", "app:seats"), "1") << "untouched";
  ASSERT_TRUE(is_ok(two->release()));
  seen = a.inspect("seats").value();
  EXPECT_EQ(seen.free_permits, 3U);
  EXPECT_NE(seen.version, version);
  EXPECT_EQ(a.revoke("seats").value(), 0U);
  all = a.list().value();
  ASSERT_EQ(all.size(), 1U) << "no permit is out";
  EXPECT_EQ(all[0].name, "java");
}

TEST_F(layouts, redisson_plain_semaphore_checks_its_number) {
  const auto a = open("redisson&semaphore=plain");
  const auto once = [](counting_semaphore& of) { return of.acquire_permits(1, {.wait = 0s}); };
  counting_semaphore three{a, "seats", 3}, two{a, "seats", 2}, five{a, "seats", 5};
  auto held = once(three);
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(fails_with(once(two), errc::misconfigured));
  EXPECT_TRUE(fails_with(once(five), errc::misconfigured));
  EXPECT_EQ(redis("GET", "seats"), "2");
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(fails_with(once(five), errc::misconfigured))
      << "whether a permit is out is not known: Java may have added some";
  redis("DEL", "seats");
  auto more = once(five);
  ASSERT_TRUE(is_ok(more)) << "a new one";
  EXPECT_EQ(redis("GET", "seats"), "4");
  ASSERT_EQ(redis("INCRBY", "seats", "4"), "8") << "addPermits of Java";
  EXPECT_TRUE(fails_with(once(five), errc::misconfigured));
  counting_semaphore nine{a, "seats", 9};
  EXPECT_TRUE(is_ok(once(nine))) << "all that is known is that 8 were free";
}

TEST_F(layouts, redisson_plain_semaphore_leaves_text_of_others_alone) {
  redis("SET", "orders", "a-lock-of-another-program");
  const auto a = open("redisson&semaphore=plain");
  counting_semaphore permits{a, "orders", 3};
  EXPECT_TRUE(fails_with(permits.acquire_permits(1, {.wait = 0s}), errc::misconfigured));
  EXPECT_EQ(redis("GET", "orders"), "a-lock-of-another-program");
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

// ---- latches

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

// A number of Java's may be a latch, a semaphore or a plain number: nothing tells.
TEST_F(layouts, redisson_latch_of_java_is_listed_once_a_client_of_ours_has_looked_at_it) {
  EXPECT_TRUE(fails_with(open("redisson").latches(), errc::unsupported)) << "without a prefix";
  const auto a = open("redisson&prefix=app:");
  ASSERT_EQ(redis("SET", "app:java", "2"), "OK");
  ASSERT_EQ(redis("SET", "app:permits", "5"), "OK");
  latch ours{a, "gate", 3};
  auto listed = a.latches().value();
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0].name, "gate");
  EXPECT_EQ(redis("EXISTS", "{app:java}:holdfast_count"), "0") << "listing changes nothing";

  EXPECT_EQ((latch{a, "java"}.value().value()), 2);
  listed = a.latches().value();
  ASSERT_EQ(listed.size(), 2U);
  EXPECT_EQ(listed[1].name, "java");
  EXPECT_EQ(listed[1].left, 2);
  EXPECT_EQ(listed[1].forgotten_in, no_expiry) << "Java's have none";

  ASSERT_EQ(redis("DEL", "app:java"), "1") << "as Java does at zero";
  EXPECT_EQ(a.latches("java").value().at(0).left, 0);
  ASSERT_EQ(redis("HSET", "app:java", "owner", "1"), "1");
  EXPECT_TRUE(a.latches("java").value().empty()) << "it is a lock now";
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

// The layout of Redisson: semaphores and latches that Java programs share with us. Java is played by raw commands.
#include "layouts.hpp"

#include <vector>

namespace holdfast::testing {
namespace {

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

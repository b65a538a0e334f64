// The layout of Redisson: locks that Java programs use together with us. Java is played by raw commands.
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

}  // namespace
}  // namespace holdfast::testing

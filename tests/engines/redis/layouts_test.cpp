// The layouts that Redis locks share with programs of others: what we write is what they expect, what they write
// keeps us out, and what is theirs we do not touch. The others are played by raw commands. Here: one key per lock.
#include "layouts.hpp"

#include <array>
#include <vector>

namespace holdfast::testing {
namespace {

// Without a prefix every key of the server has the name of a lock.
TEST_F(layouts, break_of_what_is_no_lock_changes_nothing) {
  for (const auto* layout : {"setnx", "setnx-expire-lua", "getset", "redisson"}) {
    redis("FLUSHALL");
    redis("HSET", "user:42", "name", "Ada");
    redis("LPUSH", "jobs", "first");
    redis("SET", "holdfast-token", "7");
    const auto a = open(layout);
    EXPECT_TRUE(fails_with(a.revoke("user:42"), errc::misconfigured)) << layout;
    EXPECT_FALSE(a.revoke("jobs").value_or(0) > 0) << layout;
    EXPECT_TRUE(fails_with(a.revoke("holdfast-token"), errc::misconfigured)) << layout;
    EXPECT_EQ(redis("HGET", "user:42", "name"), "Ada") << layout;
    EXPECT_EQ(redis("LLEN", "jobs"), "1") << layout;
    EXPECT_EQ(redis("GET", "holdfast-token"), "7") << layout;
  }
}

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
  EXPECT_EQ(redis("GET", "orders"),
            fmt::format("{}:{}", to_string(held->owner()), held->token().value));
  const auto left = redis_number({"PTTL", "orders"});
  EXPECT_GT(left, 8'000);
  EXPECT_LE(left, 10'000);
  EXPECT_GT(held->token().value, 1'600'000'000'000'000U) << "the server's microseconds";
  EXPECT_EQ(redis("SET", "orders", "another", "NX", "PX", "1000"), "(nil)")
      << "others are kept out";
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_EQ(redis("KEYS", "*"), "[holdfast-token]") << "nothing else is left";
  EXPECT_GT(redis_number({"PTTL", "holdfast-token"}), 0) << "for a minute";
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
  renewal asked;
  asked.held = &got.granted;
  ASSERT_TRUE(is_ok(a.verbs->renew({&asked, 1}, {})));
  EXPECT_EQ(asked.answer, renewal::verdict::lost);
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
  EXPECT_EQ(again.granted.token, first.granted.token);
  const auto settled = a.verbs->settle(ask, {}).value();
  ASSERT_EQ(settled.what, entered::kind::granted);
  EXPECT_EQ(settled.granted.token, first.granted.token);
  auto other = b.ask("orders");
  const auto waits = b.verbs->enter(other, {}).value();
  ASSERT_EQ(waits.what, entered::kind::waiting);
  EXPECT_LE(waits.waiting.recheck_at, std::chrono::steady_clock::now() + 51ms);
  other.wait = false;
  EXPECT_EQ(b.verbs->enter(other, {}).value().what, entered::kind::busy);
  EXPECT_EQ(
      redis("EXISTS", "orders", "holdfast-token", "orders:holdfast-over:" + to_string(ask.owner)),
      "3");
  EXPECT_EQ(redis("DBSIZE"), "3") << "a waiter leaves nothing";
}

// Some servers keep their clock for some microseconds: as if it stood still here.
TEST_F(layouts, setnx_tokens_rise_while_the_clock_stands_still) {
  for (const auto* layout : {"setnx", "setnx-expire-lua", "getset"}) {
    auto a = raw(layout);
    redis("SET", "holdfast-token", "9000000000000000");
    fencing_token last{9'000'000'000'000'000};
    for (const auto* name : {"orders", "stock", "orders"}) {
      const auto won = a.verbs->enter(a.ask(name), {}).value();
      ASSERT_EQ(won.what, entered::kind::granted);
      EXPECT_EQ(won.granted.token.value, last.value + 1) << layout;
      last = won.granted.token;
      ASSERT_TRUE(is_ok(a.verbs->release(won.granted, {})));
    }
  }
}

TEST_F(layouts, setnx_lists_no_keys_of_our_own) {
  auto a = raw("setnx&prefix=app:");
  const auto ask = a.ask("orders");
  ASSERT_TRUE(is_ok(a.verbs->settle(a.ask("stock"), {})));
  ASSERT_TRUE(is_ok(a.verbs->enter(ask, {})));
  ASSERT_EQ(redis("DBSIZE"), "3");
  const auto all = a.verbs->list("", 10, {}).value();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].name, "orders");
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
  promised<session_proof> done;
  const call limits;
  a.verbs->start_renew(batch, limits, done);
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
  mutex plain{a, "one"}, starred{a, "t*o"};
  auto first = plain.acquire(), second = starred.acquire();
  ASSERT_EQ(redis("SET", "app:theirs", "x y\n", "PX", "60000"), "OK");
  ASSERT_EQ(redis("SET", "elsewhere", "x"), "OK");
  ASSERT_EQ(redis("HSET", "app:hash", "a", "1"), "1");
  EXPECT_TRUE(redis("GET", "app:one").starts_with(to_string(first->owner())));
  const auto all = a.list().value();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].name, "one");
  EXPECT_EQ(all[0].holders.at(0).owner, first->owner());
  EXPECT_GT(all[0].holders.at(0).expires_in, 5s);
  EXPECT_EQ(all[1].name, "t*o");
  EXPECT_EQ(all[2].name, "theirs");
  EXPECT_EQ(all[2].holders.at(0).owner_text, "\"x y\\u{a}\"");
  EXPECT_EQ(all[2].holders.at(0).label, "") << "an owner is no label, and no leader's value";
  EXPECT_EQ(a.list("t*").value().size(), 1U) << "a star is a star";
  EXPECT_EQ(a.revoke("one").value(), 1U);
  EXPECT_EQ(redis("EXISTS", "app:one"), "0");
  EXPECT_TRUE(fails_with(first->renew(), errc::lost));
}

// ---- one name, in every layout

TEST_F(layouts, one_name_is_shown_and_broken_without_a_prefix) {
  for (const auto* layout : {"setnx", "setnx-expire-lua", "getset", "redisson"}) {
    redis("FLUSHALL");
    const auto a = open(layout);
    EXPECT_TRUE(a.inspect("orders").value().holders.empty()) << layout;
    mutex lock{a, "orders"};
    auto held = lock.acquire({.ttl = 10s});
    ASSERT_TRUE(is_ok(held));
    ASSERT_TRUE(is_ok(held->renew()));
    const auto seen = a.inspect("orders").value();
    ASSERT_EQ(seen.holders.size(), 1U) << layout;
    EXPECT_EQ(seen.holders[0].owner, held->owner()) << layout;
    EXPECT_EQ(seen.holders[0].token, held->token()) << layout;
    EXPECT_EQ(seen.holders[0].age, unknown_time) << layout;
    EXPECT_GT(seen.holders[0].expires_in, 5s) << layout;
    EXPECT_LE(seen.holders[0].expires_in, 10s) << layout;
    EXPECT_EQ(a.revoke("orders").value(), 1U) << layout;
    EXPECT_TRUE(fails_with(held->renew(), errc::lost)) << layout;
    const auto all = a.list();
    ASSERT_TRUE(fails_with(all, errc::unsupported)) << layout;
    EXPECT_NE(all.error().message().find("?prefix="), std::string::npos) << all.error().message();
  }
}

TEST_F(layouts, elections_need_no_prefix) {
  for (const auto* layout : {"setnx", "setnx-expire-lua", "getset", "redisson"}) {
    const auto a = open(layout), b = open(layout);
    election first{a, "boss", "node-1"}, second{a, "boss"}, citizen{b, "boss"};
    EXPECT_FALSE(citizen.leader().value()) << layout;
    auto term = first.campaign();
    ASSERT_TRUE(is_ok(term)) << layout;
    const auto seen = citizen.observe({}, patience);
    ASSERT_TRUE(is_ok(seen)) << layout;
    ASSERT_TRUE(*seen) << layout;
    EXPECT_EQ((*seen)->term, term->token()) << layout;
    EXPECT_EQ((*seen)->owner, term->owner()) << layout;
    EXPECT_EQ((*seen)->value, "") << layout << " has no place for it";
    auto change =
        std::async(std::launch::async, [&] { return citizen.observe((*seen)->term, patience); });
    EXPECT_EQ(change.wait_for(50ms), std::future_status::timeout) << layout;
    ASSERT_TRUE(is_ok(term->release()));
    auto next = second.campaign();
    ASSERT_TRUE(is_ok(next));
    ASSERT_TRUE(is_ok(change.get())) << layout;
    EXPECT_EQ(citizen.leader().value().value().term, next->token()) << layout;
    EXPECT_GT(next->token(), term->token()) << layout;
    ASSERT_TRUE(is_ok(next->release()));
  }
}

// redsync, redis-py and the like.
TEST_F(layouts, a_leader_of_another_make_has_no_term) {
  const auto a = open("setnx");
  const election boss{a, "boss"};
  ASSERT_EQ(redis("SET", "boss", "c3RyYW5nZXI=", "PX", "60000"), "OK");
  const auto leads = boss.leader().value();
  ASSERT_TRUE(leads);
  EXPECT_EQ(leads->term.value, 0U);
  EXPECT_EQ(leads->value, "");
}

TEST_F(layouts, a_key_without_a_ttl_never_expires) {
  const auto a = open("setnx");
  ASSERT_EQ(redis("SET", "orders", "c3RyYW5nZXI="), "OK");
  const auto seen = a.inspect("orders").value();
  ASSERT_EQ(seen.holders.size(), 1U);
  EXPECT_EQ(seen.holders[0].owner_text, "c3RyYW5nZXI=");
  EXPECT_EQ(seen.holders[0].expires_in, no_expiry);
  ASSERT_EQ(redis("PEXPIRE", "orders", "20000000000000"), "1") << "longer than nanoseconds can say";
  EXPECT_EQ(a.inspect("orders").value().holders.at(0).expires_in, no_expiry);
}

// ---- setnx-expire-lua

TEST_F(layouts, setnx_expire_lua_counts_whole_seconds) {
  const auto a = open("setnx-expire-lua");
  EXPECT_EQ(a.capabilities().min_ttl, 1s);
  mutex lock{a, "orders"};
  auto held = lock.acquire({.ttl = 1500ms});
  ASSERT_TRUE(is_ok(held));
  EXPECT_EQ(redis("GET", "orders"),
            fmt::format("{}:{}", to_string(held->owner()), held->token().value));
  EXPECT_GT(redis_number({"PTTL", "orders"}), 1'500) << "rounded up";
  EXPECT_LE(redis_number({"PTTL", "orders"}), 2'000);
  EXPECT_LE(held->valid_until(), std::chrono::steady_clock::now() + 1500ms) << "but not believed";
  EXPECT_EQ(redis("SETNX", "orders", "other"), "0");
  ASSERT_TRUE(is_ok(held->release()));
  ASSERT_EQ(redis("SETNX", "orders", "other"), "1");
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::busy));
}

// ---- getset
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
  EXPECT_EQ(redis("KEYS", "*"), "[holdfast-token]");
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

}  // namespace
}  // namespace holdfast::testing

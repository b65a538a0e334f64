// What an operator sees and can do.
#include "conformance/conformance.hpp"

#include <unistd.h>

namespace holdfast::testing {
namespace {

class operators : public conformance {
 protected:
  void SetUp() override {
    conformance::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    NEEDS(listing);
  }
};
FOR_EVERY_ENGINE(operators);

TEST_P(operators, revoke_announces_loss_at_once_and_raises_the_fence) {
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  ASSERT_TRUE(is_ok(held));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(b.revoke(name()).value(), 1U);
  EXPECT_TRUE(wait_until([&] { return held->lost().stop_requested(); }, 2s));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s) << "long before the ttl of 10s";
  EXPECT_FALSE(held->valid());
  EXPECT_TRUE(fails_with(held->release(), errc::lost));
  auto next = theirs.try_acquire();
  ASSERT_TRUE(is_ok(next));
  EXPECT_GT(next->token(), held->token());
  EXPECT_EQ(b.revoke(name("never-used")).value(), 0U);
  EXPECT_TRUE(fails_with(b.revoke("a//b"), errc::misconfigured));
}

TEST_P(operators, revoke_serves_the_waiters) {
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  ASSERT_EQ(open().revoke(name()).value(), 1U);
  ASSERT_EQ(waiting.wait_for(patience), std::future_status::ready);
  auto next = waiting.get();
  ASSERT_TRUE(is_ok(next));
  EXPECT_GT(next->token(), held->token());
}

TEST_P(operators, inspect_shows_who_holds_and_who_waits_in_order) {
  const auto a = open(), b = open(), c = open();
  mutex ours{a, name()}, second{b, name()}, third{c, name()};
  auto held = ours.acquire({.label = "nightly r\xc3\xa9port"});
  auto waits = acquire_later(second, {.label = "second"});
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  auto waits_too = acquire_later(third, {.label = "third"});
  ASSERT_TRUE(wait_for_waiters(name(), 2));

  const auto seen = b.inspect(name());
  ASSERT_TRUE(is_ok(seen));
  EXPECT_EQ(seen->name, name());
  EXPECT_EQ(seen->capacity, rw_capacity);
  EXPECT_NE(seen->version, 0U);
  ASSERT_EQ(seen->holders.size(), 1U);
  const auto& holder = seen->holders[0];
  expect_owner(holder.owner, *held);
  EXPECT_EQ(a.inspect(name()).value().holders.at(0).owner, held->owner());
  EXPECT_EQ(holder.token, held->token());
  EXPECT_EQ(holder.label, "nightly r\xc3\xa9port");
  EXPECT_EQ(holder.pid, ::getpid());
  EXPECT_FALSE(holder.host.empty());
  EXPECT_EQ(holder.mode, lock_mode::exclusive);
  EXPECT_GE(holder.age, 0s);
  EXPECT_GT(holder.expires_in, 0s);
  EXPECT_LE(holder.expires_in, 10s + caps().expiry_slack);
  ASSERT_EQ(seen->waiters.size(), 2U);
  EXPECT_EQ(seen->waiters[0].label, "second");
  EXPECT_EQ(seen->waiters[1].label, "third");
  EXPECT_EQ(seen->waiters[0].token.value, 0U);

  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(waits.get()));
  EXPECT_TRUE(is_ok(waits_too.get()));
}

TEST_P(operators, inspect_of_an_unused_name_is_empty) {
  const auto seen = open().inspect(name("unused"));
  ASSERT_TRUE(is_ok(seen));
  EXPECT_EQ(seen->name, name("unused"));
  EXPECT_TRUE(seen->holders.empty());
  EXPECT_TRUE(seen->waiters.empty());
}

TEST_P(operators, list_is_sorted_and_knows_only_names_in_use) {
  const auto a = open(), b = open();
  std::vector<lease> held;
  for (const auto* word : {"b", "a/2", "a/1", "c"}) {
    held.push_back(std::move(mutex{a, name(word)}.acquire().value()));
  }
  ASSERT_TRUE(is_ok(held.back().release()));
  const auto all = b.list(prefix()).value();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].name, name("a/1"));
  EXPECT_EQ(all[1].name, name("a/2"));
  EXPECT_EQ(all[2].name, name("b"));
  EXPECT_EQ(b.list(name("a/")).value().size(), 2U);
  EXPECT_EQ(b.list(prefix(), 1).value().size(), 1U);
  EXPECT_TRUE(b.list(name("nothing")).value().empty());
}

TEST_P(operators, version_changes_with_the_holders) {
  const auto a = open();
  mutex lock{a, name()};
  auto held = lock.acquire();
  const auto first = a.inspect(name()).value().version;
  EXPECT_EQ(a.inspect(name()).value().version, first);
  ASSERT_TRUE(is_ok(held->release()));
  held = lock.acquire();
  EXPECT_NE(a.inspect(name()).value().version, first);
}

}  // namespace
}  // namespace holdfast::testing

// What breaks here: a process that holds locks for others is killed, or restarted, and its successor goes on with them.
// What must hold: until their ttl is over no other client gets in; the successor has the same grant with the same
// token; without a successor the ttl frees the lock (L1); and what was not meant to outlive its process does not.
#include "conformance/conformance.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

namespace holdfast::testing {
namespace {

class successors : public conformance {
 protected:
  static owner_id owner_in(const std::string& answer) {
    owner_id out;
    std::istringstream{answer} >> out.client[0] >> out.client[1] >> out.sequence;
    return out;
  }
  client successor(const owner_id& of) const { return open({.successor_of = of.client}); }
  // One that would have to wait does not get in, and keeps nothing when it gives up.
  ::testing::AssertionResult is_kept_from(const std::string& lock) const {
    return fails_with(take_all(lock), errc::busy);
  }
  // All that it has, at once or not at all.
  result<lease> take_all(const std::string& lock) const {
    if (lock == name("permit"))
      return counting_semaphore{open(), lock, 2}.acquire_permits(2, {.wait = 0s});
    return mutex{open(), lock}.try_acquire();
  }
};
FOR_EVERY_ENGINE(successors);

fencing_token granted_token(const std::string& answer) {
  return answer.starts_with("granted ") ? fencing_token{std::stoull(answer.substr(8))}
                                        : fencing_token{};
}

TEST_P(successors, what_a_dead_client_left_is_kept_and_adopted) {
  NEEDS(cross_process);
  NEEDS(outlives_client);
  std::vector<std::string> ways{"acquire"};
  if (caps().shared) ways.emplace_back("share");
  if (caps().permits) ways.emplace_back("permit");
  child dies{url()};
  struct left {
    std::string lock;
    owner_id owner;
    fencing_token token;
  };
  std::vector<left> all;
  for (const auto& how : ways) {
    const auto lock = name(how);
    const auto answer = dies.ask(how + " " + lock + " 60s lasts");
    ASSERT_GT(granted_token(answer).value, 0U) << answer;
    all.push_back({lock, owner_in(dies.ask("owner " + lock)), granted_token(answer)});
  }
  dies.kill();
  for (const auto& one : all) EXPECT_TRUE(is_kept_from(one.lock)) << one.lock;
  std::vector<lease> adopted;
  {
    const auto next = successor(all.front().owner);
    for (const auto& one : all) {
      SCOPED_TRACE(one.lock);
      auto lease = next.adopt(one.lock, one.owner);
      ASSERT_TRUE(is_ok(lease));
      EXPECT_EQ(lease->token(), one.token);
      EXPECT_EQ(lease->owner(), one.owner);
      EXPECT_TRUE(lease->valid_for(30s));
      EXPECT_TRUE(is_ok(lease->renew()));
      EXPECT_TRUE(is_kept_from(one.lock));
      adopted.push_back(std::move(*lease));
    }
  }
  for (auto& one : adopted) {
    const auto lock = one.name();
    const auto token = one.token();
    EXPECT_TRUE(is_ok(one.release()));
    EXPECT_TRUE(no_trace_of(lock));
    auto next = take_all(lock);
    ASSERT_TRUE(is_ok(next));
    EXPECT_GT(next->token(), token);
  }
}

TEST_P(successors, without_a_successor_the_ttl_ends_it_and_waiters_are_served) {
  NEEDS(cross_process);
  NEEDS(outlives_client);
  NEEDS(listing);
  child dies{url()};
  const auto answer = dies.ask("acquire " + name() + " 2s lasts");
  ASSERT_GT(granted_token(answer).value, 0U) << answer;
  const auto owner = owner_in(dies.ask("owner " + name()));
  mutex ours{open(), name()}, theirs{open(), name()};
  auto first = later([&] { return ours.acquire({.wait = patience}); });
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  auto second = later([&] { return theirs.acquire({.wait = patience}); });
  ASSERT_TRUE(wait_for_waiters(name(), 2));
  const auto killed = std::chrono::steady_clock::now();
  dies.kill();
  auto held = first.get();
  ASSERT_TRUE(is_ok(held));
  EXPECT_GT(held->token(), granted_token(answer));
  // It was renewed at the latest when a third of its ttl was over.
  EXPECT_GT(std::chrono::steady_clock::now() - killed, 500ms) << "that was its death";
  EXPECT_TRUE(fails_with(successor(owner).adopt(name(), owner), errc::not_held));
  EXPECT_TRUE(held->valid()) << "what came too late touched nothing";
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(second.get()));
}

TEST_P(successors, waiters_stay_behind_what_was_adopted) {
  NEEDS(outlives_client);
  NEEDS(listing);
  std::optional<client> dies{open()};
  auto first = mutex{*dies, name()}.acquire({.ttl = 60s, .outlives_client = true});
  ASSERT_TRUE(is_ok(first));
  mutex ours{open(), name()};
  auto waiting = acquire_later(ours);
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  const auto token = first->token();
  const auto owner = first->leave_behind();
  ASSERT_TRUE(is_ok(owner));
  EXPECT_FALSE(first->valid());
  EXPECT_TRUE(fails_with(first->release(), errc::not_held));
  dies.reset();
  EXPECT_EQ(holders(name()), 1U) << "its client has closed, and it is still there";
  const auto next = successor(*owner);
  auto adopted = next.adopt(name(), *owner);
  ASSERT_TRUE(is_ok(adopted));
  EXPECT_EQ(adopted->token(), token);
  EXPECT_FALSE(is_ready(waiting));
  EXPECT_TRUE(is_ok(adopted->release()));
  auto held = waiting.get();
  ASSERT_TRUE(is_ok(held));
  EXPECT_GT(held->token(), token);
}

// The successor's own acquires are new owners: none of them is taken for one of the predecessor's.
TEST_P(successors, successor_acquires_and_is_succeeded_itself) {
  NEEDS(outlives_client);
  std::optional<client> current{open()};
  auto held = mutex{*current, name()}.acquire({.ttl = 60s, .outlives_client = true});
  ASSERT_TRUE(is_ok(held));
  const auto token = held->token();
  for (int generation = 0; generation < 3; ++generation) {
    SCOPED_TRACE(generation);
    const auto lock = name("own-" + std::to_string(generation));
    auto own = mutex{*current, lock}.acquire({.ttl = 60s, .outlives_client = true});
    ASSERT_TRUE(is_ok(own));
    const auto first = held->leave_behind(), second = own->leave_behind();
    ASSERT_TRUE(first && second);
    EXPECT_NE(first->sequence, second->sequence);
    current.reset();
    current.emplace(successor(*first));
    auto adopted = current->adopt(name(), *first), other = current->adopt(lock, *second);
    ASSERT_TRUE(is_ok(adopted));
    ASSERT_TRUE(is_ok(other));
    EXPECT_EQ(adopted->token(), token);
    EXPECT_TRUE(is_ok(other->release()));
    held = std::move(adopted);
  }
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(no_trace_of(name()));
}

TEST_P(successors, upgraded_and_downgraded_leases_are_adopted_as_they_are) {
  NEEDS(outlives_client);
  NEEDS(upgrade);
  const acquire_options options{.ttl = 60s, .outlives_client = true};
  const auto upgraded = [&] {
    shared_mutex lock{open(), name()};
    auto held = lock.acquire_upgradeable(options).value();
    EXPECT_TRUE(is_ok(lock.upgrade(held, options)));
    return held.leave_behind().value();
  }();
  EXPECT_TRUE(fails_with(shared_mutex{open(), name()}.acquire_shared({.wait = 0s}), errc::busy));
  const auto shrunk = [&] {
    const auto next = successor(upgraded);
    auto held = next.adopt(name(), upgraded).value();
    EXPECT_EQ(held.mode(), lock_mode::exclusive);
    EXPECT_TRUE(is_ok(shared_mutex{next, name()}.downgrade(held, lock_mode::shared)));
    EXPECT_TRUE(is_ok(shared_mutex{open(), name()}.acquire_shared({.wait = 0s})));
    EXPECT_TRUE(fails_with(shared_mutex{open(), name()}.acquire({.wait = 0s}), errc::busy));
    return held.leave_behind().value();
  }();
  {
    const auto last = successor(shrunk);
    auto held = last.adopt(name(), shrunk);
    ASSERT_TRUE(is_ok(held));
    EXPECT_EQ(held->mode(), lock_mode::shared);
    EXPECT_TRUE(is_ok(held->release()));
  }
  EXPECT_TRUE(no_trace_of(name()));
}

TEST_P(successors, what_lives_or_is_another_s_is_not_adopted) {
  NEEDS(outlives_client);
  const auto lives = open();
  auto held = mutex{lives, name()}.acquire({.ttl = 60s, .outlives_client = true});
  auto plain = mutex{lives, name("plain")}.acquire({.ttl = 60s});
  ASSERT_TRUE(held && plain);
  EXPECT_TRUE(fails_with(plain->leave_behind(), errc::unsupported));
  EXPECT_TRUE(plain->valid()) << "it stayed what it was";
  {
    const auto second = successor(held->owner());
    EXPECT_TRUE(fails_with(second.adopt(name(), held->owner()), errc::not_held)) << "it lives";
    EXPECT_TRUE(fails_with(second.adopt(name("plain"), plain->owner()), errc::not_held));
    auto nobody = held->owner();
    nobody.sequence += 1'000'000;
    EXPECT_TRUE(fails_with(second.adopt(name(), nobody), errc::not_held));
    EXPECT_TRUE(fails_with(second.adopt("a//b", held->owner()), errc::misconfigured));
  }
  EXPECT_TRUE(fails_with(open().adopt(name(), held->owner()), errc::misconfigured));
  EXPECT_TRUE(held->valid());
  EXPECT_TRUE(is_ok(held->renew()));
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(fails_with(held->leave_behind(), errc::not_held));
}

// Two leases on one grant would be two holders, as soon as the first of them is released.
TEST_P(successors, grant_is_adopted_once) {
  NEEDS(outlives_client);
  const auto owner = [&] {
    const auto dies = open();
    auto held = mutex{dies, name()}.acquire({.ttl = 60s, .outlives_client = true});
    return held.value().leave_behind().value();
  }();
  const auto next = successor(owner);
  std::array<std::optional<result<lease>>, 4> all;
  {
    std::vector<std::jthread> threads;
    for (auto& one : all) threads.emplace_back([&] { one.emplace(next.adopt(name(), owner)); });
  }
  const auto is_first = [](const auto& one) { return one->has_value(); };
  EXPECT_EQ(std::ranges::count_if(all, is_first), 1);
  for (auto& one : all) {
    if (is_first(one)) continue;
    const auto code = one->error().code();  // while the first one is under way, or afterwards
    EXPECT_TRUE(code == errc::unavailable || code == errc::misconfigured) << one->error().message();
  }
  auto& held = **std::ranges::find_if(all, is_first);
  EXPECT_TRUE(held->valid());
  EXPECT_TRUE(fails_with(next.adopt(name(), owner), errc::misconfigured));
  const auto left = held->leave_behind();
  ASSERT_TRUE(is_ok(left));
  auto again = next.adopt(name(), *left);
  ASSERT_TRUE(is_ok(again)) << "left behind, it may be adopted anew";
  EXPECT_TRUE(is_ok(again->release()));

  auto own = mutex{next, name("own")}.acquire({.ttl = 60s});
  ASSERT_TRUE(is_ok(own));
  EXPECT_TRUE(fails_with(next.adopt(name("own"), own->owner()), errc::misconfigured));
  EXPECT_TRUE(own->valid());
  EXPECT_TRUE(is_ok(own->release()));
}

// The outer lease would be over without a word.
TEST_P(successors, lease_that_was_entered_again_is_not_left_behind) {
  NEEDS(outlives_client);
  const auto store = open();
  recursive_mutex lock{store, name()};
  auto outer = lock.acquire({.outlives_client = true});
  ASSERT_TRUE(is_ok(outer));
  {
    auto inner = lock.acquire();
    ASSERT_TRUE(is_ok(inner));
    EXPECT_TRUE(fails_with(inner->leave_behind(), errc::unsupported));
    EXPECT_TRUE(fails_with(outer->leave_behind(), errc::unsupported));
    EXPECT_TRUE(inner->valid());
  }
  EXPECT_TRUE(outer->valid());
  EXPECT_FALSE(outer->lost().stop_requested());
  EXPECT_TRUE(is_ok(outer->leave_behind()));
  open().revoke(name()).value();
}

// Threads of one process hand a lock to each other, but not one that outlives them.
TEST_P(successors, lasting_lease_is_not_handed_to_one_that_does_not_last) {
  NEEDS(outlives_client);
  const auto store = open();
  mutex lock{store, name()};
  for (const bool first_lasts : {true, false}) {
    auto held = lock.acquire({.outlives_client = first_lasts});
    ASSERT_TRUE(is_ok(held));
    auto waiting =
        later([&] { return lock.acquire({.wait = patience, .outlives_client = !first_lasts}); });
    ASSERT_TRUE(wait_until([&] { return store.metrics().acquired > 0; }));
    const auto token = held->token();
    EXPECT_TRUE(is_ok(held->release()));
    auto next = waiting.get();
    ASSERT_TRUE(is_ok(next));
    EXPECT_GT(next->token(), token) << "a grant of its own";
    EXPECT_EQ(next->leave_behind().has_value(), !first_lasts);
    if (next->valid()) {
      EXPECT_TRUE(is_ok(next->release()));
    }
    if (!first_lasts) open().revoke(name()).value();
  }
}

TEST_P(successors, where_nothing_outlives_its_client_it_is_refused) {
  if (caps().outlives_client) GTEST_SKIP() << GetParam().name << " has it";
  const auto store = open();
  mutex lock{store, name()};
  EXPECT_TRUE(fails_with(lock.acquire({.outlives_client = true}), errc::unsupported));
  const auto successor =
      client::try_open(url(), {.successor_of = std::array<std::uint64_t, 2>{1, 2}});
  EXPECT_TRUE(fails_with(successor, errc::unsupported));
  auto held = lock.acquire();
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(fails_with(store.adopt(name(), held->owner()), errc::unsupported));
  EXPECT_TRUE(fails_with(held->leave_behind(), errc::unsupported));
  EXPECT_TRUE(is_ok(held->release()));
}

}  // namespace
}  // namespace holdfast::testing

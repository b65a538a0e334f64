// What breaks here: processes, by SIGKILL, SIGSTOP and fork. What must hold: S2 (a paused holder
// sees the truth at once), L1 (a dead one frees its lock within the bound), and a forked child owns
// nothing.
#include "conformance/conformance.hpp"

#include <holdfast/give_back.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

namespace holdfast::testing {
namespace {

class processes : public conformance {
 protected:
  // All that the lock has.
  result<lease> take(const std::string& how, const std::string& lock, nanoseconds wait) const {
    if (how == "permit")
      return counting_semaphore{open(), lock, 2}.acquire_permits(2, {.wait = wait});
    if (how == "share") return shared_mutex{open(), lock}.acquire({.wait = wait});
    return mutex{open(), lock}.acquire({.wait = wait});
  }
};
FOR_EVERY_ENGINE(processes);

bool is_granted(const std::string& answer) { return answer.starts_with("granted "); }

fencing_token token_in(const std::string& answer) { return {std::stoull(answer.substr(8))}; }

TEST_P(processes, another_process_is_kept_out_and_comes_next) {
  NEEDS(cross_process);
  NEEDS(listing);
  child other{url()};
  const auto answer = other.ask("acquire " + name() + " 10s");
  ASSERT_TRUE(is_granted(answer)) << answer;
  mutex ours{open(), name()};
  EXPECT_TRUE(fails_with(ours.try_acquire(), errc::busy));
  EXPECT_EQ(open().inspect(name()).value().holders.at(0).pid, other.pid());
  auto waiting = acquire_later(ours);
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  EXPECT_EQ(other.ask("release " + name()), "ok");
  ASSERT_EQ(waiting.wait_for(patience), std::future_status::ready);
  auto held = waiting.get();
  ASSERT_TRUE(is_ok(held));
  EXPECT_GT(held->token(), token_in(answer));

  other.tell("acquire " + name() + " 10s");
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  ASSERT_TRUE(is_ok(held->release()));
  const auto next = other.hear();
  ASSERT_TRUE(next);
  EXPECT_GT(token_in(*next), held->token());
}

TEST_P(processes, killed_holder_frees_the_lock_within_the_bound) {
  NEEDS(cross_process);
  if (caps().dead_holder_bound == nanoseconds::zero()) NEEDS_SHORT_TTL();
  const auto bound =
      caps().dead_holder_bound > nanoseconds::zero() ? caps().dead_holder_bound : short_ttl();
  child dies{url()};
  const auto answer =
      dies.ask("acquire " + name() +
               (caps().dead_holder_bound > 0s ? " 60s" : " " + format_duration(short_ttl())));
  ASSERT_TRUE(is_granted(answer)) << answer;
  mutex ours{open(), name()};
  ASSERT_TRUE(fails_with(ours.try_acquire(), errc::busy));
  dies.kill();
  const auto begin = std::chrono::steady_clock::now();
  const auto held = ours.acquire({.wait = bound + 2s});
  ASSERT_TRUE(is_ok(held));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, bound + 500ms);
  EXPECT_GT(held->token(), token_in(answer));
}

owner_id owner_in(const std::string& answer) {
  owner_id out;
  std::istringstream{answer} >> out.client[0] >> out.client[1] >> out.sequence;
  return out;
}

// What a supervisor relies on: an engine opened with a dead client's id may give back what that client held. Where the
// store sees the death by itself there may be nothing left to give back.
TEST_P(processes, what_a_dead_process_held_can_be_given_back_at_once) {
  NEEDS(cross_process);
  std::vector<std::string> ways{"acquire"};
  if (caps().shared) ways.emplace_back("share");
  if (caps().permits) ways.emplace_back("permit");
  const auto bound = caps().dead_holder_bound;
  for (const auto& how : ways) {
    SCOPED_TRACE(how);
    const auto lock = name(how);
    child dies{url()}, lives{url()};
    ASSERT_TRUE(is_granted(dies.ask(how + " " + lock + " 60s")));
    ASSERT_TRUE(is_granted(lives.ask("acquire " + name("other") + " 60s")));
    const auto owner = owner_in(dies.ask("owner " + lock));
    dies.kill();
    const auto back = give_back(url(), lock, owner, 5s);
    EXPECT_TRUE(back || fails_with(back, errc::not_held)) << back.error().message();
    // Before the store would have found out by itself.
    EXPECT_TRUE(is_ok(take(how, lock, bound > 0s ? bound / 2 : patience)));
    EXPECT_TRUE(fails_with(give_back(url(), lock, owner, 5s), errc::not_held));
    EXPECT_EQ(lives.ask("release " + name("other")), "ok") << "a living process was touched";
  }
}

TEST_P(processes, waiter_is_woken_when_the_holder_is_killed) {
  NEEDS(cross_process);
  NEEDS(listing);
  if (caps().dead_holder_bound == nanoseconds::zero()) {
    GTEST_SKIP() << GetParam().name << " waits for the ttl";
  }
  child dies{url()};
  ASSERT_TRUE(is_granted(dies.ask("acquire " + name() + " 60s")));
  mutex ours{open(), name()};
  auto waiting = later([&] { return ours.acquire({.wait = patience_for_the_dead()}); });
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  dies.kill();
  ASSERT_EQ(waiting.wait_for(caps().dead_holder_bound + 2s), std::future_status::ready);
  EXPECT_TRUE(is_ok(waiting.get()));
}

TEST_P(processes, paused_holder_sees_loss_at_once) {
  NEEDS(cross_process);
  NEEDS_SHORT_TTL();
  child paused{url()};
  const auto answer = paused.ask("acquire " + name() + " " + format_duration(short_ttl()));
  ASSERT_TRUE(is_granted(answer)) << answer;
  paused.pause();
  mutex ours{open(), name()};
  const auto held = ours.acquire({.wait = short_ttl() + caps().expiry_slack + 3s});
  ASSERT_TRUE(is_ok(held));
  EXPECT_GT(held->token(), token_in(answer));
  paused.tell("valid " + name());  // lies in the pipe: the first thing it does when it wakes
  paused.resume();
  EXPECT_EQ(paused.hear(), "false");
  EXPECT_TRUE(wait_until([&] { return paused.ask("lost " + name()) == "true"; }, 2s));
  EXPECT_EQ(paused.ask("release " + name()), "lost");
  EXPECT_TRUE(held->valid());
  mutex third{open(), name()};
  EXPECT_TRUE(fails_with(third.try_acquire(), errc::busy)) << "our lock was touched";
}

TEST_P(processes, a_short_pause_costs_nothing) {
  NEEDS(cross_process);
  child paused{url()};
  ASSERT_TRUE(is_granted(paused.ask("acquire " + name() + " 10s")));
  paused.pause();
  mutex ours{open(), name()};
  EXPECT_TRUE(fails_with(ours.acquire({.wait = 300ms}), errc::timed_out));
  paused.tell("valid " + name());
  paused.resume();
  EXPECT_EQ(paused.hear(), "true");
  EXPECT_EQ(paused.ask("release " + name()), "ok");
}

TEST_P(processes, tokens_rise_over_many_processes) {
  NEEDS(cross_process);
  fencing_token newest{};
  for (int round = 0; round < 3; ++round) {
    child other{url()};
    other.tell("acquire " + name() + " " + format_duration(2 * short_ttl()));
    const auto answer = other.hear(patience_for_the_dead()).value_or("nothing");
    ASSERT_TRUE(is_granted(answer)) << answer;
    EXPECT_GT(token_in(answer), newest);
    newest = token_in(answer);
    if (round == 1) {
      EXPECT_EQ(other.ask("release " + name()), "ok");
    }
  }
}

// In the child: everything is refused, and letting go of the parent's things changes nothing. The
// exit code says which expectation failed, as gtest's own words would be lost.
[[noreturn]] void be_a_forked_child(const client& parents, mutex& lock, lease& held) {
  if (held.valid()) ::_exit(1);
  const auto tried = lock.try_acquire();
  if (tried || tried.error().code() != errc::misconfigured) ::_exit(2);
  if (parents.list()) ::_exit(3);
  const auto released = held.release();
  if (released) ::_exit(4);
  held = lease{};
  ::_exit(0);
}

TEST_P(processes, forked_child_is_refused_and_the_parents_lock_unaffected) {
  const auto a = open(), b = open();
  mutex ours{a, name()}, theirs{b, name()};
  auto held = ours.acquire();
  ASSERT_TRUE(is_ok(held));
  const auto forked = ::fork();
  ASSERT_GE(forked, 0);
  if (forked == 0) be_a_forked_child(a, ours, *held);
  int status = 0;
  const bool ended = wait_until([&] { return ::waitpid(forked, &status, WNOHANG) == forked; });
  if (!ended) {
    ::kill(forked, SIGKILL);
    ::waitpid(forked, &status, 0);
  }
  ASSERT_TRUE(ended) << "the child hangs";
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "see be_a_forked_child";
  EXPECT_TRUE(held->valid());
  EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::busy));
  EXPECT_TRUE(is_ok(held->renew()));
  EXPECT_TRUE(is_ok(held->release()));
}

}  // namespace
}  // namespace holdfast::testing

// The file engine's own paths through the contract: the word, the entries, recycling, the session thread.
#include "engines/file/engine.hpp"

#include "support/engine_fixture.hpp"
#include "support/expect.hpp"
#include "support/temp_dir.hpp"
#include "support/wait_until.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using engines::file::make_engine;
using testing::fails_with;
using testing::is_ok;
using testing::wait_until;
using kind = entered::kind;

struct file_engine : ::testing::Test {
  testing::temp_dir folder;
  testing::fake_clock time;
  std::string url = "file:" + folder.file("store");
  testing::raw_client a{make_engine, url, time, 1};
  testing::raw_client b{make_engine, url, time, 2};

  static entered enter(testing::raw_client& who, const request& ask) {
    return who.verbs->enter(ask, {}).value();
  }
  static request reader(request ask) {
    ask.mode = lock_mode::shared;
    ask.weight = 1;
    return ask;
  }
  static request upgradeable(request ask) {
    ask.mode = lock_mode::upgradeable;
    ask.weight = upgradeable_weight;
    return ask;
  }
  static renewal::verdict renew(testing::raw_client& who, grant& held) {
    renewal one;
    one.held = &held;
    EXPECT_TRUE(is_ok(who.verbs->renew({&one, 1}, {})));
    if (one.answer == renewal::verdict::held) held.valid_from = one.valid_from;
    return one.answer;
  }
};

// ---- the word

TEST_F(file_engine, a_grant_is_believed_no_longer_than_the_word_says) {
  const auto got = enter(a, a.ask("a")).granted;
  EXPECT_LE(got.valid_from, time.now());
  EXPECT_GT(got.valid_from, time.now() - 5ms);
  const auto seen = b.verbs->inspect("a", {}).value();
  ASSERT_EQ(seen.holders.size(), 1U);
  EXPECT_EQ(time.now() + seen.holders[0].expires_in, got.valid_from + got.ttl);
}

TEST_F(file_engine, asking_again_answers_the_same_for_fast_slow_and_waiting) {
  const auto first = a.ask("a");
  const auto got = enter(a, first);
  EXPECT_EQ(enter(a, first).granted.token, got.granted.token);  // from the word, and now an entry
  const auto again = enter(a, first);
  EXPECT_EQ(again.granted.token, got.granted.token);
  const auto second = b.ask("a");
  const auto place = enter(b, second);
  EXPECT_EQ(enter(b, second).waiting.handle, place.waiting.handle);
  EXPECT_EQ(b.verbs->settle(second, {}).value().what, kind::waiting);
  EXPECT_EQ(a.verbs->settle(first, {}).value().what, kind::granted);
  EXPECT_EQ(a.verbs->settle(a.ask("a"), {}).value().what, kind::busy);
  EXPECT_TRUE(is_ok(a.verbs->release(got.granted, {})));  // the handle of the word still serves
  EXPECT_TRUE(b.verbs->await(place.waiting, {}).value().is_granted);
}

TEST_F(file_engine, owners_of_one_client_with_the_same_low_bits_are_not_confused) {
  auto first = a.ask("a");
  auto second = first;
  second.owner.sequence += 1U << 14;
  second.wait = false;
  ASSERT_EQ(enter(a, first).what, kind::granted);
  EXPECT_EQ(enter(a, second).what, kind::busy);
}

TEST_F(file_engine, an_expired_holder_is_lost_whether_or_not_somebody_came) {
  auto held = enter(a, a.ask("a")).granted;
  time.advance(9s);
  EXPECT_EQ(renew(a, held), renewal::verdict::held);
  time.advance(9s);
  EXPECT_EQ(renew(a, held), renewal::verdict::held);
  time.advance(11s);
  EXPECT_EQ(renew(a, held), renewal::verdict::lost);

  auto other = enter(a, a.ask("b")).granted;
  time.advance(11s);
  const auto next = enter(b, b.ask("b"));
  ASSERT_EQ(next.what, kind::granted);
  EXPECT_GT(next.granted.token, other.token);
  EXPECT_EQ(renew(a, other), renewal::verdict::lost);
  EXPECT_TRUE(fails_with(a.verbs->release(other, {}), errc::not_held));
  EXPECT_TRUE(is_ok(b.verbs->release(next.granted, {})));
}

TEST_F(file_engine, a_renewed_lock_is_released_with_the_old_and_the_new_grant) {
  const auto before = enter(a, a.ask("a")).granted;
  auto held = before;
  time.advance(5s);
  ASSERT_EQ(renew(a, held), renewal::verdict::held);
  EXPECT_TRUE(
      is_ok(a.verbs->release(before, {})));  // a release that was on its way during the renewal
  EXPECT_TRUE(fails_with(a.verbs->release(held, {}), errc::not_held));

  held = enter(a, a.ask("a")).granted;
  const auto place = enter(b, b.ask("a"));  // makes an entry of it
  time.advance(5s);
  ASSERT_EQ(renew(a, held), renewal::verdict::held);
  EXPECT_TRUE(a.verbs->contended(held));
  EXPECT_TRUE(is_ok(a.verbs->release(held, {})));
  EXPECT_TRUE(b.verbs->await(place.waiting, {}).value().is_granted);
}

TEST_F(file_engine, short_ttls_are_exact) {
  auto ask = a.ask("a");
  ask.ttl = 20ms;
  EXPECT_EQ(enter(a, ask).granted.valid_from, time.now());
}

// ---- changes of mode

TEST_F(file_engine, a_downgrade_that_is_asked_for_again_answers_the_same) {
  const auto all = enter(a, a.ask("a")).granted;
  const auto less = a.verbs->downgrade(all, lock_mode::shared, {}).value();
  for (const auto& held : {all, less}) {
    const auto again = a.verbs->downgrade(held, lock_mode::shared, {}).value();
    EXPECT_EQ(again.token, all.token);
    EXPECT_EQ(again.mode, lock_mode::shared);
  }
  EXPECT_EQ(enter(b, reader(b.ask("a"))).what, kind::granted);
  EXPECT_TRUE(is_ok(a.verbs->release(less, {})));
  EXPECT_TRUE(fails_with(a.verbs->downgrade(less, lock_mode::shared, {}), errc::not_held));
}

TEST_F(file_engine, an_upgrade_that_arrived_and_is_left_takes_nothing_along) {
  auto base = enter(a, upgradeable(a.ask("a"))).granted;
  const auto read = enter(b, reader(b.ask("a"))).granted;
  auto more = a.ask("a");
  more.replaces = &base;
  auto place = enter(a, more).waiting;
  place.replacing = true;
  ASSERT_TRUE(is_ok(b.verbs->release(read, {})));
  ASSERT_EQ(a.verbs->settle(more, {}).value().what, kind::granted);
  ASSERT_TRUE(is_ok(a.verbs->leave(place, {})));
  // Either it stays, or what it replaced is there again.
  const bool stays = a.verbs->settle(more, {}).value().what == kind::granted;
  EXPECT_NE(stays, renew(a, base) == renewal::verdict::held);
  EXPECT_TRUE(is_ok(a.verbs->leave(place, {})));  // safe to repeat
  auto writer = b.ask("a");
  writer.wait = false;
  EXPECT_EQ(enter(b, writer).what, kind::busy);
}

TEST_F(file_engine, a_refusal_is_certain) {
  auto few = a.ask("a");
  few.mode = lock_mode::permits;
  few.weight = 1;
  few.capacity = 3;
  ASSERT_EQ(enter(a, few).what, kind::granted);
  const auto refused = b.verbs->enter(b.ask("a"), {});
  ASSERT_TRUE(fails_with(refused, errc::misconfigured));
  EXPECT_TRUE(refused.error().is_not_done());
}

// ---- recycling

TEST_F(file_engine, an_old_memo_never_takes_another_name) {
  std::atomic<std::uint64_t> memo{0};
  auto ask = a.ask("first");
  ask.memo = &memo;
  const auto old = enter(a, ask).granted;
  ASSERT_TRUE(is_ok(a.verbs->release(old, {})));
  // So many names that every idle record is given to another one.
  for (int i = 0; i < 30'000; ++i) {
    const auto name = "name/" + std::to_string(i);
    const auto got = b.verbs->enter(b.ask(name), {});
    ASSERT_TRUE(is_ok(got));
    ASSERT_TRUE(is_ok(b.verbs->release(got->granted, {})));
  }
  ask.owner = a.next_owner();
  const auto got = enter(a, ask).granted;
  EXPECT_GT(got.token, old.token);
  const auto all = a.verbs->list("", 10, {}).value();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].name, "first");
  EXPECT_TRUE(fails_with(a.verbs->release(old, {}), errc::not_held));
}

TEST_F(file_engine, the_file_does_not_grow_with_names_that_come_and_go) {
  for (int i = 0; i < 100'000; ++i) {
    const auto got = a.verbs->enter(a.ask("order/" + std::to_string(i)), {});
    ASSERT_TRUE(is_ok(got));
    ASSERT_TRUE(is_ok(a.verbs->release(got->granted, {})));
  }
  EXPECT_LT(std::filesystem::file_size(folder.file("store")), 20U << 20);
}

// ---- modes

TEST_F(file_engine, a_name_has_one_capacity_while_in_use) {
  auto permit = b.ask("a");
  permit.mode = lock_mode::permits;
  permit.weight = 1;
  permit.capacity = 3;
  const auto held = enter(a, a.ask("a")).granted;
  EXPECT_TRUE(fails_with(b.verbs->enter(permit, {}), errc::misconfigured));
  ASSERT_TRUE(is_ok(a.verbs->release(held, {})));
  EXPECT_EQ(enter(b, permit).what, kind::granted);
}

TEST_F(file_engine, an_upgrade_that_is_left_keeps_what_it_began_with) {
  auto base = enter(a, upgradeable(a.ask("a"))).granted;
  const auto read = enter(b, reader(b.ask("a"))).granted;
  auto more = a.ask("a");
  more.replaces = &base;
  const auto place = enter(a, more);
  ASSERT_EQ(place.what, kind::waiting);
  EXPECT_TRUE(is_ok(a.verbs->leave(place.waiting, {})));
  EXPECT_EQ(renew(a, base), renewal::verdict::held);

  const auto again = enter(a, more);  // the same owner asks anew
  ASSERT_EQ(again.what, kind::waiting);
  ASSERT_TRUE(is_ok(b.verbs->release(read, {})));  // it arrives
  EXPECT_EQ(enter(b,
                  [&] {
                    auto r = reader(b.ask("a"));
                    r.wait = false;
                    return r;
                  }())
                .what,
            kind::busy);
  EXPECT_TRUE(is_ok(a.verbs->leave(again.waiting, {})));  // and is not wanted
  EXPECT_EQ(renew(a, base), renewal::verdict::held);
  EXPECT_EQ(enter(b, reader(b.ask("a"))).what, kind::granted);
  EXPECT_TRUE(is_ok(a.verbs->release(base, {})));
}

TEST_F(file_engine, a_fast_grant_can_be_downgraded_and_lets_readers_in) {
  const auto held = enter(a, a.ask("a")).granted;
  const auto place = enter(b, reader(b.ask("a")));
  ASSERT_EQ(place.what, kind::waiting);
  const auto smaller = a.verbs->downgrade(held, lock_mode::shared, {});
  ASSERT_TRUE(is_ok(smaller));
  EXPECT_EQ(smaller->token, held.token);
  EXPECT_TRUE(b.verbs->await(place.waiting, {}).value().is_granted);
  EXPECT_TRUE(is_ok(a.verbs->release(*smaller, {})));
}

// ---- operators

TEST_F(file_engine, a_revoked_holder_is_told_and_the_fence_rises) {
  auto ask = a.ask("a");
  ask.label = "nightly import";
  const auto held = enter(a, ask).granted;
  const auto seen = b.verbs->inspect("a", {}).value();
  ASSERT_EQ(seen.holders.size(), 1U);
  EXPECT_EQ(seen.holders[0].label, "nightly import");
  EXPECT_EQ(seen.holders[0].owner, held.owner);
  EXPECT_EQ(seen.holders[0].host, "here");
  EXPECT_EQ(b.verbs->revoke("a", {}).value(), 1U);
  EXPECT_TRUE(wait_until([&] { return a.listener.lost().size() == 1; }));
  EXPECT_EQ(a.listener.lost().at(0).first, held.owner);
  EXPECT_TRUE(fails_with(a.verbs->release(held, {}), errc::not_held));
  EXPECT_GT(enter(b, b.ask("a")).granted.token.value, held.token.value + 1);
}

// ---- waiting

TEST_F(file_engine, stop_and_deadline_end_a_wait_and_leave_no_trace) {
  const auto held = enter(a, a.ask("a")).granted;
  const auto place = enter(b, b.ask("a")).waiting;
  EXPECT_FALSE(b.verbs->await(place, {time.now(), {}}).value().is_granted);
  std::stop_source stop;
  std::thread stopper{[&] { stop.request_stop(); }};
  EXPECT_FALSE(b.verbs->await(place, {steady_time::max(), stop.get_token()}).value().is_granted);
  stopper.join();
  EXPECT_TRUE(is_ok(b.verbs->leave(place, {})));
  EXPECT_TRUE(is_ok(b.verbs->leave(place, {})));
  EXPECT_TRUE(a.verbs->inspect("a", {}).value().waiters.empty());
  EXPECT_TRUE(is_ok(a.verbs->release(held, {})));
  EXPECT_TRUE(a.verbs->list("", 10, {}).value().empty());
}

TEST_F(file_engine, a_thousand_asynchronous_waits_are_served_in_order) {
  constexpr std::size_t many = 1000;
  auto held = enter(a, a.ask("a")).granted;
  std::vector<ticket> places(many);
  std::vector<testing::promised<progress>> answers(many);
  for (std::size_t i = 0; i < many; ++i) {
    places[i] = enter(b, b.ask("a")).waiting;
    b.verbs->start_await(places[i], {}, answers[i]);
  }
  ASSERT_TRUE(is_ok(a.verbs->release(held, {})));
  for (std::size_t i = 0; i < many; ++i) {
    auto got = answers[i].get();
    ASSERT_TRUE(is_ok(got));
    ASSERT_TRUE(got->is_granted);
    if (i + 1 < many) {
      EXPECT_FALSE(answers[i + 1].is_done());
    }
    ASSERT_TRUE(is_ok(b.verbs->release(got->granted, {})));
  }
}

TEST_F(file_engine, an_asynchronous_wait_ends_on_stop_and_when_the_client_closes) {
  const auto held = enter(a, a.ask("a")).granted;
  std::stop_source stop;
  testing::promised<progress> stopped, closed;
  auto other = std::make_unique<testing::raw_client>(make_engine, url, time, 3);
  const auto first = enter(*other, other->ask("a")).waiting;
  const auto second = enter(*other, other->ask("a")).waiting;
  const call with_stop{steady_time::max(), stop.get_token()};
  other->verbs->start_await(first, with_stop, stopped);
  other->verbs->start_await(second, {}, closed);
  EXPECT_FALSE(stopped.is_done());
  stop.request_stop();
  EXPECT_FALSE(stopped.get().value().is_granted);
  EXPECT_FALSE(closed.is_done());
  other.reset();
  EXPECT_FALSE(closed.get().value().is_granted);
  EXPECT_TRUE(is_ok(a.verbs->release(held, {})));
}

TEST_F(file_engine, watchers_hear_of_uncontended_holders) {
  testing::promised<void> came, went;
  a.verbs->start_watch(watch_kind::lock, "a", 0, {}, came);
  EXPECT_FALSE(came.is_done());
  // The watch may still be on its way to the session thread; the version tells, whichever is first.
  const auto held = enter(b, b.ask("a")).granted;
  EXPECT_TRUE(is_ok(came.get()));
  const auto version = a.verbs->inspect("a", {}).value().version;
  EXPECT_NE(version, 0U);
  a.verbs->start_watch(watch_kind::lock, "a", version, {}, went);
  ASSERT_TRUE(is_ok(b.verbs->release(held, {})));
  EXPECT_TRUE(is_ok(went.get()));
  EXPECT_EQ(enter(b, b.ask("a")).what, kind::granted);
  EXPECT_NE(a.verbs->inspect("a", {}).value().version, version);
}

TEST_F(file_engine, counters_count_and_wake_their_watchers) {
  auto& verbs = *a.verbs;
  EXPECT_TRUE(verbs.count({"n", counter_op::create, 2, 0, 1h}, {}).value().applied);
  EXPECT_FALSE(verbs.count({"n", counter_op::create, 5, 0, 1h}, {}).value().applied);
  const auto now = verbs.count({"n", counter_op::read, 0, 0, {}}, {}).value();
  std::thread other{[&] { (void)b.verbs->count({"n", counter_op::add, -5, 0, {}}, {}); }};
  EXPECT_TRUE(is_ok(verbs.watch(watch_kind::counter, "n", now.version, {})));
  other.join();
  const auto after = verbs.count({"n", counter_op::read, 0, 0, {}}, {}).value();
  EXPECT_EQ(after.value, 0);
  EXPECT_TRUE(verbs.count({"n", counter_op::erase, 0, 0, {}}, {}).value().applied);
  EXPECT_FALSE(verbs.count({"n", counter_op::add, 1, 0, {}}, {}).value().applied);
  EXPECT_GT(verbs.count({"n", counter_op::create, 0, 0, 1h}, {}).value().version, after.version);
}

}  // namespace
}  // namespace holdfast

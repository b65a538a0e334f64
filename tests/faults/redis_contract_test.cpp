// What breaks here: messages, requests and connections that come late, twice or from before; and hands that are not the
// owner's. What must hold is the contract itself, so the engine is asked directly, without core around it.
#include "faults/redis_contract.hpp"

#include <thread>

namespace holdfast::testing {
namespace {

// ---- messages

std::string message_for(const owner_id& owner, std::uint64_t token) {
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  return fmt::format("g {} {} 60000 {} x {}", to_string(owner), token, now.count(), rw_capacity);
}

TEST_F(redis_contract, grant_message_of_an_earlier_attempt_is_not_believed) {
  auto a = raw(1), b = raw(2);
  const auto theirs = take(b, "stock");
  const auto ask = a.ask("stock");
  const auto channel = "hf:c:" + to_string(ask.owner).substr(0, 32);
  const auto old = message_for(ask.owner, theirs.token.value);
  redis("PUBLISH", channel, old);
  hear(a);
  const auto place = queue(a, ask);
  const auto unread = a.verbs->await(place, call_within(100ms));
  ASSERT_TRUE(is_ok(unread));
  EXPECT_FALSE(unread->is_granted) << "it came before the answer that we wait";
  auto late =
      std::async(std::launch::async, [&] { return a.verbs->await(place, call_within(300ms)); });
  EXPECT_TRUE(stays_true([&] { return redis("PUBLISH", channel, old) == "1"; }, 100ms));
  EXPECT_FALSE(late.get()->is_granted) << "it came while we waited";
  ASSERT_TRUE(is_ok(b.verbs->release(theirs, call_within(patience))));
  const auto won = a.verbs->await(place, call_within(patience));
  ASSERT_TRUE(is_ok(won));
  EXPECT_TRUE(won->is_granted) << "the true message is heard";
  EXPECT_GT(won->granted.token, theirs.token);
}

// ---- sessions

// The message came in time and was not read; then our connection was gone for longer than the grace, and the store gave
// the lock to another. A new connection proves that we live, not that we hold.
TEST_F(redis_contract, new_connection_does_not_revive_what_the_old_one_has_lost) {
  network net{server_.port()};
  auto a = raw(redis_url(net, "grace=300ms"), 1), b = raw(2), c = raw(3);
  const auto first = take(b, "stock");
  const auto place = queue(a, asked(a, "stock", lock_mode::exclusive));
  ASSERT_TRUE(is_ok(b.verbs->release(first, call_within(patience))));
  ASSERT_EQ(holders(b, "stock"), 1U);
  hear(a);
  net.refuse();
  ASSERT_NE(redis("EVAL", "return 1", "0"), "");
  ASSERT_NE(redis("CLIENT", "KILL", "TYPE", "pubsub"), "0");
  const auto ask = asked(c, "stock", lock_mode::exclusive);
  ASSERT_TRUE(wait_until([&] {
    const auto got = c.verbs->enter(ask, call_within(patience));
    return got && got->what == entered::kind::granted;
  })) << "the store takes it from a client that is gone";
  net.refuse(false);
  ASSERT_TRUE(wait_until([&] {
    const auto got = a.verbs->enter(a.ask("other"), call_within(patience));
    return got && got->what == entered::kind::granted && is_valid(a, got->granted);
  })) << "it lives again";
  const auto late = a.verbs->await(place, call_within(100ms));
  ASSERT_TRUE(is_ok(late));
  EXPECT_FALSE(late->is_granted && is_valid(a, late->granted)) << "two holders";
}

TEST_F(redis_contract, pause_of_the_server_shorter_than_the_grace_costs_no_lease) {
  const auto a = client::open(server_.url());
  EXPECT_EQ(a.capabilities().longest_validity, 3s);
  EXPECT_EQ(a.capabilities().validity_setting, "grace=3s in the store's address");
  mutex lock{a, "stock"};
  const auto held = lock.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(held));
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(stays_true([&] { return held->valid(); }, 500ms + round * 130ms));
    server_.stop();
    EXPECT_TRUE(stays_true([&] { return held->valid(); }, 2500ms)) << "round " << round;
    server_.resume();
  }
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 500ms));
  EXPECT_TRUE(is_proven(server_, *held));
}

// ---- proof

TEST_F(redis_contract, renewal_that_is_asked_for_is_proof) {
  auto a = raw(1), b = raw(2);
  const auto held = take(a, "stock");
  EXPECT_EQ(renewed(a, held).answer, renewal::verdict::held);
  ASSERT_EQ(b.verbs->revoke("stock", call_within(patience)).value(), 1U);
  EXPECT_EQ(renewed(a, held).answer, renewal::verdict::lost);
  take(b, "stock");
  EXPECT_EQ(renewed(a, held).answer, renewal::verdict::lost);
}

TEST_F(redis_contract, damaged_lock_costs_the_others_no_renewal) {
  auto a = raw(1);
  const auto broken = take(a, "broken", lock_mode::shared), sound = take(a, "sound");
  redis("DEL", "hf:h:broken");
  redis("SET", "hf:h:broken", "by somebody");
  std::array<renewal, 2> both;
  both[0].held = &broken;
  both[1].held = &sound;
  ASSERT_TRUE(is_ok(a.verbs->renew(both, call_within(patience))));
  EXPECT_EQ(both[0].answer, renewal::verdict::unknown);
  EXPECT_EQ(both[1].answer, renewal::verdict::held);
}

TEST_F(redis_contract, many_grants_are_renewed_in_several_scripts) {
  auto a = raw(1);
  std::vector<std::string> names;
  for (int i = 0; i < 400; ++i) names.push_back(fmt::format("item-{}", i));
  std::vector<grant> held;
  for (const auto& name : names) held.push_back(take(a, name));
  redis("DEL", "hf:l:item-300");
  std::vector<renewal> batch(held.size());
  for (std::size_t i = 0; i < held.size(); ++i) batch[i].held = &held[i];
  redis("SCRIPT", "FLUSH");
  ASSERT_TRUE(is_ok(a.verbs->renew(batch, call_within(patience))));
  for (std::size_t i = 0; i < batch.size(); ++i)
    EXPECT_EQ(batch[i].answer, i == 300 ? renewal::verdict::lost : renewal::verdict::held) << i;
}

// However a grant comes, we believe in it no longer than the store.
TEST_F(redis_contract, belief_never_outlives_the_store) {
  auto a = raw(1, "grace=0"), b = raw(2, "grace=0");
  const auto check = [&](const grant& held, steady_time from, std::string_view how) {
    const auto full = redis("ZSCORE", "hf:e:stock", to_string(held.owner));
    const auto ends = full == "(nil)" ? redis("PEXPIRETIME", "hf:l:stock") : full;
    const auto server = redis(
        "EVAL", "local c = redis.call('TIME') return c[1] * 1000 + math.floor(c[2] / 1000)", "0");
    const auto left = std::chrono::milliseconds{std::stoll(ends) - std::stoll(server) + 1};
    EXPECT_LE(from + held.ttl, std::chrono::steady_clock::now() + left) << how;
  };
  for (const auto ttl : {300ms, 60'000ms}) {
    auto ask = asked(a, "stock", lock_mode::exclusive);
    ask.ttl = ttl;
    auto held = take(a, ask);
    check(held, held.valid_from, "answered");
    auto behind = asked(b, "stock", lock_mode::exclusive);
    behind.ttl = ttl;
    const auto place = queue(b, behind);
    check(held, renewed(a, held).valid_from, "renewed");
    held = a.verbs->settle(ask, call_within(patience)).value().granted;
    check(held, held.valid_from, "settled");
    held = a.verbs->enter(ask, call_within(patience)).value().granted;
    check(held, held.valid_from, "asked again");
    held = a.verbs->downgrade(held, lock_mode::upgradeable, call_within(patience)).value();
    check(held, held.valid_from, "downgraded");
    check(held, renewed(a, held).valid_from, "renewed after that");
    ASSERT_TRUE(is_ok(a.verbs->release(held, call_within(patience))));
    const auto won = b.verbs->await(place, call_within(patience));
    ASSERT_TRUE(is_ok(won));
    ASSERT_TRUE(won->is_granted);
    check(won->granted, won->granted.valid_from, "told");
    ASSERT_TRUE(is_ok(b.verbs->release(won->granted, call_within(patience))));
  }
}

// ---- changing the mode

TEST_F(redis_contract, upgrade_of_what_is_gone_says_so) {
  auto a = raw(1), b = raw(2);
  const auto held = take(a, "stock", lock_mode::upgradeable);
  ASSERT_EQ(b.verbs->revoke("stock", call_within(patience)).value(), 1U);
  auto ask = asked(a, "stock", lock_mode::exclusive);
  ask.replaces = &held;
  const auto refused = a.verbs->enter(ask, call_within(patience));
  EXPECT_TRUE(refuses(refused, errc::not_held, "stock", server_.url(), ""));
}

TEST_F(redis_contract, leaving_an_upgrade_leaves_what_it_replaces) {
  auto a = raw(1), b = raw(2);
  const auto held = take(a, "stock", lock_mode::upgradeable);
  const auto reader = take(b, "stock", lock_mode::shared);
  auto ask = asked(a, "stock", lock_mode::exclusive);
  ask.replaces = &held;
  auto place = queue(a, ask);
  place.replacing = true;
  ASSERT_TRUE(is_ok(a.verbs->leave(place, call_within(patience))));
  EXPECT_EQ(fate(a, ask), entered::kind::busy);
  EXPECT_EQ(renewed(a, held).answer, renewal::verdict::held);

  auto again = asked(a, "stock", lock_mode::exclusive);
  again.replaces = &held;
  place = queue(a, again);
  place.replacing = true;
  ASSERT_TRUE(is_ok(b.verbs->release(reader, call_within(patience)))) << "now it is granted";
  ASSERT_TRUE(is_ok(a.verbs->leave(place, call_within(patience))));
  EXPECT_EQ(fate(a, again), entered::kind::granted) << "a grant is not given up by leaving";
  EXPECT_EQ(holders(b, "stock"), 1U);
}

TEST_F(redis_contract, downgrade_may_be_repeated) {
  auto a = raw(1), b = raw(2);
  const auto held = take(a, "stock");
  for (int i = 0; i < 3; ++i) {
    const auto reads = a.verbs->downgrade(held, lock_mode::shared, call_within(patience));
    ASSERT_TRUE(is_ok(reads));
    EXPECT_EQ(reads->token, held.token);
    EXPECT_EQ(reads->mode, lock_mode::shared);
  }
  take(b, "stock", lock_mode::shared);
  EXPECT_EQ(holders(b, "stock"), 2U);
  const auto writer = asked(b, "stock", lock_mode::exclusive);
  queue(b, writer);
  ASSERT_EQ(b.verbs->revoke("stock", call_within(patience)).value(), 2U);
  EXPECT_TRUE(fails_with(a.verbs->downgrade(held, lock_mode::shared, call_within(patience)),
                         errc::not_held));
}

// ---- hands that are not the owner's

TEST_F(redis_contract, nobody_but_the_owner_ends_or_changes_a_grant) {
  auto a = raw(1), b = raw(2);
  for (const bool alone : {true, false}) {
    const auto held = take(a, "stock");
    const auto waiting = asked(b, "stock", lock_mode::exclusive);
    if (!alone) queue(b, waiting);  // the full form
    const auto before = redis("GET", "hf:l:stock");
    const auto forged = of_unknown_owner(b, "stock", lock_mode::exclusive);
    EXPECT_TRUE(fails_with(b.verbs->release(forged, call_within(patience)), errc::not_held));
    promised<void> later;
    const auto limits = call_within(patience);
    b.verbs->start_release(forged, limits, later);
    EXPECT_TRUE(fails_with(later.get(), errc::not_held));
    EXPECT_TRUE(is_ok(b.verbs->leave({forged.name, forged.owner}, call_within(patience))));
    EXPECT_EQ(renewed(b, forged).answer, renewal::verdict::lost);
    EXPECT_EQ(redis("GET", "hf:l:stock"), before) << (alone ? "compact" : "full");
    EXPECT_TRUE(fails_with(b.verbs->downgrade(forged, lock_mode::shared, call_within(patience)),
                           errc::not_held));
    EXPECT_EQ(renewed(a, held).answer, renewal::verdict::held);
    auto upgrade = asked(b, "stock", lock_mode::exclusive);
    upgrade.replaces = &forged;
    EXPECT_TRUE(fails_with(b.verbs->enter(upgrade, call_within(patience)), errc::not_held));
    EXPECT_EQ(renewed(a, held).answer, renewal::verdict::held);
    if (!alone) {
      ASSERT_TRUE(is_ok(b.verbs->leave({"stock", waiting.owner}, call_within(patience))));
    }
    EXPECT_TRUE(is_ok(a.verbs->release(held, call_within(patience))));
  }
}

TEST_P(redis_layout_contract, nobody_but_the_owner_ends_a_grant) {
  auto a = open(1), b = open(2);
  const auto held = take(a, ask(a));
  const auto forged = of_unknown_owner(b, "stock", GetParam().mode);
  EXPECT_TRUE(fails_with(b.verbs->release(forged, call_within(patience)), errc::not_held));
  EXPECT_EQ(renewed(b, forged).answer, renewal::verdict::lost);
  EXPECT_TRUE(is_ok(b.verbs->leave({forged.name, forged.owner}, call_within(patience))));
  EXPECT_EQ(renewed(a, held).answer, renewal::verdict::held);
  EXPECT_TRUE(is_ok(a.verbs->release(held, call_within(patience))));
}

// ---- requests that are delivered late

// Kept by the network until the client has settled it over another connection; here that of a second client with the
// same id.
TEST_P(redis_layout_contract, request_delivered_after_it_was_settled_has_no_effect) {
  network net{server_.port()};
  auto a = raw(redis_url(net, GetParam().options + "&connections=1"), 1), twin = open(1);
  ASSERT_TRUE(is_ok(a.verbs->release(take(a, ask(a)), call_within(patience)))) << "connected";
  const auto lost = ask(a);
  net.hold(network::requests);
  const auto in_doubt = a.verbs->enter(lost, call_within(200ms));
  ASSERT_FALSE(in_doubt);
  ASSERT_FALSE(in_doubt.error().is_not_done()) << in_doubt.error().message();
  EXPECT_EQ(fate(twin, lost), entered::kind::busy);
  const auto before = net.bytes(network::replies);
  net.hold(network::requests, false);
  ASSERT_TRUE(wait_until([&] { return net.bytes(network::replies) > before; })) << "delivered";
  EXPECT_EQ(holders(twin, "stock"), 0U);
  take(twin, ask(twin));
}

// The first answer was lost, so the owner is in doubt; whatever ends it keeps a late copy out.
TEST_P(redis_layout_contract, copy_delivered_after_the_end_has_no_effect) {
  network net{server_.port()};
  auto a = raw(redis_url(net, GetParam().options + "&connections=1"), 1), twin = open(1);
  ASSERT_TRUE(is_ok(a.verbs->release(take(a, ask(a)), call_within(patience)))) << "connected";
  for (const bool leaves : {true, false}) {
    const auto lost = ask(a);
    net.delay(network::replies, 400ms);
    ASSERT_FALSE(a.verbs->enter(lost, call_within(100ms)));
    net.heal();
    const auto held = a.verbs->enter(lost, call_within(patience));
    ASSERT_TRUE(is_ok(held));
    ASSERT_EQ(held->what, entered::kind::granted);
    if (leaves) {
      ticket place{lost.name, lost.owner};
      place.handle = lost.mode == lock_mode::permits ? 1 : 0;
      ASSERT_TRUE(is_ok(a.verbs->leave(place, call_within(patience))));
    } else {
      ASSERT_TRUE(is_ok(a.verbs->release(held->granted, call_within(patience))));
    }
    EXPECT_FALSE(twin.verbs->enter(lost, call_within(patience))) << "the late copy";
    EXPECT_EQ(holders(twin, "stock"), 0U) << (leaves ? "left" : "released");
  }
}

INSTANTIATE_TEST_SUITE_P(all, redis_layout_contract, ::testing::ValuesIn(all_layouts()),
                         [](const auto& of) { return of.param.name; });

TEST_F(redis_contract, late_request_for_several_has_no_effect) {
  auto a = raw(1), twin = raw(1);
  const std::array asks{a.ask("left"), a.ask("right")};
  EXPECT_EQ(fate(a, asks[1]), entered::kind::busy);
  EXPECT_FALSE(twin.verbs->enter_all(asks, call_within(patience)));
  EXPECT_EQ(holders(a, "left") + holders(a, "right"), 0U);
}

// ---- clients that are gone

TEST_F(redis_contract, dead_waiter_that_does_not_fit_is_passed_over) {
  const auto url = redis_url(server_, "grace=300ms");
  const auto a = client::open(url), b = client::open(url);
  shared_mutex ours{a, "stock"}, theirs{b, "stock"};
  const auto reading = ours.acquire_shared({.ttl = 60s});
  ASSERT_TRUE(is_ok(reading));
  child writer{url};
  writer.tell("acquire stock 60s");
  ASSERT_TRUE(wait_for_queue(server_, "stock", 1));
  EXPECT_TRUE(fails_with(theirs.acquire_shared({.wait = 500ms}), errc::timed_out))
      << "a living client is not";
  writer.kill();
  EXPECT_TRUE(is_ok(theirs.acquire_shared({.wait = 3s})));
  EXPECT_TRUE(reading->valid());
}

}  // namespace
}  // namespace holdfast::testing

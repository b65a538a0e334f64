// The engine alone, without core around it, where only a real server shows whether it keeps the contract (engine.hpp).
#include "faults/etcd_faults.hpp"

#include "engines/etcd/engine.hpp"
#include "support/engine_fixture.hpp"

#include <deque>
#include <thread>

namespace holdfast::testing {
namespace {

using engines::etcd::make_engine;

// A machine that was suspended for an hour since it was started.
struct clock_after_suspend final : clock {
  steady_time now() const noexcept override { return std::chrono::steady_clock::now() + 1h; }
};

result<grant> take(raw_client& as, const request& ask) {
  auto got = as.verbs->enter(ask, call_within(patience));
  if (!got) return std::move(got).error();
  if (got->what != entered::kind::granted) return error{errc::busy, "not granted"};
  return got->granted;
}

class etcd_contract : public etcd_faults {
 protected:
  raw_client open(const std::string& url, std::uint64_t number,
                  const clock& time = system_clock()) {
    return raw_client{make_engine, url, time, number};
  }
  static renewal::verdict renewed(raw_client& as, const grant& held) {
    renewal one;
    one.held = &held;
    if (!as.verbs->renew({&one, 1}, call_within(patience))) return renewal::verdict::unknown;
    return one.answer;
  }
  std::vector<std::shared_ptr<std::string>> names_;  // grants point into them
};

TEST_F(etcd_contract, validity_counts_by_the_clock_that_counts_suspend) {
  etcd_server server;
  const clock_after_suspend time;
  auto a = open(server.url() + "?session=4s", 1, time);
  const auto before = time.now();
  const auto held = take(a, a.ask("stock"));
  ASSERT_TRUE(is_ok(held));
  EXPECT_GE(held->valid_from, before - 4s);
  EXPECT_LE(held->valid_from, time.now());
  renewal one;
  one.held = &*held;
  const auto end = std::chrono::steady_clock::now() + 6s;
  while (std::chrono::steady_clock::now() < end) {
    const auto asked = time.now();
    ASSERT_TRUE(is_ok(a.verbs->renew({&one, 1}, call_within(patience))));
    ASSERT_EQ(one.answer, renewal::verdict::held) << "the session is kept for longer than its ttl";
    EXPECT_GE(one.valid_from + 4s, asked);
    EXPECT_LE(one.valid_from, time.now());
    std::this_thread::sleep_for(200ms);
  }
  server.stop();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(is_ok(a.verbs->renew({&one, 1}, call_within(300ms))))
      << "call.deadline is steady_clock's";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1300ms);
  server.resume();
}

TEST_F(etcd_contract, downgrade_is_idempotent_and_settle_knows_the_mode) {
  const etcd_server server;
  auto a = open(server.url(), 1);
  auto ask = a.ask("stock");
  const auto held = take(a, ask);
  ASSERT_TRUE(is_ok(held));
  for (int i = 0; i < 2; ++i) {
    const auto shrunk = a.verbs->downgrade(*held, lock_mode::shared, call_within(patience));
    ASSERT_TRUE(is_ok(shrunk));
    EXPECT_EQ(shrunk->mode, lock_mode::shared);
    EXPECT_EQ(shrunk->weight, 1U);
    EXPECT_EQ(shrunk->token, held->token);
  }
  const auto found = a.verbs->settle(ask, call_within(patience));
  ASSERT_TRUE(is_ok(found));
  ASSERT_EQ(found->what, entered::kind::granted);
  EXPECT_EQ(found->granted.mode, lock_mode::shared);
  EXPECT_EQ(found->granted.weight, 1U);
  ASSERT_TRUE(is_ok(a.verbs->release(found->granted, call_within(patience))));
  EXPECT_TRUE(fails_with(a.verbs->downgrade(*held, lock_mode::shared, call_within(patience)),
                         errc::not_held));
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

TEST_F(etcd_contract, downgrade_that_does_not_shrink_is_refused) {
  const etcd_server server;
  auto a = open(server.url(), 1);
  auto reads = a.ask("stock"), permits = a.ask("pool");
  reads.mode = lock_mode::shared;
  reads.weight = 1;
  permits.mode = lock_mode::permits;
  permits.weight = 2;
  permits.capacity = 3;
  for (const auto* ask : {&reads, &permits}) {
    const auto held = take(a, *ask);
    ASSERT_TRUE(is_ok(held));
    EXPECT_TRUE(fails_with(a.verbs->downgrade(*held, lock_mode::upgradeable, call_within(patience)),
                           errc::misconfigured));
    const auto found = a.verbs->settle(*ask, call_within(patience));
    ASSERT_TRUE(is_ok(found));
    EXPECT_EQ(found->granted.mode, ask->mode);
    EXPECT_EQ(found->granted.weight, ask->weight);
  }
  const auto held = a.verbs->settle(permits, call_within(patience));
  EXPECT_TRUE(
      fails_with(a.verbs->downgrade(held->granted, lock_mode::shared, call_within(patience)),
                 errc::misconfigured));
}

// Whether it was granted or not: what it would have replaced is there, and nothing else.
TEST_F(etcd_contract, left_upgrade_leaves_what_it_replaced) {
  const etcd_server server;
  auto a = open(server.url(), 1), b = open(server.url(), 2);
  auto reads = a.ask("stock");
  reads.mode = lock_mode::upgradeable;
  reads.weight = upgradeable_weight;
  const auto base = take(a, reads);
  ASSERT_TRUE(is_ok(base));
  for (const bool granted : {false, true}) {
    auto other = b.ask("stock");
    other.mode = lock_mode::shared;
    other.weight = 1;
    std::optional<grant> reader;
    if (!granted) {
      auto in = take(b, other);
      ASSERT_TRUE(is_ok(in));
      reader = *in;
    }
    auto ask = a.ask("stock");
    ask.replaces = &*base;
    const auto in = a.verbs->enter(ask, call_within(patience));
    ASSERT_TRUE(is_ok(in));
    ASSERT_EQ(in->what, granted ? entered::kind::granted : entered::kind::waiting);
    ticket place{ask.name, ask.owner};
    place.replacing = true;
    ASSERT_TRUE(is_ok(a.verbs->leave(place, call_within(patience))));
    const auto found = a.verbs->settle(ask, call_within(patience));
    ASSERT_TRUE(is_ok(found));
    EXPECT_EQ(found->what, entered::kind::busy);
    EXPECT_EQ(renewed(a, *base), renewal::verdict::held);
    if (reader) {
      EXPECT_TRUE(is_ok(b.verbs->release(*reader, call_within(patience))));
    }
    EXPECT_EQ(entries(server, "stock").size(), 1U);
  }
  EXPECT_TRUE(is_ok(a.verbs->release(*base, call_within(patience))));
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

// What it would replace is gone: it is told so, and its place in the line goes, too.
TEST_F(etcd_contract, upgrade_of_what_is_gone_leaves_no_place) {
  const etcd_server server;
  auto a = open(server.url(), 1), b = open(server.url(), 2);
  auto reads = a.ask("stock");
  reads.mode = lock_mode::upgradeable;
  reads.weight = upgradeable_weight;
  const auto base = take(a, reads);
  auto other = b.ask("stock");
  other.mode = lock_mode::shared;
  other.weight = 1;
  const auto reader = take(b, other);
  ASSERT_TRUE(is_ok(base) && is_ok(reader));
  auto ask = a.ask("stock");
  ask.replaces = &*base;
  const auto in = a.verbs->enter(ask, call_within(patience));
  ASSERT_TRUE(is_ok(in));
  ASSERT_EQ(in->what, entered::kind::waiting);
  server.erase(entries(server, "stock").at(0).key);
  EXPECT_TRUE(fails_with(a.verbs->enter(ask, call_within(patience)), errc::not_held));
  EXPECT_TRUE(is_ok(b.verbs->release(*reader, call_within(patience))));
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

TEST_F(etcd_contract, renew_tells_each_grant_apart) {
  const etcd_server server;
  auto a = open(server.url(), 1);
  std::vector<grant> held;
  for (int i = 0; i < 250; ++i) {  // more than go into one question
    const auto name = std::make_shared<std::string>(fmt::format("item-{}", i));
    names_.push_back(name);
    const auto one = take(a, a.ask(*name));
    ASSERT_TRUE(is_ok(one));
    held.push_back(*one);
  }
  for (const auto i : {0U, 120U, 249U}) server.erase(entries(server, *names_[i]).at(0).key);
  std::vector<renewal> batch(held.size());
  for (std::size_t i = 0; i < held.size(); ++i) batch[i].held = &held[i];
  ASSERT_TRUE(is_ok(a.verbs->renew(batch, call_within(patience))));
  for (std::size_t i = 0; i < held.size(); ++i)
    EXPECT_EQ(batch[i].answer,
              i == 0 || i == 120 || i == 249 ? renewal::verdict::lost : renewal::verdict::held)
        << i;
}

// More are asked than are sent at a time, of a server that does not answer: whoever waits for its turn has a
// deadline, too.
TEST_F(etcd_contract, deadline_counts_for_those_who_were_not_sent_yet) {
  etcd_server server;
  auto a = open(server.url(), 1);
  ASSERT_TRUE(is_ok(take(a, a.ask("warm"))));
  server.stop();
  const auto later = call_within(15s);
  std::deque<promised<entered>> crowd;
  std::deque<request> asks;
  for (int i = 0; i < 300; ++i)
    a.verbs->start_enter(asks.emplace_back(a.ask("stock")), later, crowd.emplace_back());
  std::stop_source stop;
  auto soon = call_within(200ms), stopped = call_within(15s);
  stopped.stop = stop.get_token();
  const auto one = a.ask("shelf"), other = a.ask("shelf");
  promised<entered> in_time, told;
  a.verbs->start_enter(one, soon, in_time);
  a.verbs->start_enter(other, stopped, told);
  stop.request_stop();
  EXPECT_TRUE(wait_until([&] { return in_time.is_done() && told.is_done(); }, 2s));
  server.resume();
  for (auto* each : {&in_time, &told}) {
    const auto outcome = each->get();
    EXPECT_TRUE(fails_with(outcome, errc::unavailable)) << "it was never sent";
  }
  for (auto& each : crowd) static_cast<void>(each.get());
}

// Each call looks at every lease of the client.
TEST_F(etcd_contract, losses_of_a_session_are_told_together) {
  struct counting final : engine_listener {
    void on_lost(std::span<const owner_id> owners, std::string_view) noexcept override {
      ++calls;
      told += owners.size();
    }
    void on_session_lost(std::uint64_t number, std::string_view) noexcept override {
      lost_session = number;
    }
    std::atomic<std::size_t> calls{0}, told{0};
    std::atomic<std::uint64_t> lost_session{0};
  };
  const etcd_server server;
  counting listener;
  const auto url = store_url::parse(server.url()).value();
  const std::array<std::uint64_t, 2> id{1, 2};
  const auto engine = make_engine({url, id, system_clock(), listener, "here", 1}).value();
  constexpr std::size_t all = 600;
  for (std::size_t i = 0; i < all; ++i) {
    const auto name = fmt::format("item-{}", i);
    request ask;
    ask.name = name;
    ask.owner = {id, i + 1};
    ask.ttl = 1min;
    ASSERT_TRUE(is_ok(engine->enter(ask, call_within(patience))));
  }
  std::this_thread::sleep_for(500ms);  // all of them are watched by now
  server.revoke(entries(server, "item-0").at(0).lease);
  // By the watches of the keys; or by the session, where a heartbeat finds out first.
  ASSERT_TRUE(wait_until([&] { return listener.told == all || listener.lost_session == 1; }));
  EXPECT_TRUE(stays_true([&] { return listener.calls < all / 10; }, 300ms)) << "not one by one";
}

}  // namespace
}  // namespace holdfast::testing

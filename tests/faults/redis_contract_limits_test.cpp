// What breaks here: the server refuses, hangs, or leaves connections silent. Asked of the engine directly, as in
// redis_contract_test.cpp.
#include "faults/redis_contract.hpp"

namespace holdfast::testing {
namespace {

// ---- refusals

TEST_F(redis_contract, full_server_costs_no_lease_though_one_is_wanted_by_another) {
  const auto a = client::open(redis_url(server_, "grace=500ms")), b = client::open(server_.url());
  mutex kept{a, "kept"}, hot{a, "hot"}, wants{b, "hot"};
  auto quiet = kept.acquire({.ttl = 60s}), wanted = hot.acquire({.ttl = 400ms});
  ASSERT_TRUE(is_ok(quiet));
  ASSERT_TRUE(is_ok(wanted));
  auto waiting = acquire_later(wants);
  ASSERT_TRUE(one_waits(server_, "hot"));
  redis("CONFIG", "SET", "maxmemory", "1");
  EXPECT_TRUE(stays_true([&] { return quiet->valid() && wanted->valid(); }, 1500ms));
  EXPECT_TRUE(is_ok(wanted->release())) << "giving back needs no memory, also when others wait";
  EXPECT_TRUE(is_ok(get(waiting)));
  redis("CONFIG", "SET", "maxmemory", "0");
}

// The store is asked about one of them every time, and says no; the other lives by the proof of presence alone.
TEST_F(redis_contract, refused_renewal_of_one_costs_the_others_nothing) {
  const auto a = client::open(redis_url(server_, "grace=500ms"));
  mutex kept{a, "kept"}, brief{a, "brief"};
  auto quiet = kept.acquire({.ttl = 60s});
  ASSERT_TRUE(is_ok(quiet));
  ASSERT_TRUE(is_ok(quiet->renew())) << "asked about once on this connection";
  const auto asked = brief.acquire({.ttl = 400ms});
  ASSERT_TRUE(is_ok(asked));
  redis("ACL", "SETUSER", "default", "-evalsha");
  EXPECT_TRUE(wait_until([&] { return !asked->valid(); })) << "it was refused";
  EXPECT_TRUE(stays_true([&] { return quiet->valid(); }, 1s));
  redis("ACL", "SETUSER", "default", "+evalsha");
}

TEST_F(redis_contract, what_the_server_refused_is_certain) {
  auto a = raw(1);
  const auto refused = [&](std::string_view name) {
    const auto got = a.verbs->enter(a.ask(name), call_within(patience));
    return !got && got.error().is_not_done();
  };
  redis("HSET", "hf:l:cart", "apples", "3");
  EXPECT_TRUE(refused("cart"));
  redis("CONFIG", "SET", "maxmemory", "1");
  EXPECT_TRUE(refused("stock"));
  redis("CONFIG", "SET", "maxmemory", "0");
  redis("ACL", "SETUSER", "default", "-evalsha");
  EXPECT_TRUE(refused("stock"));
  redis("ACL", "SETUSER", "default", "+evalsha");
  EXPECT_FALSE(refused("stock"));
}

// ---- a server that hangs

TEST_F(redis_contract, verbs_come_back_at_their_deadline_whatever_the_server_does) {
  auto a = raw(1, "grace=1s");
  const auto held = take(a, "held");
  const auto place = ticket{"held", a.next_owner()};
  server_.stop();
  const auto took = [](const auto& verb) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(verb(call_within(300ms)));
    return std::chrono::steady_clock::now() - begin;
  };
  auto& store = *a.verbs;
  const auto ask = a.ask("stock");
  const std::array<request, 2> asks{a.ask("left"), a.ask("right")};
  renewal asked_about;
  asked_about.held = &held;
  for (int round = 0; round < 2; ++round) {
    EXPECT_LT(took([&](const call& until) { return store.enter(ask, until); }), 600ms);
    EXPECT_LT(took([&](const call& until) { return store.settle(ask, until); }), 600ms);
    EXPECT_LT(took([&](const call& until) { return store.leave(place, until); }), 600ms);
    EXPECT_LT(took([&](const call& until) {
                return store.renew({&asked_about, 1}, until);
              }),
              600ms);
    EXPECT_LT(took([&](const call& until) { return store.release(held, until); }), 600ms);
    EXPECT_LT(took([&](const call& until) { return store.enter_all(asks, until); }), 600ms);
    EXPECT_LT(took([&](const call& until) { return store.inspect("held", until); }), 600ms);
  }
  server_.resume();
}

// ---- connections that have gone silent, while the server is well

TEST_F(redis_contract, silent_connections_are_given_up_together) {
  network net{server_.port()};
  auto a = raw(redis_url(net, "grace=3s"), 1);
  take(a, "warm");
  net.drop(network::requests);
  for (const auto* name : {"a", "b", "c", "d", "e", "f", "g", "h"})
    EXPECT_FALSE(a.verbs->inspect(name, call_within(50ms)));
  EXPECT_FALSE(a.verbs->renew({}, call_within(50ms))) << "the connection for messages";
  net.heal();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(wait_until([&] {
    const auto got = a.verbs->enter(a.ask("stock"), call_within(3s));
    return got && got->what == entered::kind::granted && is_valid(a, got->granted);
  }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);
}

TEST_F(redis_contract, silent_connection_does_not_use_up_a_long_call) {
  network net{server_.port()};
  auto a = raw(redis_url(net, "grace=30s&connections=1"), 1);
  take(a, "warm");
  const auto before = net.bytes(network::requests);
  net.drop(network::requests);
  const auto begin = std::chrono::steady_clock::now();
  auto answer = std::async(std::launch::async,
                           [&] { return a.verbs->enter(a.ask("stock"), call_within(20s)); });
  ASSERT_TRUE(wait_until([&] { return net.bytes(network::requests) > before; }));
  net.heal();
  EXPECT_FALSE(answer.get()) << "it never arrived";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_TRUE(is_ok(a.verbs->enter(a.ask("stock"), call_within(2s)))) << "a new connection";
}

TEST_F(redis_contract, watch_under_way_ends_with_its_engine) {
  for (const auto* options : {"grace=3s", "layout=setnx", "layout=redisson"}) {
    auto a = raw(1, options);
    const call whole_day = call_within(24h);
    std::vector<std::unique_ptr<promised<void>>> watches;
    for (int i = 0; i < 20; ++i) {
      watches.push_back(std::make_unique<promised<void>>());
      a.verbs->start_watch(watch_kind::lock, "stock", 0, whole_day, *watches.back());
    }
    a.verbs.reset();
    for (const auto& each : watches) EXPECT_TRUE(each->is_done()) << options;
  }
}

}  // namespace
}  // namespace holdfast::testing

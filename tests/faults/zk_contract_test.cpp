// The engine alone, without core around it, where only a real server shows whether it keeps the contract (engine.hpp).
#include "faults/zk_faults.hpp"

#include "engines/zk/engine.hpp"
#include "support/engine_fixture.hpp"

#include <deque>
#include <thread>

namespace holdfast::testing {
namespace {

class zk_contract : public zk_faults {
 protected:
  static raw_client open(const std::string& url, std::uint64_t number) {
    return raw_client{engines::zk::make_engine, url, system_clock(), number};
  }
  static request reader(raw_client& as, queue_order order = queue_order::fifo) {
    auto out = as.ask("stock");
    out.mode = lock_mode::shared;
    out.weight = 1;
    out.order = order;
    return out;
  }
  static request writer(raw_client& as) {
    auto out = as.ask("stock");
    out.has_readers = true;
    return out;
  }
  static request permits(raw_client& as, std::uint64_t count, std::uint64_t of) {
    auto out = as.ask("seats");
    out.mode = lock_mode::permits;
    out.weight = count;
    out.capacity = of;
    return out;
  }
  static result<grant> granted(result<entered> said) {
    if (!said) return std::move(said).error();
    if (said->what != entered::kind::granted) return error{errc::busy, "not granted"};
    return said->granted;
  }
  static result<grant> take(raw_client& as, const request& ask) {
    return granted(as.verbs->enter(ask, call_within(patience)));
  }
};

// ---- tokens

// A reader has come in ahead of the waiting writer, with a newer token. When the writer asks what became of it, its
// turn has come: its own node's number would be an old token.
TEST_F(zk_contract, overtaken_waiter_that_settles_has_a_newer_token) {
  const zookeeper_server server;
  for (const bool is_answered : {true, false}) {
    SCOPED_TRACE(is_answered ? "answered" : "not answered");
    fault_proxy net{server.port()};
    auto a = open(server.url(), 1), b = open(zk_url(net, "session=20s"), 2);
    const auto first = take(a, reader(a));
    ASSERT_TRUE(is_ok(first));
    const auto ask = writer(b);
    net.drop(fault_proxy::replies, !is_answered);
    const auto queued = b.verbs->enter(ask, call_within(300ms));
    EXPECT_EQ(is_answered, queued.has_value());
    ASSERT_TRUE(one_waits(server, "stock"));
    const auto second = take(a, reader(a, queue_order::barging));
    ASSERT_TRUE(is_ok(second));
    for (const auto& one : {*first, *second})
      ASSERT_TRUE(is_ok(a.verbs->release(one, call_within(patience))));
    net.heal();
    if (!is_answered) net.cut();

    result<entered> found = entered{};
    ASSERT_TRUE(wait_until([&] {  // over a new connection
      found = b.verbs->settle(ask, call_within(patience));
      return found.has_value();
    }));
    const auto held = found->what == entered::kind::granted ? granted(found) : take(b, ask);
    ASSERT_TRUE(is_ok(held));
    EXPECT_GT(held->token, second->token);
    ASSERT_TRUE(is_ok(b.verbs->release(*held, call_within(patience))));
    EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
  }
}

// ---- downgrades

TEST_F(zk_contract, refused_downgrade_leaves_its_holder_listening) {
  const zookeeper_server server;
  auto a = open(server.url() + "?session=20s", 1), b = open(server.url(), 2);
  struct attempt {
    const char* of;
    request ask;
    lock_mode to;
  };
  const std::vector<attempt> attempts{{"plain mutex", a.ask("stock"), lock_mode::shared},
                                      {"writer", writer(a), lock_mode::upgradeable},
                                      {"reader", reader(a), lock_mode::upgradeable}};
  const auto is_watched = [&] { return server.metric("zk_watch_count") > 0; };
  for (const auto& [of, ask, to] : attempts)
    for (const bool later : {false, true}) {  // than when its node is watched
      SCOPED_TRACE(of);
      const auto held = take(a, ask);
      ASSERT_TRUE(is_ok(held));
      if (later) {
        ASSERT_TRUE(wait_until(is_watched));
      }
      EXPECT_TRUE(
          fails_with(a.verbs->downgrade(*held, to, call_within(patience)), errc::misconfigured));
      EXPECT_TRUE(wait_until(is_watched));
      const auto before = a.listener.lost().size();
      EXPECT_TRUE(is_ok(b.verbs->revoke("stock", call_within(patience))));
      EXPECT_TRUE(wait_until([&] { return a.listener.lost().size() > before; }, 1s));
    }
}

TEST_F(zk_contract, unsent_downgrade_leaves_its_holder_listening) {
  const zookeeper_server server;
  fault_proxy net{server.port()};
  auto a = open(zk_url(net, "session=20s"), 1), b = open(server.url(), 2);
  const auto held = take(a, writer(a));
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(wait_until([&] { return server.metric("zk_watch_count") > 0; }));
  net.refuse(), net.cut();
  const auto is_connected = [&] {
    return a.verbs->inspect("stock", call_within(50ms)).has_value();
  };
  ASSERT_TRUE(wait_until([&] { return !is_connected(); }));
  const auto tried = a.verbs->downgrade(*held, lock_mode::shared, call_within(300ms));
  ASSERT_FALSE(tried);
  ASSERT_TRUE(tried.error().is_not_done()) << "it was sent: " << tried.error().message();
  net.heal();
  ASSERT_TRUE(wait_until(is_connected));
  EXPECT_TRUE(is_ok(b.verbs->revoke("stock", call_within(patience))));
  EXPECT_TRUE(wait_until([&] { return !a.listener.lost().empty(); }, 3s));
}

// The same from the outside: the holder that was broken is out before the next one comes.
TEST_F(zk_contract, break_after_an_unsent_downgrade_makes_no_second_holder) {
  const zookeeper_server server;
  fault_proxy net{server.port()};
  const auto a = client::open(zk_url(net, "session=20s"), {.call_timeout = 500ms}),
             b = client::open(server.url());
  shared_mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(wait_until([&] { return server.metric("zk_watch_count") > 0; }));
  net.refuse(), net.cut();
  ASSERT_TRUE(wait_until([&] { return !a.inspect("stock"); }));
  ASSERT_TRUE(fails_with(ours.downgrade(*held), errc::unavailable));
  net.heal();
  ASSERT_TRUE(wait_until([&] { return a.inspect("stock").has_value(); }));
  ASSERT_TRUE(is_ok(b.revoke("stock")));
  EXPECT_TRUE(is_ok(theirs.acquire({.wait = patience})));
  EXPECT_TRUE(wait_until([&] { return !held->valid(); }, 3s));
}

TEST_F(zk_contract, release_after_an_unanswered_downgrade_leaves_no_reader) {
  const zookeeper_server server;
  fault_proxy net{server.port()};
  auto a = open(zk_url(net, "session=20s"), 1);
  const auto held = take(a, writer(a));
  ASSERT_TRUE(is_ok(held));
  net.drop(fault_proxy::replies);
  EXPECT_TRUE(fails_with(a.verbs->downgrade(*held, lock_mode::shared, call_within(500ms)),
                         errc::outcome_unknown));
  ASSERT_NE(contenders(server, "stock").at(0).path.find("__READ__"), std::string::npos)
      << "it was carried out";
  net.heal(), net.cut();
  ASSERT_TRUE(wait_until([&] { return is_ok(a.verbs->inspect("stock", call_within(patience))); }))
      << "it is connected again";
  EXPECT_TRUE(is_ok(a.verbs->release(*held, call_within(patience))));
  EXPECT_EQ(left_behind(server), "");
}

// ---- permits

// The loss is announced, and what is left of it makes room although nobody gives it back.
TEST_F(zk_contract, others_of_a_deleted_permit_go_with_it) {
  const zookeeper_server server;
  auto a = open(server.url() + "?session=20s", 1);
  const auto held = take(a, permits(a, 3, 4));
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(wait_until([&] { return server.metric("zk_watch_count") == 3; }));
  zookeeper_hand{server}.erase(ephemerals(server, "/seats/leases/").at(1).path);
  EXPECT_TRUE(wait_until([&] { return a.listener.lost().size() == 1; }, 1s));
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

// The request that takes a holder's place out of the queue is lost: those behind it are served all the same.
TEST_F(zk_contract, place_of_a_holder_of_permits_goes_although_the_request_was_lost) {
  const zookeeper_server server;
  fault_proxy net{server.port()};
  zookeeper_hand hand{server};
  auto x = open(server.url(), 1), a = open(zk_url(net, "session=20s"), 2),
       b = open(server.url(), 3);
  const auto both = take(x, permits(x, 2, 2));
  ASSERT_TRUE(is_ok(both));
  const auto first = permits(a, 1, 2), second = permits(b, 1, 2);
  ASSERT_FALSE(take(a, first));
  ASSERT_FALSE(take(b, second));
  ASSERT_EQ(hand.children("/seats/locks").size(), 2U);
  ASSERT_TRUE(is_ok(x.verbs->release(*both, call_within(patience))));
  net.delay(fault_proxy::replies, 300ms);  // so there is time to cut between its two requests
  auto later = std::async(std::launch::async, [&] { return take(a, first); });
  ASSERT_TRUE(wait_until([&] { return hand.children("/seats/leases").size() == 1; }));
  net.drop(fault_proxy::requests);
  const auto lost = net.bytes(fault_proxy::requests);
  ASSERT_TRUE(is_ok(later.get()));
  ASSERT_TRUE(wait_until([&] { return net.bytes(fault_proxy::requests) > lost; }));
  ASSERT_EQ(hand.children("/seats/locks").size(), 2U) << "it was not lost";
  net.heal(), net.cut();
  EXPECT_TRUE(wait_until([&] { return is_ok(take(b, second)); }, 5s))
      << "there is room for one, and nobody gets it";
}

// That another one was faster is no error of an attempt that does not wait, nor is what it then finds gone.
TEST_F(zk_contract, attempts_of_a_crowd_for_one_permit_are_granted_or_busy) {
  const zookeeper_server server;
  std::deque<raw_client> clients;
  for (std::uint64_t i = 1; i <= 4; ++i)
    clients.emplace_back(engines::zk::make_engine, server.url(), system_clock(), i);
  std::atomic<int> granted{0}, busy{0};
  std::vector<std::thread> crowd;
  for (auto& one : clients)
    crowd.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        auto ask = permits(one, 1, 1);
        ask.wait = false;
        const auto said = one.verbs->enter(ask, call_within(patience));
        ASSERT_TRUE(is_ok(said));
        ASSERT_NE(said->what, entered::kind::waiting);
        ++(said->what == entered::kind::granted ? granted : busy);
        if (said->what != entered::kind::granted) continue;
        ASSERT_TRUE(is_ok(one.verbs->release(said->granted, call_within(patience))));
      }
    });
  for (auto& one : crowd) one.join();
  EXPECT_GT(granted, 0);
  EXPECT_GT(busy, 0);
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

}  // namespace
}  // namespace holdfast::testing

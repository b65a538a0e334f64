// What breaks here: a client ends while its server is away, with locks held and coroutines suspended; or the session of
// a client that has logged in ends. What must hold: the end of a client takes a moment, whatever is under way; what was
// abandoned goes on nowhere; a client whose session has ended hears of it and goes on in a new one.
#include "faults/zk_faults.hpp"

#include "engines/zk/engine.hpp"
#include "support/end_of_clients.hpp"
#include "support/engine_fixture.hpp"
#include "support/manual_task.hpp"

#include <deque>
#include <optional>
#include <ostream>

namespace holdfast::testing {
namespace {

enum class fate { runs, stopped, killed };

const char* text_of(fate what) {
  return what == fate::runs ? "runs" : what == fate::stopped ? "stopped" : "killed";
}
void PrintTo(fate what, std::ostream* out) { *out << text_of(what); }
std::string name_of_fate(const ::testing::TestParamInfo<fate>& info) { return text_of(info.param); }

class zk_endings : public zk_faults, public ::testing::WithParamInterface<fate> {
 protected:
  static raw_client open(const zookeeper_server& server, std::uint64_t number) {
    return {engines::zk::make_engine, server.url() + "?session=20s", system_clock(), number};
  }
  static void befall(zookeeper_server& server) {
    if (GetParam() == fate::stopped) server.stop();
    if (GetParam() == fate::killed) server.kill();
  }
  // Less than a session, and less than a call.
  template <class End>
  static void expect_to_take_a_moment(const End& end) {
    const auto begin = std::chrono::steady_clock::now();
    end();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);
  }
};

INSTANTIATE_TEST_SUITE_P(server, zk_endings,
                         ::testing::Values(fate::runs, fate::stopped, fate::killed), name_of_fate);

// ---- the engine alone: "complete() is called exactly once, at the latest when the engine is destroyed"

// A node that is held for a while is watched. The server falls silent before that is asked for.
TEST_P(zk_endings, engine_ends_that_holds_a_lock) {
  zookeeper_server server;
  auto a = open(server, 1);
  const auto said = a.verbs->enter(a.ask("stock"), call_within(patience));
  ASSERT_TRUE(is_ok(said));
  ASSERT_EQ(said->what, entered::kind::granted);
  befall(server);
  EXPECT_TRUE(stays_true([&] { return a.listener.lost().empty(); }, 400ms))
      << "it is watched after 150 ms";
  expect_to_take_a_moment([&] { a.verbs.reset(); });
  EXPECT_TRUE(a.listener.lost().empty()) << "a client that ends loses nothing";
}

TEST_P(zk_endings, engine_ends_that_watches_a_lock_and_a_counter) {
  zookeeper_server server;
  auto a = open(server, 1);
  const call forever;
  promised<void> of_lock, of_counter;
  a.verbs->start_watch(watch_kind::lock, "nothing", 0, forever, of_lock);
  a.verbs->start_watch(watch_kind::counter, "nothing", 0, forever, of_counter);
  ASSERT_TRUE(wait_until([&] { return server.metric("zk_watch_count") == 2; }));
  befall(server);
  expect_to_take_a_moment([&] { a.verbs.reset(); });
  EXPECT_TRUE(of_lock.is_done());
  EXPECT_TRUE(of_counter.is_done());
}

TEST_P(zk_endings, engine_ends_with_a_waiter_and_requests_under_way) {
  zookeeper_server server;
  auto other = open(server, 1), a = open(server, 2);
  ASSERT_TRUE(is_ok(other.verbs->enter(other.ask("stock"), call_within(patience))));
  const auto first = a.ask("stock"), second = a.ask("shelf");
  const auto queued = a.verbs->enter(first, call_within(patience));
  ASSERT_TRUE(is_ok(queued));
  ASSERT_EQ(queued->what, entered::kind::waiting);
  const call forever;
  promised<progress> turn;
  promised<entered> in;
  promised<session_proof> proof;
  a.verbs->start_await(queued->waiting, forever, turn);
  ASSERT_TRUE(wait_until([&] { return server.metric("zk_watch_count") >= 2; }))
      << "the holder's node, and its own";
  befall(server);
  a.verbs->start_enter(second, forever, in);
  a.verbs->start_renew({}, forever, proof);
  expect_to_take_a_moment([&] { a.verbs.reset(); });
  EXPECT_TRUE(turn.is_done());
  EXPECT_TRUE(in.is_done());
  EXPECT_TRUE(proof.is_done());
}

// ---- with core around it

manual_task wait_for_latch(const latch& what, bool& over) {
  static_cast<void>(co_await what.async_wait());
  over = true;
}
manual_task observe_leader(const election& what, bool& over) {
  static_cast<void>(co_await what.async_observe({}));
  over = true;
}
manual_task wait_for_lock(mutex& what, bool& over) {
  static_cast<void>(co_await what.async_acquire());
  over = true;
}

// Coroutines that are destroyed while they wait leave what they asked for under way. What has to be cleared up then may
// take as long as a call; the thread that drops the client does not wait for it.
TEST_P(zk_endings, client_ends_whose_coroutines_are_gone) {
  zookeeper_server server;
  const end_of_clients end;
  const auto holder = client::open(server.url());
  auto held = mutex{holder, "stock"}.acquire({.ttl = 20s});
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(wait_until([&] { return server.metric("zk_watch_count") == 1; })) << "its own node";
  bool over = false;
  std::optional<client> a;
  a.emplace(client::open(server.url() + "?session=20s",
                         {.call_timeout = 3s, .observer = end.observed()}));
  {
    const latch loaded{*a, "loaded"};
    const election seat{*a, "seat"};
    mutex lock{*a, "stock"};
    std::deque<manual_task> tasks;
    tasks.push_back(wait_for_latch(loaded, over));
    tasks.push_back(observe_leader(seat, over));
    tasks.push_back(wait_for_lock(lock, over));
    for (auto& one : tasks) one.start();
    ASSERT_TRUE(one_waits(server, "stock"));
    ASSERT_TRUE(wait_until([&] { return server.metric("zk_watch_count") >= 5; }))
        << "latch, folder of the election, the holder's node and the waiter's own";
    befall(server);
  }
  expect_to_take_a_moment([&] { a.reset(); });
  EXPECT_FALSE(over);
}

// ---- the session of a client that logs in: its greeting has two answers, and only one when the session is over

class zk_logins : public zk_faults {};

TEST_F(zk_logins, expired_session_is_noticed_at_once_and_followed_by_another) {
  const zookeeper_server server;
  fault_proxy net{server.port()};
  const auto a = client::open(fmt::format("zk://app:secret@127.0.0.1:{}?session=20s", net.port()));
  mutex lock{a, "stock"};
  for (int round = 0; round < 2; ++round) {
    auto held = lock.acquire({.wait = patience, .ttl = 20s});
    ASSERT_TRUE(is_ok(held));
    const auto session = contenders(server, "stock").at(0).session;
    expect_told_within_a_second(*held, [&] {
      net.refuse(), net.cut();  // see end_session in zk_sessions_test.cpp
      EXPECT_TRUE(zookeeper_hand{server}.expire(session));
      net.heal();
    });
    auto again = lock.acquire({.wait = 5s, .ttl = 20s});
    ASSERT_TRUE(is_ok(again));
    EXPECT_NE(contenders(server, "stock").at(0).session, session);
    ASSERT_TRUE(is_ok(again->release()));
  }
}

}  // namespace
}  // namespace holdfast::testing

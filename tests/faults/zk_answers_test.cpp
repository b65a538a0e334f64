// What breaks here: the network between a client and a server. Answers are lost, late, torn or one byte long,
// connections are half-open. What must hold: nobody claims a lock without proof (S4), a request without an answer is
// settled, an answer is never taken for another call's, no orphan stays in the queue while its client lives, and after
// healing everybody is served (L2).
#include "faults/scenarios.hpp"
#include "faults/zk_faults.hpp"

namespace holdfast::testing {
namespace {

class zk_answers : public zk_faults {};

using network = fault_proxy;

// Then one request takes the lock.
void make_folder(const zookeeper_server& server, const std::string& name) {
  zookeeper_hand{server}.create({.path = "/" + name, .mode = jute::create_mode::persistent});
}

TEST_F(zk_answers, swallowed_answer_is_adopted_or_cleared_up) {
  const zookeeper_server server;
  network net{server.port()};
  const auto a = client::open(zk_url(net, "session=20s"), {.call_timeout = 300ms});
  for (int i = 0; i < 8; ++i) make_folder(server, fmt::format("stock-{}", i));
  int adopted = 0;
  scenarios::answers_are_swallowed(server, net, a, 8, adopted, scenarios::attempts::after_a_look);
  EXPECT_GE(adopted, 1) << "a waiter finds its own node";
}

// The client, with its one connection, is told that the session goes on. It has learned of its lock by asking, and not
// by an answer to its creation: it must hear of the end of that one as of any other's.
TEST_F(zk_answers, adopted_lock_is_watched_like_any_other) {
  const zookeeper_server server;
  network net{server.port()};
  const auto a = client::open(zk_url(net, "session=20s"), {.call_timeout = 5s});
  make_folder(server, "stock");
  for (int round = 0; round < 3; ++round) {
    mutex lock{a, "stock"};
    ASSERT_TRUE(is_ok(a.inspect("stock")));
    net.drop(network::replies);
    auto waiting = acquire_later(lock, {.ttl = 20s});
    ASSERT_TRUE(wait_for_nodes(server, "stock", 1));
    net.heal(), net.cut();
    auto held = get(waiting);
    ASSERT_TRUE(is_ok(held));
    ASSERT_TRUE(is_proven(server, *held));
    EXPECT_TRUE(stays_true([&] { return held->valid(); }, 500ms));
    expect_told_within_a_second(
        *held, [&] { zookeeper_hand{server}.erase(contenders(server, "stock").at(0).path); });
  }
}

// A reader has come in ahead of the writer whose answer was lost, and has the newer token: the writer needs another.
TEST_F(zk_answers, adopted_lock_has_a_newer_token_than_a_reader_that_overtook_it) {
  const zookeeper_server server;
  network net{server.port()};
  const auto a = client::open(server.url()), b = client::open(zk_url(net, "session=20s"));
  shared_mutex readers{a, "stock"}, writer{b, "stock"};
  auto first = readers.acquire_shared();
  ASSERT_TRUE(is_ok(first));
  ASSERT_TRUE(is_ok(b.inspect("stock")));
  net.drop(network::replies);
  auto waiting = std::async(std::launch::async,
                            [&] { return writer.acquire({.wait = 3 * patience, .ttl = 20s}); });
  ASSERT_TRUE(one_waits(server, "stock"));
  auto second = readers.acquire_shared({.wait = patience, .order = queue_order::barging});
  ASSERT_TRUE(is_ok(second));
  const auto newest = second->token();
  ASSERT_TRUE(is_ok(second->release()));
  ASSERT_TRUE(is_ok(first->release()));
  net.heal(), net.cut();
  auto held = get(waiting);
  ASSERT_TRUE(is_ok(held));
  EXPECT_GT(held->token(), newest);
  EXPECT_TRUE(is_ok(held->release()));
}

// The one before has gone, and the event that said so was lost on the way.
TEST_F(zk_answers, swallowed_event_is_found_by_asking) {
  const zookeeper_server server;
  network net{server.port()};
  const auto a = client::open(server.url()), b = client::open(zk_url(net));
  mutex ours{a, "stock"}, theirs{b, "stock"};
  for (int round = 0; round < 3; ++round) {
    auto held = ours.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held));
    auto waiting = acquire_later(theirs, {.ttl = 20s});
    ASSERT_TRUE(one_waits(server, "stock"));
    net.drop(network::replies);
    const auto sent = net.bytes(network::replies);
    ASSERT_TRUE(is_ok(held->release()));
    ASSERT_TRUE(wait_until([&] { return net.bytes(network::replies) > sent; })) << "the event";
    net.heal(), net.cut();
    auto other = get(waiting);
    ASSERT_TRUE(is_ok(other));
    EXPECT_TRUE(other->valid());
    EXPECT_TRUE(is_proven(server, *other));
    EXPECT_TRUE(is_ok(other->release()));
  }
}

// It was given back, and that was not heard of: when it is asked again there is nothing left, and that is no loss.
TEST_F(zk_answers, swallowed_answer_to_a_release_is_no_loss) {
  const zookeeper_server server;
  network net{server.port()};
  const auto a = client::open(zk_url(net, "session=20s"), {.call_timeout = 5s});
  for (int round = 0; round < 4; ++round) {
    mutex lock{a, "stock"};
    auto held = lock.acquire({.wait = patience, .ttl = 20s});
    ASSERT_TRUE(is_ok(held));
    net.drop(network::replies);
    auto releasing = std::async(std::launch::async, [&] { return held->release(); });
    ASSERT_TRUE(wait_for_nodes(server, "stock", 0)) << "it was executed";
    net.heal(), net.cut();
    const auto said = releasing.get();
    EXPECT_TRUE(said || said.error().code() == errc::outcome_unknown) << said.error().message();
  }
  EXPECT_EQ(a.metrics().lost, 0U);
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

TEST_F(zk_answers, late_answers_are_never_taken_for_others) {
  const zookeeper_server server;
  network net{server.port()};
  const auto a = client::open(zk_url(net), {.call_timeout = 40ms});
  scenarios::answers_come_late(net, client::open(server.url()), a, 5, 100ms);
}

TEST_F(zk_answers, one_byte_at_a_time) {
  const zookeeper_server server;
  network net{server.port()};
  scenarios::bytes_come_one_at_a_time(server, net, zk_url(net));
}

TEST_F(zk_answers, reset_in_the_middle_of_an_answer) {
  const zookeeper_server server;
  network net{server.port()};
  const auto a = client::open(zk_url(net, "session=30s"));
  std::vector<scenarios::reset_points> rounds;
  for (std::size_t i = 0; i < 30; ++i) rounds.push_back({.acquire = 9 * i, .release = i});
  scenarios::answers_are_torn(server, net, a, rounds);
}

TEST_F(zk_answers, half_open_connections_are_replaced_and_waiters_served) {
  const zookeeper_server server;
  network net{server.port()};
  const auto b = client::open(zk_url(net, "session=6s"), {.call_timeout = 500ms});
  scenarios::connections_are_half_open(server, net, b, 6s);
}

TEST_F(zk_answers, cut_off_holder_gives_up_before_the_waiter_is_let_in) {
  const zookeeper_server server;
  network net{server.port()};
  const auto a = client::open(zk_url(net, "session=2s"));
  scenarios::holder_is_cut_off(server, net, a, 4, scenarios::isolation::cut, 2s);
}

TEST_F(zk_answers, silenced_holder_gives_up_before_the_waiter_is_let_in) {
  const zookeeper_server server;
  network net{server.port()};
  const auto a = client::open(zk_url(net, "session=2s"));
  scenarios::holder_is_cut_off(server, net, a, 3, scenarios::isolation::silent, 2s);
}

// One way only. The server hears everything and lets the session live for as long as it does; the client hears nothing
// of it, and must not believe in what it has not heard.
TEST_F(zk_answers, holder_that_hears_nothing_gives_up_although_its_session_lives) {
  const zookeeper_server server;
  network net{server.port()};
  const auto a = client::open(zk_url(net, "session=4s"));
  mutex lock{a, "stock"};
  auto held = lock.acquire({.ttl = 4s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  net.drop(network::replies);
  const auto cut = std::chrono::steady_clock::now();
  expect_loss_on_time(*held, loss);
  EXPECT_LE(loss.when() - cut, 4s);
  net.heal(), net.cut();
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
}

// The other way: the server hears nothing, and ends the session.
TEST_F(zk_answers, holder_that_is_not_heard_gives_up_before_the_waiter_is_let_in) {
  const zookeeper_server server;
  network net{server.port()};
  const auto a = client::open(zk_url(net, "session=2s")), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 2s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  steady_time granted{};
  auto waiting = std::async(std::launch::async, [&] {
    auto got = theirs.acquire({.wait = 3 * patience});
    EXPECT_FALSE(held->valid()) << "two holders";
    granted = std::chrono::steady_clock::now();
    return got;
  });
  ASSERT_TRUE(one_waits(server, "stock"));
  net.refuse(), net.drop(network::requests);
  expect_loss_on_time(*held, loss);
  auto other = get(waiting, 3 * patience);
  ASSERT_TRUE(is_ok(other));
  EXPECT_LT(loss.when(), granted);
}

// A network that is all delay: validity counts from before the request was sent.
TEST_F(zk_answers, late_proofs_do_not_prolong_what_they_should_not) {
  const zookeeper_server server;
  network net{server.port()};
  const auto a = client::open(zk_url(net, "session=9s"));
  mutex lock{a, "stock"};
  auto held = lock.acquire({.ttl = 6s});
  ASSERT_TRUE(is_ok(held));
  net.delay(network::replies, 600ms);
  for (int i = 0; i < 3; ++i) {
    if (!held->renew()) continue;
    EXPECT_LE(held->valid_until(), std::chrono::steady_clock::now() - 600ms + 6s);
  }
  EXPECT_TRUE(held->valid());
}

// Every verb is back at the end of its time, whatever the server does (L4).
TEST_F(zk_answers, caller_is_answered_on_time_by_a_server_that_hangs) {
  zookeeper_server server;
  const auto a = client::open(server.url() + "?session=40s", {.call_timeout = 20s});
  mutex lock{a, "stock"}, other{a, "shelf"};
  auto held = other.acquire({.ttl = 1min});
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(is_ok(lock.acquire()->release()));
  server.stop();
  for (const nanoseconds wait : {nanoseconds{0}, nanoseconds{500ms}}) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(is_ok(lock.acquire({.wait = wait})));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, wait + 4s) << "call_timeout is 20 s";
  }
  server.resume();
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
  EXPECT_TRUE(held->valid()) << "that was no reason to lose anything";
}

}  // namespace
}  // namespace holdfast::testing

// What breaks here: the way back. The server executes and its answer is late, in pieces, cut or never there (F3, F4).
// What must hold: no client claims a lock without proof, what was given up takes nothing later, no late answer prolongs
// a lease or is taken for another call's.
#include "faults/mysql_faults.hpp"

namespace holdfast::testing {
namespace {

class mysql_answers : public mysql_faults {};

TEST_F(mysql_answers, lost_reply_is_settled) {
  mariadb_server server;
  fault_proxy network{server.port()};
  const auto a = client::open(mysql_url(network), {.call_timeout = 500ms});
  const auto b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  { ASSERT_TRUE(is_ok(ours.acquire())); }  // so that all is prepared
  ASSERT_TRUE(is_ok(theirs.acquire({.wait = patience})));
  ASSERT_TRUE(leaves_nothing(server));
  const auto connections = network.connections();
  network.drop(fault_proxy::replies);
  auto waiting = acquire_later(ours, {.ttl = 60s});
  ASSERT_TRUE(wait_until([&] { return left_behind(server) != "0"; })) << "executed";
  ASSERT_TRUE(wait_until([&] { return network.connections() > connections; })) << "and given up";
  network.heal();
  auto held = get(waiting);
  if (held) {
    EXPECT_TRUE(held->valid());
    EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::busy));
    EXPECT_TRUE(is_ok(held->release()));
  }
  EXPECT_TRUE(is_ok(theirs.acquire({.wait = patience}))) << "no orphan";
}

// The statement waits for a row when its caller gives up; freed later, it would take the lock for no caller.
TEST_F(mysql_answers, statement_that_was_given_up_takes_nothing_later) {
  mariadb_server server;
  const auto a = client::open(server.url(), {.call_timeout = 400ms}),
             b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  { ASSERT_TRUE(is_ok(ours.acquire())); }
  auto blocker = std::async(std::launch::async, [&] {
    server.sql(
        "START TRANSACTION; SELECT * FROM holdfast_lock FOR UPDATE; SELECT SLEEP(2); COMMIT");
  });
  ASSERT_TRUE(wait_until([&] {
    return server.sql(
               "SELECT COUNT(*) FROM information_schema.processlist WHERE INFO LIKE '%SLEEP(2)%' "
               "AND "
               "STATE='User sleep'") == "1";
  }));
  const auto tried = ours.acquire({.wait = 600ms, .ttl = 60s});
  EXPECT_FALSE(tried);
  blocker.get();
  EXPECT_TRUE(leaves_nothing(server));
  EXPECT_TRUE(is_ok(theirs.acquire({.wait = patience})));
}

TEST_F(mysql_answers, answers_in_single_bytes_are_still_answers) {
  mariadb_server server;
  fault_proxy network{server.port()};
  network.trickle();
  const auto a = client::open(mysql_url(network));
  mutex ours{a, "stock"};
  for (int round = 0; round < 3; ++round) {
    auto held = ours.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held));
    EXPECT_TRUE(held->valid());
    EXPECT_TRUE(is_ok(held->release()));
  }
}

TEST_F(mysql_answers, answer_cut_in_the_middle_is_no_answer) {
  mariadb_server server;
  fault_proxy network{server.port()};
  const auto a = client::open(mysql_url(network), {.call_timeout = 2s}),
             b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  token_log tokens;
  for (const std::size_t bytes : {0U, 1U, 3U, 5U, 9U}) {
    network.cut_after(bytes);
    auto held = ours.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held)) << bytes;
    tokens.add(held->token());
    EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::busy));
    EXPECT_TRUE(is_ok(held->release()));
    auto other = theirs.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(other)) << bytes;
    tokens.add(other->token());
  }
}

TEST_F(mysql_answers, late_renewal_prolongs_nothing) {
  mariadb_server server;
  fault_proxy network{server.port()};
  const auto a = client::open(mysql_url(network, "grace=0")), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 1s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  network.delay(fault_proxy::replies, 1200ms);
  auto next = theirs.acquire({.wait = patience});
  // The requests arrive, so the store may go on renewing for a while; the holder must not believe it.
  ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
  EXPECT_FALSE(held->valid());
  if (next) {
    EXPECT_LT(loss.when(), std::chrono::steady_clock::now());
  }
  network.heal();
}

}  // namespace
}  // namespace holdfast::testing

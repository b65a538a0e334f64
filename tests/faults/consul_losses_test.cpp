// What breaks here: what an operator or another program does to keys and sessions that are in use; Consul lets
// everybody who may write at all. What must hold: a holder is told within a second (S5), gives nothing of others back,
// and whoever waits is served, after a lock-delay if there is one, without asking all the time.
#include "faults/consul_faults.hpp"

#include <limits>

namespace holdfast::testing {
namespace {

class consul_losses : public consul_faults {};

// ---- sessions

TEST_F(consul_losses, destroyed_session_is_told_within_a_second_and_the_waiter_served) {
  const consul_server server;
  const auto a = client::open(server.url() + consul_at_once),
             b = client::open(server.url() + consul_at_once);
  mutex ours{a, "stock"}, theirs{b, "stock"}, more{a, "shelf"};
  for (int round = 0; round < 3; ++round) {
    auto held = ours.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held));
    auto waiting = acquire_later(theirs);
    ASSERT_TRUE(one_waits(server, "stock"));
    expect_told_within_a_second(*held,
                                [&] { server.destroy_session(session_of(server, "stock")); });
    EXPECT_TRUE(is_over(*held));
    auto other = get(waiting);
    ASSERT_TRUE(is_ok(other));
    EXPECT_GT(other->token(), held->token());
    EXPECT_TRUE(is_ok(more.acquire({.wait = patience}))) << "the client goes on";
    EXPECT_TRUE(other->valid()) << "and has touched nothing";
    EXPECT_TRUE(is_ok(other->release()));
  }
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

TEST_F(consul_losses, destroyed_session_costs_all_that_it_carried) {
  const consul_server server;
  const auto a = client::open(server.url() + consul_at_once, {.handoff_limit = 0});
  std::vector<lease> leases;
  for (int i = 0; i < 8; ++i) {
    mutex lock{a, fmt::format("item-{}", i)};
    auto held = lock.acquire();
    ASSERT_TRUE(is_ok(held));
    leases.push_back(std::move(*held));
  }
  server.destroy_session(session_of(server, "item-0"));
  for (auto& one : leases) {
    EXPECT_TRUE(wait_until([&] { return one.lost().stop_requested(); }, 2s)) << one.name();
    EXPECT_TRUE(is_over(one)) << one.name();
  }
}

// A waiter has a session as well, and nobody tells it of its end.
TEST_F(consul_losses, waiter_whose_session_is_destroyed_waits_on) {
  const consul_server server;
  const auto a = client::open(server.url() + consul_at_once),
             b = client::open(server.url() + consul_at_once);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire();
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(one_waits(server, "stock"));
  const auto keep = session_of(server, "stock");
  for (const auto& one : server.sessions())
    if (one != keep) server.destroy_session(one);
  EXPECT_TRUE(stays_true([&] { return held->valid() && !is_ready(waiting); }, 500ms));
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(get(waiting, 3 * patience)));
}

// ---- keys

TEST_F(consul_losses, deleted_key_is_told_within_a_second) {
  const consul_server server;
  const auto a = client::open(server.url() + consul_at_once),
             b = client::open(server.url() + consul_at_once);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire();
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(one_waits(server, "stock"));
  expect_told_within_a_second(*held, [&] { server.erase(lock_key("stock")); });
  EXPECT_TRUE(is_over(*held));
  auto other = get(waiting);
  ASSERT_TRUE(is_ok(other));
  EXPECT_GT(other->token(), held->token()) << "also over the end of a key";
  EXPECT_TRUE(is_proven(server, *other));
}

// A plain write leaves the session on the key (measured with 1.8.7), and takes away what makes it a lock.
TEST_F(consul_losses, overwritten_key_is_told_within_a_second) {
  const consul_server server;
  const auto a = client::open(server.url() + consul_at_once);
  mutex lock{a, "stock"};
  auto held = lock.acquire();
  ASSERT_TRUE(is_ok(held));
  expect_told_within_a_second(*held, [&] { server.put(lock_key("stock"), "mine now"); });
  EXPECT_TRUE(is_over(*held));
}

TEST_F(consul_losses, whole_folder_deleted_is_told_within_a_second) {
  const consul_server server;
  const auto a = client::open(server.url() + consul_at_once),
             b = client::open(server.url() + consul_at_once);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire();
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(one_waits(server, "stock"));
  expect_told_within_a_second(*held,
                              [&] { server.ask("DELETE", "/v1/kv/holdfast/stock/?recurse"); });
  EXPECT_TRUE(is_over(*held));
  EXPECT_TRUE(is_ok(get(waiting))) << "its place went, too";
}

TEST_F(consul_losses, what_another_program_took_meanwhile_is_not_given_back) {
  const consul_server server;
  const auto a = client::open(server.url() + consul_at_once);
  mutex lock{a, "stock"};
  auto held = lock.acquire();
  ASSERT_TRUE(is_ok(held));
  const auto other = server.make_session();
  expect_told_within_a_second(*held, [&] {
    server.erase(lock_key("stock"));
    ASSERT_TRUE(server.lock(lock_key("stock"), other));
  });
  EXPECT_TRUE(is_over(*held));
  EXPECT_EQ(session_of(server, "stock"), other);
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::busy));
  EXPECT_TRUE(stays_true([&] { return session_of(server, "stock") == other; }, 300ms));
  server.unlock(lock_key("stock"), other);
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
}

TEST_F(consul_losses, permit_that_is_struck_off_the_record_is_told_within_a_second) {
  const consul_server server;
  const auto a = client::open(server.url() + consul_at_once);
  counting_semaphore seats{a, "seats", 2};
  auto held = seats.acquire_permits(1);
  ASSERT_TRUE(is_ok(held));
  expect_told_within_a_second(*held, [&] {
    server.ask("PUT",
               fmt::format("/v1/kv/{}?flags={}", lock_key("seats"), consul_server::semaphore_flags),
               R"({"Limit":2,"Holders":{}})");
  });
  EXPECT_TRUE(is_over(*held));
}

// ---- stale contenders

// Left behind by programs that ask for behavior "release", or that died between two steps.
TEST_F(consul_losses, key_without_a_session_is_no_holder) {
  const consul_server server;
  server.ask("PUT",
             fmt::format("/v1/kv/{}?flags={}", lock_key("stock"), consul_server::lock_flags));
  const auto a = client::open(server.url() + consul_at_once);
  EXPECT_TRUE(is_ok(mutex(a, "stock").try_acquire()));
}

TEST_F(consul_losses, holder_of_a_permit_whose_session_is_gone_does_not_count) {
  const consul_server server;
  const std::string ghost = "01234567-89ab-cdef-0123-456789abcdef";
  const auto flags = fmt::format("?flags={}", consul_server::semaphore_flags);
  server.ask("PUT", fmt::format("/v1/kv/{}{}", lock_key("seats"), flags),
             fmt::format(R"({{"Limit":1,"Holders":{{"{}":true}}}})", ghost));
  const auto a = client::open(server.url() + consul_at_once);
  counting_semaphore seats{a, "seats", 1};
  EXPECT_TRUE(is_ok(seats.acquire_permits(1, {.wait = 0s}))) << "no contender key at all";
  server.ask("PUT", fmt::format("/v1/kv/holdfast/seats/{}{}", ghost, flags));
  server.ask("PUT", fmt::format("/v1/kv/{}{}", lock_key("seats"), flags),
             fmt::format(R"({{"Limit":1,"Holders":{{"{}":true}}}})", ghost));
  EXPECT_TRUE(is_ok(seats.acquire_permits(1, {.wait = patience}))) << "one that nobody has";
}

// ---- lock-delay

// Nobody tells of its end. A waiter knows that it is there, and neither sleeps over its end nor asks all the time.
TEST_F(consul_losses, lock_delay_of_others_is_slept_through) {
  const consul_server server;
  const auto foreign = server.make_session({.lock_delay = 3s});
  ASSERT_TRUE(server.lock(lock_key("stock"), foreign));
  const auto a = client::open(server.url() + consul_at_once);
  mutex lock{a, "stock"};
  auto waiting = acquire_later(lock);
  ASSERT_TRUE(one_waits(server, "stock"));
  const auto before = server.requests();
  const auto destroyed = std::chrono::steady_clock::now();
  server.destroy_session(foreign);
  auto held = get(waiting);
  const auto took = std::chrono::steady_clock::now() - destroyed;
  ASSERT_TRUE(is_ok(held));
  const auto asked = server.requests() - before;
  EXPECT_GT(took, 2500ms) << "Consul does not give it earlier";
  EXPECT_LT(took, 5s);
  EXPECT_LT(asked, 60U) << "in three seconds";
  RecordProperty("requests_during_a_delay_of_3s", static_cast<int>(asked));
  EXPECT_TRUE(is_proven(server, *held));
}

TEST_F(consul_losses, try_during_a_lock_delay_is_busy) {
  const consul_server server;
  const auto foreign = server.make_session({.lock_delay = 3s});
  ASSERT_TRUE(server.lock(lock_key("stock"), foreign));
  server.destroy_session(foreign);
  const auto a = client::open(server.url() + consul_at_once);
  mutex lock{a, "stock"};
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::busy));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(fails_with(lock.acquire({.wait = 500ms}), errc::timed_out));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
}

// Ours is asked for in the address; a lock that is given back has none.
TEST_F(consul_losses, own_lock_delay_counts_for_the_lost_only) {
  const consul_server server;
  const auto a = client::open(server.url() + "?lock_delay=3s"),
             b = client::open(server.url() + consul_at_once);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire();
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(theirs.acquire({.wait = 1s})));
  held = ours.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(held));
  const auto begin = std::chrono::steady_clock::now();
  server.destroy_session(session_of(server, "stock"));
  ASSERT_TRUE(is_ok(theirs.acquire({.wait = patience})));
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(took, 2500ms);
  EXPECT_LT(took, 5s);
}

// ---- what an operator's hand, a lost session or many tries leave in Consul
//
// Nothing that a living client has no use for keeps others out; and a change of our own is no loss.

class consul_left_over : public consul_faults {};

std::string own_key(const consul_server& server, const std::string& name) {
  for (const auto& key : server.keys("holdfast/" + name + "/"))
    if (key.find("/.owner-") != std::string::npos) return key;
  return {};
}

// The lock itself is still locked by the holder's session, which lives on.
TEST_F(consul_left_over, holder_whose_own_key_was_deleted_keeps_nobody_out_for_long) {
  const consul_server server;
  const auto a = client::open(server.url() + consul_at_once),
             b = client::open(server.url() + consul_at_once);
  auto writer = mutex{a, "writer"}.acquire({.ttl = 60s});
  auto reader = shared_mutex{a, "reader"}.acquire_shared({.ttl = 60s});
  auto permits = counting_semaphore{a, "permits", 2}.acquire_permits(2, {.ttl = 60s});
  ASSERT_TRUE(is_ok(writer) && is_ok(reader) && is_ok(permits));
  for (const auto* name : {"writer", "reader", "permits"}) server.erase(own_key(server, name));
  static_cast<void>(writer->release());
  EXPECT_TRUE(is_ok(mutex(b, "writer").acquire({.wait = patience})));
  EXPECT_TRUE(wait_until([&] { return !reader->valid() && !permits->valid(); }));
  EXPECT_TRUE(is_ok(shared_mutex(b, "reader").acquire({.wait = patience})));
  EXPECT_TRUE(is_ok(counting_semaphore(b, "permits", 2).acquire_permits(2, {.wait = patience})));
}

// Its further session is alive, and would be for as long as the client.
TEST_F(consul_left_over, permits_go_with_the_main_session) {
  const consul_server server;
  const auto a = client::open(server.url() + consul_at_once),
             b = client::open(server.url() + consul_at_once);
  auto held = counting_semaphore{a, "seats", 2}.acquire_permits(2, {.ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  const auto key = own_key(server, "seats");
  server.destroy_session(server.find(key).value().session);
  EXPECT_TRUE(wait_until([&] { return !held->valid(); }));
  EXPECT_TRUE(is_ok(counting_semaphore(b, "seats", 2).acquire_permits(2, {.wait = patience})));
}

TEST_F(consul_left_over, free_lock_is_free_after_the_session_was_destroyed) {
  const consul_server server;
  const auto a = client::open(server.url() + consul_at_once);
  for (int round = 0; round < 3; ++round) {
    for (const auto& session : server.sessions()) server.destroy_session(session);
    auto held = mutex{a, "stock"}.acquire({.wait = 0s});
    ASSERT_TRUE(is_ok(held)) << round;
    ASSERT_TRUE(is_ok(held->release()));
  }
}

TEST_F(consul_left_over, many_tries_for_taken_permits_make_few_sessions) {
  const consul_server server;
  const auto a = client::open(server.url() + consul_at_once),
             b = client::open(server.url() + consul_at_once);
  auto held = counting_semaphore{b, "seats", 1}.acquire_permits(1, {.ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  std::vector<std::jthread> tries;
  for (int i = 0; i < 40; ++i)
    tries.emplace_back(
        [&] { EXPECT_FALSE(counting_semaphore(a, "seats", 1).acquire_permits(1, {.wait = 0s})); });
  tries.clear();
  EXPECT_LE(server.sessions().size(), 5U);
}

TEST_F(consul_left_over, clients_that_keep_their_keys_leave_none_when_they_end) {
  const consul_server server;
  for (int i = 0; i < 3; ++i) {
    const auto a = client::open(server.url() + "?behavior=release&lock_delay=0s");
    EXPECT_TRUE(is_ok(mutex(a, "stock").acquire({.wait = patience})));
  }
  EXPECT_TRUE(wait_until([&] { return server.keys("").empty(); }))
      << fmt::format("{}", fmt::join(server.keys(""), ", "));
}

// Its key is deleted by the very transaction that makes the new one, and its watch may hear of that first.
TEST_F(consul_left_over, upgrade_is_no_loss_of_what_it_replaces) {
  const consul_server server;
  const auto a = client::open(server.url() + consul_at_once);
  shared_mutex lock{a, "stock"};
  for (int i = 0; i < 20; ++i) {
    auto held = lock.acquire_upgradeable({.wait = patience, .ttl = 60s});
    ASSERT_TRUE(is_ok(held));
    // Held for long enough to be watched.
    ASSERT_TRUE(stays_true([&] { return held->valid(); }, 250ms));
    ASSERT_TRUE(is_ok(lock.upgrade(*held, {.wait = patience}))) << i;
    EXPECT_TRUE(held->valid());
    ASSERT_TRUE(is_ok(held->release()));
  }
}

// A plain reader has .lock all the time, and another upgradeable is what the waiter waits for.
TEST_F(consul_left_over, upgradeable_waiter_is_told_of_the_one_before) {
  const consul_server server;
  const auto a = client::open(server.url() + consul_at_once),
             b = client::open(server.url() + consul_at_once);
  auto reader = shared_mutex{a, "stock"}.acquire_shared({.wait = patience, .ttl = 60s});
  auto first = shared_mutex{a, "stock"}.acquire_upgradeable({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(reader) && is_ok(first));
  shared_mutex theirs{b, "stock"};
  auto waiting = std::async(std::launch::async,
                            [&] { return theirs.acquire_upgradeable({.wait = patience}); });
  ASSERT_TRUE(one_waits(server, "stock"));
  ASSERT_TRUE(is_ok(first->release()));
  // Well before the client would look again by itself, after ten seconds.
  EXPECT_EQ(waiting.wait_for(5s), std::future_status::ready);
  EXPECT_TRUE(is_ok(waiting.get()));
}

TEST_F(consul_left_over, waiting_behind_a_release_ends_with_its_stop) {
  consul_server server;
  const auto a =
      client::open(server.url() + consul_at_once, {.call_timeout = 8s, .handoff_limit = 0});
  mutex lock{a, "stock"};
  auto held = lock.acquire({.ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  server.stop();
  *held = {};  // its release stays without an answer
  std::stop_source stop;
  auto waiting = std::async(std::launch::async, [&] {
    return lock.acquire({.wait = patience, .stop = stop.get_token()});
  });
  stop.request_stop();
  EXPECT_EQ(waiting.wait_for(5s), std::future_status::ready);
  server.resume();
  EXPECT_FALSE(waiting.get());
}

// What is kept for a while comes with its times, and anybody may have written them.
TEST_F(consul_left_over, counters_with_impossible_times_are_read) {
  const consul_server server;
  const auto a = client::open(server.url() + consul_at_once);
  constexpr auto least = std::numeric_limits<std::int64_t>::min();
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t keep : {least, std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}, most})
    for (const std::int64_t until : {least, std::int64_t{-1}, std::int64_t{0}, most}) {
      server.put("holdfast/jobs/.count", fmt::format("5 {} {} x", keep, until));
      const auto seen = a.latches();
      ASSERT_TRUE(is_ok(seen));
      const bool is_over = keep > 0 && until < most;
      ASSERT_EQ(seen->size(), is_over ? 0U : 1U) << keep << ' ' << until;
      if (is_over) continue;
      EXPECT_GT(seen->front().forgotten_in, nanoseconds::zero()) << keep << ' ' << until;
    }
}

}  // namespace
}  // namespace holdfast::testing

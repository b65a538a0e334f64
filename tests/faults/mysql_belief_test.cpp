// What breaks here: nothing but time and connections. What must hold: no client believes in a grant for longer than
// the store keeps it, however the grant came and however often it was renewed (S2). The store's own end is read from
// its rows, and compared.
#include "faults/mysql_raw.hpp"

namespace holdfast::testing {
namespace {

class mysql_belief : public mysql_faults {};

// The end of a grant by its row, as an instant of ours that is not earlier.
steady_time latest_end(const mariadb_server& server, const std::string& name, fencing_token token) {
  const auto left = server.sql(
      fmt::format("SELECT CAST(MAX(expires) AS SIGNED) - "
                  "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6)) FROM (SELECT expires "
                  "FROM holdfast_lock WHERE name='{0}' AND token={1} UNION ALL SELECT expires FROM "
                  "holdfast_entry WHERE name='{0}' AND token={1}) AS both_tables",
                  name, token.value));
  const auto now = std::chrono::steady_clock::now();
  if (left == "NULL") return {};
  return now + std::chrono::microseconds{std::stoll(left)};
}

::testing::AssertionResult ends_in_time(const mariadb_server& server, const lease& held) {
  const auto believed = held.valid_until();
  const auto stored = latest_end(server, held.name(), held.token());
  if (!held.valid() || believed <= stored) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << held.name() << " is believed " << format_duration(believed - stored)
         << " longer than its row";
}

::testing::AssertionResult ends_in_time(const mariadb_server& server, const raw_client& by,
                                        const grant& held) {
  const auto stored = latest_end(server, std::string{held.name}, held.token);
  const auto believed = std::max(by.believed_until(held), held.valid_from + held.ttl);
  if (believed <= stored) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << held.name << " is believed " << format_duration(believed - stored)
         << " longer than its row";
}

// The same, renewed for some time as core would do it.
::testing::AssertionResult stays_in_time(const mariadb_server& server, raw_client& by, grant held) {
  const auto end = std::chrono::steady_clock::now() + 700ms;
  while (std::chrono::steady_clock::now() < end) {
    const auto again = upkeep(by, held);
    if (again.answer != renewal::verdict::held)
      return ::testing::AssertionFailure() << held.name << " is lost";
    held.valid_from = again.valid_from;
    held.session = again.session;
    if (auto ok = ends_in_time(server, by, held); !ok) return ok;
  }
  return ::testing::AssertionSuccess();
}

// ---- whose word counts

// The client was away for longer than its grace, and another has taken one of its two locks. What the new connection
// proves about itself, and finds out about the one, says nothing about the other.
TEST_F(mysql_belief, new_connection_revives_nothing_that_the_old_one_lost) {
  mariadb_server server;
  auto away = raw_mysql(server.url("grace=500ms"), 1);
  const auto first = enter(away, "one", 60s), second = enter(away, "two", 60s);
  kill_all_connections(server);
  const auto b = client::open(server.url("grace=500ms"));
  auto taken = mutex{b, "two"}.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(taken));
  EXPECT_EQ(upkeep(away, first).answer, renewal::verdict::held) << "no client wanted it";
  EXPECT_EQ(upkeep(away, second).answer, renewal::verdict::lost);
  EXPECT_TRUE(taken->valid());
}

// Asked for under the old connection, and heard of under the new one.
TEST_F(mysql_belief, proof_of_a_new_connection_does_not_count_for_what_it_has_not_seen) {
  mariadb_server server;
  auto away = raw_mysql(server.url("grace=2s"), 1);
  const auto held = enter(away, "stock", 60s), other = enter(away, "other", 60s);
  const auto before = away.believed_until(held);
  kill_all_connections(server);
  const auto b = client::open(server.url("grace=2s"));
  mutex theirs{b, "stock"};
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_waiters(server, "stock", 1));
  std::this_thread::sleep_until(before);  // the end of what is believed is the thing to look at
  auto next = get(waiting);
  ASSERT_TRUE(is_ok(next));
  EXPECT_NE(upkeep(away, other).answer, renewal::verdict::unknown);
  auto ask = away.ask("stock");
  ask.owner = held.owner;
  const auto settled = away.verbs->settle(ask, soon());
  ASSERT_TRUE(is_ok(settled));
  EXPECT_EQ(settled->what, entered::kind::busy);
  EXPECT_EQ(upkeep(away, held).answer, renewal::verdict::lost);
}

// ---- the end in the store is not before the end in the hand

// The first is shorter than the grace, and long enough for a machine that is busy.
constexpr std::array<nanoseconds, 4> ttls{2s, 5s, 60s, 600s};

TEST_F(mysql_belief, granted_at_once_and_renewed) {
  mariadb_server server;
  for (const auto* options : {"", "grace=0", "wait=poll", "grace=1s"}) {
    const auto a = client::open(server.url(options));
    std::vector<lease> held;
    for (const auto ttl : ttls) {
      auto got = mutex{a, "at-once-" + format_duration(ttl)}.acquire({.ttl = ttl});
      ASSERT_TRUE(is_ok(got));
      held.push_back(std::move(*got));
    }
    const auto end = std::chrono::steady_clock::now() + 3s;
    for (int looks = 0; looks < 5 || std::chrono::steady_clock::now() < end; ++looks)
      for (auto& kept : held) {
        ASSERT_TRUE(kept.valid()) << options;
        EXPECT_TRUE(ends_in_time(server, kept)) << options;
        if (looks % 3 == 2) {
          EXPECT_TRUE(is_ok(kept.renew()));
        }
      }
  }
}

// With the rows of the name open, and from hand to hand.
TEST_F(mysql_belief, granted_by_another_client) {
  mariadb_server server;
  for (const auto* options : {"", "grace=0", "wait=poll"}) {
    const auto a = client::open(server.url(options)), b = client::open(server.url(options));
    for (const auto ttl : ttls) {
      const auto name = "waited-" + format_duration(ttl);
      shared_mutex ours{a, name}, theirs{b, name};
      std::optional<lease> held{ours.acquire({.ttl = 60s}).value()};
      for (int round = 0; round < 3; ++round) {
        auto& next = round % 2 == 0 ? theirs : ours;
        auto waiting = std::async(std::launch::async, [&] {
          return round == 2 ? next.acquire_shared({.wait = patience, .ttl = ttl})
                            : next.acquire({.wait = patience, .ttl = ttl});
        });
        ASSERT_TRUE(wait_for_waiters(server, name, 1)) << options;
        ASSERT_TRUE(is_ok(held->release()));
        held = waiting.get().value();
        EXPECT_TRUE(ends_in_time(server, *held)) << options;
        EXPECT_TRUE(held->valid()) << options;
      }
    }
  }
}

// The releasing thread tells a waiter of its own client without the server's help.
TEST_F(mysql_belief, granted_by_a_thread_of_the_same_client) {
  mariadb_server server;
  std::uint64_t number = 0;
  for (const auto* options : {"", "grace=0", "wait=poll"})
    for (const auto ttl : ttls) {
      auto a = raw_mysql(server.url(options), ++number);
      const auto name = "same-" + format_duration(ttl);
      const auto first = enter(a, name, 60s);
      auto ask = a.ask(name);
      ask.ttl = ttl;
      const auto queued = a.verbs->enter(ask, soon());
      ASSERT_TRUE(is_ok(queued));
      ASSERT_EQ(queued->what, entered::kind::waiting);
      promised<progress> done;
      auto place = queued->waiting;
      place.recheck_at = steady_time::max();
      const auto limits = soon();
      a.verbs->start_await(place, limits, done);
      ASSERT_TRUE(is_ok(a.verbs->release(first, soon())));
      const auto got = done.get();
      ASSERT_TRUE(is_ok(got));
      ASSERT_TRUE(got->is_granted) << options;
      EXPECT_TRUE(ends_in_time(server, a, got->granted)) << options;
      EXPECT_GT(a.believed_until(got->granted),
                std::chrono::steady_clock::now() + std::min<nanoseconds>(ttl, 2s) / 2)
          << options;
      EXPECT_TRUE(stays_in_time(server, a, got->granted)) << options;
    }
}

TEST_F(mysql_belief, handed_over_to_who_polls_and_then_settled) {
  mariadb_server server;
  auto a = raw_mysql(server.url("wait=poll"), 1), b = raw_mysql(server.url("wait=poll"), 2);
  const auto first = enter(a, "stock", 60s);
  auto ask = b.ask("stock");
  ask.ttl = 60s;
  ASSERT_EQ(b.verbs->enter(ask, soon()).value().what, entered::kind::waiting);
  ASSERT_TRUE(is_ok(a.verbs->release(first, soon())));
  const auto settled = b.verbs->settle(ask, soon());
  ASSERT_TRUE(is_ok(settled));
  ASSERT_EQ(settled->what, entered::kind::granted);
  EXPECT_TRUE(ends_in_time(server, b, settled->granted)) << "it has not asked, so it has less";
  const auto asked = b.verbs->enter(ask, soon());
  ASSERT_TRUE(is_ok(asked));
  EXPECT_TRUE(ends_in_time(server, b, asked->granted));
  EXPECT_GT(b.believed_until(asked->granted), std::chrono::steady_clock::now() + 2s);
  EXPECT_TRUE(stays_in_time(server, b, asked->granted));
}

TEST_F(mysql_belief, upgraded_and_downgraded) {
  mariadb_server server;
  for (const auto* options : {"", "wait=poll"}) {
    const auto a = client::open(server.url(options)), b = client::open(server.url(options));
    for (const auto ttl : {1200ms, 60'000ms}) {
      shared_mutex ours{a, "book"}, theirs{b, "book"};
      auto held = ours.acquire_upgradeable({.ttl = ttl});
      ASSERT_TRUE(is_ok(held));
      auto reader = theirs.acquire_shared();
      ASSERT_TRUE(is_ok(reader));
      auto upgrading =
          std::async(std::launch::async, [&] { return ours.upgrade(*held, {.wait = patience}); });
      ASSERT_TRUE(wait_for_waiters(server, "book", 1));
      ASSERT_TRUE(is_ok(reader->release()));
      ASSERT_TRUE(is_ok(upgrading.get()));
      EXPECT_TRUE(ends_in_time(server, *held)) << options;
      ASSERT_TRUE(is_ok(ours.downgrade(*held)));
      EXPECT_TRUE(ends_in_time(server, *held)) << options;
      EXPECT_TRUE(held->valid());
    }
  }
}

// ---- proof

TEST_F(mysql_belief, renew_after_a_revocation_says_lost) {
  mariadb_server server;
  const auto b = client::open(server.url());
  for (int round = 0; round < 4; ++round) {
    const auto name = "stock-" + std::to_string(round);
    auto a = raw_mysql(server.url(), 10 + static_cast<std::uint64_t>(round));
    const auto held = enter(a, name, 60s);
    mutex theirs{b, name};
    ASSERT_TRUE(is_ok(b.revoke(name)));
    ASSERT_TRUE(is_ok(theirs.acquire()));
    std::vector<renewal> batch{{.held = &held}};
    ASSERT_TRUE(is_ok(a.verbs->renew(batch, soon())));
    EXPECT_EQ(batch.front().answer, renewal::verdict::lost);
  }
}

// The news of it has not been read when the session's presence is proven.
TEST_F(mysql_belief, upkeep_after_a_revocation_says_lost) {
  mariadb_server server;
  auto a = raw_mysql(server.url(), 1), b = raw_mysql(server.url(), 2);
  const auto held = enter(a, "stock", 60s), kept = enter(a, "kept", 60s);
  ASSERT_EQ(b.verbs->revoke("stock", soon()).value(), 1U);
  enter(b, "stock", 60s);
  EXPECT_EQ(upkeep(a, held).answer, renewal::verdict::lost);
  EXPECT_EQ(upkeep(a, kept).answer, renewal::verdict::held);
  ASSERT_TRUE(wait_until([&] { return !a.listener.lost().empty(); }));
  for (const auto& [owner, why] : a.listener.lost()) EXPECT_EQ(owner, held.owner) << why;
}

// Sent while the grant was exclusive, and executed when it is shared.
TEST_F(mysql_belief, renewal_beside_a_downgrade_is_no_loss) {
  mariadb_server server;
  auto a = raw_mysql(server.url(), 1), b = raw_mysql(server.url(), 2);
  const auto first = enter(a, "book", 60s);
  auto ask = b.ask("book");
  ask.ttl = 60s;
  const auto queued = b.verbs->enter(ask, soon());
  ASSERT_TRUE(is_ok(queued));
  ASSERT_TRUE(is_ok(a.verbs->release(first, soon())));
  const auto settled = b.verbs->settle(ask, soon());
  ASSERT_TRUE(is_ok(settled));
  ASSERT_EQ(settled->what, entered::kind::granted);
  const auto before = settled->granted;
  const auto smaller = b.verbs->downgrade(before, lock_mode::shared, soon());
  ASSERT_TRUE(is_ok(smaller));
  std::vector<renewal> batch{{.held = &before}, {.held = &*smaller}};
  ASSERT_TRUE(is_ok(b.verbs->renew(batch, soon())));
  for (const auto& asked : batch) EXPECT_EQ(asked.answer, renewal::verdict::held);
  auto reads = a.ask("book");
  reads.mode = lock_mode::shared;
  reads.weight = 1;
  EXPECT_EQ(a.verbs->enter(reads, soon()).value().what, entered::kind::granted);
  EXPECT_TRUE(is_ok(b.verbs->release(*smaller, soon())));
}

// Another program keeps one of the rows locked in a transaction of its own.
TEST_F(mysql_belief, row_that_cannot_be_asked_about_costs_the_others_nothing) {
  mariadb_server server;
  auto a = raw_mysql(server.url(), 1);
  std::vector<grant> held;
  std::vector<std::string> names{"a", "b", "c", "d"};
  for (const auto& name : names) held.push_back(enter(a, name, 60s));
  auto blocker = std::async(std::launch::async, [&] {
    server.sql(
        "START TRANSACTION; SELECT * FROM holdfast_lock WHERE name='b' FOR UPDATE; SELECT "
        "SLEEP(6); COMMIT");
  });
  ASSERT_TRUE(wait_until([&] {
    return server.sql(
               "SELECT COUNT(*) FROM information_schema.processlist WHERE STATE='User sleep'") ==
           "1";
  }));
  std::vector<renewal> batch;
  for (const auto& kept : held) batch.push_back({.held = &kept});
  EXPECT_TRUE(is_ok(a.verbs->renew(batch, soon())));
  for (const auto& asked : batch)
    EXPECT_EQ(asked.answer,
              asked.held->name == "b" ? renewal::verdict::unknown : renewal::verdict::held)
        << asked.held->name;
  blocker.get();
}

}  // namespace
}  // namespace holdfast::testing

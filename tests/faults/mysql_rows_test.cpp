// What is looked at here: the rows themselves. Names that collations would confuse, rows that the sweeper removes, many
// clients at once without a deadlock, the way of waiting where waiters poll, and rows that another program changes.
#include "faults/mysql_raw.hpp"

#include "support/child.hpp"
#include "support/fake_clock.hpp"

#include <atomic>
#include <barrier>
#include <thread>

namespace holdfast::testing {
namespace {

class mysql_rows : public mysql_faults {};

TEST_F(mysql_rows, names_that_a_collation_would_confuse_are_different) {
  mariadb_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  std::vector<lease> held;
  for (const std::string name :
       {"stock", "Stock", "STOCK",
        "st\xc3\xb6"
        "ck",
        "sto\xcc\x88"
        "ck",
        "stock\xc2\xa0", "sto ck", "stosk",
        "sto\xc3\x9f"
        "k",
        "stossk", "'; DROP TABLE holdfast_lock; --", "%", "_", "\xf0\x9f\x94\x92"}) {
    auto got = mutex{a, name}.try_acquire();
    ASSERT_TRUE(is_ok(got)) << name;
    held.push_back(std::move(*got));
  }
  const std::string longest(255, 'n'), other = std::string(254, 'n') + "m";
  for (const auto& name : {longest, other}) {
    auto got = mutex{a, name}.try_acquire();
    ASSERT_TRUE(is_ok(got));
    held.push_back(std::move(*got));
  }
  for (const auto& kept : held)
    EXPECT_TRUE(fails_with(mutex(b, kept.name()).try_acquire(), errc::busy)) << kept.name();
  EXPECT_EQ(b.list().value().size(), held.size());
  EXPECT_EQ(b.list("%").value().size(), 1U);
}

TEST_F(mysql_rows, uncontended_pair_is_two_statements) {
  mariadb_server server;
  const auto a = client::open(server.url());
  mutex lock{a, "stock"};
  { ASSERT_TRUE(is_ok(lock.acquire())); }
  constexpr int rounds = 100;
  const auto count = [&] {
    const auto said = server.sql("SHOW GLOBAL STATUS LIKE 'Com_stmt_execute'");
    return std::stoull(said.substr(said.find('\t') + 1));
  };
  ASSERT_TRUE(leaves_nothing(server));
  const auto before = count();
  for (int i = 0; i < rounds; ++i) {
    auto held = lock.acquire();
    ASSERT_TRUE(is_ok(held));
    ASSERT_TRUE(is_ok(held->release()));
  }
  EXPECT_LE(count() - before, 2 * rounds + 5) << "and a presence now and then";
}

TEST_F(mysql_rows, many_clients_meet_without_a_deadlock) {
  mariadb_server server;
  constexpr int clients = 8, rounds = 30;
  std::vector<client> all;
  for (int t = 0; t < clients; ++t) all.push_back(client::open(server.url()));
  std::vector<std::jthread> pool;
  std::atomic<int> inside{0}, failures{0};
  for (int t = 0; t < clients; ++t)
    pool.emplace_back([&, t] {
      const auto& own = all[static_cast<std::size_t>(t)];
      mutex lock{own, "hot"};
      shared_mutex both{own, "warm"};
      for (int round = 0; round < rounds; ++round) {
        {
          auto held = lock.acquire({.wait = 3 * patience, .ttl = 5s});
          if (!held) ++failures;
          if (++inside != 1) ++failures;
          --inside;
        }
        const auto reading = both.acquire_shared({.wait = 3 * patience});
        if (!reading) ++failures;
        const std::vector<std::string> several{"a" + std::to_string(t % 3), "b",
                                               "c" + std::to_string(round % 3)};
        if (!lock_all(own, several, {.wait = 3 * patience})) ++failures;
      }
    });
  pool.clear();
  all.clear();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(deadlocks(server), 0U);
  EXPECT_TRUE(leaves_nothing(server));
}

// The rows of new names are made by the first client, while others look.
TEST_F(mysql_rows, fresh_names_are_made_without_a_deadlock) {
  mariadb_server server;
  constexpr int clients = 6, rounds = 40;
  std::barrier together{clients};
  std::atomic<int> failures{0};
  std::vector<client> all;
  for (int t = 0; t < clients; ++t) all.push_back(client::open(server.url()));
  std::vector<std::jthread> pool;
  for (int t = 0; t < clients; ++t)
    pool.emplace_back([&, t] {
      const auto& own = all[static_cast<std::size_t>(t)];
      for (int round = 0; round < rounds; ++round) {
        const auto name = "fresh-" + std::to_string(round);
        const std::vector<std::string> both{name + "-a", name + "-b"};
        together.arrive_and_wait();
        if (!lock_all(own, both, {.wait = 3 * patience})) ++failures;
      }
    });
  pool.clear();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(deadlocks(server), 0U);
}

TEST_F(mysql_rows, sweeper_takes_what_is_old_and_no_token_goes_back) {
  mariadb_server server;
  fencing_token before{};
  {
    const auto a = client::open(server.url());
    before = mutex{a, "old"}.acquire().value().token();
    auto kept = mutex{a, "kept"}.acquire();
    ASSERT_TRUE(is_ok(kept));
    server.sql("UPDATE holdfast_lock SET since=since-2*86400000000 WHERE name='old'");
    server.sql("INSERT INTO holdfast_session VALUES('deaddeaddeaddead','gone',1,0,1)");
    server.sql(
        "INSERT INTO holdfast_entry "
        "VALUES(0,'stale','deaddeaddeaddead',1,1,0,1,0,1000000,0,1,1,0,0,1,0,'','')");
    server.sql(
        "INSERT INTO holdfast_lock "
        "VALUES('stale',1073741824,1,1,1,'deaddeaddeaddead',1,0,0,0,0,0,1,0,'','')");
    server.sql("INSERT INTO holdfast_session VALUES('lostlostlostlost','',0,1,1)");
    server.sql("INSERT INTO holdfast_lock VALUES('counts',1,1,1,3,'',0,0,0,0,0,0,1,0,'','')");
    allow_sweep(server);
    { const auto sweeps = client::open(server.url()); }
    EXPECT_EQ(server.sql("SELECT COUNT(*) FROM holdfast_lock WHERE name='old'"), "0");
    EXPECT_EQ(server.sql("SELECT COUNT(*) FROM holdfast_entry"), "0");
    EXPECT_EQ(server.sql("SELECT COUNT(*) FROM holdfast_session WHERE since=1"), "0");
    EXPECT_EQ(server.sql("SELECT more FROM holdfast_lock WHERE name='counts'"), "0")
        << "what it counted is not there";
    EXPECT_TRUE(kept->valid());
    EXPECT_TRUE(is_ok(kept->renew()));
  }
  const auto b = client::open(server.url());
  EXPECT_GT((mutex{b, "old"}.acquire().value().token()), before);
}

// More than fits one portion, and some in between that must stay.
TEST_F(mysql_rows, sweeper_keeps_up_with_many_names) {
  mariadb_server server;
  const auto a = client::open(server.url());
  auto kept = mutex{a, "old-1500"}.acquire();
  ASSERT_TRUE(is_ok(kept));
  server.sql(
      "INSERT INTO holdfast_lock SELECT CONCAT('old-',seq),1,1,0,0,'deaddeaddeaddead',1,0,1,1,1,0,"
      "1,0,'','' FROM seq_1_to_5000 WHERE seq<>1500");
  const auto left = [&] { return server.sql("SELECT COUNT(*) FROM holdfast_lock"); };
  allow_sweep(server);
  // A client that closes sweeps for a moment only; the next client goes on.
  ASSERT_TRUE(wait_until([&] {
    { const auto sweeps = client::open(server.url()); }
    return left() == "1";
  })) << left();
  EXPECT_TRUE(is_ok(kept->renew()));
}

// When its time was up it stopped somewhere in the middle.
TEST_F(mysql_rows, sweeper_goes_on_where_the_one_before_stopped) {
  mariadb_server server;
  const auto a = client::open(server.url());
  { const auto first = client::open(server.url()); }
  for (const auto* name : {"a", "z"})
    server.sql(fmt::format(
        "INSERT INTO holdfast_lock VALUES('{}',1,1,0,0,'',0,0,0,0,0,0,1,0,'','')", name));
  server.sql("UPDATE holdfast_session SET host='m' WHERE client=REPEAT(CHAR(0),16)");
  const auto left = [&] { return server.sql("SELECT GROUP_CONCAT(name) FROM holdfast_lock"); };
  allow_sweep(server);
  { const auto sweeps = client::open(server.url()); }
  EXPECT_EQ(left(), "a");
  allow_sweep(server);
  { const auto sweeps = client::open(server.url()); }
  EXPECT_EQ(left(), "NULL") << "and begins anew when it was through";
}

TEST_F(mysql_rows, sweeper_that_is_cut_off_lets_others_go_on_soon) {
  mariadb_server server;
  fake_clock time;
  auto a = raw_mysql(server.url(), 1, time);
  time.advance(1h);
  const auto held = enter(a, "held", 60s);
  server.sql("INSERT INTO holdfast_lock VALUES('old',1,1,0,0,'',0,0,0,0,0,0,1,0,'','')");
  paused_sql blocker{server,
                     "START TRANSACTION; SELECT * FROM holdfast_lock WHERE name='old' FOR UPDATE",
                     "COMMIT"};
  upkeep(a, held);  // the first for long: it sweeps
  ASSERT_TRUE(a_statement_waits_for_a_row(server));
  // It has worked for so long, and rests for twice as long.
  EXPECT_TRUE(stays_true([&] { return a_statement_waits_for_a_row(server); }, 500ms));
  kill_all_connections(server);
  // One may sweep again when the last one began 600 s ago.
  EXPECT_TRUE(wait_until([&] {
    return server.sql(
               "SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))-gone BETWEEN "
               "500000000 AND 599500000 FROM holdfast_session WHERE "
               "client=REPEAT(CHAR(0),16)") == "1";
  })) << "but not at once";
  blocker.go_on();
  EXPECT_TRUE(wait_until([&] {
    { const auto sweeps = client::open(server.url()); }
    return server.sql("SELECT COUNT(*) FROM holdfast_lock WHERE name='old'") == "0";
  }));
}

// A client that comes back takes its user lock while another client is about to touch the row of its session.
paused_sql comes_back(const mariadb_server& server, const std::string& client) {
  return {server,
          fmt::format("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION; "
                      "SELECT * FROM holdfast_session WHERE client=UNHEX('{}') FOR UPDATE",
                      client),
          fmt::format("SELECT GET_LOCK('holdfast:s:{}',5); COMMIT", client)};
}

TEST_F(mysql_rows, sweeper_leaves_a_session_that_comes_back_under_its_eyes) {
  mariadb_server server;
  fake_clock time;
  auto a = raw_mysql(server.url(), 1, time);
  time.advance(1h);
  const auto held = enter(a, "held", 60s);
  const std::string away = "64656164646561646465616464656164";
  server.sql(fmt::format("INSERT INTO holdfast_session VALUES(UNHEX('{}'),'away',1,0,1)", away));
  paused_sql back = comes_back(server, away);
  upkeep(a, held);  // the first for long: it sweeps
  EXPECT_TRUE(a_statement_waits_for_a_row(server)) << "it has seen that the client is not there";
  back.go_on();
  EXPECT_EQ(server.sql("SELECT COUNT(*) FROM holdfast_session WHERE host='away'"), "1");
}

// A note that says so would stand when it goes the next time, for a moment, and cost it its locks at once.
TEST_F(mysql_rows, session_that_comes_back_under_the_eyes_of_a_waiter_is_not_noted_as_gone) {
  mariadb_server server;
  auto a = raw_mysql(server.url(), 1);
  enter(a, "stock", 60s);
  kill_all_connections(server);
  ASSERT_TRUE(wait_until([&] { return user_locks(server) == 0; })) << "it is gone";
  server.sql("DELETE FROM holdfast_session");
  auto b = raw_mysql(server.url(), 2);
  const std::string away = "0000000000C11E470000000000000001";
  paused_sql back = comes_back(server, away);
  auto waiting =
      std::async(std::launch::async, [&] { return b.verbs->enter(b.ask("stock"), soon()); });
  EXPECT_TRUE(a_statement_waits_for_a_row(server)) << "it has seen that the client is not there";
  back.go_on();
  const auto queued = waiting.get();
  ASSERT_TRUE(is_ok(queued));
  EXPECT_EQ(queued->what, entered::kind::waiting);
  EXPECT_EQ(
      server.sql(fmt::format("SELECT gone FROM holdfast_session WHERE client=UNHEX('{}')", away)),
      "0");
}

// A client that only watched leaves no trace, neither in the rows nor in the way of others.
TEST_F(mysql_rows, name_that_was_watched_is_as_it_was) {
  mariadb_server server;
  auto a = raw_mysql(server.url(), 1);
  enter(a, "zz", 60s);
  const auto counted = [&] {
    return server.sql("SELECT more FROM holdfast_lock WHERE name='idle'");
  };
  promised<void> done;
  auto limits = call_within(1s);
  a.verbs->start_watch(watch_kind::lock, "idle", 0, limits, done);
  ASSERT_TRUE(wait_until([&] { return counted() == "1"; }));
  const auto listed = a.verbs->list("", 1, soon());
  ASSERT_TRUE(is_ok(listed));
  ASSERT_EQ(listed->size(), 1U) << "only holders and waiters count";
  EXPECT_EQ(listed->front().name, "zz");
  EXPECT_TRUE(is_ok(done.get()));
  EXPECT_TRUE(wait_until([&] { return counted() == "0"; })) << counted();
}

// Renewals lock several rows of one name at once, and so do clients that end all holders of it.
TEST_F(mysql_rows, renewals_and_revocations_do_not_meet_in_a_deadlock) {
  mariadb_server server;
  auto a = raw_mysql(server.url(), 1), b = raw_mysql(server.url(), 2);
  constexpr std::size_t readers = 16, rounds = 40;
  std::atomic<int> failures{0};
  const auto read = [](raw_client& by) {
    auto ask = by.ask("book");
    ask.mode = lock_mode::shared;
    ask.weight = 1;
    return by.verbs->enter(ask, soon()).value().granted;
  };
  for (std::size_t round = 0; round < rounds; ++round) {
    read(b);  // has the name's own row, so that renewals need not wait for it
    std::vector<grant> held;
    for (std::size_t i = 0; i < readers; ++i) held.push_back(read(a));
    std::atomic<bool> done{false};
    std::jthread renews{[&] {
      while (!done) {
        std::vector<renewal> batch;
        for (const auto& kept : held) batch.push_back({.held = &kept});
        if (!a.verbs->renew(batch, soon())) ++failures;
      }
    }};
    const auto ended = b.verbs->revoke("book", soon());
    done = true;
    if (!ended || *ended != readers + 1) ++failures;
  }
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(deadlocks(server), 0U);
}

TEST_F(mysql_rows, where_nobody_can_be_told_waiters_ask) {
  mariadb_server server;
  const auto a = client::open(server.url("wait=poll")), b = client::open(server.url("wait=poll"));
  EXPECT_EQ(a.capabilities().wakeup, wakeup_kind::poll);
  EXPECT_NE(a.capabilities().limits.find("wait=poll"), std::string::npos)
      << a.capabilities().limits;
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire();
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_waiters(server, "stock", 1));
  const auto before = server.statements();
  EXPECT_TRUE(stays_true([&] { return !is_ready(waiting); }, 2s));
  EXPECT_LT(server.statements() - before, 200U) << "ever less often";
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(is_ok(held->release()));
  auto next = get(waiting);
  ASSERT_TRUE(is_ok(next));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
  // A waiter that is told and a waiter that polls are in the same queue.
  const auto c = client::open(server.url());
  mutex told{c, "stock"};
  auto third = acquire_later(told);
  ASSERT_TRUE(wait_for_waiters(server, "stock", 1));
  ASSERT_TRUE(is_ok(next->release()));
  EXPECT_TRUE(is_ok(get(third)));
}

TEST_F(mysql_rows, waiting_costs_next_to_nothing) {
  mariadb_server server;
  const auto a = client::open(server.url());
  mutex ours{a, "stock"};
  auto held = ours.acquire({.ttl = 60s});
  std::vector<client> others;
  std::vector<std::unique_ptr<mutex>> locks;
  std::vector<std::future<result<lease>>> waiting;
  for (int i = 0; i < 8; ++i) {
    others.push_back(client::open(server.url()));
    locks.push_back(std::make_unique<mutex>(others.back(), "stock"));
    waiting.push_back(acquire_later(*locks.back()));
    ASSERT_TRUE(wait_for_waiters(server, "stock", i + 1));
  }
  const auto before = server.statements();
  EXPECT_TRUE(stays_true([&] { return std::ranges::none_of(waiting, is_ready); }, 3s));
  // The holder's presence, and each listener once in five seconds; polling at 50 ms would be 480.
  EXPECT_LT(server.statements() - before, 60U);
  ASSERT_TRUE(is_ok(held->release()));
  for (auto& waiter : waiting) EXPECT_TRUE(is_ok(get(waiter)));
}

TEST_F(mysql_rows, deleted_row_is_noticed_by_the_next_renewal) {
  mariadb_server server;
  const auto a = client::open(server.url());
  mutex ours{a, "stock"};
  auto held = ours.acquire({.ttl = 1500ms});
  const loss_recorder loss{*held};
  const auto token = held->token();
  server.sql("DELETE FROM holdfast_lock");
  ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
  auto again = ours.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(again));
  EXPECT_GT(again->token(), token);
}

TEST_F(mysql_rows, killed_process_with_many_locks_frees_them_all) {
  mariadb_server server;
  child dies{server.url()};
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(dies.ask("acquire many/" + std::to_string(i) + " 60s").starts_with("granted"));
  const auto a = client::open(server.url());
  std::vector<std::unique_ptr<mutex>> locks;
  std::vector<std::future<result<lease>>> waiting;
  for (int i = 0; i < 20; ++i) {
    locks.push_back(std::make_unique<mutex>(a, "many/" + std::to_string(i)));
    waiting.push_back(acquire_later(*locks.back()));
  }
  ASSERT_TRUE(wait_until(
      [&] { return server.sql("SELECT COUNT(*) FROM holdfast_entry WHERE state=1") == "20"; }));
  dies.kill();
  const auto begin = std::chrono::steady_clock::now();
  for (auto& waiter : waiting) EXPECT_TRUE(is_ok(get(waiter)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, a.capabilities().dead_holder_bound + 1s);
}

}  // namespace
}  // namespace holdfast::testing

// What breaks here: the set-up. Wrong password, missing rights, tables or database, a server that is read-only, full,
// too old, or whose rows another program keeps locked; TLS that cannot be trusted. What must hold: a typed error with a
// sentence that says what to do, no secret in it, and nothing lost.
#include "faults/mysql_raw.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

namespace holdfast::testing {
namespace {

class mysql_errors : public mysql_faults {};

std::string said_by(const result<client>& outcome) {
  return outcome ? std::string{"nothing"} : outcome.error().message();
}

TEST_F(mysql_errors, wrong_password_is_denied_and_not_repeated) {
  mariadb_server server;
  server.sql(
      "CREATE USER app@'%' IDENTIFIED BY 'right'; GRANT SELECT,INSERT,UPDATE,DELETE,CREATE ON "
      "holdfast.* TO "
      "app@'%'");
  const auto at = fmt::format("127.0.0.1:{}/holdfast?create=1", server.port());
  const auto wrong = client::try_open("mysql://app:CANARY-1@" + at);
  EXPECT_TRUE(fails_with(wrong, errc::denied));
  EXPECT_EQ(said_by(wrong).find("CANARY"), std::string::npos) << said_by(wrong);
  EXPECT_TRUE(fails_with(client::try_open("mysql://nobody@" + at), errc::denied));
  EXPECT_TRUE(is_ok(client::try_open("mysql://app:right@" + at)));

  temp_dir dir;
  std::ofstream{dir.file("password")} << "right\n";
  EXPECT_TRUE(
      is_ok(client::try_open("mysql://app@" + at + "&password_file=" + dir.file("password"))));
  EXPECT_TRUE(is_ok(client::try_open(fmt::format(
      "mysql://app:right@localhost/holdfast?create=1&socket={}", server.socket_path()))));
}

TEST_F(mysql_errors, missing_tables_are_told_with_advice) {
  mariadb_server server;
  const auto url = fmt::format("mysql://holdfast@127.0.0.1:{}/holdfast", server.port());
  const auto missing = client::try_open(url);
  EXPECT_TRUE(fails_with(missing, errc::misconfigured));
  EXPECT_NE(said_by(missing).find("holdfast schema mysql"), std::string::npos) << said_by(missing);
  EXPECT_NE(said_by(missing).find("create=1"), std::string::npos) << said_by(missing);
  EXPECT_TRUE(is_ok(client::try_open(server.url())));
  EXPECT_TRUE(is_ok(client::try_open(url))) << "made by the client before";

  const auto other = fmt::format("mysql://holdfast@127.0.0.1:{}/nosuch", server.port());
  EXPECT_TRUE(fails_with(client::try_open(other), errc::denied)) << "it may not even know that";
}

TEST_F(mysql_errors, tables_that_vanish_are_told_when_they_are_needed) {
  mariadb_server server;
  const auto a = client::open(server.url());
  mutex lock{a, "stock"};
  server.sql("DROP TABLE holdfast_lock");
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::misconfigured));
}

TEST_F(mysql_errors, missing_rights_are_denied) {
  mariadb_server server;
  { ASSERT_TRUE(is_ok(client::try_open(server.url()))); }
  server.sql("CREATE USER reader@'%'; GRANT SELECT ON holdfast.* TO reader@'%'");
  const auto url = fmt::format("mysql://reader@127.0.0.1:{}/holdfast", server.port());
  EXPECT_TRUE(fails_with(client::try_open(url), errc::denied));
  // What the guide names is enough.
  server.sql(
      "CREATE USER just@'%'; GRANT SELECT,INSERT,UPDATE,DELETE ON holdfast.holdfast_lock TO "
      "just@'%'; "
      "GRANT SELECT,INSERT,UPDATE,DELETE ON holdfast.holdfast_entry TO just@'%'; "
      "GRANT SELECT,INSERT,UPDATE,DELETE ON holdfast.holdfast_session TO just@'%'; "
      "GRANT SELECT,INSERT,UPDATE,DELETE ON holdfast.holdfast_counter TO just@'%'");
  const auto enough = fmt::format("mysql://just@127.0.0.1:{}/holdfast", server.port());
  const auto a = client::open(enough), b = client::open(enough);
  EXPECT_EQ(a.capabilities().wakeup, wakeup_kind::push);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire();
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_waiters(server, "stock", 1));
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(get(waiting)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s) << "KILL QUERY needs no grant";
}

TEST_F(mysql_errors, read_only_server_refuses_and_holders_live_on) {
  mariadb_server server;
  const auto a = client::open(server.url(), {.call_timeout = 500ms});
  mutex held_one{a, "held"}, other{a, "other"};
  auto held = held_one.acquire({.ttl = 20s});
  server.sql("SET GLOBAL read_only=1");
  const auto refused = other.try_acquire();
  EXPECT_TRUE(fails_with(refused, errc::unavailable));
  EXPECT_NE(refused.error().message().find("read-only"), std::string::npos)
      << refused.error().message();
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 3s));
  server.sql("SET GLOBAL read_only=0");
  EXPECT_TRUE(is_ok(other.acquire({.wait = patience})));
  EXPECT_TRUE(is_ok(held->release()));
}

TEST_F(mysql_errors, rows_locked_by_somebody_else_are_waited_for_and_then_told) {
  mariadb_server server;
  const auto a = client::open(server.url(), {.call_timeout = 8s});
  mutex lock{a, "stock"};
  { ASSERT_TRUE(is_ok(lock.acquire())); }
  auto blocker = std::async(std::launch::async, [&] {
    server.sql(
        "START TRANSACTION; SELECT * FROM holdfast_lock FOR UPDATE; SELECT SLEEP(4); COMMIT");
  });
  ASSERT_TRUE(wait_until([&] {
    return server.sql(
               "SELECT COUNT(*) FROM information_schema.processlist WHERE STATE='User sleep'") ==
           "1";
  }));
  const auto tried = lock.try_acquire();
  EXPECT_TRUE(!tried || tried->valid());  // 1205 after 3 s, asked again until the 8 s are over
  blocker.get();
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
}

// Without a file per table the system tablespace is the disk, and it may not grow.
TEST_F(mysql_errors, full_disk_refuses_new_names_and_frees_old_ones) {
  mariadb_server server{{.config = {"innodb_file_per_table=0",
                                    "innodb_data_file_path=ibdata1:4M:autoextend:max:24M"}}};
  const auto a = client::open(server.url(), {.call_timeout = 1s}), b = client::open(server.url());
  mutex known{a, "known"}, again{b, "known"};
  auto held = known.acquire({.ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  server.sql("CREATE TABLE ballast(id INT PRIMARY KEY AUTO_INCREMENT, junk LONGBLOB)");
  for (int kilobytes : {1024, 64, 8, 1})
    for (int i = 0; i < 64; ++i) {
      try {
        server.sql(
            fmt::format("INSERT INTO ballast(junk) VALUES(REPEAT('x',{}))", kilobytes * 1000));
      } catch (const std::runtime_error&) {
        break;
      }
    }
  std::optional<error> refused;
  for (int i = 0; i < 2000 && !refused; ++i) {
    mutex fresh{a, "fresh-" + std::string(200, 'x') + std::to_string(i)};
    if (auto got = fresh.try_acquire(); !got) refused = got.error();
  }
  ASSERT_TRUE(refused) << "the disk never became full";
  EXPECT_EQ(refused->code(), errc::unavailable) << refused->message();
  EXPECT_NE(refused->message().find("full"), std::string::npos) << refused->message();
  EXPECT_TRUE(held->valid());
  const auto token = held->token();
  if (const auto kept = held->release(); !kept) {  // not even that may be possible
    EXPECT_EQ(kept.error().code(), errc::unavailable) << kept.error().message();
  }
  server.restart_with({"innodb_file_per_table=0", "innodb_data_file_path=ibdata1:4M:autoextend"});
  auto next = again.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(next)) << "what could not be released is cleared up when there is room";
  EXPECT_GT(next->token(), token);
}

TEST_F(mysql_errors, no_server_and_no_connection_left_are_unavailable) {
  mariadb_server server{{.config = {"max_connections=10"}}};
  const reserved_port unused;
  EXPECT_TRUE(
      fails_with(client::try_open(fmt::format("mysql://u@127.0.0.1:{}/holdfast", unused.number())),
                 errc::unavailable));
  std::vector<client> many;
  std::optional<error> refused;
  for (int i = 0; i < 12 && !refused; ++i) {
    auto opened = client::try_open(server.url());
    if (opened) {
      many.push_back(*opened);
    } else {
      refused = opened.error();
    }
  }
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code(), errc::unavailable) << refused->message();
  many.clear();
  EXPECT_TRUE(wait_until([&] { return client::try_open(server.url()).has_value(); }));
}

TEST_F(mysql_errors, server_without_statements_left_is_unavailable_and_we_live_on_few) {
  mariadb_server server;
  const auto a = client::open(server.url(), {.call_timeout = 500ms});
  mutex lock{a, "stock"};
  { ASSERT_TRUE(is_ok(lock.acquire())); }
  const auto said = server.sql("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'");
  server.sql("SET GLOBAL max_prepared_stmt_count=" + said.substr(said.find('\t') + 1));
  EXPECT_TRUE(is_ok(a.inspect("stock"))) << "by means of the statements that it has";
  EXPECT_TRUE(is_ok(lock.acquire()));
  server.sql("SET GLOBAL max_prepared_stmt_count=0");
  const auto refused = client::try_open(server.url());
  EXPECT_TRUE(fails_with(refused, errc::unavailable));
  EXPECT_NE(said_by(refused).find("max_prepared_stmt_count"), std::string::npos)
      << said_by(refused);
  server.sql("SET GLOBAL max_prepared_stmt_count=16382");
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
}

// A refusal of the server is certain; only a missing answer is a doubt.
TEST_F(mysql_errors, what_the_server_refuses_is_not_done) {
  mariadb_server server;
  auto a = raw_mysql(server.url(), 1);
  server.sql("RENAME TABLE holdfast_lock TO elsewhere");
  const auto gone = a.verbs->enter(a.ask("stock"), soon());
  ASSERT_TRUE(fails_with(gone, errc::misconfigured));
  EXPECT_TRUE(gone.error().is_not_done());
  server.sql("RENAME TABLE elsewhere TO holdfast_lock");
  const auto held = enter(a, "stock", 10s);
  auto other = a.ask("stock");
  other.capacity = 3;
  other.weight = 1;
  const auto refused = a.verbs->enter(other, soon());
  ASSERT_TRUE(fails_with(refused, errc::misconfigured));
  EXPECT_TRUE(refused.error().is_not_done());
  // Downgrading is idempotent, and what is gone is gone.
  const auto reads = a.verbs->downgrade(held, lock_mode::shared, soon());
  ASSERT_TRUE(is_ok(reads));
  const auto again = a.verbs->downgrade(held, lock_mode::shared, soon());
  ASSERT_TRUE(is_ok(again));
  EXPECT_EQ(again->mode, lock_mode::shared);
  EXPECT_EQ(again->token, held.token);
  ASSERT_TRUE(is_ok(a.verbs->release(*reads, soon())));
  EXPECT_TRUE(fails_with(a.verbs->downgrade(held, lock_mode::shared, soon()), errc::not_held));
}

// Only the place is given up: what was granted meanwhile stays, and so does what it replaces.
TEST_F(mysql_errors, leaving_an_upgrade_takes_no_grant_along) {
  mariadb_server server;
  auto a = raw_mysql(server.url(), 1), b = raw_mysql(server.url(), 2);
  auto ask = a.ask("book");
  ask.mode = lock_mode::upgradeable;
  ask.weight = upgradeable_weight;
  const auto base = a.verbs->enter(ask, soon()).value().granted;
  auto reads = b.ask("book");
  reads.mode = lock_mode::shared;
  reads.weight = 1;
  const auto reader = b.verbs->enter(reads, soon()).value().granted;
  const auto upgrade = [&] {
    auto out = a.ask("book");
    out.replaces = &base;
    return out;
  };
  const auto left = upgrade();
  auto place = a.verbs->enter(left, soon()).value().waiting;
  place.replacing = true;
  ASSERT_TRUE(is_ok(a.verbs->leave(place, soon())));
  ASSERT_TRUE(is_ok(a.verbs->leave(place, soon()))) << "safe to repeat";
  EXPECT_EQ(a.verbs->settle(left, soon()).value().what, entered::kind::busy);
  EXPECT_EQ(upkeep(a, base).answer, renewal::verdict::held);
  const auto arrived = upgrade();
  place = a.verbs->enter(arrived, soon()).value().waiting;
  place.replacing = true;
  ASSERT_TRUE(is_ok(b.verbs->release(reader, soon())));
  ASSERT_TRUE(is_ok(a.verbs->leave(place, soon())));
  const auto settled = a.verbs->settle(arrived, soon());
  ASSERT_TRUE(is_ok(settled));
  ASSERT_EQ(settled->what, entered::kind::granted);
  EXPECT_TRUE(is_ok(a.verbs->release(settled->granted, soon())));
}

// A listener that watches for the end of two clients looks again and again.
TEST_F(mysql_errors, owner_that_is_settled_as_nothing_is_watched_for_no_more) {
  mariadb_server server;
  auto a = raw_mysql(server.url("grace=200ms"), 1);
  auto b = raw_mysql(server.url("grace=200ms"), 2), c = raw_mysql(server.url("grace=200ms"), 3);
  enter(b, "one", 60s);
  enter(c, "two", 60s);
  const auto lost = a.ask("one");
  ASSERT_EQ(a.verbs->enter(lost, soon()).value().what, entered::kind::waiting);
  server.sql("DELETE FROM holdfast_entry WHERE name='one'");
  ASSERT_EQ(a.verbs->settle(lost, soon()).value().what, entered::kind::busy);
  const auto queued = a.verbs->enter(a.ask("two"), soon());
  ASSERT_EQ(queued.value().what, entered::kind::waiting);
  promised<progress> done;
  auto place = queued->waiting;
  place.recheck_at = steady_time::max();
  const auto limits = call_within(2s);
  a.verbs->start_await(place, limits, done);
  const auto before = server.statements();
  EXPECT_TRUE(is_ok(done.get()));
  EXPECT_LT(server.statements() - before, 15U);
}

TEST_F(mysql_errors, revocations_of_many_are_told_at_once) {
  mariadb_server server;
  auto a = raw_mysql(server.url(), 1), b = raw_mysql(server.url(), 2);
  std::vector<grant> held;
  for (int i = 0; i < 5; ++i) {
    auto ask = a.ask("book");
    ask.mode = lock_mode::shared;
    ask.weight = 1;
    held.push_back(a.verbs->enter(ask, soon()).value().granted);
  }
  ASSERT_EQ(b.verbs->revoke("book", soon()).value(), held.size());
  upkeep(a, held.front());
  EXPECT_TRUE(wait_until([&] { return a.listener.lost().size() == held.size(); }));
}

TEST_F(mysql_errors, tls_is_verified) {
  mariadb_server server{{.tls = true}};
  const auto a = client::open(server.url());
  mutex lock{a, "stock"};
  EXPECT_TRUE(is_ok(lock.acquire()));
  const auto at = fmt::format("mysql://holdfast@127.0.0.1:{}/holdfast?create=1", server.port());
  EXPECT_TRUE(fails_with(client::try_open(at + "&tls=on"), errc::misconfigured))
      << "which authority to trust?";
  temp_dir dir;
  const certificate_authority other{dir.path()};
  EXPECT_TRUE(fails_with(client::try_open(at + "&ca_file=" + other.file()), errc::misconfigured));
  const auto plain = client::try_open(at + "&tls=off");
  ASSERT_FALSE(plain);
  EXPECT_TRUE(plain.error().code() == errc::denied || plain.error().code() == errc::misconfigured)
      << plain.error().message();

  mariadb_server elsewhere{{.tls = true, .certified = "DNS:db.example.com"}};
  EXPECT_TRUE(fails_with(client::try_open(elsewhere.url()), errc::misconfigured))
      << "not for this host";
}

// A handshake and an OK, as MySQL 5.5 would say them.
class ancient_server {
 public:
  ancient_server() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(port_.number());
    const int yes = 1;
    ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    ::listen(socket_, 4);
    thread_ = std::jthread{[this] { serve(); }};
  }
  ~ancient_server() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  std::uint16_t port() const { return port_.number(); }

 private:
  void serve() const {
    for (;;) {
      const int accepted = ::accept(socket_, nullptr, nullptr);
      if (accepted < 0) return;
      using namespace std::string_literals;
      const auto hello =
          "\x0a"
          "5.5.62\0"s +
          "\x07\0\0\0"s + "abcdefgh\0"s + "\xff\xf7"s + "\x21"s + "\x02\0"s + "\x0f\x80\x15"s +
          std::string(10, '\0') + "abcdefghijkl\0"s + "mysql_native_password\0"s;
      const auto ok = "\0\0\0\x02\0\0\0"s;
      send(accepted, hello, 0);
      std::array<char, 1024> answer;  // NOLINT: filled by recv
      if (::recv(accepted, answer.data(), answer.size(), 0) > 0) send(accepted, ok, 2);
      static_cast<void>(::recv(accepted, answer.data(), answer.size(), 0));
      ::close(accepted);
    }
  }
  static void send(int to, const std::string& what, char number) {
    std::string packet{static_cast<char>(what.size()), '\0', '\0', number};
    packet += what;
    static_cast<void>(::send(to, packet.data(), packet.size(), MSG_NOSIGNAL));
  }
  reserved_port port_;
  int socket_;
  std::jthread thread_;
};

TEST_F(mysql_errors, too_old_a_server_is_misconfigured) {
  const ancient_server server;
  const auto outcome =
      client::try_open(fmt::format("mysql://u@127.0.0.1:{}/holdfast", server.port()));
  EXPECT_TRUE(fails_with(outcome, errc::misconfigured));
  EXPECT_NE(said_by(outcome).find("too old (5.5.62)"), std::string::npos) << said_by(outcome);
}

TEST_F(mysql_errors, addresses_are_checked) {
  for (const auto* wrong :
       {"mysql:", "mysql://host", "mysql://host/", "mysql://a,b/db", "mysql://host/a/b",
        "mysql://host/db?grace=10ms", "mysql://host/db?wait=poll&grace=1s",
        "mysql://host/db?wait=maybe", "mysql://host/db?tls=maybe",
        "mysql://host/db?tls=off&ca_file=x", "mysql://host/db?socket=relative",
        "mysql://host/db?connections=0", "mysql://host/db?create=2", "mysql://host/db?no=1"})
    EXPECT_TRUE(fails_with(client::try_open(wrong), errc::misconfigured)) << wrong;
}

}  // namespace
}  // namespace holdfast::testing

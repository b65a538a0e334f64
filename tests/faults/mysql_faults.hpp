// What the bad days of the mysql engine share.
//
//   HOLDFAST_REQUIRE_ENGINES=mysql   a missing mariadbd fails instead of skipping (CI sets it; "all" is all)
#pragma once

#include "faults/faults.hpp"

#include "support/mariadb_server.hpp"

#include <fmt/format.h>

namespace holdfast::testing {

class mysql_faults : public ::testing::Test {
 protected:
  void SetUp() override { need(mariadb_server::available(), "mysql"); }
};

// The same store by way of a bad network.
inline std::string mysql_url(const fault_proxy& network, std::string_view options = {}) {
  return fmt::format("mysql://holdfast@127.0.0.1:{}/holdfast?create=1{}{}", network.port(),
                     options.empty() ? "" : "&", options);
}

inline bool wait_for_waiters(const mariadb_server& server, const std::string& name, int count) {
  return wait_until([&] {
    return server.sql("SELECT COUNT(*) FROM holdfast_entry WHERE state=1 AND name='" + name +
                      "'") == std::to_string(count);
  });
}

// Holders, waiters and observers, of any name.
inline std::string left_behind(const mariadb_server& server) {
  return server.sql(
      "SELECT (SELECT COUNT(*) FROM holdfast_entry) + (SELECT COUNT(*) FROM holdfast_lock WHERE "
      "expires > "
      "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6)))");
}

inline bool leaves_nothing(const mariadb_server& server) {
  return wait_until([&] { return left_behind(server) == "0"; });
}

// Every connection of our user, as an impatient administrator would.
inline void kill_all_connections(const mariadb_server& server) { server.sql("KILL USER holdfast"); }

// How many user locks are held: one per session, one per listener.
inline std::uint64_t user_locks(const mariadb_server& server) {
  return std::stoull(
      server.sql("SELECT COUNT(IS_USED_LOCK(CONCAT('holdfast:s:',HEX(client)))) + "
                 "COUNT(IS_USED_LOCK(CONCAT('holdfast:l:',HEX(client)))) FROM holdfast_session"));
}

// Lets a client sweep at once.
inline void allow_sweep(const mariadb_server& server) {
  server.sql("UPDATE holdfast_session SET gone=0 WHERE client=REPEAT(CHAR(0),16)");
}

// Not INNODB_LOCK_WAITS: what it shows is kept for 100 ms after each look, so a test that asks more often never sees
// anything new.
inline bool a_statement_waits_for_a_row(const mariadb_server& server) {
  return wait_until([&] {
    return !server.sql("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'").ends_with("\t0");
  });
}

// SQL on a connection of its own that stops in the middle until it is told to go on, and then stays connected.
class paused_sql {
 public:
  paused_sql(const mariadb_server& server, const std::string& before, std::string after)
      : server_(server) {
    gate_ = run("SELECT GET_LOCK('pause',0); SELECT SLEEP(25),'gate'");
    EXPECT_TRUE(wait_until([&] { return number_of("gate") != "0"; }));
    body_ = run(before + "; SELECT GET_LOCK('pause',25); " + std::move(after) +
                "; SELECT SLEEP(25),'body'");
    EXPECT_TRUE(wait_until([&] {
      return server_.sql(
                 "SELECT COUNT(*) FROM information_schema.processlist WHERE STATE='User lock'") !=
             "0";
    }));
  }
  ~paused_sql() {
    end("gate");
    end("body");
  }
  paused_sql(const paused_sql&) = delete;
  paused_sql& operator=(const paused_sql&) = delete;

  void go_on() {
    end("gate");
    EXPECT_TRUE(wait_until([&] { return number_of("body") != "0"; }));
  }

 private:
  std::future<void> run(std::string text) const {
    return std::async(std::launch::async, [&server = server_, text = std::move(text)] {
      try {
        server.sql(text);
      } catch (const std::exception&) {  // its connection is ended below
      }
    });
  }
  // Of the connection that sleeps so; 0: none does.
  std::string number_of(std::string_view word) const {
    return server_.sql(fmt::format(
        "SELECT IFNULL(MAX(ID),0) FROM information_schema.processlist WHERE STATE='User "
        "sleep' AND INFO LIKE '%\\'{}\\'%'",
        word));
  }
  void end(std::string_view word) {
    if (const auto number = number_of(word); number != "0") server_.sql("KILL " + number);
  }
  const mariadb_server& server_;
  std::future<void> gate_, body_;
};

inline std::uint64_t deadlocks(const mariadb_server& server) {
  const auto said = server.sql("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'");
  return std::stoull(said.substr(said.find('\t') + 1));
}

}  // namespace holdfast::testing

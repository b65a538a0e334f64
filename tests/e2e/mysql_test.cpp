// The command against a real MariaDB: what it does on this store only, see stores_test.cpp.
#include "e2e/store_cli.hpp"
#include "support/mariadb_server.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace {

using holdfast::testing::mariadb_server;
using nlohmann::json;

class mysql_cli : public e2e::store_cli<mariadb_server> {
 protected:
  void SetUp() override { need(mariadb_server::available(), "mysql"); }
  // A user without any right yet; the address has no create=1.
  std::string url_of(const std::string& user) {
    running().sql("CREATE USER " + user + "@'%'");
    return "mysql://" + user + "@127.0.0.1:" + std::to_string(running().port()) + "/holdfast";
  }
};

// ---- schema

// As the guide says it: the tables by an administrator, and a user with the grants of the comments, and no other.
TEST_F(mysql_cli, schema_is_all_that_a_store_needs) {
  const auto& server = start();
  const auto url = url_of("locks");
  const auto refused = box.run({"ls", "--store", url});
  EXPECT_EQ(refused.code, 77) << refused.err;

  const auto printed = box.run({"schema", "mysql"});
  EXPECT_EQ(printed.code, 0) << printed.err;
  std::ofstream{box.path("schema.sql")} << printed.out;
  const auto made = box.shell("mariadb --no-defaults --socket=" + server.socket_path() +
                              " --user=root holdfast < schema.sql");
  ASSERT_EQ(made.code, 0) << made.err;

  std::size_t grants = 0;
  for (std::size_t at = 0; (at = printed.out.find("--   GRANT ", at)) != std::string::npos; ++at) {
    auto line = printed.out.substr(at + 5, printed.out.find(';', at) - at - 5);
    line.replace(line.find("thedatabase"), std::string{"thedatabase"}.size(), "holdfast");
    line.replace(line.find("theuser"), std::string{"theuser"}.size(), "locks@'%'");
    server.sql(line);
    ++grants;
  }
  EXPECT_EQ(grants, 4U) << printed.out;
  const auto done = box.run({"run", "job", "--store", url, "--", "true"});
  EXPECT_EQ(done.code, 0) << done.err;
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"ls"}, {"break", "job", "--yes"}, {"latch", "set", "tiles", "1"}, {"explain"}}) {
    auto all = words;
    all.insert(all.end(), {"--store", url});
    const auto said = box.run(all);
    EXPECT_EQ(said.code, 0) << words.front() << ": " << said.err;
  }
  EXPECT_EQ(findings(url)["rights"]["level"], "good");
  EXPECT_EQ(findings(url)["waiting"]["level"], "good") << "GET_LOCK and KILL QUERY need no grant";
}

TEST_F(mysql_cli, create_makes_the_same_tables_on_first_use) {
  const auto& server = start();
  const auto without = "mysql://holdfast@127.0.0.1:" + std::to_string(server.port()) + "/holdfast";
  const auto missing = box.run({"ls", "--store", without});
  EXPECT_EQ(missing.code, 78) << missing.err;
  EXPECT_NE(missing.err.find("holdfast schema mysql"), std::string::npos) << missing.err;

  EXPECT_EQ(box.run({"ls", "--store", without + "?create=1"}).code, 0);
  EXPECT_EQ(box.run({"ls", "--store", without}).code, 0) << "they are there now";
  const auto made = [&] {
    std::string all;
    for (const char* table :
         {"holdfast_lock", "holdfast_entry", "holdfast_session", "holdfast_counter"})
      all += server.sql(std::string{"SHOW CREATE TABLE "} + table) + '\n';
    return all;
  };
  const auto by_create = made();
  server.sql("DROP TABLE holdfast_lock, holdfast_entry, holdfast_session, holdfast_counter");
  server.sql(box.run({"schema", "mysql"}).out);
  EXPECT_EQ(made(), by_create);
}

TEST_F(mysql_cli, schema_tells_apart_what_needs_nothing_and_what_is_not_there) {
  const auto nothing = box.run({"schema", "memory"});
  EXPECT_EQ(nothing.code, 0);
  EXPECT_EQ(nothing.out, "");
  EXPECT_NE(nothing.err.find("memory: need nothing"), std::string::npos) << nothing.err;
  const auto unknown = box.run({"schema", "gopher"});
  EXPECT_EQ(unknown.code, 78);
  EXPECT_NE(unknown.err.find("mysql"), std::string::npos) << "does not say what there is";
  EXPECT_EQ(box.run({"schema"}).code, 64);
}

// ---- doctor

TEST_F(mysql_cli, doctor_likes_a_default_server) {
  const auto& server = start();
  auto found = findings(server.url());
  for (const char* about : {"version", "writable", "tables", "cluster", "waiting", "rights",
                            "encryption", "clock", "connections"})
    EXPECT_EQ(found[about]["level"], "good") << found[about];
  EXPECT_EQ(found["durability"]["level"], "warning") << "our test servers do not sync";
}

TEST_F(mysql_cli, doctor_says_what_is_wrong) {
  const auto& server = start();
  EXPECT_EQ(findings("mysql://root@127.0.0.1:" + std::to_string(server.port()) +
                     "/holdfast?create=1")["rights"]["level"],
            "warning");
  EXPECT_EQ(findings(server.url("wait=poll"))["waiting"]["level"], "warning");
  server.sql("SET GLOBAL innodb_flush_log_at_trx_commit=1");
  EXPECT_EQ(findings(server.url())["durability"]["level"], "good");
  server.sql("ALTER TABLE holdfast_counter ENGINE=Aria");
  const auto tables = findings(server.url())["tables"];
  EXPECT_EQ(tables["level"], "bad");
  EXPECT_NE(tables["sentence"].get<std::string>().find("ENGINE=InnoDB"), std::string::npos);
  EXPECT_EQ(box.run({"doctor"}).code, 78);
}

TEST_F(mysql_cli, address_without_a_database_is_refused) {
  EXPECT_EQ(box.run({"doctor", "--store", "mysql://127.0.0.1/"}).code, 78);
}

// ---- the other commands

TEST_F(mysql_cli, explain_says_how_waiters_learn_and_prints_the_bounds_of_the_grace) {
  const auto& server = start();
  const auto text = box.run({"explain"}).out;
  EXPECT_NE(text.find("GET_LOCK"), std::string::npos) << text;
  EXPECT_NE(text.find("at most 3s after"), std::string::npos) << text;
  const auto data = json::parse(box.run({"explain", "--json"}).out);
  EXPECT_EQ(data["wakeup"], "push");
  EXPECT_EQ(data["dead_holder_bound_seconds"], 5.0);

  const auto asking = server.url("wait=poll");
  EXPECT_NE(box.run({"explain", "--store", asking}).out.find("ask ever less often"),
            std::string::npos);
  EXPECT_EQ(json::parse(box.run({"explain", "--json", "--store", asking}).out)["wakeup"], "poll");
}

TEST_F(mysql_cli, bench_measures_and_leaves_nothing_behind) {
  const auto& server = start();
  const auto measured = box.run({"bench", "--only", "uncontended", "--seconds", "0.2", "--json"});
  EXPECT_EQ(measured.code, 0) << measured.err;
  EXPECT_FALSE(json::parse(measured.out).empty());
  const auto contended =
      box.run({"bench", "--only", "processes", "--waiters", "2,4", "--seconds", "0.3", "--json"});
  EXPECT_EQ(contended.code, 0) << contended.err;
  EXPECT_EQ(box.run({"ls", "--json"}).out, "[]\n");
  EXPECT_EQ(server.sql("SELECT COUNT(*) FROM holdfast_entry"), "0");
}

// The store of `run` may be reached over TLS or a Unix socket as well.
TEST_F(mysql_cli, tls_is_verified_and_a_socket_will_do) {
  const auto& server = start({.tls = true});
  EXPECT_EQ(box.run({"run", "job", "--", "true"}).code, 0);
  EXPECT_EQ(findings(server.url())["encryption"]["level"], "good");
  const auto place = "mysql://holdfast@127.0.0.1:" + std::to_string(server.port()) + "/holdfast";
  const auto distrusted = box.run({"ls", "--store", place + "?tls=on"});
  EXPECT_EQ(distrusted.code, 78) << distrusted.err;
  const auto socket = "mysql://holdfast@localhost/holdfast?socket=" + server.socket_path();
  EXPECT_EQ(box.run({"run", "job", "--store", socket, "--", "true"}).code, 0);
}

}  // namespace

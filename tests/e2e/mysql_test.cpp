// The command against a real MariaDB.
#include "e2e/shell.hpp"
#include "support/mariadb_server.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

namespace {

using e2e::eventually;
using e2e::sandbox;
using holdfast::testing::mariadb_server;
using nlohmann::json;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

class mysql_cli : public ::testing::Test {
 protected:
  void SetUp() override { need(mariadb_server::available(), "mysql"); }
  // Everything from now on uses this server.
  mariadb_server& start(mariadb_server::options how = {}) {
    server_ = std::make_unique<mariadb_server>(std::move(how));
    box.set("HOLDFAST_STORE", server_->url());
    return *server_;
  }
  // A user without any right yet; the address has no create=1.
  std::string url_of(const std::string& user) {
    server_->sql("CREATE USER " + user + "@'%'");
    return "mysql://" + user + "@127.0.0.1:" + std::to_string(server_->port()) + "/holdfast";
  }
  // The findings of doctor by what they are about.
  std::map<std::string, json> findings(const std::string& url) {
    const auto said = box.run({"doctor", "--json", "--store", url});
    EXPECT_TRUE(said.code == 0 || said.code == 78) << said.err;
    std::map<std::string, json> out;
    const auto all = json::parse(said.out);
    for (const auto& one : all["findings"]) out[one["about"]] = one;
    return out;
  }

  sandbox box;  // looks for processes that are left behind, so the server must be gone before it

 private:
  std::unique_ptr<mariadb_server> server_;
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

TEST_F(mysql_cli, doctor_finds_nothing_bad_on_a_default_server) {
  const auto& server = start();
  const auto said = box.run({"doctor"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_TRUE(said.out.starts_with(server.url() + " (mysql (MariaDB) engine)\n")) << said.out;
  EXPECT_EQ(said.out.find("\nbad "), std::string::npos) << said.out;

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

TEST_F(mysql_cli, doctor_ends_like_every_command_when_the_store_cannot_be_opened) {
  const auto url = start().url();
  EXPECT_EQ(box.run({"doctor", "--store", url + "&nonsense=1"}).code, 78);
  EXPECT_EQ(box.run({"doctor", "--store", "mysql://root@127.0.0.1:1/holdfast"}).code, 69);
  EXPECT_EQ(box.run({"doctor", "--store", "mysql://127.0.0.1/"}).code, 78) << "no database";
}

// ---- the other commands

TEST_F(mysql_cli, run_holds_ls_and_show_tell_and_break_takes_away) {
  start();
  const auto holder = box.start(
      {"run", "job", "--label", "nightly", "--", "sh", "-c", "echo $$ > pid; exec sleep 60"});
  box.pid_in("pid");
  const auto listed = json::parse(box.run({"ls", "--json"}).out);
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0]["name"], "job");
  EXPECT_EQ(listed[0]["holders"][0]["label"], "nightly");
  EXPECT_GT(listed[0]["holders"][0]["token"].get<std::uint64_t>(), 1'000'000'000'000'000U);
  EXPECT_EQ(box.run({"run", "job", "--no-wait", "--", "true"}).code, 75);
  EXPECT_EQ(box.run({"run", "job", "--wait", "100ms", "--", "true"}).code, 75);

  const auto waiter = box.start({"run", "job", "--", "sh", "-c", "echo $HOLDFAST_TOKEN"});
  ASSERT_TRUE(eventually([&] {
    return box.holders_and_waiters("job") == std::pair<std::size_t, std::size_t>{1, 1};
  }));
  EXPECT_EQ(box.run({"break", "job", "--yes"}).code, 0);
  EXPECT_EQ(holder->wait().code, 76);
  const auto done = waiter->wait();
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_GT(std::stoull(done.out), listed[0]["holders"][0]["token"].get<std::uint64_t>());
  EXPECT_EQ(box.run({"ls", "--json"}).out, "[]\n");
}

TEST_F(mysql_cli, readers_permits_latches_and_elections_work) {
  start();
  const auto reader =
      box.start({"run", "table", "--shared", "--", "sh", "-c", "echo $$ > reader; exec sleep 60"});
  box.pid_in("reader");
  EXPECT_EQ(box.run({"run", "table", "--shared", "--no-wait", "--", "true"}).code, 0);
  EXPECT_EQ(box.run({"run", "table", "--no-wait", "--", "true"}).code, 75);
  reader->send(SIGTERM);
  EXPECT_EQ(reader->wait().code, 128 + SIGTERM);

  EXPECT_EQ(box.run({"run", "pool", "--permits", "2/2", "--", "holdfast", "run", "pool",
                     "--permits", "1/2", "--no-wait", "--", "true"})
                .code,
            75);

  EXPECT_EQ(box.run({"latch", "set", "tiles", "2"}).code, 0);
  const auto waiting = box.start({"latch", "wait", "tiles"});
  EXPECT_EQ(box.run({"latch", "down", "tiles"}).out, "1\n");
  EXPECT_EQ(box.run({"latch", "down", "tiles"}).out, "0\n");
  EXPECT_EQ(waiting->wait().code, 0);

  const auto led = box.run({"elect", "boss", "--value", "here", "--", "holdfast", "show", "boss"});
  EXPECT_EQ(led.code, 0) << led.err;
  EXPECT_NE(led.out.find("here"), std::string::npos) << led.out;
}

TEST_F(mysql_cli, explain_says_how_waiters_learn_and_prints_the_bounds_of_the_grace) {
  const auto& server = start();
  const auto text = box.run({"explain"}).out;
  EXPECT_NE(text.find("GET_LOCK"), std::string::npos) << text;
  EXPECT_NE(text.find("at most 2s after"), std::string::npos) << text;
  const auto data = json::parse(box.run({"explain", "--json"}).out);
  EXPECT_EQ(data["wakeup"], "push");
  EXPECT_EQ(data["dead_holder_bound_seconds"], 3.5);

  const auto asking = server.url("wait=poll");
  EXPECT_NE(box.run({"explain", "--store", asking}).out.find("ask ever less often"),
            std::string::npos);
  EXPECT_EQ(json::parse(box.run({"explain", "--json", "--store", asking}).out)["wakeup"], "poll");
}

TEST_F(mysql_cli, a_waiter_has_the_lock_of_a_killed_holder_long_before_the_ttl) {
  start();
  const auto bound =
      json::parse(box.run({"explain", "--json"}).out)["dead_holder_bound_seconds"].get<double>();
  ASSERT_GT(bound, 0);
  ASSERT_LT(bound, 5);
  const auto holder =
      box.start({"run", "job", "--ttl", "60s", "--", "sh", "-c", "echo $$ > pid; exec sleep 60"});
  const pid_t worker = box.pid_in("pid");
  const auto waiter = box.start({"run", "job", "--", "true"});
  ASSERT_TRUE(eventually([&] { return box.holders_and_waiters("job").second == 1; }));

  const auto killed = steady_clock::now();
  holder->send(SIGKILL);
  EXPECT_EQ(waiter->wait().code, 0);
  const std::chrono::duration<double> took = steady_clock::now() - killed;
  EXPECT_LT(took.count(), bound + 1)
      << "and a second for a busy machine to start and end processes";
  EXPECT_TRUE(eventually([&] { return !e2e::alive(worker); }))
      << "the command ends with its holder";
  holder->wait();
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

// ---- secrets

TEST_F(mysql_cli, a_password_is_redacted_everywhere) {
  const std::string canary = "CANARY-4711";
  const auto& server = start();
  server.sql("CREATE USER guarded@'%' IDENTIFIED BY '" + canary +
             "'; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON holdfast.* TO guarded@'%'");
  const auto place = "@127.0.0.1:" + std::to_string(server.port()) + "/holdfast?create=1";
  const auto shows_no_secret = [&](const e2e::outcome& said) {
    EXPECT_EQ((said.out + said.err).find(canary), std::string::npos) << said.out << said.err;
  };
  box.set("HOLDFAST_STORE", "mysql://guarded:" + canary + place);
  for (const auto& words : std::vector<std::vector<std::string>>{{"doctor"},
                                                                 {"doctor", "--json"},
                                                                 {"explain"},
                                                                 {"explain", "--json"},
                                                                 {"ls"},
                                                                 {"show", "job", "--json"},
                                                                 {"top", "--count", "1"},
                                                                 {"run", "job", "--", "env"},
                                                                 {"break", "job", "--yes"}}) {
    const auto said = box.run(words);
    EXPECT_EQ(said.code, 0) << words.front() << ": " << said.err;
    shows_no_secret(said);
  }
  EXPECT_NE(box.run({"doctor"}).out.find("mysql://guarded:***@"), std::string::npos);

  // A wrong one, and none at all.
  box.set("HOLDFAST_STORE", "mysql://guarded:" + canary + "-wrong" + place);
  const auto wrong = box.run({"ls"});
  EXPECT_EQ(wrong.code, 77) << wrong.err;
  shows_no_secret(wrong);
  box.set("HOLDFAST_STORE", "mysql://guarded" + place);
  EXPECT_EQ(box.run({"ls"}).code, 77);

  // From a file, and from the environment.
  std::ofstream{box.path("password")} << canary << '\n';
  box.set("HOLDFAST_STORE", "mysql://guarded" + place + "&password_file=" + box.path("password"));
  EXPECT_EQ(box.run({"ls"}).code, 0);
  box.set("HOLDFAST_STORE", "mysql://guarded" + place + "&password_env=SECRET_OF_MINE");
  box.set("SECRET_OF_MINE", canary);
  const auto from_environment = box.run({"doctor"});
  EXPECT_EQ(from_environment.code, 0) << from_environment.err;
  shows_no_secret(from_environment);
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

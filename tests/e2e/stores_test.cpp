// What the command does on every store that is a server: the same words, the same answers. One list of scenarios, one
// table of stores; what only one of them does is in its own file.
#include <holdfast/holdfast.hpp>

#include "e2e/shell.hpp"
#include "support/consul_server.hpp"
#include "support/etcd_server.hpp"
#include "support/mariadb_server.hpp"
#include "support/redis_server.hpp"
#include "support/required.hpp"
#include "support/zookeeper_hand.hpp"
#include "support/zookeeper_server.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace {

using e2e::eventually;
using e2e::sandbox;
using holdfast::testing::availability;
using holdfast::testing::consul_server;
using holdfast::testing::etcd_server;
using holdfast::testing::mariadb_server;
using holdfast::testing::redis_server;
using holdfast::testing::zookeeper_hand;
using holdfast::testing::zookeeper_server;
using nlohmann::json;
using std::chrono::steady_clock;

struct open_store {
  std::shared_ptr<void> server;  // gone with the last who has it
  std::string url;
};

// One that lets nobody in without a password.
struct guarded_store {
  std::shared_ptr<void> server;
  std::string user;      // who has the password; empty where users have no names
  std::string stranger;  // who tries it without
  std::string place;     // the address behind the user
};

// A row of the table. A new engine that has a server is done when its row is green.
struct store_row {
  std::string name;
  std::string scheme;
  std::string engine;  // as doctor calls it
  // Where no server is.
  std::string nowhere;
  // All tokens are greater. Some stores begin with the time.
  std::uint64_t token_floor;
  // With this option the lock of the dead is free soon: the store must promise it in less than so many seconds.
  std::string hasty;
  double hasty_bound_seconds;
  availability (*available)();
  open_store (*start)();
  guarded_store (*start_guarded)(const std::string& password);
};

void PrintTo(const store_row& row, std::ostream* out) { *out << row.name; }

// ---- Redis

open_store open_redis() {
  const auto server = std::make_shared<redis_server>();
  return {server, server->url()};
}

guarded_store guarded_redis(const std::string& password) {
  const auto server = std::make_shared<redis_server>(
      redis_server::options{.config = {"requirepass " + password}, .password = password});
  return {server, "", "", fmt::format("127.0.0.1:{}", server->port())};
}

// ---- MariaDB

open_store open_mariadb() {
  const auto server = std::make_shared<mariadb_server>();
  return {server, server->url()};
}

guarded_store guarded_mariadb(const std::string& password) {
  const auto server = std::make_shared<mariadb_server>();
  server->sql("CREATE USER guarded@'%' IDENTIFIED BY '" + password +
              "'; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON holdfast.* TO guarded@'%'");
  return {server, "guarded", "guarded",
          fmt::format("127.0.0.1:{}/holdfast?create=1", server->port())};
}

// ---- etcd, one node or a cluster

template <std::size_t Nodes>
open_store open_etcd() {
  const auto server = std::make_shared<etcd_server>(etcd_server::options{.nodes = Nodes});
  return {server, server->url()};
}

template <std::size_t Nodes>
guarded_store guarded_etcd(const std::string& password) {
  const auto server = std::make_shared<etcd_server>(etcd_server::options{.nodes = Nodes});
  server->enable_auth("app", password, "locks/");
  const auto url = server->url();
  return {server, "app", "", url.substr(url.find("://") + 3) + "/locks"};
}

// ---- ZooKeeper, one server or an ensemble

template <std::size_t Nodes>
open_store open_zookeeper() {
  const auto server = std::make_shared<zookeeper_server>(zookeeper_server::options{.nodes = Nodes});
  return {server, server->url()};
}

// Every login is good there; it is the ACL of the chroot that lets one of them in.
template <std::size_t Nodes>
guarded_store guarded_zookeeper(const std::string& password) {
  const auto server = std::make_shared<zookeeper_server>(zookeeper_server::options{.nodes = Nodes});
  zookeeper_hand hand{*server};
  hand.log_in("app:" + password);
  hand.create({.path = "/locks", .rights = holdfast::jute::creator_only()});
  const auto url = server->url();
  return {server, "app", "", url.substr(url.find("://") + 3) + "/locks"};
}

// ---- Consul, one server or a cluster

template <std::size_t Nodes>
open_store open_consul() {
  const auto server = std::make_shared<consul_server>(consul_server::options{.nodes = Nodes});
  return {server, server->url()};
}

template <std::size_t Nodes>
guarded_store guarded_consul(const std::string& password) {
  const auto server = std::make_shared<consul_server>(
      consul_server::options{.nodes = Nodes, .master_token = password});
  const auto url = server->url();
  return {server, "", "", url.substr(url.find("://") + 3) + "/locks"};
}

const std::vector<store_row>& store_table() {
  constexpr std::uint64_t microseconds = 1'000'000'000'000'000;
  static const std::vector<store_row> table{
      {"redis", "redis", "redis", "redis://127.0.0.1:1", microseconds, "", 4.5,
       redis_server::available, open_redis, guarded_redis},
      {"mysql", "mysql", "mysql (MariaDB)", "mysql://root@127.0.0.1:1/holdfast", microseconds, "",
       5.5, mariadb_server::available, open_mariadb, guarded_mariadb},
      {"etcd", "etcd", "etcd", "etcd://127.0.0.1:1", 0, "session=2s", 4, etcd_server::available,
       open_etcd<1>, guarded_etcd<1>},
      {"etcd3", "etcd", "etcd", "etcd://127.0.0.1:1,127.0.0.1:2", 0, "session=2s", 4,
       etcd_server::available, open_etcd<3>, guarded_etcd<3>},
      {"consul", "consul", "consul", "consul://127.0.0.1:1", 0, "session=10s&lock_delay=0s", 25,
       consul_server::available, open_consul<1>, guarded_consul<1>},
      {"consul3", "consul", "consul", "consul://127.0.0.1:1,127.0.0.1:2", 0,
       "session=10s&lock_delay=0s", 25, consul_server::available, open_consul<3>,
       guarded_consul<3>},
      {"zk", "zk", "zk", "zk://127.0.0.1:1", 0, "session=2s", 4.5, zookeeper_server::available,
       open_zookeeper<1>, guarded_zookeeper<1>},
      {"zk3", "zk", "zk", "zk://127.0.0.1:1,127.0.0.1:2", 0, "session=2s", 4.5,
       zookeeper_server::available, open_zookeeper<3>, guarded_zookeeper<3>},
  };
  return table;
}

std::string with(const std::string& url, const std::string& option) {
  if (option.empty()) return url;
  return url + (url.find('?') == std::string::npos ? '?' : '&') + option;
}

class stores : public ::testing::TestWithParam<store_row> {
 protected:
  void SetUp() override {
    const auto& row = GetParam();
    const auto schemes = holdfast::known_schemes();
    const bool is_built = std::ranges::find(schemes, row.scheme) != schemes.end();
    need(is_built ? row.available()
                  : availability{false, "this build has no engine for " + row.scheme + ":"},
         row.name);
  }
  // Everything from now on uses this store. Returns its address.
  std::string start() {
    auto made = GetParam().start();
    server_ = std::move(made.server);
    box.set("HOLDFAST_STORE", made.url);
    return made.url;
  }
  guarded_store start_guarded(const std::string& password) {
    auto made = GetParam().start_guarded(password);
    server_ = made.server;
    return made;
  }
  // Of a place, for who logs in so: "", "user" or "user:password".
  std::string url(const std::string& login, const std::string& place) const {
    return fmt::format("{}://{}{}{}", GetParam().scheme, login, login.empty() ? "" : "@", place);
  }

  sandbox box;  // looks for processes that are left behind, so the server must be gone before it

 private:
  std::shared_ptr<void> server_;
};

TEST_P(stores, run_holds_ls_and_show_tell_and_break_takes_away) {
  start();
  const auto holder = box.start(
      {"run", "job", "--label", "nightly", "--", "sh", "-c", "echo $$ > pid; exec sleep 60"});
  box.pid_in("pid");
  const auto listed = json::parse(box.run({"ls", "--json"}).out);
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0]["name"], "job");
  EXPECT_EQ(listed[0]["holders"][0]["label"], "nightly");
  const auto token = listed[0]["holders"][0]["token"].get<std::uint64_t>();
  EXPECT_GT(token, GetParam().token_floor);
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
  EXPECT_GT(std::stoull(done.out), token);
  EXPECT_EQ(box.run({"ls", "--json"}).out, "[]\n");
}

TEST_P(stores, readers_permits_latches_and_elections_work) {
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
  const auto latches = box.run({"latch", "ls"});
  EXPECT_EQ(latches.code, 0) << latches.err;
  EXPECT_NE(latches.out.find("\ntiles     0  "), std::string::npos) << latches.out;

  const auto led = box.run({"elect", "boss", "--value", "here", "--", "holdfast", "show", "boss"});
  EXPECT_EQ(led.code, 0) << led.err;
  EXPECT_NE(led.out.find("here"), std::string::npos) << led.out;
}

TEST_P(stores, a_name_in_use_as_another_kind_is_refused_in_words) {
  start();
  const auto semaphore =
      box.run({"run", "a", "--permits", "1/4", "--", "holdfast", "run", "a", "--", "true"});
  EXPECT_EQ(semaphore.code, 78);
  EXPECT_NE(semaphore.err.find("in use as a semaphore of 4 permits"), std::string::npos)
      << semaphore.err;
  const auto mutex =
      box.run({"run", "b", "--", "holdfast", "run", "b", "--permits", "1/4", "--", "true"});
  EXPECT_EQ(mutex.code, 78);
  EXPECT_NE(mutex.err.find("in use as a mutex"), std::string::npos) << mutex.err;
}

TEST_P(stores, one_that_waits_for_itself_is_told_so) {
  start();
  const auto busy = box.run({"run", "a", "--", "holdfast", "run", "a", "--no-wait", "--", "true"});
  EXPECT_EQ(busy.code, 75);
  EXPECT_NE(busy.err.find("the holdfast around this very command"), std::string::npos) << busy.err;
}

TEST_P(stores, a_waiter_has_the_lock_of_a_killed_holder_long_before_the_ttl) {
  box.set("HOLDFAST_STORE", with(start(), GetParam().hasty));
  const auto bound =
      json::parse(box.run({"explain", "--json"}).out)["dead_holder_bound_seconds"].get<double>();
  ASSERT_GT(bound, 0);
  ASSERT_LT(bound, GetParam().hasty_bound_seconds);
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

// Without waiting for the store to notice: 3 s and more by default.
TEST_P(stores, the_guard_gives_back_what_a_killed_holdfast_held) {
  start();
  for (const char* verb : {"run", "elect"}) {
    const auto holder =
        box.start({verb, verb, "--ttl", "60s", "--", "sh", "-c", "echo $$ > pid; exec sleep 60"});
    box.pid_in("pid");
    const auto waiter = box.start({verb, verb, "--", "true"});
    ASSERT_TRUE(eventually([&] { return box.holders_and_waiters(verb).second == 1; }));
    const auto killed = steady_clock::now();
    holder->send(SIGKILL);
    EXPECT_EQ(waiter->wait().code, 0);
    const std::chrono::duration<double> took = steady_clock::now() - killed;
    EXPECT_LT(took.count(), 2.5) << verb;
    holder->wait();
    std::filesystem::remove(box.path("pid"));
  }
}

TEST_P(stores, the_guard_gives_nothing_back_while_the_command_lives) {
  start();
  const auto holder = box.start({"run", "job", "--ttl", "60s", "--", "sh", "-c",
                                 "trap 'sleep 1; echo > end; exit' TERM; echo $$ > pid; "
                                 "while :; do sleep 0.02; done"});
  box.pid_in("pid");
  const auto waiter = box.start({"run", "job", "--", "test", "-e", "end"});
  ASSERT_TRUE(eventually([&] { return box.holders_and_waiters("job").second == 1; }));
  holder->send(SIGKILL);
  EXPECT_EQ(waiter->wait().code, 0) << "it was let in before the command had ended";
  holder->wait();
}

// ---- doctor

TEST_P(stores, doctor_finds_nothing_bad_on_a_default_server) {
  const auto at = start();
  const auto said = box.run({"doctor"});
  EXPECT_EQ(said.code, 0) << said.out << said.err;
  EXPECT_TRUE(said.out.starts_with(fmt::format("{} ({} engine)\n", at, GetParam().engine)))
      << said.out;
  EXPECT_EQ(said.out.find("\nbad "), std::string::npos) << said.out;
}

TEST_P(stores, doctor_ends_like_every_command_when_the_store_cannot_be_opened) {
  const auto at = start();
  for (const char* command : {"doctor", "ls"}) {
    EXPECT_EQ(box.run({command, "--store", with(at, "nonsense=1")}).code, 78) << command;
    EXPECT_EQ(box.run({command, "--store", GetParam().nowhere}).code, 69) << command;
  }
}

// ---- secrets

TEST_P(stores, a_password_is_redacted_everywhere) {
  const std::string canary = "CANARY-4711";
  const auto [server, user, stranger, place] = start_guarded(canary);
  const auto shows_no_secret = [&](const e2e::outcome& said) {
    EXPECT_EQ((said.out + said.err).find(canary), std::string::npos) << said.out << said.err;
  };
  box.set("HOLDFAST_STORE", url(user + ':' + canary, place));
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
  EXPECT_NE(box.run({"doctor"}).out.find(url(user + ":***", "")), std::string::npos);

  // A wrong one, and none at all.
  box.set("HOLDFAST_STORE", url(user + ':' + canary + "-wrong", place));
  const auto wrong = box.run({"ls"});
  EXPECT_EQ(wrong.code, 77) << wrong.err;
  shows_no_secret(wrong);
  box.set("HOLDFAST_STORE", url(stranger, place));
  EXPECT_EQ(box.run({"ls"}).code, 77);

  // From a file, and from the environment.
  std::ofstream{box.path("password")} << canary << '\n';
  box.set("HOLDFAST_STORE", with(url(user, place), "password_file=" + box.path("password")));
  EXPECT_EQ(box.run({"ls"}).code, 0);
  box.set("HOLDFAST_STORE", with(url(user, place), "password_env=SECRET_OF_MINE"));
  box.set("SECRET_OF_MINE", canary);
  const auto from_environment = box.run({"doctor"});
  EXPECT_EQ(from_environment.code, 0) << from_environment.err;
  shows_no_secret(from_environment);
}

TEST_P(stores, a_holdfast_inside_run_means_the_same_store_or_fails) {
  const std::string canary = "CANARY-4711";
  const auto [server, user, stranger, place] = start_guarded(canary);
  const std::vector<std::string> nested{"run", "outer", "--", "holdfast", "ls"};
  box.set("HOLDFAST_STORE", url(user + ':' + canary, place));
  const auto refused = box.run(nested);
  EXPECT_EQ(refused.code, 78) << refused.out << refused.err;
  EXPECT_NE(refused.err.find("does not hand it on"), std::string::npos) << refused.err;
  EXPECT_EQ((refused.out + refused.err).find(canary), std::string::npos);

  box.set("HOLDFAST_STORE_PASSWORD", canary);
  const auto helped = box.run(nested);
  EXPECT_EQ(helped.code, 0) << helped.err;
  EXPECT_NE(helped.out.find("outer"), std::string::npos) << helped.out;
  box.set("HOLDFAST_STORE_PASSWORD", "");

  std::ofstream{box.path("password")} << canary << '\n';
  box.set("HOLDFAST_STORE", with(url(user, place), "password_file=" + box.path("password")));
  const auto by_file = box.run(nested);
  EXPECT_EQ(by_file.code, 0) << by_file.err;
  EXPECT_NE(by_file.out.find("outer"), std::string::npos) << by_file.out;
}

INSTANTIATE_TEST_SUITE_P(each, stores, ::testing::ValuesIn(store_table()),
                         [](const auto& row) { return row.param.name; });

}  // namespace

// The command against real ZooKeeper servers: what it does on this store only, see stores_test.cpp.
#include "e2e/zk_cli.hpp"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using e2e::eventually;
using e2e::zk_cli;
using holdfast::testing::zookeeper_hand;
using holdfast::testing::zookeeper_server;
using nlohmann::json;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

// ---- the session, and the ensemble that keeps it

TEST_F(zk_cli, a_session_that_ends_ends_the_command) {
  box.set("HOLDFAST_STORE", start().url() + "?session=60s");
  const auto holder = box.start(staying({"run", "job"}));
  const pid_t inside = box.pid_in("pid");
  ASSERT_TRUE(hand().expire(hand().stat("/job/" + nodes("/job").at(0))->ephemeral_owner));
  const auto expired = steady_clock::now();
  const auto ended = holder->wait();
  EXPECT_EQ(ended.code, 76) << ended.err;
  EXPECT_LT(steady_clock::now() - expired, 20s) << "it was told, or it would believe for 40s";
  EXPECT_FALSE(e2e::alive(inside));
}

TEST_F(zk_cli, a_command_outlives_the_leader_of_the_ensemble) {
  auto& ensemble = start({.nodes = 3});
  const auto holder = box.start({"run", "job", "--", "sh", "-c", box.until_let_go()});
  ASSERT_TRUE(queued("/job", 1));
  ensemble.kill(ensemble.leader());
  ASSERT_NO_THROW(ensemble.leader()) << "another leads";
  EXPECT_EQ(box.run({"run", "job", "--no-wait", "--", "true"}).code, 75);
  ASSERT_TRUE(box.let_go());
  const auto ended = holder->wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
}

TEST_F(zk_cli, without_a_majority_nothing_is_held_and_nothing_given) {
  auto& ensemble = start({.nodes = 3});
  const auto url = ensemble.url() + "?session=1s";
  box.set("HOLDFAST_STORE", url);
  const auto holder = box.start(staying({"run", "job"}));
  const pid_t inside = box.pid_in("pid");
  ensemble.kill(0), ensemble.kill(1);
  const auto ended = holder->wait();
  EXPECT_EQ(ended.code, 76) << ended.err;
  EXPECT_FALSE(e2e::alive(inside));
  const auto refused = box.run({"run", "job", "--no-wait", "--", "true"});
  EXPECT_EQ(refused.code, 69) << refused.err;
  EXPECT_NE(refused.err.find(url), std::string::npos) << refused.err;
}

TEST_F(zk_cli, explain_tells_the_session_that_was_asked_for_and_the_one_that_was_given) {
  const auto url = start({.session_min = 2s}).url();
  const auto as_asked = box.run({"explain", "--store", url + "?session=4s"});
  EXPECT_EQ(as_asked.code, 0) << as_asked.err;
  EXPECT_NE(as_asked.out.find("4s"), std::string::npos) << as_asked.out;
  EXPECT_EQ(as_asked.out.find("asked for"), std::string::npos) << as_asked.out;
  const auto raised =
      json::parse(box.run({"explain", "--json", "--store", url + "?session=500ms"}).out);
  EXPECT_EQ(raised["engine"], "zk");
  const auto limits = raised["limits"].get<std::string>();
  EXPECT_NE(limits.find("2s (?session=500ms was asked for)"), std::string::npos) << limits;
  EXPECT_GT(raised["dead_holder_bound_seconds"], 2.0) << "by what was given";
}

// ---- doctor

TEST_F(zk_cli, doctor_finds_a_sound_ensemble_good) {
  auto& ensemble = start({.nodes = 3});
  hand().log_in("app:word");
  hand().create({.path = "/locks", .rights = holdfast::jute::creator_only()});
  const auto place = ensemble.url().substr(std::string{"zk://"}.size()) + "/locks";
  box.set("HOLDFAST_PASSWORD", "word");
  box.set("HOLDFAST_STORE", "zk://app@" + place);
  for (const auto& [about, found] : findings("zk://app@" + place))
    EXPECT_TRUE(found["level"] == "good" || about == "round trip") << found;
  const auto open = findings(ensemble.url());
  EXPECT_EQ(open.at("quorum")["level"], "good");
  EXPECT_EQ(open.at("rights")["level"], "warning") << "nobody logged in";
}

TEST_F(zk_cli, doctor_sees_who_is_away) {
  auto& ensemble = start({.nodes = 3});
  const auto away = (ensemble.leader() + 1) % 3;
  ensemble.kill(away);
  const auto found = findings(ensemble.url())["servers of the address"];
  EXPECT_EQ(found["level"], "warning") << found;
  const auto sentence = found["sentence"].get<std::string>();
  EXPECT_NE(sentence.find(std::to_string(ensemble.port(away))), std::string::npos) << sentence;
}

TEST_F(zk_cli, doctor_says_78_of_servers_that_do_not_know_each_other) {
  const auto& one = start();
  const zookeeper_server other;
  const auto both = fmt::format("{},127.0.0.1:{}", one.url(), other.port());
  const auto said = box.run({"doctor", "--store", both});
  EXPECT_EQ(said.code, 78) << said.out;
  EXPECT_NE(said.out.find("\nbad      quorum"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("standalone"), std::string::npos) << said.out;
}

TEST_F(zk_cli, doctor_warns_of_a_session_that_is_not_the_one_asked_for) {
  const auto url = start({.session_max = 5s}).url();
  const auto found = findings(url)["session"];
  EXPECT_EQ(found["level"], "warning") << found;
  EXPECT_NE(found["sentence"].get<std::string>().find("10s were asked for, and the server gave 5s"),
            std::string::npos)
      << found;
  EXPECT_EQ(findings(url + "?session=3s")["session"]["level"], "good");
}

TEST_F(zk_cli, a_chroot_that_is_not_there_is_told) {
  const auto url = start().url() + "/nowhere";
  for (const auto& line : {words{"doctor"}, {"ls"}, {"run", "job", "--", "true"}}) {
    box.set("HOLDFAST_STORE", url);
    const auto said = box.run(line);
    EXPECT_EQ(said.code, 78) << line.front() << said.err;
    EXPECT_NE(said.err.find(url), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("chroot"), std::string::npos) << said.err;
  }
  EXPECT_FALSE(hand().stat("/nowhere")) << "it is for an operator to make";
}

// ---- names

TEST_F(zk_cli, names_that_mean_something_to_zookeeper_or_curator_are_names_like_others) {
  start();
  for (const std::string name :
       {"locks", "leases", "locks/a", "a/locks", "a/leases/b", "zookeeper", "zookeeper/quota",
        "lock-0000000001", "a/b-0000000001", "~counters"}) {
    const auto held = box.run({"run", name, "--", "holdfast", "ls", "--names"});
    EXPECT_EQ(held.out, name + "\n") << held.err;
    EXPECT_EQ(box.run({"run", name, "--", "holdfast", "run", name, "--no-wait", "--", "true"}).code,
              75)
        << name;
    const auto permits =
        box.run({"run", name, "--permits", "1/2", "--", "holdfast", "ls", "--names"});
    EXPECT_EQ(permits.out, name + "\n") << permits.err;
  }
}

// A stranger's node is printed as what it is, and does nothing to the terminal.
TEST_F(zk_cli, hostile_nodes_are_printed_harmlessly) {
  start();
  hand().create({.path = "/job"});
  hand().create(
      {.path = "/job/_c_\xC2\xADstranger-lock-0000000001", .data = "\x1b[2J\x07 evil \n line"});
  hand().create({.path = "/job/x-lock-0000000002", .data = "\xff\xfe"});
  for (const auto& line : {words{"ls"},
                           {"ls", "--json"},
                           {"ls", "--names"},
                           {"show", "job"},
                           {"show", "job", "--json"}}) {
    const auto said = box.run(line);
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(said.out.find('\x1b'), std::string::npos) << said.out;
    EXPECT_EQ(said.out.find('\x07'), std::string::npos) << said.out;
  }
  EXPECT_TRUE(json::accept(box.run({"ls", "--json"}).out));
  EXPECT_EQ(box.holders_and_waiters("job"), (std::pair<std::size_t, std::size_t>{1, 1}));
  EXPECT_EQ(box.run({"break", "job", "--yes"}).code, 0);
  EXPECT_EQ(box.run({"break", "job", "--yes"}).code, 0);
  EXPECT_EQ(box.run({"run", "job", "--no-wait", "--", "true"}).code, 0);
}

// ---- who may

TEST_F(zk_cli, exit_code_says_who_may_not) {
  const auto& server = start();
  hand().log_in("app:word");
  hand().create({.path = "/locks", .rights = holdfast::jute::creator_only()});
  const auto at = fmt::format("127.0.0.1:{}/locks", server.port());
  const auto run_as = [&](const std::string& user, const std::string& password) {
    box.set("HOLDFAST_PASSWORD", password);
    box.set("HOLDFAST_STORE", "zk://" + user + at);
    return box.run({"run", "job", "--", "true"}).code;
  };
  EXPECT_EQ(run_as("app@", "word"), 0);
  EXPECT_EQ(run_as("app@", "wrong"), 77);
  EXPECT_EQ(run_as("other@", "word"), 77);
  EXPECT_EQ(run_as("", ""), 77);
}

// In a place that is open to all, what a user makes is that user's alone.
TEST_F(zk_cli, nobody_else_breaks_the_lock_of_a_user) {
  const auto& server = start();
  const auto at = fmt::format("127.0.0.1:{}", server.port());
  box.set("HOLDFAST_PASSWORD", "word");
  box.set("HOLDFAST_STORE", "zk://ann@" + at);
  const auto holder = box.start(staying({"run", "job"}));
  box.pid_in("pid");
  for (const auto& store : {"zk://bob@" + at, "zk://" + at}) {
    box.set("HOLDFAST_STORE", store);
    if (store.find('@') == std::string::npos) box.set("HOLDFAST_PASSWORD", "");
    const auto said = box.run({"break", "job", "--yes"});
    EXPECT_EQ(said.code, 77) << said.err;
    EXPECT_NE(said.err.find("\"job\""), std::string::npos) << "which lock? " << said.err;
  }
  hand().log_in("ann:word");
  EXPECT_EQ(nodes("/job").size(), 1U);
  box.set("HOLDFAST_PASSWORD", "word");
  box.set("HOLDFAST_STORE", "zk://ann@" + at);
  EXPECT_EQ(box.run({"break", "job", "--yes"}).code, 0);
  EXPECT_EQ(holder->wait().code, 76);
}

// ---- TLS

TEST_F(zk_cli, the_server_is_trusted_only_with_its_authority) {
  const auto& server = start({.tls = true});
  const auto distrusted = box.run({"ls"});
  EXPECT_EQ(distrusted.code, 78) << distrusted.err;
  EXPECT_NE(distrusted.err.find("certificate was refused"), std::string::npos) << distrusted.err;
  const auto url = server.url() + "?ca_file=" + server.ca_file();
  const auto trusted = box.run({"run", "job", "--store", url, "--", "true"});
  EXPECT_EQ(trusted.code, 0) << trusted.err;
  EXPECT_EQ(findings(url)["encryption"]["level"], "good");
  const auto misnamed = box.run({"ls", "--store", url + "&server_name=elsewhere"});
  EXPECT_EQ(misnamed.code, 78) << misnamed.err;
  EXPECT_NE(misnamed.err.find("certificate was refused"), std::string::npos) << misnamed.err;
  const auto plain = box.run({"ls", "--store", fmt::format("zk://127.0.0.1:{}", server.port())});
  EXPECT_EQ(plain.code, 69) << plain.err;
}

TEST_F(zk_cli, a_client_certificate_is_a_login) {
  const auto& server = start({.tls = true, .client_certificates = true});
  const auto url = server.url() + "?ca_file=" + server.ca_file();
  const auto as = [&](const std::string& user) {
    const auto made = server.authority().issue(user, "DNS:" + user);
    return fmt::format("{}&cert_file={}&key_file={}", url, made.file, made.key);
  };
  const auto unknown = box.run({"ls", "--store", url});
  EXPECT_EQ(unknown.code, 69) << unknown.err;
  box.set("HOLDFAST_STORE", as("ann"));
  const auto holder = box.start(staying({"run", "job"}));
  box.pid_in("pid");
  EXPECT_EQ(findings(as("ann"))["rights"]["level"], "good");
  const auto other = box.run({"break", "job", "--yes", "--store", as("bob")});
  EXPECT_EQ(other.code, 77) << other.err;
  const auto open = box.run({"run", "door", "--store", as("bob") + "&acl=open", "--", "holdfast",
                             "show", "door", "--store", as("ann")});
  EXPECT_EQ(open.code, 0) << open.err;
  EXPECT_EQ(box.run({"break", "job", "--yes"}).code, 0);
  EXPECT_EQ(holder->wait().code, 76);
}

// ---- bench

TEST_F(zk_cli, bench_measures) {
  start();
  const auto said = box.run({"bench", "--seconds", "0.05", "--threads", "1,4", "--coroutines", "8",
                             "--waiters", "2", "--held", "50", "--json"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_FALSE(json::parse(said.out).empty());
  EXPECT_EQ(said.out.find("\"skipped\": \""), std::string::npos) << said.out;
}

}  // namespace

// The ZooKeeper servers that other tests build upon do what their header says.
#include "support/zookeeper_server.hpp"

#include "support/wait_until.hpp"
#include "support/zookeeper_hand.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::testing {
namespace {

class zookeeper_server_test : public ::testing::Test {
 protected:
  void SetUp() override { need(zookeeper_server::available(), "zk"); }
};

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_F(zookeeper_server_test, single_server_answers_and_leads_itself) {
  const zookeeper_server server;
  EXPECT_EQ(server.url(), "zk://127.0.0.1:" + std::to_string(server.port()));
  EXPECT_EQ(server.url(0), server.url());
  EXPECT_EQ(server.leader(), 0U);
  EXPECT_TRUE(server.is_healthy(0));
  EXPECT_TRUE(has(server.four_letter(0, "srvr"), "Mode: standalone"))
      << server.four_letter(0, "srvr");
  EXPECT_EQ(server.four_letter(0, "ruok"), "imok");
  EXPECT_TRUE(has(server.four_letter(0, "conf"), "minSessionTimeout=500\n"));
}

TEST_F(zookeeper_server_test, three_elect_a_leader) {
  const zookeeper_server ensemble{{.nodes = 3}};
  const auto leader = ensemble.leader();
  for (std::size_t n = 0; n < ensemble.nodes(); ++n) {
    EXPECT_TRUE(
        has(ensemble.four_letter(n, "srvr"), n == leader ? "Mode: leader" : "Mode: follower"));
    EXPECT_TRUE(has(ensemble.url(), ensemble.url(n).substr(5)));
  }
  EXPECT_EQ(ensemble.metric_of(leader, "zk_synced_followers"), 2);
}

TEST_F(zookeeper_server_test, another_leads_when_the_leader_is_killed) {
  zookeeper_server ensemble{{.nodes = 3}};
  const auto first = ensemble.leader();
  ensemble.kill(first);
  EXPECT_FALSE(ensemble.is_healthy(first));
  const auto second = ensemble.leader();
  EXPECT_NE(second, first);
  ensemble.restart(first);
  EXPECT_EQ(ensemble.leader(), second) << "who comes back follows";
  EXPECT_TRUE(wait_until([&] { return ensemble.metric_of(second, "zk_synced_followers") == 2; }));
}

TEST_F(zookeeper_server_test, another_leads_while_the_leader_is_stopped) {
  zookeeper_server ensemble{{.nodes = 3}};
  const auto first = ensemble.leader();
  ensemble.stop(first);
  EXPECT_EQ(ensemble.four_letter(first, "srvr"), "");
  EXPECT_NE(ensemble.leader(), first);
  ensemble.resume(first);
  EXPECT_TRUE(
      wait_until([&] { return has(ensemble.four_letter(first, "srvr"), "Mode: follower"); }));
}

TEST_F(zookeeper_server_test, one_of_three_alone_serves_nobody) {
  zookeeper_server ensemble{{.nodes = 3}};
  ensemble.kill(0);
  ensemble.kill(1);
  EXPECT_TRUE(wait_until([&] { return !ensemble.is_healthy(2); }));
  ensemble.restart_all();
  EXPECT_TRUE(ensemble.is_healthy(2));
}

TEST_F(zookeeper_server_test, killed_server_comes_back_where_it_was) {
  zookeeper_server server;
  const auto url = server.url();
  server.kill();
  EXPECT_FALSE(server.is_healthy(0));
  server.restart();
  EXPECT_EQ(server.url(), url);
  EXPECT_EQ(server.leader(), 0U);
}

TEST_F(zookeeper_server_test, restart_keeps_the_data) {
  zookeeper_server server;
  zookeeper_hand{server}.create({.path = "/a", .data = "x"});
  server.kill();
  server.restart();
  EXPECT_EQ(zookeeper_hand{server}.get("/a").data, "x");
  server.restart_with({"maxClientCnxns=8"});
  EXPECT_EQ(zookeeper_hand{server}.get("/a").data, "x");
}

TEST_F(zookeeper_server_test, ensemble_that_restarts_keeps_the_data) {
  zookeeper_server ensemble{{.nodes = 3}};
  zookeeper_hand{ensemble}.create({.path = "/a", .data = "x"});
  ensemble.restart_all();
  for (std::size_t n = 0; n < ensemble.nodes(); ++n)
    EXPECT_EQ((zookeeper_hand{ensemble, {.node = n}}.get("/a").data), "x");
}

TEST_F(zookeeper_server_test, stopped_server_answers_again_when_it_is_resumed) {
  zookeeper_server server;
  server.stop();
  EXPECT_FALSE(server.is_healthy(0));
  server.resume();
  EXPECT_TRUE(wait_until([&] { return server.is_healthy(0); }));
}

TEST_F(zookeeper_server_test, our_own_questions_are_not_counted_as_requests) {
  const zookeeper_server server;
  server.four_letter(0, "cons");
  EXPECT_EQ(server.requests(), 0);
  EXPECT_EQ(server.requests(), 0);
  EXPECT_GT(server.metric("zk_packets_received"), 2);
}

TEST_F(zookeeper_server_test, options_reach_the_server) {
  zookeeper_server server{{.tick = std::chrono::milliseconds{100},
                           .session_max = std::chrono::milliseconds{5000},
                           .four_letter_words = "srvr,conf,envi",
                           .config = {"maxClientCnxns=7"},
                           .flags = {"-Djute.maxbuffer=4096", "-Duser.name=tester"}}};
  const auto said = server.four_letter(0, "conf");
  EXPECT_TRUE(has(said, "tickTime=100\n") && has(said, "maxSessionTimeout=5000\n")) << said;
  EXPECT_TRUE(has(said, "maxClientCnxns=7\n")) << said;
  EXPECT_TRUE(has(server.four_letter(0, "envi"), "user.name=tester\n"));
  EXPECT_TRUE(has(server.four_letter(0, "ruok"), "not in the whitelist"));
  server.restart_with({"maxClientCnxns=8"});
  EXPECT_TRUE(has(server.four_letter(0, "conf"), "maxClientCnxns=8\n"));
}

TEST_F(zookeeper_server_test, server_that_cannot_start_says_why) {
  try {
    const zookeeper_server server{{.config = {"tickTime=never"}}};
    FAIL() << "it started";
  } catch (const std::runtime_error& refused) {
    EXPECT_TRUE(has(refused.what(), "never")) << refused.what();
  }
}

TEST_F(zookeeper_server_test, start_needs_no_archive_of_classes) {
  const zookeeper_server server{{.class_archive = false}};
  EXPECT_TRUE(server.is_healthy(0));
}

// What openssl's own client is told, with what it offers.
std::string handshake(const zookeeper_server& server, const temp_dir& dir,
                      std::vector<std::string> more = {}) {
  std::vector<std::string> words{*find_program("openssl"),
                                 "s_client",
                                 "-connect",
                                 "127.0.0.1:" + std::to_string(server.port()),
                                 "-CAfile",
                                 server.ca_file(),
                                 "-verify_return_error",
                                 "-verify_ip",
                                 "127.0.0.1",
                                 "-tls1_2"};
  words.insert(words.end(), more.begin(), more.end());
  const auto output = dir.file("handshake");
  std::filesystem::remove(output);
  process{words, output}.wait();
  return text_of_file(output);
}

TEST_F(zookeeper_server_test, clients_are_served_over_tls) {
  const zookeeper_server server{{.tls = true}};
  const temp_dir dir;
  EXPECT_EQ(server.url(), "zks://127.0.0.1:" + std::to_string(server.port()));
  EXPECT_NE(server.port(), server.plain_port());
  const auto said = handshake(server, dir);
  EXPECT_TRUE(has(said, "Verify return code: 0 (ok)")) << said << server.log();
}

TEST_F(zookeeper_server_test, client_without_certificate_is_sent_away_when_one_is_needed) {
  const zookeeper_server server{{.tls = true, .client_certificates = true}};
  const temp_dir dir;
  const auto without = handshake(server, dir);
  EXPECT_TRUE(has(without, "alert")) << without;
  const auto mine = server.authority().issue("client", "DNS:client");
  const auto with = handshake(server, dir, {"-cert", mine.file, "-key", mine.key});
  EXPECT_FALSE(has(with, "alert")) << with;
  EXPECT_TRUE(has(with, "Verify return code: 0 (ok)")) << with;
}

TEST_F(zookeeper_server_test, three_live_in_a_network_of_their_own) {
  if (const auto can = network_lab::available(); !can) GTEST_SKIP() << can.why;
  network_lab lab{3};
  const zookeeper_server ensemble{{.nodes = 3, .network = &lab}};
  EXPECT_TRUE(has(ensemble.url(), lab.address(2)));
  const auto first = ensemble.leader();
  lab.cut(first);
  EXPECT_TRUE(wait_until([&] { return !ensemble.is_healthy(first); }))
      << "it is asked where it lives";
  EXPECT_NE(ensemble.leader(), first);
  lab.join(first);
  EXPECT_TRUE(wait_until([&] { return ensemble.is_healthy(first); }));
}

TEST_F(zookeeper_server_test, shared_servers_are_started_once) {
  EXPECT_EQ(shared_zookeeper().pid(), shared_zookeeper().pid());
  EXPECT_EQ(shared_zookeeper3().nodes(), 3U);
}

}  // namespace
}  // namespace holdfast::testing

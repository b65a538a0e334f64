// The etcd servers that other tests build upon do what their header says.
#include "support/etcd_server.hpp"

#include "support/wait_until.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace holdfast::testing {
namespace {

class etcd_server_test : public ::testing::Test {
 protected:
  void SetUp() override { need(etcd_server::available(), "etcd"); }
};

using strings = std::vector<std::string>;

TEST_F(etcd_server_test, operator_sees_and_changes_keys) {
  const etcd_server server;
  EXPECT_EQ(server.url(), "etcd://127.0.0.1:" + std::to_string(server.port()));
  const auto begin = server.revision();
  server.put("b", "2");
  server.put("a\n\xff{", "1");
  EXPECT_EQ(server.revision(), begin + 2);
  EXPECT_EQ(server.keys(""), (strings{"b", "a\n\xff{"})) << "in the order of creation";
  const auto found = server.all("a");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].value, "1");
  EXPECT_EQ(found[0].create_revision, begin + 2);
  EXPECT_EQ(found[0].lease, 0);
  server.erase("b");
  EXPECT_EQ(server.keys("b"), strings{});
  EXPECT_THROW(server.erase("b"), std::runtime_error);
  EXPECT_THROW(server.etcdctl({"nonsense"}), std::runtime_error);
}

TEST_F(etcd_server_test, leases_are_seen_and_revoked) {
  const etcd_server server;
  const auto said =
      server.etcdctl({"lease", "grant", "60"});  // lease 694d... granted with TTL(60s)
  const auto lease = said.substr(6, said.find(' ', 6) - 6);
  server.etcdctl({"put", "a", "b", "--lease=" + lease});
  ASSERT_EQ(server.leases().size(), 1U);
  EXPECT_EQ(server.all("a").at(0).lease, server.leases()[0]);
  server.revoke(server.leases()[0]);
  EXPECT_EQ(server.keys(""), strings{});
  EXPECT_TRUE(server.leases().empty());
}

TEST_F(etcd_server_test, killed_server_comes_back_with_its_data) {
  etcd_server server;
  const auto url = server.url();
  server.put("a", "b");
  server.kill();
  EXPECT_FALSE(server.is_healthy(0));
  server.restart();
  EXPECT_EQ(server.url(), url);
  EXPECT_EQ(server.etcdctl({"get", "a", "--print-value-only"}), "b");
}

TEST_F(etcd_server_test, old_revisions_are_forgotten) {
  const etcd_server server;
  server.put("a", "b");
  const auto old = std::to_string(server.revision());
  server.put("a", "c");
  EXPECT_EQ(server.etcdctl({"get", "a", "--print-value-only", "--rev=" + old}), "b");
  server.compact();
  EXPECT_NE(server.try_etcdctl({"get", "a", "--rev=" + old}).said.find("compacted"),
            std::string::npos);
}

TEST_F(etcd_server_test, requests_are_counted) {
  const etcd_server server;
  const auto before = server.requests();
  server.put("a", "b");
  EXPECT_EQ(server.requests(), before + 1);
  EXPECT_EQ(server.metric("grpc_server_msg_received_total{grpc_method=\"Put\""), 1);
}

TEST_F(etcd_server_test, cluster_outlives_its_leader) {
  etcd_server cluster{{.nodes = 3}};
  const auto first = cluster.leader();
  cluster.put("a", "b");
  cluster.kill(first);
  const auto second = cluster.leader();
  EXPECT_NE(second, first);
  EXPECT_EQ(cluster.etcdctl({"get", "a", "--print-value-only"}), "b");
  cluster.stop(second);
  const auto third = 3 - first - second;
  EXPECT_TRUE(wait_until([&] { return !cluster.has_leader(third); })) << "alone";
  EXPECT_FALSE(cluster.is_healthy(third));
  cluster.resume(second);
  EXPECT_TRUE(wait_until([&] { return cluster.is_healthy(third); }));
  cluster.restart(first);
  cluster.kill_all();
  cluster.restart_all();
  EXPECT_EQ(cluster.etcdctl({"get", "a", "--print-value-only"}), "b");
}

TEST_F(etcd_server_test, member_is_replaced_by_an_empty_one_that_catches_up) {
  etcd_server cluster{{.nodes = 3}};
  cluster.put("a", "b");
  cluster.replace(cluster.leader());
  for (std::size_t n = 0; n < cluster.nodes(); ++n) EXPECT_TRUE(cluster.is_healthy(n));
  EXPECT_EQ(cluster.etcdctl({"get", "a", "--print-value-only"}), "b");
}

TEST_F(etcd_server_test, tls_wants_a_certificate_when_told_to) {
  if (!find_program("openssl")) GTEST_SKIP() << "no openssl in the PATH";
  const etcd_server server{{.tls = true, .client_certificates = true}};
  EXPECT_EQ(server.url(), "etcds://127.0.0.1:" + std::to_string(server.port()));
  server.put("a", "b");
  EXPECT_EQ(server.keys("").size(), 1U);
}

TEST_F(etcd_server_test, users_reach_their_own_prefix_only) {
  etcd_server server;
  server.enable_auth("app", "word", "locks/");
  server.put("a", "b");
  EXPECT_EQ(server.try_etcdctl({"--user=app:word", "put", "locks/a", "b"}).code, 0);
  EXPECT_NE(server.try_etcdctl({"--user=app:word", "get", "a"}).code, 0);
  EXPECT_NE(server.try_etcdctl({"--user=app:wrong", "get", "locks/a"}).code, 0);
}

TEST_F(etcd_server_test, no_space_is_an_alarm) {
  const etcd_server server{{.flags = {"--quota-backend-bytes=65536"}}};
  const std::string big(20'000, 'x');
  EXPECT_TRUE(wait_until([&] { return server.try_etcdctl({"put", "fill", big}).code != 0; }));
  EXPECT_NE(server.etcdctl({"alarm", "list"}).find("NOSPACE"), std::string::npos);
}

TEST_F(etcd_server_test, shared_servers_are_always_the_same) {
  EXPECT_EQ(&shared_etcd(), &shared_etcd());
  EXPECT_EQ(&shared_etcd3(), &shared_etcd3());
  EXPECT_EQ(shared_etcd3().nodes(), 3U);
}

}  // namespace
}  // namespace holdfast::testing

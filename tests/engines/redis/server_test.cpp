// The redis-server that other tests build upon does what its header says.
#include "support/redis_server.hpp"

#include "support/wait_until.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace holdfast::testing {
namespace {

class redis_server_test : public ::testing::Test {
 protected:
  void SetUp() override { need(redis_server::available(), "redis"); }
};

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream{path}.rdbuf();
  return text.str();
}

TEST_F(redis_server_test, replies_are_printable) {
  const redis_server server;
  EXPECT_EQ(server.url(), "redis://127.0.0.1:" + std::to_string(server.port()));
  EXPECT_EQ(redis_command(server, {"SET", "a", "b"}), "OK");
  EXPECT_EQ(redis_command(server, {"GET", "a"}), "b");
  EXPECT_EQ(redis_command(server, {"GET", "c"}), "(nil)");
  EXPECT_EQ(redis_command(server, {"INCR", "n"}), "1");
  EXPECT_EQ(redis_command(server, {"MGET", "a", "c", "n"}), "[b (nil) 1]");
  EXPECT_EQ(redis_command(server, {"INCR", "a"}),
            "(error) ERR value is not an integer or out of range");
  EXPECT_EQ(redis_command(server, {"DEBUG", "SLEEP", "0"}), "OK");
}

TEST_F(redis_server_test, a_killed_server_comes_back_at_the_same_place) {
  redis_server server{{.config = {"appendonly yes"}}};
  const auto url = server.url();
  EXPECT_EQ(redis_command(server, {"SET", "a", "b"}), "OK");
  server.kill();
  EXPECT_THROW(redis_command(server, {"PING"}), std::runtime_error);
  server.restart();
  EXPECT_EQ(server.url(), url);
  EXPECT_EQ(redis_command(server, {"GET", "a"}), "b");
}

TEST_F(redis_server_test, a_stopped_server_does_not_answer_until_it_is_resumed) {
  redis_server server;
  server.stop();
  EXPECT_THROW(server.command({"SET", "a", "b"}, 20ms), std::runtime_error);
  server.resume();
  // Sent while it was stopped, executed when it woke up.
  EXPECT_TRUE(wait_until([&] { return redis_command(server, {"GET", "a"}) == "b"; }));
}

TEST_F(redis_server_test, configuration_is_obeyed) {
  const redis_server locked{{.config = {"requirepass secret"}, .password = "secret"}};
  EXPECT_EQ(redis_command(locked, {"PING"}), "PONG");
  const redis_server listed{{.config = {"user default off", "user app on >word ~hf:* +@all"},
                             .user = "app",
                             .password = "word"}};
  EXPECT_EQ(redis_command(listed, {"SET", "hf:a", "b"}), "OK");
  EXPECT_TRUE(redis_command(listed, {"SET", "a", "b"}).starts_with("(error) NOPERM"));
  EXPECT_THROW(redis_server{{.config = {"no such line"}}}, std::runtime_error);
}

TEST_F(redis_server_test, a_replica_follows) {
  redis_server primary;
  redis_server replica{{.config = {"replicaof 127.0.0.1 " + std::to_string(primary.port())}}};
  EXPECT_EQ(redis_command(primary, {"SET", "a", "b"}), "OK");
  EXPECT_TRUE(wait_until([&] { return redis_command(replica, {"GET", "a"}) == "b"; }));
}

TEST_F(redis_server_test, tls_is_spoken_with_a_certificate_of_our_own) {
  const auto redis_cli = find_program("redis-cli");
  if (!redis_cli || !find_program("openssl")) GTEST_SKIP() << "no redis-cli or openssl in the PATH";
  const redis_server server{{.over = redis_server::transport::tls}};
  EXPECT_EQ(server.url(), "rediss://127.0.0.1:" + std::to_string(server.port()));
  EXPECT_EQ(redis_command(server, {"PING"}), "PONG");
  const temp_dir dir;
  process cli{{*redis_cli, "--tls", "--cacert", server.ca_file(), "--sni", "localhost", "-p",
               std::to_string(server.port()), "PING"},
              dir.file("out")};
  EXPECT_EQ(cli.wait(), 0);
  EXPECT_EQ(text_of(dir.file("out")), "PONG\n");
}

TEST_F(redis_server_test, a_unix_socket_needs_no_port) {
  const redis_server server{{.over = redis_server::transport::unix_socket}};
  EXPECT_EQ(server.url(), "unix:" + server.socket_path());
  EXPECT_EQ(server.port(), 0);
  EXPECT_EQ(redis_command(server, {"PING"}), "PONG");
}

TEST_F(redis_server_test, the_shared_server_is_always_the_same) {
  EXPECT_EQ(&shared_redis(), &shared_redis());
  EXPECT_EQ(redis_command(shared_redis(), {"PING"}), "PONG");
}

}  // namespace
}  // namespace holdfast::testing

// A real redis-server for a test, in a folder of its own.
//
//   if (const auto redis = redis_server::available(); !redis) GTEST_SKIP() << redis.why;
//   redis_server server{{.config = {"appendonly yes"}}};
//   client::open(server.url());
//   EXPECT_EQ(redis_command(server, {"SET", "a", "b"}), "OK");
//   server.kill(), server.restart();                // same port, same folder
//
// Every server listens on a Unix socket, whatever its clients use: so the test can look and interfere without TLS, and
// while a proxy in front of the port plays dead. Nothing is persisted unless `config` asks for it.
#pragma once

#include "support/certificates.hpp"
#include "support/network_lab.hpp"
#include "support/process.hpp"
#include "support/required.hpp"
#include "support/reserved_port.hpp"
#include "support/temp_dir.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::testing {

class redis_server {
 public:
  enum class transport { tcp, unix_socket, tls };

  struct options {
    transport over = transport::tcp;
    // Lines of redis.conf; they come last, so they win: "appendonly yes", "maxmemory 2mb", "requirepass secret",
    // "user app on >secret ~hf:* +@all", "replicaof 127.0.0.1 7000", "tls-auth-clients yes" ...
    std::vector<std::string> config{};
    // The user as which redis_command() logs in, where the default user may not, or not without a password.
    std::string user{};
    std::string password{};
    // The names that the certificate is for.
    std::string certified = "DNS:localhost,IP:127.0.0.1";
    std::vector<std::string> environment{};  // NAME=value
    bool is_sentinel = false;
    // Where it lives; null: on the loopback of this machine.
    const network_lab* network = nullptr;
    std::size_t place = 0;
  };

  // Is there a redis-server? From the PATH, or the one that HOLDFAST_REDIS_SERVER names.
  static availability available();

  // Returns when it answers. Throws, with what the server printed, when it does not.
  redis_server();
  explicit redis_server(options how);
  redis_server(const redis_server&) = delete;
  redis_server& operator=(const redis_server&) = delete;
  ~redis_server();

  // redis://127.0.0.1:PORT, rediss://127.0.0.1:PORT, or unix:PATH. Without credentials.
  std::string url() const;
  std::string host() const;
  std::uint16_t port() const noexcept { return port_ ? port_->number() : std::uint16_t{0}; }
  const std::string& ca_file() const noexcept { return ca_file_; }        // transport::tls
  const certificate_authority& authority() const { return *authority_; }  // transport::tls
  std::string socket_path() const { return dir_.file("redis.sock"); }
  const std::filesystem::path& folder() const noexcept { return dir_.path(); }
  pid_t pid() const noexcept { return process_.pid(); }
  std::string log() const;  // what it printed so far

  void stop() { process_.pause(); }     // SIGSTOP: connections stay open, nothing answers
  void resume() { process_.resume(); }  // SIGCONT: it first executes all that has arrived meanwhile
  void kill() { process_.kill(); }      // SIGKILL
  void restart();                       // kills it first when it runs

  // One command on a connection of its own, over the Unix socket.
  std::string command(const std::vector<std::string_view>& words,
                      std::chrono::nanoseconds limit = std::chrono::seconds{10}) const;
  // The same of one that may be stopped or dead: empty when nothing comes within a second.
  std::string try_command(const std::vector<std::string_view>& words) const;

 private:
  void write_config() const;
  void start();
  bool answers() const;

  options how_;
  temp_dir dir_;
  std::unique_ptr<reserved_port> port_;
  std::unique_ptr<certificate_authority> authority_;
  certificate certificate_;
  std::string ca_file_;
  process process_;
};

// The reply as redis-cli would say it on one line: OK, 7, text, (nil), (error) ERR ..., [a b [c]]. Throws when there is
// no reply.
inline std::string redis_command(const redis_server& server,
                                 const std::vector<std::string_view>& words) {
  return server.command(words);
}

// One server for all tests of this process, started when first asked for. Ask on the main thread, see process.hpp.
redis_server& shared_redis();

}  // namespace holdfast::testing

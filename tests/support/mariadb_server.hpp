// A real mariadbd for a test, in a folder of its own.
//
//   if (const auto mariadb = mariadb_server::available(); !mariadb) GTEST_SKIP() << mariadb.why;
//   mariadb_server server{{.config = {"read_only=ON"}}};
//   client::open(server.url());
//   EXPECT_EQ(server.sql("SELECT COUNT(*) FROM holdfast_lock"), "1");
//   server.kill(), server.restart();                // same port, same folder
//
// To make an empty data folder takes mariadb-install-db some seconds, so it is done once, kept in the build folder, and
// copied for each server. The user `holdfast` has the grants that our guide names, CREATE included, on the database
// `holdfast`, and no password. The test itself is root, over the Unix socket.
#pragma once

#include "support/certificates.hpp"
#include "support/process.hpp"
#include "support/required.hpp"
#include "support/reserved_port.hpp"
#include "support/temp_dir.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::testing {

class mariadb_server {
 public:
  struct options {
    bool tls = false;  // and insists on it
    // Lines of [mysqld]; they come last, so they win.
    std::vector<std::string> config{};
    std::string certified = "DNS:localhost,IP:127.0.0.1";
  };

  static availability available();

  // Returns when it answers. Throws, with what the server printed, when it does not.
  mariadb_server();
  explicit mariadb_server(options how);
  mariadb_server(const mariadb_server&) = delete;
  mariadb_server& operator=(const mariadb_server&) = delete;
  ~mariadb_server();

  // mysql://holdfast@127.0.0.1:PORT/holdfast?create=1, and more options if given: "grace=0&wait=poll".
  std::string url(std::string_view more = {}) const;
  std::uint16_t port() const noexcept { return port_.number(); }
  std::string socket_path() const { return dir_.file("sock"); }
  const std::string& ca_file() const noexcept { return ca_file_; }
  const std::filesystem::path& folder() const noexcept { return dir_.path(); }
  std::string log() const;  // what it printed so far

  void stop() { process_.pause(); }     // SIGSTOP: connections stay open, nothing answers
  void resume() { process_.resume(); }  // SIGCONT
  void kill() { process_.kill(); }      // SIGKILL
  void restart();                       // kills it first when it runs
  void restart_with(std::vector<std::string> config);  // instead of the lines given before

  // As root, in the database `holdfast`: the rows as text, tabs between columns. Throws when the server refuses.
  std::string sql(const std::string& text) const;
  // How many statements the server has executed so far.
  std::uint64_t statements() const;

 private:
  void write_config() const;
  void start();
  bool answers() const;

  options how_;
  temp_dir dir_;
  reserved_port port_;
  std::unique_ptr<certificate_authority> authority_;
  certificate certificate_;
  std::string ca_file_;
  mutable std::atomic<unsigned> commands_{0};
  process process_;
};

// One server for all tests of this process, started when first asked for. Ask on the main thread, see process.hpp.
mariadb_server& shared_mariadb();

}  // namespace holdfast::testing

#include "support/mariadb_server.hpp"

#include "support/made_once.hpp"
#include "support/shared_server.hpp"
#include "support/wait_until.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace holdfast::testing {

namespace {

namespace fs = std::filesystem;

std::optional<std::string> program(const std::string& name) {
  if (auto found = find_program(name)) return found;
  const auto in_sbin = "/usr/sbin/" + name;  // where Debian has mariadbd, and few have their PATH
  if (::access(in_sbin.c_str(), X_OK) == 0) return in_sbin;
  return std::nullopt;
}

// Small: a test holds a handful of rows.
constexpr std::string_view small =
    "[mysqld]\n"
    "innodb_log_file_size=4M\n"
    "innodb_data_file_path=ibdata1:4M:autoextend\n"
    "innodb_autoextend_increment=1\n"
    "innodb_buffer_pool_size=16M\n"
    "innodb_undo_tablespaces=0\n"
    "aria_pagecache_buffer_size=128K\n"
    "key_buffer_size=64K\n";

fs::path empty_data() {
  return made_once("mariadb-data", [](const fs::path& unfinished) {
    const auto config = unfinished.string() + ".cnf", log = unfinished.string() + ".log";
    std::ofstream{config} << small;
    process install{{*program("mariadb-install-db"), "--defaults-file=" + config,
                     "--datadir=" + unfinished.string(), "--auth-root-authentication-method=normal",
                     "--skip-test-db", "--skip-name-resolve", "--user=root"},
                    log};
    if (install.wait(std::chrono::minutes{1}) != 0)
      throw std::runtime_error("mariadb-install-db failed; it says:\n" + text_of_file(log));
  });
}

}  // namespace

availability mariadb_server::available() {
  for (const auto* name : {"mariadbd", "mariadb-install-db", "mariadb"})
    if (!program(name))
      return {false, std::string{name} + " is not in the PATH; tools/setup test installs it"};
  return {true, {}};
}

mariadb_server::mariadb_server() : mariadb_server(options{}) {}

mariadb_server::mariadb_server(options how) : how_(std::move(how)) {
  if (how_.tls) {
    authority_ = std::make_unique<certificate_authority>(dir_.path());
    certificate_ = authority_->issue("server", how_.certified);
    ca_file_ = authority_->file();
  }
  fs::copy(empty_data(), dir_.path() / "data", fs::copy_options::recursive);
  write_config();
  start();
}

mariadb_server::~mariadb_server() { process_.kill(); }

void mariadb_server::write_config() const {
  std::ofstream file{dir_.file("my.cnf")};
  // Not the common folder for temporary files: a server that starts clears away what others have there.
  file << small << "datadir=" << dir_.file("data") << '\n'
       << "tmpdir=" << dir_.path().string() << '\n'
       << "socket=" << socket_path() << '\n'
       << "pid_file=" << dir_.file("pid") << '\n'
       << "init_file=" << dir_.file("init.sql") << '\n'
       << "port=" << port() << '\n'
       << "bind_address=127.0.0.1\n"
       << "skip_name_resolve\n"
       << "max_connections=500\n"
       // Survives a crash of the server, if not of the machine; so a test needs no disk.
       << "innodb_flush_log_at_trx_commit=2\n";
  if (::geteuid() == 0) file << "user=root\n";
  if (how_.tls)
    file << "ssl_cert=" << certificate_.file << "\nssl_key=" << certificate_.key
         << "\nssl_ca=" << ca_file_ << "\nrequire_secure_transport=ON\n";
  for (const auto& line : how_.config) file << line << '\n';
  std::ofstream init{dir_.file("init.sql")};
  init << "CREATE DATABASE IF NOT EXISTS holdfast;\n"
          "CREATE USER IF NOT EXISTS holdfast@'%';\n"
          "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON holdfast.* TO holdfast@'%';\n";
  if (!file.flush() || !init.flush()) throw std::runtime_error("no configuration for mariadbd");
}

void mariadb_server::start() {
  const auto there = available();
  if (!there) throw std::runtime_error(there.why);
  process_ =
      process{{*program("mariadbd"), "--defaults-file=" + dir_.file("my.cnf")}, dir_.file("log")};
  const bool up =
      wait_until([this] { return !process_.is_running() || answers(); }, std::chrono::seconds{60});
  if (!up || !process_.is_running())
    throw std::runtime_error("mariadbd does not start; it says:\n" + log());
}

void mariadb_server::restart() {
  process_.kill();
  start();
}

void mariadb_server::restart_with(std::vector<std::string> config) {
  process_.kill();
  how_.config = std::move(config);
  write_config();
  start();
}

bool mariadb_server::answers() const {
  if (!fs::exists(socket_path())) return false;
  try {
    return sql("SELECT 1") == "1";
  } catch (const std::runtime_error&) {
    return false;
  }
}

std::string mariadb_server::url(std::string_view more) const {
  return fmt::format("mysql://holdfast@127.0.0.1:{}/holdfast?create=1{}{}{}", port(),
                     how_.tls ? "&ca_file=" + ca_file_ : std::string{}, more.empty() ? "" : "&",
                     more);
}

std::string mariadb_server::log() const { return text_of_file(dir_.file("log")); }

std::string mariadb_server::sql(const std::string& text) const {
  const auto output = dir_.file("sql." + std::to_string(++commands_));
  process client{{*program("mariadb"), "--no-defaults", "--socket=" + socket_path(), "--user=root",
                  "--batch", "--skip-column-names", "--database=holdfast", "--execute=" + text},
                 output};
  const auto code = client.wait(std::chrono::seconds{30});
  auto said = text_of_file(output);
  fs::remove(output);
  if (code != 0) throw std::runtime_error("mariadb refuses: " + text + "\n" + said);
  while (said.ends_with('\n')) said.pop_back();
  return said;
}

std::uint64_t mariadb_server::statements() const {
  const auto said = sql("SHOW GLOBAL STATUS LIKE 'Questions'");
  return std::stoull(said.substr(said.find('\t') + 1));
}

mariadb_server& shared_mariadb() {
  static shared_server<mariadb_server> single;
  return *single;
}

}  // namespace holdfast::testing

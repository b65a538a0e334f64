// Looks at the real server: does its configuration keep what the capabilities promise?
#include "engines/common/doctor_checks.hpp"
#include "engines/common/store_address.hpp"
#include "engines/mysql/mysql_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>

namespace holdfast::engines::mysql {

namespace {

using namespace std::chrono_literals;
using level = finding::level;

const statement& all_variables() {
  static const statement the{
      "SHOW VARIABLES WHERE Variable_name IN "
      "('read_only','super_read_only','log_bin','binlog_format',"
      "'innodb_flush_log_at_trx_commit','sync_binlog','wsrep_on','max_connections','wait_timeout',"
      "'interactive_timeout','innodb_lock_wait_timeout','max_user_connections','have_ssl','"
      "hostname')",
      "bb"};
  return the;
}
const statement& all_status() {
  static const statement the{
      "SHOW STATUS WHERE Variable_name IN "
      "('Threads_connected','Max_used_connections','Ssl_cipher','Uptime')",
      "bb"};
  return the;
}
const statement& replica_count(bool in_performance_schema) {
  static const statement plain{
      "SELECT COUNT(*) FROM information_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%'", "u"};
  static const statement other{
      "SELECT COUNT(*) FROM performance_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%'", "u"};
  return in_performance_schema ? other : plain;
}
const statement& engines_of_tables() {
  static const statement the{
      "SELECT TABLE_NAME,COALESCE(ENGINE,'') FROM information_schema.TABLES WHERE "
      "TABLE_SCHEMA=DATABASE() AND "
      "TABLE_NAME LIKE 'holdfast\\_%'",
      "bb"};
  return the;
}
const statement& server_time() {
  static const statement the{"SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))",
                             "u"};
  return the;
}
const statement& grants() {
  static const statement the{"SHOW GRANTS", "b"};
  return the;
}

// What the server says about itself, as far as it lets us look.
struct server_info {
  std::map<std::string, std::string, std::less<>> variables, status, tables;
  std::vector<std::string> grants;
  std::uint64_t replicas = 0;
  nanoseconds clock_ahead{}, clock_unsure{};
  std::vector<nanoseconds> round_trips;  // sorted

  std::string_view said(const std::map<std::string, std::string, std::less<>>& in,
                        std::string_view name) const {
    const auto at = in.find(name);
    return at == in.end() ? std::string_view{} : std::string_view{at->second};
  }
  std::int64_t number(std::string_view name) const {
    const auto text = said(variables, name);
    std::int64_t out = 0;
    std::from_chars(text.data(), text.data() + text.size(), out);
    return out;
  }
  bool is_on(std::string_view name) const { return said(variables, name) == "ON"; }
};

result<server_info> ask(connection& on) {
  server_info out;
  const auto pairs = [&](const statement& what, auto& into) -> result<void> {
    auto found = on.ask(what, {});
    if (!found) return std::move(found).error();
    for (const auto& variable : *found) into[variable.bytes(0)] = variable.bytes(1);
    return {};
  };
  if (auto ok = pairs(all_variables(), out.variables); !ok) return std::move(ok).error();
  if (auto ok = pairs(all_status(), out.status); !ok) return std::move(ok).error();
  if (auto ok = pairs(engines_of_tables(), out.tables); !ok) return std::move(ok).error();
  if (auto found = on.ask(replica_count(on.own_identity().in_performance_schema), {}))
    out.replicas = found->front().number(0);
  if (auto found = on.ask(grants(), {}))
    for (const auto& granted : *found) out.grants.push_back(granted.bytes(0));
  for (int i = 0; i < 9; ++i) {
    const auto steady = std::chrono::steady_clock::now();
    const auto ours = std::chrono::system_clock::now().time_since_epoch();
    auto found = on.ask(server_time(), {});
    if (!found) return std::move(found).error();
    const auto took = std::chrono::steady_clock::now() - steady;
    out.round_trips.push_back(took);
    if (i > 0 && took / 2 >= out.clock_unsure) continue;
    out.clock_unsure = took / 2;
    out.clock_ahead = std::chrono::microseconds{found->front().integer(0)} - (ours + took / 2);
  }
  std::ranges::sort(out.round_trips);
  return out;
}

bool is_local(const settings& how) { return !how.socket.empty() || is_this_machine(how.host); }

// Each check looks at one thing, and knows what it means for locks.
struct view {
  const server_info& server;
  const settings& how;
  const session& with;
};

finding check_version(const view& at) {
  const auto& version = at.with.version();
  const auto spoken = fmt::format("{} {}", version.is_mariadb ? "MariaDB" : "MySQL", version.text);
  if (version.is_mariadb && version.major == 10 && version.minor < 6)
    return {level::note, "version", spoken + " will do; 10.6 or newer is what should be used."};
  return {level::good, "version", spoken + "."};
}

finding check_writable(const view& at) {
  if (at.server.is_on("super_read_only") || at.server.is_on("read_only"))
    return {level::bad, "writable",
            "The server is read_only: no lock can be taken. Is this a replica? Name the primary."};
  return {level::good, "writable", "The server takes writes."};
}

finding check_tables(const view& at) {
  for (const auto& [name, engine] : at.server.tables)
    if (engine != "InnoDB")
      return {
          level::bad, "tables",
          fmt::format("{} is in {}, which knows no transactions: locks may be granted twice. ALTER "
                      "TABLE {} ENGINE=InnoDB.",
                      name, engine.empty() ? "no engine" : engine, name)};
  return {level::good, "tables", fmt::format("All {} are in InnoDB.", at.server.tables.size())};
}

finding check_durability(const view& at) {
  const auto flush = at.server.number("innodb_flush_log_at_trx_commit");
  if (flush == 1) return {level::good, "durability", "Every commit is synced to the disk."};
  return {
      level::warning, "durability",
      fmt::format(
          "innodb_flush_log_at_trx_commit is {}: a crash of the {} forgets the grants of about a "
          "second, which may then be granted twice. Set it to 1.",
          flush, flush == 2 ? "machine" : "server")};
}

finding check_binlog(const view& at) {
  if (!at.server.is_on("log_bin"))
    return {level::note, "replication",
            "No binary log, so no replicas: while this server is down, no client can lock."};
  if (at.server.said(at.server.variables, "binlog_format") == "STATEMENT")
    return {level::bad, "replication",
            "binlog_format is STATEMENT, with which InnoDB refuses to write at READ COMMITTED. Set "
            "it to ROW "
            "or MIXED."};
  if (at.server.replicas == 0)
    return {level::note, "replication",
            "There is a binary log, and no replica is connected now, or we may not see it."};
  return {level::warning, "replication",
          fmt::format("{} replica(s): a fail-over to one that lagged forgets the newest grants. "
                      "Use semi-synchronous "
                      "replication, or wait the longest ttl after a fail-over.",
                      at.server.replicas)};
}

finding check_waiting(const view& at) {
  if (at.with.has_user_locks())
    return {level::good, "waiting",
            "Waiters are told (KILL QUERY), and dead clients are seen (GET_LOCK)."};
  return {level::warning, "waiting",
          fmt::format("Waiters must ask, at most every 250 ms, because {}.", at.with.why_not())};
}

finding check_galera(const view& at) {
  if (!at.server.is_on("wsrep_on")) return {level::good, "cluster", "Not a Galera node."};
  return {level::warning, "cluster",
          "A Galera node: two nodes may grant at the same time and one of them fails at commit. "
          "Let all clients "
          "use the same node."};
}

finding check_rights(const view& at) {
  const bool all = std::ranges::any_of(at.server.grants, [](const std::string& granted) {
    return granted.find("ALL PRIVILEGES ON *.*") != std::string::npos;
  });
  if (all)
    return {level::warning, "rights",
            "The user may do everything on the server. `holdfast schema mysql` prints the grants "
            "that suffice."};
  return {level::good, "rights", "The user may use the tables, and is not an administrator."};
}

finding check_transport(const view& at) {
  const auto cipher = at.server.said(at.server.status, "Ssl_cipher");
  return check_encryption({!cipher.empty(), is_local(at.how), "tls=on", cipher});
}

finding check_clock(const view& at) {
  const auto off = at.server.clock_ahead < 0ns ? -at.server.clock_ahead : at.server.clock_ahead;
  const auto measured = clock_difference(at.server.clock_ahead, at.server.clock_unsure);
  if (off <= 1s + at.server.clock_unsure) return {level::good, "clock", measured};
  return {
      level::note, "clock",
      measured +
          " Exclusion does not depend on the difference, but on the server's clock not jumping."};
}

finding check_round_trip(const view& at) {
  const auto grace = at.with.grace();
  return check_round_trips(at.server.round_trips, {grace / 3, "grace", grace});
}

finding check_connections(const view& at) {
  const auto most = at.server.number("max_connections");
  std::int64_t now = 0;
  const auto text = at.server.said(at.server.status, "Threads_connected");
  std::from_chars(text.data(), text.data() + text.size(), now);
  const auto spoken = fmt::format(
      "{} of {} connections are in use. A client has one for its session, one more while it waits, "
      "and one or two for "
      "each thread that asks at the same time.",
      now, most);
  if (most > 0 && now * 5 > most * 4)
    return {level::warning, "connections", spoken + " Raise max_connections."};
  return {level::good, "connections", spoken};
}

constexpr std::array checks{&check_version,    &check_writable,   &check_tables,
                            &check_durability, &check_binlog,     &check_galera,
                            &check_waiting,    &check_rights,     &check_transport,
                            &check_clock,      &check_round_trip, &check_connections};

}  // namespace

result<std::vector<finding>> check_server(connection& on, const settings& how,
                                          const session& with) {
  const auto known = ask(on);
  if (!known) return known.error();
  std::vector<finding> out;
  for (const auto check : checks) out.push_back(check({*known, how, with}));
  return out;
}

result<std::vector<finding>> mysql_engine::diagnose(const call& limits) {
  auto on = plain_.take(limits, {});
  if (!on) return std::move(on).error();
  return check_server(**on, how_, session_);
}

}  // namespace holdfast::engines::mysql

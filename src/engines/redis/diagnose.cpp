#include "engines/redis/diagnose.hpp"

#include "engines/common/doctor_checks.hpp"
#include "engines/common/store_address.hpp"
#include "engines/redis/server_info.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

namespace holdfast::engines::redis {

namespace {

using namespace std::chrono_literals;
using level = finding::level;

bool is_local(const settings& how) { return how.where.is_unix || is_this_machine(how.where.host); }

// Each check looks at one thing, and knows what it means for locks.

finding check_version(const server_info& server, const settings&) {
  const auto version = server.said("redis_version");
  if (!version)
    return not_allowed_to_look("version", "INFO is refused",
                               "It must be Redis 6.0 or newer; 6.2 and 7 are better.");
  int major = 0, minor = 0;
  const auto* end = version->data() + version->size();
  const auto dot = std::from_chars(version->data(), end, major).ptr;
  if (dot != end) std::from_chars(dot + 1, end, minor);
  const auto spoken = fmt::format("Redis {}", *version);
  if (major < 6) return {level::bad, "version", spoken + " is too old: 6.0 is needed."};
  if (major == 6 && minor < 2)
    return {level::note, "version", spoken + " will do; 6.2 and 7 are what should be used."};
  return {level::good, "version", spoken + "."};
}

finding check_role(const server_info& server, const settings&) {
  const auto role = server.said("role");
  if (!role) return not_allowed_to_look("role", "INFO is refused", "It must be the master.");
  if (*role != "master")
    return {
        level::bad, "role",
        fmt::format("This is a {} of {}: it refuses writes, and what it shows is late. Name the "
                    "master.",
                    *role == "slave" ? "replica" : *role,
                    server.said("master_host").value_or("another server"))};
  return {level::good, "role", "This is a master."};
}

finding check_cluster(const server_info& server, const settings& how) {
  const auto enabled = server.number("cluster_enabled");
  if (!enabled) return not_allowed_to_look("cluster mode", "INFO is refused", "It must be off.");
  if (how.is_cluster()) return {level::good, "cluster mode", "On."};
  if (*enabled != 0)
    return {level::bad, "cluster mode",
            "This is one node of a Redis Cluster: the keys of one lock would lie on several. Use "
            "an address that begins with redis+cluster://."};
  return {level::good, "cluster mode", "Off."};
}

finding check_eviction(const server_info& server, const settings&) {
  constexpr std::string_view about = "eviction policy";
  auto policy = server.said("maxmemory_policy");
  auto most = server.number("maxmemory");
  if (!policy) policy = server.set_to("maxmemory-policy");
  if (!most) most = server.number_set_to("maxmemory");
  if (!policy || !most)
    return not_allowed_to_look(about, "INFO is refused",
                               "It must be noeviction, or there must be no maxmemory.");
  if (*policy == "noeviction")
    return {level::good, std::string{about},
            *most == 0
                ? "noeviction, without a limit on memory."
                : "noeviction: when the memory is full, new locks are refused and those that "
                  "are held stay."};
  if (*most == 0)
    return {
        level::note, std::string{about},
        fmt::format("{}, but there is no maxmemory, so nothing is evicted. With one, locks would "
                    "be: set maxmemory-policy noeviction first.",
                    *policy)};
  return {level::bad, std::string{about},
          fmt::format("{} with maxmemory {}: when the memory is full, the server throws locks away "
                      "while they are held (every lock has a ttl, so the volatile- policies do it, "
                      "too). Set maxmemory-policy noeviction.",
                      *policy, *most)};
}

finding judge_aof(std::string_view sync) {
  if (sync == "always")
    return {level::good, "persistence",
            "AOF, synced always: locks survive a crash of the machine."};
  if (sync == "no")
    return {
        level::warning, "persistence",
        "AOF, synced when the system likes (appendfsync no): a crash of the machine forgets locks "
        "of half a minute, which may then be granted twice. Use everysec or always."};
  return {
      level::good, "persistence",
      fmt::format("AOF, synced {}: locks survive a crash of the server; a crash of the machine may "
                  "forget those of the last second.",
                  sync.empty() ? "as configured" : sync)};
}

finding check_persistence(const server_info& server, const settings&) {
  constexpr std::string_view forgets =
      "and then they may be granted to others while their holders still believe in them, until "
      "their "
      "next renewal; tokens go on rising";
  const auto aof = server.number("aof_enabled");
  if (!aof)
    return not_allowed_to_look("persistence", "INFO is refused",
                               "Use AOF (appendonly yes), or a restart forgets locks.");
  if (server.said("aof_last_write_status").value_or("ok") != "ok" ||
      server.said("rdb_last_bgsave_status").value_or("ok") != "ok")
    return {level::warning, "persistence",
            "The last attempt to save failed: the server may refuse all writes (MISCONF), and a "
            "restart forgets locks. See its log."};
  if (*aof != 0) return judge_aof(server.set_to("appendfsync").value_or(""));
  const auto snapshots = server.set_to("save");
  if (!snapshots)
    return {
        level::warning, "persistence",
        fmt::format("No AOF: a restart forgets all locks since the last snapshot, if there are any "
                    "snapshots, {}. Set appendonly yes.",
                    forgets)};
  if (snapshots->empty())
    return {level::warning, "persistence",
            fmt::format("None: a restart forgets all locks, {}. Set appendonly yes.", forgets)};
  return {level::warning, "persistence",
          fmt::format("Snapshots only: a restart forgets the locks since the last one, {}. Set "
                      "appendonly yes.",
                      forgets)};
}

finding check_replication(const server_info& server, const settings& how) {
  const auto replicas = server.number("connected_slaves");
  if (!replicas)
    return not_allowed_to_look("replication", "INFO is refused",
                               "With replicas, see wait_replicas in the guide.");
  const auto needed = server.number_set_to("min-replicas-to-write").value_or(0);
  if (*replicas < static_cast<std::int64_t>(how.wait_replicas))
    return {level::bad, "replication",
            fmt::format("wait_replicas={}, but {} are connected: no lock can be taken.",
                        how.wait_replicas, *replicas)};
  if (server.number("min_slaves_good_slaves").value_or(needed) < needed)
    return {
        level::bad, "replication",
        fmt::format("min-replicas-to-write is {}, and fewer are in good health: the server refuses "
                    "all writes.",
                    needed)};
  if (*replicas == 0)
    return {level::note, "replication",
            "No replicas: while this server is down, no client can lock."};
  if (how.wait_replicas == 0)
    return {level::warning, "replication",
            fmt::format(
                "{} replica(s), and no grant waits for them: a fail-over forgets the grants that "
                "had not arrived there, and a lock may be held twice. Add ?wait_replicas=1 to "
                "the address.",
                *replicas)};
  return {
      level::good, "replication",
      fmt::format("{} replica(s); a grant counts when {} have it. A fail-over to one that had not "
                  "may still forget it.{}",
                  *replicas, how.wait_replicas,
                  needed > 0 ? ""
                             : " With min-replicas-to-write a master that is cut off would "
                               "also stop granting.")};
}

finding check_rights(const server_info& server, const settings& how) {
  const auto user = "The user " + support::quoted(server.user);
  if (!server.missing_rights)
    return {level::note, "rights",
            user + " may open the store. What else it may do cannot be asked before Redis 7."};
  if (!server.missing_rights->empty())
    return {
        level::bad, "rights",
        fmt::format("{} may not do all that is needed: {}. docs/guides/redis.md has the ACL line.",
                    user, fmt::join(*server.missing_rights, ", "))};
  if (how.layout != "native" && how.prefix.empty())
    return {
        level::note, "rights",
        user + " may run scripts. Whether it may use the keys depends on the names of the locks."};
  if (server.may_flush)
    return {level::note, "rights",
            user +
                " may do all that is needed, and far more (FLUSHALL). docs/guides/redis.md has an "
                "ACL line with just enough."};
  return {level::good, "rights", user + " may do all that is needed, and may not flush the store."};
}

finding check_password(const server_info& server, const settings& how) {
  const bool came_without = how.password.empty() && server.user == "default";
  if (!came_without && !server.is_default_open)
    return not_allowed_to_look(
        "password", "ACL GETUSER is refused",
        "We gave a password. The user default must have one, too, or be off.");
  if (!came_without && !*server.is_default_open)
    return {level::good, "password", "No client gets in without a password."};
  if (how.where.is_unix)
    return {level::note, "password",
            "None is needed: a program that may open the socket may do everything to the locks."};
  return {level::warning, "password",
          "The user default needs none: a program that reaches the server may do everything to the "
          "locks. Give it a password, or switch it off."};
}

finding check_transport(const server_info&, const settings& how) {
  return check_encryption({how.where.use_tls, is_local(how), "rediss://"});
}

finding check_clock(const server_info& server, const settings& how) {
  const auto off = server.clock_ahead < 0ns ? -server.clock_ahead : server.clock_ahead;
  const auto measured = clock_difference(server.clock_ahead, server.clock_unsure);
  if (how.layout == "getset") {
    const bool is_far = off > 200ms + server.clock_unsure;
    return {is_far ? level::warning : level::good, "clock",
            measured +
                (is_far ? " With this layout the clocks of all clients decide; one of the two is "
                          "wrong, and it may be ours."
                        : "")};
  }
  if (off <= 1s + server.clock_unsure) return {level::good, "clock", measured};
  return {off > 1min ? level::warning : level::note, "clock",
          measured +
              " Exclusion does not depend on it. Tokens do, if the data is lost or the server "
              "replaced: a clock that is set back then makes them fall."};
}

finding check_round_trip(const server_info& server, const settings& how) {
  if (server.round_trips.empty()) return not_allowed_to_look("round trip", "PING is refused", "");
  return check_round_trips(server.round_trips, {how.grace / 3, "grace", how.grace});
}

finding check_idle(const server_info& server, const settings&) {
  const auto timeout = server.number_set_to("timeout");
  const auto keepalive = server.number_set_to("tcp-keepalive");
  if (!timeout || !keepalive)
    return not_allowed_to_look("idle connections", "CONFIG GET is refused", "timeout 0 is best.");
  if (*timeout > 0)
    return {level::note, "idle connections",
            fmt::format(
                "Closed after {} s (timeout): the next acquire has to connect first. Connections "
                "that listen for messages stay.",
                *timeout)};
  if (*keepalive == 0)
    return {
        level::note, "idle connections",
        "tcp-keepalive is off: a client machine that vanishes without a word counts as connected "
        "for ever. Its locks end with their ttl all the same."};
  return {
      level::good, "idle connections",
      fmt::format("Kept; a client machine that vanishes without a word is noticed after about {} s "
                  "(tcp-keepalive {}), its locks end with their ttl before.",
                  2 * *keepalive, *keepalive)};
}

// "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60": hard limit, soft limit, seconds
std::optional<std::int64_t> pubsub_limit(std::string_view all) {
  constexpr std::string_view word = "pubsub ";
  const auto at = all.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  const auto* begin = all.data() + at + word.size();
  std::int64_t out = 0;
  if (std::from_chars(begin, all.data() + all.size(), out).ec != std::errc{}) return std::nullopt;
  return out;
}

finding check_messages(const server_info& server, const settings&) {
  const auto limits = server.set_to("client-output-buffer-limit");
  const auto most = limits ? pubsub_limit(*limits) : std::nullopt;
  if (!most)
    return not_allowed_to_look("messages", "CONFIG GET is refused",
                               "client-output-buffer-limit pubsub should be at least 1mb, or 0.");
  if (*most > 0 && *most < (1 << 20))
    return {level::warning, "messages",
            fmt::format(
                "A listener that is {} bytes behind is cut off (client-output-buffer-limit "
                "pubsub): a busy client may lose its connection, and its leases with it. Use at "
                "least 1mb, or 0.",
                *most)};
  return {level::good, "messages",
          *most == 0 ? std::string{"No limit on what a listener may be behind."}
                     : fmt::format("A listener may be {} MB behind.", *most >> 20)};
}

finding check_scripts(const server_info& server, const settings& how) {
  const auto limit = server.number_set_to("lua-time-limit");
  if (!limit)
    return not_allowed_to_look("scripts of others", "CONFIG GET is refused",
                               "A script or command that runs long stops all locks of the server.");
  const bool counts = how.layout == "native" && how.grace > 0ns;
  return {
      level::note, "scripts of others",
      fmt::format("One that runs long stops the whole server; after {} ms (lua-time-limit) it says "
                  "so. {}",
                  *limit,
                  counts ? fmt::format("Whatever stops it for {} (grace) costs every lease.",
                                       format_duration(how.grace))
                         : std::string{"Whatever stops it for a ttl costs every lease."})};
}

constexpr std::array checks{
    &check_version,     &check_role,   &check_cluster,  &check_eviction,  &check_persistence,
    &check_replication, &check_rights, &check_password, &check_transport, &check_clock,
    &check_round_trip,  &check_idle,   &check_messages, &check_scripts};

}  // namespace

result<std::vector<finding>> diagnose(connections& server, const settings& how,
                                      const call& limits) {
  const auto known = server_info::ask(server, how, limits);
  if (!known) return known.error();
  std::vector<finding> out;
  if (auto* watched_by = server.known_by(); watched_by != nullptr) out = watched_by->diagnose();
  out.reserve(out.size() + checks.size());
  for (const auto check : checks) out.push_back(check(*known, how));
  return out;
}

}  // namespace holdfast::engines::redis

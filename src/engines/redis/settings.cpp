#include "engines/redis/settings.hpp"

#include "engines/common/store_address.hpp"
#include "support/secret.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace holdfast::engines::redis {

namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t usual_port = 6379;
constexpr std::uint16_t usual_sentinel_port = 26379;

// redis+sentinel://a,b,c/NAME: the hosts are those of the sentinels.
result<void> read_sentinels(const store_url& url, settings& out) {
  out.where.use_tls = url.scheme().starts_with("rediss");
  const auto tls = text_option(url, "sentinel_tls", out.where.use_tls ? "yes" : "no");
  if (tls != "yes" && tls != "no")
    return bad_address(url, "must have sentinel_tls=yes or sentinel_tls=no.");
  const bool use_tls = tls == "yes";
  auto members = read_members(url, use_tls || out.where.use_tls, usual_sentinel_port,
                              "redis+sentinel://a:26379,b:26379,c:26379/mymaster",
                              "TLS is rediss+sentinel://");
  if (!members) return std::move(members).error();
  const auto slash = std::min(url.path().find_first_not_of('/'), url.path().size());
  out.master = url.path().substr(slash);
  if (out.master.empty() || out.master.find('/') != std::string::npos)
    return bad_address(url, "must have the name of the master as its path: /mymaster.");
  auto password = support::password_of("sentinel", url);
  if (!password) return std::move(password).error();
  for (const auto& member : *members) {
    settings at;
    at.where.host = member.host;
    at.where.port = member.port;
    at.where.use_tls = use_tls;
    at.where.tls = {member.tls.ca_file, member.tls.cert_file, member.tls.key_file,
                    member.tls.server_name};
    at.url = fmt::format("the sentinel {}", member.name);
    at.user = text_option(url, "sentinel_user");
    at.password = *password;
    out.sentinels.push_back(std::move(at));
  }
  // Where the master is, the sentinels say; that it is on this machine, they suggest.
  out.where.host = out.sentinels.front().where.host;
  out.where.tls = {text_option(url, "ca_file"), text_option(url, "cert_file"),
                   text_option(url, "key_file"), text_option(url, "server_name")};
  return {};
}

// redis+cluster://a,b,c: some of the nodes, the others are learnt.
result<void> read_seeds(const store_url& url, settings& out) {
  out.where.use_tls = url.scheme().starts_with("rediss");
  auto members = read_members(url, out.where.use_tls, usual_port,
                              "redis+cluster://a:6379,b:6379,c:6379", "TLS is rediss+cluster://");
  if (!members) return std::move(members).error();
  out.where.host = members->front().host;
  out.where.tls = {text_option(url, "ca_file"), text_option(url, "cert_file"),
                   text_option(url, "key_file"), text_option(url, "server_name")};
  for (const auto& member : *members) {
    settings at;
    at.where = out.where;
    at.where.host = member.host;
    at.where.port = member.port;
    at.where.tls.server_name = member.tls.server_name;
    at.url = fmt::format("the node {}", member.name);
    out.seeds.push_back(std::move(at));
  }
  return {};
}

// What a cluster does not have.
result<void> check_cluster_options(const store_url& url, settings& out) {
  if (!out.is_cluster()) return {};
  if (out.db != 0) return bad_address(url, "asks for a database, and a cluster has only one.");
  if (url.find("grace") != nullptr && out.grace != 0s)
    return bad_address(url,
                       "asks for a grace: a cluster notices dead holders when their ttl has "
                       "passed, because each node sees only its own connections.");
  out.grace = 0s;
  if (out.prefix.find_first_of("{}") != std::string::npos)
    return bad_address(url, "has a prefix with a brace, which would decide about the slots.");
  return {};
}

result<void> read_place(const store_url& url, settings& out) {
  if (url.scheme() == "unix") {
    if (!url.endpoints().empty() || !url.path().starts_with('/'))
      return bad_address(url, "must be the absolute path of a socket: unix:/run/redis.sock.");
    out.where.is_unix = true;
    out.where.host = url.path();
    auto none = read_tls_files(url, false, {}, "a socket of this machine needs none");
    return none ? result<void>{} : std::move(none).error();
  }
  if (url.scheme().ends_with("+sentinel")) return read_sentinels(url, out);
  if (url.scheme().ends_with("+cluster")) return read_seeds(url, out);
  if (url.endpoints().size() != 1)
    return bad_hosts(
        url,
        "must name one host. A lock over several masters is redlock://, a master with "
        "replicas behind Sentinel redis+sentinel://, a Redis Cluster redis+cluster://.");
  const auto& at = url.endpoints().front();
  out.where.host = at.host;
  out.where.port = at.port.value_or(usual_port);
  out.where.use_tls = url.scheme() == "rediss";
  auto tls = read_tls_files(url, out.where.use_tls, at.host, "TLS is rediss://");
  if (!tls) return std::move(tls).error();
  out.where.tls = {tls->ca_file, tls->cert_file, tls->key_file, tls->server_name};
  return {};
}

// An option that the layout does not know must not be ignored: the user relies on it.
result<void> read_layout(const store_url& url, settings& out) {
  out.layout = text_option(url, "layout", "native");
  out.prefix = text_option(url, "prefix", out.layout == "native" ? "hf:" : "");
  if (out.layout != "native")
    for (const std::string_view only : {"grace", "wait_replicas", "wait_timeout"})
      if (url.find(only) != nullptr)
        return bad_address(
            url, fmt::format("has the option {}, which is of the layout native only.", only));
  const auto* semaphore = url.find("semaphore");
  if (semaphore == nullptr) return {};
  if (out.layout != "redisson")
    return bad_address(url, "has the option semaphore, which is of the layout redisson only.");
  if (*semaphore != "expirable" && *semaphore != "plain")
    return bad_address(url, "must have semaphore=expirable or semaphore=plain.");
  out.plain_semaphores = *semaphore == "plain";
  return {};
}

// As the path (redis://host/2) or as ?db=2.
result<void> read_database(const store_url& url, settings& out) {
  auto given = url.integer("db", 0, 0, 1'000'000);
  if (!given) return std::move(given).error();
  out.db = static_cast<int>(*given);
  if (out.where.is_unix || out.has_sentinels() || url.path().empty() || url.path() == "/")
    return {};
  const auto number = std::string_view{url.path()}.substr(1);
  const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), out.db);
  if (code != std::errc{} || end != number.data() + number.size() || out.db < 0)
    return bad_address(url, "must have the number of a database as its path, or none.");
  if (url.find("db") != nullptr) return bad_address(url, "names its database twice.");
  return {};
}

result<void> read_numbers(const store_url& url, settings& out) {
  auto grace = url.duration("grace", 3s, 0s, 1h);
  if (!grace) return std::move(grace).error();
  if (*grace > 0ns && *grace < 100ms)
    return bad_address(url, "has a grace of less than 100ms; a busy machine is not a dead one.");
  out.grace = *grace;
  auto connections = url.integer("connections", out.where.use_tls ? 1 : 4, 1, 64);
  if (!connections) return std::move(connections).error();
  out.connections = static_cast<unsigned>(*connections);
  auto replicas = url.integer("wait_replicas", 0, 0, 100);
  if (!replicas) return std::move(replicas).error();
  out.wait_replicas = static_cast<unsigned>(*replicas);
  auto timeout = url.duration("wait_timeout", 1s, 1ms, 1min);
  if (!timeout) return std::move(timeout).error();
  out.wait_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(*timeout);
  return {};
}

result<void> check_options(const store_url& url) {
  if (url.scheme().ends_with("+sentinel"))
    return url.allow_only({"layout", "prefix", "semaphore", "db", "grace", "connections",
                           "wait_replicas", "wait_timeout", "password_file", "password_env",
                           "ca_file", "cert_file", "key_file", "server_name", "sentinel_user",
                           "sentinel_password_file", "sentinel_password_env", "sentinel_tls"});
  return url.allow_only({"layout", "prefix", "semaphore", "db", "grace", "connections",
                         "wait_replicas", "wait_timeout", "password_file", "password_env",
                         "ca_file", "cert_file", "key_file", "server_name"});
}

}  // namespace

std::string store_kind(const settings& how) {
  if (how.is_cluster()) return "redis cluster";
  return how.has_sentinels() ? "redis behind Sentinel" : "redis";
}

// Empty: the address leads to one server for good.
std::string failover_words(const settings& how) {
  if (how.is_cluster())
    return " A fail-over of a shard may forget the grants of the last moments there, and a master "
           "that was cut off goes on granting for cluster-node-timeout, so that its leases are "
           "believed for their ttl beside the next one's; other shards are not touched." +
           std::string{how.layout != "native" || how.wait_replicas > 0
                           ? ""
                           : " ?wait_replicas=1 makes grants and renewals count only once a "
                             "replica has them."};
  if (!how.has_sentinels()) return {};
  if (how.wait_replicas > 0)
    return fmt::format(
        " A fail-over to one of the replicas that confirmed a grant keeps it; to another one it "
        "may be lost. A holder believes in its lock for as long as {} replica(s) have confirmed "
        "it: beside a master that was cut off with fewer of them it stops to, {} after the last "
        "confirmation. One that took so many along has believers until it is reached.",
        how.wait_replicas,
        how.grace > 0ns ? format_duration(how.grace) + " (grace)" : std::string{"a ttl"});
  return " A fail-over may forget the grants of the last moments, and a master that was cut off "
         "goes "
         "on granting until it learns of the new one, unless min-replicas-to-write stops it (then "
         "leases on it end, too)." +
         std::string{how.layout == "native" ? " ?wait_replicas= does more." : ""};
}

result<settings> read_settings(const store_url& url) {
  if (auto known = check_options(url); !known) return std::move(known).error();
  settings out;
  out.url = url.str();
  for (const auto& read :
       {read_layout, read_place, read_database, read_numbers, check_cluster_options})
    if (auto ok = read(url, out); !ok) return std::move(ok).error();
  auto login = read_login(url);
  if (!login) return std::move(login).error();
  out.user = std::move(login->user);
  out.password = std::move(login->password);
  for (auto& seed : out.seeds) {
    seed.user = out.user;
    seed.password = out.password;
  }
  return out;
}

}  // namespace holdfast::engines::redis

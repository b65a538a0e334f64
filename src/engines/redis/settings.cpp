#include "engines/redis/settings.hpp"

#include "engines/common/store_address.hpp"

#include <fmt/format.h>

#include <charconv>

namespace holdfast::engines::redis {

namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t usual_port = 6379;

result<void> read_place(const store_url& url, settings& out) {
  if (url.scheme() == "unix") {
    if (!url.endpoints().empty() || !url.path().starts_with('/'))
      return bad_address(url, "must be the absolute path of a socket: unix:/run/redis.sock.");
    out.where.is_unix = true;
    out.where.host = url.path();
    auto none = read_tls_files(url, false, {}, "a socket of this machine needs none");
    return none ? result<void>{} : std::move(none).error();
  }
  if (url.endpoints().size() != 1)
    return bad_hosts(url,
                     "must name one host: locks over several masters (Redlock), Sentinel and "
                     "Cluster are not written yet.");
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
  if (out.where.is_unix || url.path().empty() || url.path() == "/") return {};
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

}  // namespace

result<settings> read_settings(const store_url& url) {
  if (auto known = url.allow_only({"layout", "prefix", "semaphore", "db", "grace", "connections",
                                   "wait_replicas", "wait_timeout", "password_file", "password_env",
                                   "ca_file", "cert_file", "key_file", "server_name"});
      !known)
    return std::move(known).error();
  settings out;
  out.url = url.str();
  for (const auto& read : {read_layout, read_place, read_database, read_numbers})
    if (auto ok = read(url, out); !ok) return std::move(ok).error();
  auto login = read_login(url);
  if (!login) return std::move(login).error();
  out.user = std::move(login->user);
  out.password = std::move(login->password);
  return out;
}

}  // namespace holdfast::engines::redis

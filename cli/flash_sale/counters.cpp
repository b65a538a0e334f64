// How many commands a server has served, as it counts itself.
//
//   Redis       INFO stats, total_commands_processed: what scripts call counts, too. Of a Redlock: the sum of its nodes
//   MariaDB     SHOW GLOBAL STATUS, Questions
//   ZooKeeper   srvr, packets received
//   etcd        /metrics, grpc_server_msg_received_total: messages, of streams, too
//   Consul      has one only with its telemetry kept, which it is not by default: not asked
#include "flash_sale/stores.hpp"

#if HOLDFAST_FLASH_REDIS
#include "flash_sale/redis_link.hpp"
#endif
#if HOLDFAST_FLASH_SQL
#include "flash_sale/sql_link.hpp"
#endif

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <memory>

namespace holdfast::cli::flash {

namespace {

using told_count = std::optional<std::uint64_t>;

// The number behind a word, wherever it first stands.
told_count number_behind(std::string_view text, std::string_view what) {
  const auto at = text.find(what);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + what.size());
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end == text.data()) return std::nullopt;
  return static_cast<std::uint64_t>(value);
}

// Sends, and reads until the server closes or is silent for two seconds.
std::string told_over_tcp(const endpoint& at, std::uint16_t usual_port, std::string_view question) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const auto port = std::to_string(at.port.value_or(usual_port));
  if (::getaddrinfo(at.host.c_str(), port.c_str(), &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses{found, &::freeaddrinfo};
  const int fd = ::socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);
  if (fd < 0) return {};
  const timeval limit{2, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  std::string out;
  if (::connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
      ::send(fd, question.data(), question.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(question.size())) {
    char buffer[8192];
    for (ssize_t got = 0; (got = ::recv(fd, buffer, sizeof buffer, 0)) > 0;)
      out.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(fd);
  return out;
}

#if HOLDFAST_FLASH_REDIS
told_count of_redis_at(const std::string& url) {
  return number_behind(redis_link{url}.ask({"INFO", "stats"}).text, "total_commands_processed:");
}

told_count of_redis(const store_url& url, const std::string& text) {
  if (url.scheme() == "redis" || url.scheme() == "unix") return of_redis_at(text);
  return std::nullopt;  // hiredis 0.14 has no TLS
}

told_count of_redlock(const store_url& url) {
  if (url.scheme() != "redlock") return std::nullopt;
  const auto password = password_of(url);
  if (!password.empty())
    return std::nullopt;  // a password must not be written into another address
  std::uint64_t sum = 0;
  for (const auto& at : url.endpoints()) {
    const auto one =
        of_redis_at(fmt::format("redis://{}:{}", at.host, at.port.value_or(std::uint16_t{6379})));
    if (!one) return std::nullopt;
    sum += *one;
  }
  return sum;
}
#endif

#if HOLDFAST_FLASH_SQL
told_count of_mysql(const std::string& text) {
  sql_link link{text};
  const auto row = link.run("SHOW GLOBAL STATUS LIKE 'Questions'", {}).row;
  return row.size() < 2 ? std::nullopt : number_behind(row[1], "");
}
#endif

told_count of_zookeeper(const store_url& url) {
  if (url.scheme() != "zk") return std::nullopt;
  std::uint64_t sum = 0;
  for (const auto& at : url.endpoints()) {
    const auto one = number_behind(told_over_tcp(at, 2181, "srvr"), "Received: ");
    if (!one) return std::nullopt;
    sum += *one;
  }
  return sum;
}

told_count of_etcd(const store_url& url) {
  if (url.scheme() != "etcd") return std::nullopt;
  std::uint64_t sum = 0;
  for (const auto& at : url.endpoints()) {
    const auto page = told_over_tcp(
        at, 2379,
        fmt::format("GET /metrics HTTP/1.0\r\nHost: {}\r\nConnection: close\r\n\r\n", at.host));
    constexpr std::string_view name = "\ngrpc_server_msg_received_total{";
    if (page.find(name) == std::string::npos) return std::nullopt;
    for (std::size_t i = page.find(name); i != std::string::npos; i = page.find(name, i + 1))
      sum += number_behind(std::string_view{page}.substr(i), "} ").value_or(0);
  }
  return sum;
}

told_count asked(store_kind kind, const std::string& text) {
  const auto url = store_url::parse(text).value();
  switch (kind) {
#if HOLDFAST_FLASH_REDIS
    case store_kind::redis:
      return of_redis(url, text);
    case store_kind::redlock:
      return of_redlock(url);
#endif
#if HOLDFAST_FLASH_SQL
    case store_kind::mysql:
      return obstacle_to_plain(kind, text).empty() ? of_mysql(text) : std::nullopt;
#endif
    case store_kind::zk:
      return of_zookeeper(url);
    case store_kind::etcd:
      return of_etcd(url);
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<std::uint64_t> commands_served(store_kind kind, const std::string& url) {
  try {
    return asked(kind, url);
  } catch (const std::exception&) {  // it does not tell, so it is not known
    return std::nullopt;
  }
}

}  // namespace holdfast::cli::flash

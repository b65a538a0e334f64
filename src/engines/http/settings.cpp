#include "engines/http/settings.hpp"

#include "engines/common/store_address.hpp"
#include "support/secret.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::engines::http {

namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t usual_port = 7420;
constexpr std::size_t longest_prefix = 512;

result<void> read_place(const store_url& url, settings& out) {
  if (url.endpoints().size() != 1)
    return bad_hosts(url, "must name one host: http://127.0.0.1:7420.");
  const auto& at = url.endpoints().front();
  out.where.host = at.host;
  out.where.use_tls = url.scheme() == "https";
  out.where.port = at.port.value_or(usual_port);
  const bool is_ipv6 = at.host.find(':') != std::string::npos;
  out.host = is_ipv6 ? fmt::format("[{}]:{}", at.host, out.where.port)
                     : fmt::format("{}:{}", at.host, out.where.port);
  auto tls = read_tls_files(url, out.where.use_tls, at.host, "TLS is https://");
  if (!tls) return std::move(tls).error();
  out.where.tls = {tls->ca_file, tls->cert_file, tls->key_file, tls->server_name};
  return {};
}

// What a reverse proxy has the service under.
result<void> read_prefix(const store_url& url, settings& out) {
  std::string_view path = url.path();
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.empty()) return {};
  if (path.size() > longest_prefix || !path.starts_with('/') || !check_name(path.substr(1)))
    return bad_address(url, "has a path that cannot stand in front of the service's own.");
  out.prefix = support::percent_encode(path);
  return {};
}

result<void> read_key(const store_url& url, settings& out) {
  if (!url.user().empty())
    return bad_address(url, "names a user; a service knows keys only (password_file).");
  auto key = support::password_for(url);
  if (!key) return std::move(key).error();
  if (key->empty()) return {};
  if (key->size() > 4096 ||
      !std::ranges::all_of(*key, [](unsigned char c) { return c > 0x20 && c < 0x7f; }))
    return bad_address(url,
                       "comes with a key that is none: it has other characters than keys have.");
  out.credentials = "Bearer " + *key;
  return {};
}

result<void> read_numbers(const store_url& url, settings& out) {
  auto grace = url.duration("grace", 3s, 500ms, 1h);
  if (!grace) return std::move(grace).error();
  out.grace = std::chrono::ceil<std::chrono::milliseconds>(*grace);
  auto connections = url.integer("connections", 2, 1, 64);
  if (!connections) return std::move(connections).error();
  out.connections = static_cast<unsigned>(*connections);
  return {};
}

}  // namespace

result<settings> read_settings(const store_url& url) {
  if (auto known = url.allow_only({"grace", "connections", "password_file", "password_env",
                                   "ca_file", "cert_file", "key_file", "server_name"});
      !known)
    return std::move(known).error();
  settings out;
  out.url = url.str();
  for (const auto& read : {read_place, read_prefix, read_key, read_numbers})
    if (auto ok = read(url, out); !ok) return std::move(ok).error();
  return out;
}

}  // namespace holdfast::engines::http

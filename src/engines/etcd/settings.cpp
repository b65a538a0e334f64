#include "engines/etcd/settings.hpp"

#include "support/secret.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t usual_port = 2379;
constexpr std::size_t longest_prefix = 256;
constexpr std::array tls_options{"ca_file", "cert_file", "key_file", "server_name"};

error bad(const store_url& url, std::string_view what) {
  return {errc::misconfigured, fmt::format("The store address {} {}", url.str(), what)};
}

std::string text_option(const store_url& url, std::string_view key, std::string fallback = {}) {
  const auto* given = url.find(key);
  if (given != nullptr) return *given;
  return fallback;
}

result<void> read_places(const store_url& url, settings& out) {
  if (url.endpoints().empty())
    return bad(url, "must name at least one member of the cluster: etcd://a,b,c/prefix.");
  const bool use_tls = url.scheme() == "etcds";
  const bool has_tls_option = std::ranges::any_of(
      tls_options, [&](const char* option) { return url.find(option) != nullptr; });
  if (has_tls_option && !use_tls) return bad(url, "has options for TLS, but TLS is etcds://.");
  for (const auto& at : url.endpoints()) {
    net::address member;
    member.host = at.host;
    member.port = at.port.value_or(usual_port);
    member.use_tls = use_tls;
    member.tls.ca_file = text_option(url, "ca_file");
    member.tls.certificate = text_option(url, "cert_file");
    member.tls.key = text_option(url, "key_file");
    member.tls.server_name = text_option(url, "server_name", at.host);
    const bool is_ipv6 = at.host.find(':') != std::string::npos;
    out.names.push_back(is_ipv6 ? fmt::format("[{}]:{}", member.host, member.port)
                                : fmt::format("{}:{}", member.host, member.port));
    out.where.push_back(std::move(member));
  }
  return {};
}

// The slash that begins the path only divides it from the hosts: etcd://h/locks is "locks/NAME/...", and for
// keys that begin with a slash write etcd://h//locks.
result<void> read_prefix(const store_url& url, settings& out) {
  if (url.path().size() <= 1) return {};
  auto prefix = url.path().substr(1);
  while (!prefix.empty() && prefix.back() == '/') prefix.pop_back();
  if (prefix.size() > longest_prefix)
    return bad(url, fmt::format("has a prefix of more than {} bytes.", longest_prefix));
  if (prefix.empty()) return bad(url, "has a prefix of slashes only.");
  out.root = prefix + "/";
  return {};
}

result<void> read_session(const store_url& url, settings& out) {
  auto session = url.duration("session", 10s, 1s, 1h);
  if (!session) return std::move(session).error();
  if (*session % 1s != 0ns)
    return bad(url, "must have a session of whole seconds; etcd knows no others.");
  out.session = std::chrono::duration_cast<std::chrono::seconds>(*session);
  return {};
}

}  // namespace

result<settings> read_settings(const store_url& url) {
  if (auto known = url.allow_only({"session", "password_file", "password_env", "ca_file",
                                   "cert_file", "key_file", "server_name"});
      !known)
    return std::move(known).error();
  settings out;
  out.url = url.str();
  out.user = url.user();
  for (const auto& read : {read_places, read_prefix, read_session})
    if (auto ok = read(url, out); !ok) return std::move(ok).error();
  auto password = support::password_for(url);
  if (!password) return std::move(password).error();
  out.password = std::move(*password);
  if (!out.user.empty() && out.password.empty())
    return bad(url, "names a user but no password; give it by password_file or password_env.");
  if (out.user.empty() && (url.has_secret() || url.find("password_file") != nullptr ||
                           url.find("password_env") != nullptr))
    return bad(url, "has a password but no user; etcd wants both: etcd://user@host.");
  return out;
}

}  // namespace holdfast::engines::etcd

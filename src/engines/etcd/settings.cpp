#include "engines/etcd/settings.hpp"

#include "engines/common/store_address.hpp"

#include <fmt/format.h>

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t usual_port = 2379;
constexpr std::size_t longest_prefix = 256;

result<void> read_places(const store_url& url, settings& out) {
  const bool use_tls = url.scheme() == "etcds";
  auto members = read_members(url, use_tls, usual_port, "etcd://a,b,c/prefix", "TLS is etcds://");
  if (!members) return std::move(members).error();
  for (auto& named : *members) {
    net::address member;
    member.host = named.host;
    member.port = named.port;
    member.use_tls = use_tls;
    member.tls = {named.tls.ca_file, named.tls.cert_file, named.tls.key_file,
                  named.tls.server_name};
    out.names.push_back(std::move(named.name));
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
    return bad_address(url, fmt::format("has a prefix of more than {} bytes.", longest_prefix));
  if (prefix.empty()) return bad_address(url, "has a prefix of slashes only.");
  out.root = prefix + "/";
  return {};
}

result<void> read_session(const store_url& url, settings& out) {
  auto session = url.duration("session", 10s, 1s, 1h);
  if (!session) return std::move(session).error();
  if (*session % 1s != 0ns)
    return bad_address(url, "must have a session of whole seconds; etcd knows no others.");
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
  for (const auto& read : {read_places, read_prefix, read_session})
    if (auto ok = read(url, out); !ok) return std::move(ok).error();
  auto who = read_login(url);
  if (!who) return std::move(who).error();
  out.user = std::move(who->user);
  out.password = std::move(who->password);
  if (out.user.empty() && (url.has_secret() || url.find("password_file") != nullptr ||
                           url.find("password_env") != nullptr))
    return bad_address(url, "has a password but no user; etcd wants both: etcd://user@host.");
  return out;
}

}  // namespace holdfast::engines::etcd

#include "engines/zk/settings.hpp"

#include "engines/common/store_address.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

namespace holdfast::engines::zk {

namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t usual_port = 2181;
constexpr std::size_t longest_chroot = 512;

result<void> read_places(const store_url& url, settings& out) {
  const bool use_tls = url.scheme() == "zks";
  auto members = read_members(url, use_tls, usual_port, "zk://a,b,c/chroot", "TLS is zks://");
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

// As a path of ZooKeeper: no empty segment, no "." or "..", no control characters.
result<void> read_chroot(const store_url& url, settings& out) {
  std::string_view path = url.path();
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.empty()) return {};
  if (path.size() > longest_chroot)
    return bad_address(url, fmt::format("has a chroot of more than {} bytes.", longest_chroot));
  const bool is_name = check_name(path.substr(1)).has_value();
  if (!path.starts_with('/') || !is_name || path == "/zookeeper" || path.starts_with("/zookeeper/"))
    return bad_address(url, "has a chroot that is no path of ZooKeeper, or one of its own.");
  out.root = path;
  return {};
}

result<void> read_session(const store_url& url, settings& out) {
  auto session = url.duration("session", 10s, 100ms, 1h);
  if (!session) return std::move(session).error();
  out.session = std::chrono::ceil<std::chrono::milliseconds>(*session);
  return {};
}

result<void> read_layout(const store_url& url, settings& out) {
  const auto name = text_option(url, "layout", "curator");
  out.nodes = find_layout(name);
  if (out.nodes == nullptr)
    return bad_address(url, fmt::format("has layout={}; it must be {}.", name, layout_choices()));
  return {};
}

result<void> read_latch(const store_url& url, settings& out) {
  const auto latch = text_option(url, "latch", "count");
  if (latch != "count" && latch != "barrier")
    return bad_address(url, fmt::format("has latch={}; it must be count or barrier.", latch));
  out.latch_is_barrier = latch == "barrier";
  return {};
}

result<void> read_rights(const store_url& url, settings& out) {
  const auto acl = text_option(url, "acl", out.is_logged_in() ? "creator" : "open");
  if (acl != "creator" && acl != "open")
    return bad_address(url, fmt::format("has acl={}; it must be creator or open.", acl));
  if (acl == "creator" && !out.is_logged_in())
    return bad_address(url,
                       "has acl=creator, which needs a user and a password (zk://user@host) or a "
                       "client certificate (zks://, cert_file=).");
  out.is_open_to_all = acl == "open";
  return {};
}

result<void> read_user(const store_url& url, settings& out) {
  auto who = read_login(url);
  if (!who) return std::move(who).error();
  out.user = std::move(who->user);
  out.password = std::move(who->password);
  if (out.user.empty() && (url.has_secret() || url.find("password_file") != nullptr ||
                           url.find("password_env") != nullptr))
    return bad_address(url, "has a password but no user; ZooKeeper wants both: zk://user@host.");
  if (out.user.find(':') != std::string::npos)
    return bad_address(url,
                       "has a user name with a colon, which digest authentication cannot take.");
  return {};
}

}  // namespace

result<settings> read_settings(const store_url& url) {
  if (auto known =
          url.allow_only({"session", "layout", "latch", "acl", "password_file", "password_env",
                          "ca_file", "cert_file", "key_file", "server_name"});
      !known)
    return std::move(known).error();
  settings out;
  out.url = url.str();
  for (const auto& read :
       {read_places, read_chroot, read_session, read_layout, read_latch, read_user, read_rights})
    if (auto ok = read(url, out); !ok) return std::move(ok).error();
  return out;
}

}  // namespace holdfast::engines::zk

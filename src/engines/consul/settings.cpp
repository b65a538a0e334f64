#include "engines/consul/settings.hpp"

#include "engines/consul/lock_state.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::engines::consul {

namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t usual_port = 8500;
constexpr std::uint16_t usual_tls_port = 8501;
constexpr std::size_t longest_prefix = 256;

result<void> read_places(const store_url& url, settings& out) {
  out.use_tls = url.scheme() == "consuls";
  auto members = read_members(url, out.use_tls, out.use_tls ? usual_tls_port : usual_port,
                              "consul://127.0.0.1:8500/prefix", "TLS is consuls://");
  if (!members) return std::move(members).error();
  out.where = std::move(*members);
  return {};
}

// Consul answers a path with an empty, "." or ".." segment by a redirect to another key: such keys must not exist.
bool is_rewritten(std::string_view prefix) {
  for (std::size_t at = 0; at <= prefix.size();) {
    const auto end = std::min(prefix.find('/', at), prefix.size());
    const auto segment = prefix.substr(at, end - at);
    if (segment.empty() || segment == "." || segment == "..") return true;
    at = end + 1;
  }
  return false;
}

result<void> read_prefix(const store_url& url, settings& out) {
  std::string prefix = url.path().size() <= 1 ? "holdfast" : url.path().substr(1);
  while (!prefix.empty() && prefix.back() == '/') prefix.pop_back();
  if (prefix.size() > longest_prefix)
    return bad_address(url, fmt::format("has a prefix of more than {} bytes.", longest_prefix));
  if (is_rewritten(prefix))
    return bad_address(url,
                       "has a prefix with an empty, \".\" or \"..\" segment; Consul would take "
                       "it for another one.");
  if (!is_printable(prefix))
    return bad_address(url, "has a prefix with characters that Consul may refuse.");
  out.root = prefix + "/";
  return {};
}

result<void> read_session(const store_url& url, settings& out) {
  auto session = url.duration("session", 10s, 10s, 24h);
  if (!session) return std::move(session).error();
  if (*session % 1s != 0ns) return bad_address(url, "must have a session of whole seconds.");
  out.session = std::chrono::duration_cast<std::chrono::seconds>(*session);
  constexpr nanoseconds longest_delay = 60s;  // Consul's own bound
  auto delay = url.duration("lock_delay", std::min(*session, longest_delay), 0s, longest_delay);
  if (!delay) return std::move(delay).error();
  out.lock_delay = *delay;
  const auto behavior = text_option(url, "behavior", "delete");
  if (behavior != "delete" && behavior != "release")
    return bad_address(url, "must have behavior=delete or behavior=release.");
  out.keys_are_deleted = behavior == "delete";
  out.datacenter = text_option(url, "dc");
  return {};
}

result<void> read_token(const store_url& url, settings& out) {
  auto who = read_login(url, true);
  if (!who) return std::move(who).error();
  if (!who->user.empty())
    return bad_address(url,
                       "names a user, but Consul knows ACL tokens only; give the token by "
                       "password_file or password_env.");
  out.token = std::move(who->password);
  return {};
}

}  // namespace

result<settings> read_settings(const store_url& url) {
  if (auto known =
          url.allow_only({"session", "lock_delay", "behavior", "dc", "password_file",
                          "password_env", "ca_file", "cert_file", "key_file", "server_name"});
      !known)
    return std::move(known).error();
  settings out;
  out.url = url.str();
  for (const auto& read : {read_places, read_prefix, read_session, read_token})
    if (auto ok = read(url, out); !ok) return std::move(ok).error();
  return out;
}

}  // namespace holdfast::engines::consul

#include "engines/mysql/settings.hpp"

#include "support/secret.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

namespace holdfast::engines::mysql {

namespace {

using namespace std::chrono_literals;

error bad(const store_url& url, std::string_view what) {
  return {errc::misconfigured, fmt::format("The store address {} {}", url.str(), what)};
}

std::string text_option(const store_url& url, std::string_view key,
                        std::string_view fallback = {}) {
  const auto* given = url.find(key);
  return std::string{given == nullptr ? fallback : std::string_view{*given}};
}

result<void> read_place(const store_url& url, settings& out) {
  if (url.endpoints().size() != 1)
    return bad(url, "must name one host: mysql://user@host/database.");
  const auto& at = url.endpoints().front();
  out.host = at.host;
  out.port = at.port.value_or(std::uint16_t{3306});
  out.socket = text_option(url, "socket");
  if (url.find("socket") != nullptr && !out.socket.starts_with('/'))
    return bad(url, "must give the socket as an absolute path.");
  if (!url.path().starts_with('/') || url.path().size() < 2)
    return bad(url, "must name a database: mysql://user@host/database.");
  out.database = url.path().substr(1);
  if (out.database.find('/') != std::string::npos || out.database.size() > 64)
    return bad(url, "must have the name of one database as its path.");
  return {};
}

bool is_local(const settings& how) {
  return !how.socket.empty() || how.host == "localhost" || how.host == "::1" ||
         how.host.starts_with("127.");
}

result<void> read_tls(const store_url& url, settings& out) {
  const auto tls = text_option(url, "tls", "auto");
  if (tls != "auto" && tls != "on" && tls != "off")
    return bad(url, "must have tls=auto, tls=on or tls=off.");
  out.ca = text_option(url, "ssl_ca");
  out.certificate = text_option(url, "ssl_cert");
  out.key = text_option(url, "ssl_key");
  const bool has_option = !out.ca.empty() || !out.certificate.empty() || !out.key.empty();
  if (tls == "off" && has_option) return bad(url, "has options for TLS, and tls=off.");
  out.use_tls = tls == "on" || (tls == "auto" && (has_option || !is_local(out)));
  return {};
}

result<void> read_waiting(const store_url& url, settings& out) {
  const auto wait = text_option(url, "wait", "auto");
  if (wait != "auto" && wait != "push" && wait != "poll")
    return bad(url, "must have wait=auto, wait=push or wait=poll.");
  if (wait == "push") out.wait = wait_mode::push;
  if (wait == "poll") out.wait = wait_mode::poll;
  const bool polls = out.wait == wait_mode::poll;
  auto grace = url.duration("grace", polls ? 0s : 3s, 0s, 1h);
  if (!grace) return std::move(grace).error();
  if (*grace > 0ns && *grace < 200ms)
    return bad(url, "has a grace of less than 200ms; a busy machine is not a dead one.");
  if (*grace > 0ns && polls)
    return bad(url, "has wait=poll and a grace; who polls is not seen to be gone.");
  out.grace = *grace;
  return {};
}

result<void> read_numbers(const store_url& url, settings& out) {
  auto create = url.integer("create", 0, 0, 1);
  if (!create) return std::move(create).error();
  out.create = *create != 0;
  auto connections = url.integer("connections", 8, 1, 256);
  if (!connections) return std::move(connections).error();
  out.connections = static_cast<unsigned>(*connections);
  return {};
}

}  // namespace

result<settings> read_settings(const store_url& url) {
  if (auto known =
          url.allow_only({"socket", "create", "grace", "wait", "connections", "password_file",
                          "password_env", "tls", "ssl_ca", "ssl_cert", "ssl_key"});
      !known)
    return std::move(known).error();
  settings out;
  out.url = url.str();
  out.user = url.user();
  for (const auto& read : {read_place, read_tls, read_waiting, read_numbers})
    if (auto ok = read(url, out); !ok) return std::move(ok).error();
  auto password = support::password_for(url);
  if (!password) return std::move(password).error();
  out.password = std::move(*password);
  return out;
}

}  // namespace holdfast::engines::mysql

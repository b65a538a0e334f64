#include "engines/mysql/settings.hpp"

#include "engines/common/store_address.hpp"

#include <fmt/format.h>

namespace holdfast::engines::mysql {

namespace {

using namespace std::chrono_literals;

result<void> read_place(const store_url& url, settings& out) {
  if (url.endpoints().size() != 1)
    return bad_hosts(url, "must name one host: mysql://user@host/database.");
  const auto& at = url.endpoints().front();
  out.host = at.host;
  out.port = at.port.value_or(std::uint16_t{3306});
  out.socket = text_option(url, "socket");
  if (url.find("socket") != nullptr && !out.socket.starts_with('/'))
    return bad_address(url, "must give the socket as an absolute path.");
  if (!url.path().starts_with('/') || url.path().size() < 2)
    return bad_address(url, "must name a database: mysql://user@host/database.");
  out.database = url.path().substr(1);
  if (out.database.find('/') != std::string::npos || out.database.size() > 64)
    return bad_address(url, "must have the name of one database as its path.");
  return {};
}

bool is_local(const settings& how) { return !how.socket.empty() || is_this_machine(how.host); }

result<void> read_tls(const store_url& url, settings& out) {
  const auto tls = text_option(url, "tls", "auto");
  if (tls != "auto" && tls != "on" && tls != "off")
    return bad_address(url, "must have tls=auto, tls=on or tls=off.");
  out.use_tls = tls == "on" || (tls == "auto" && (has_tls_options(url) || !is_local(out)));
  auto files = read_tls_files(url, out.use_tls, out.host, "has tls=off");
  if (!files) return std::move(files).error();
  out.ca = std::move(files->ca_file);
  out.certificate = std::move(files->cert_file);
  out.key = std::move(files->key_file);
  return {};
}

result<void> read_waiting(const store_url& url, settings& out) {
  const auto wait = text_option(url, "wait", "auto");
  if (wait != "auto" && wait != "push" && wait != "poll")
    return bad_address(url, "must have wait=auto, wait=push or wait=poll.");
  if (wait == "push") out.wait = wait_mode::push;
  if (wait == "poll") out.wait = wait_mode::poll;
  const bool polls = out.wait == wait_mode::poll;
  auto grace = url.duration("grace", polls ? 0s : 3s, 0s, 1h);
  if (!grace) return std::move(grace).error();
  if (*grace > 0ns && *grace < 200ms)
    return bad_address(url, "has a grace of less than 200ms; a busy machine is not a dead one.");
  if (*grace > 0ns && polls)
    return bad_address(url,
                       "has wait=poll and a grace; a client that polls is not seen to be gone.");
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
                          "password_env", "tls", "ca_file", "cert_file", "key_file"});
      !known)
    return std::move(known).error();
  settings out;
  out.url = url.str();
  for (const auto& read : {read_place, read_tls, read_waiting, read_numbers})
    if (auto ok = read(url, out); !ok) return std::move(ok).error();
  auto login = read_login(url, true);
  if (!login) return std::move(login).error();
  out.user = std::move(login->user);
  out.password = std::move(login->password);
  return out;
}

}  // namespace holdfast::engines::mysql

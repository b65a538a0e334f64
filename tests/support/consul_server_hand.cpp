// What tests ask the servers by plain HTTP, and do to them: nothing of our code is in between.
#include "support/consul_server.hpp"

#include "support/loopback.hpp"
#include "support/wait_until.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace holdfast::testing {

namespace {

using nlohmann::json;

std::string consul_value(const json& base64) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (!base64.is_string()) return {};  // null: the value is empty
  std::string bytes;
  unsigned pending = 0, bits = 0;
  for (const char c : base64.get<std::string>()) {
    const auto digit = digits.find(c);
    if (digit == std::string_view::npos) break;
    pending = (pending << 6U) | static_cast<unsigned>(digit);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push_back(static_cast<char>((pending >> bits) & 0xffU));
  }
  return bytes;
}

// Of a path: slashes stay.
std::string consul_escaped(std::string_view key) {
  constexpr std::string_view plain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
  std::string out;
  for (const char c : key) {
    if (plain.find(c) != std::string_view::npos) {
      out.push_back(c);
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string key_path(std::string_view key) { return "/v1/kv/" + consul_escaped(key); }

}  // namespace

std::optional<consul_server::reply> consul_server::try_ask(std::size_t n, std::string_view method,
                                                           std::string_view path,
                                                           std::string_view body) const {
  if (!is_up(n)) return std::nullopt;
  const auto token = how_.master_token.empty()
                         ? std::string{}
                         : fmt::format("X-Consul-Token: {}\r\n", how_.master_token);
  // As 1.0: the answer is not cut into chunks, and ends with the connection.
  const auto said = ask_loopback(
      plain_port(n),
      fmt::format("{} {} HTTP/1.0\r\nHost: 127.0.0.1\r\n{}Content-Length: {}\r\n\r\n{}", method,
                  path, token, body.size(), body),
      std::chrono::seconds{10});
  const auto end = said.find("\r\n\r\n");
  if (!said.starts_with("HTTP/1.") || end == std::string::npos) return std::nullopt;
  ++nodes_[n]->questions;
  return reply{std::stoi(said.substr(9, 3)), said.substr(end + 4)};
}

consul_server::reply consul_server::ask(std::string_view method, std::string_view path,
                                        std::string_view body) const {
  std::optional<reply> got;
  const bool done = wait_until(
      [&] {
        for (std::size_t n = 0; n < nodes_.size(); ++n) {
          auto said = try_ask(n, method, path, body);
          if (!said) continue;
          got = std::move(said);
          if (got->status == 200 || got->status == 404) return true;
        }
        return false;
      },
      2 * patience);
  if (done) return std::move(*got);
  throw std::runtime_error(fmt::format(
      "{} {}: {}", method, path,
      got ? fmt::format("{} {}", got->status, got->body) : std::string{"no node answers"}));
}

std::vector<consul_server::key_value> consul_server::read(const std::string& path) const {
  std::vector<key_value> found;
  const auto said = ask("GET", path);
  if (said.status == 404) return found;
  for (const auto& one : json::parse(said.body))
    found.push_back({one.at("Key"), consul_value(one.at("Value")), one.at("Flags"),
                     one.value("Session", ""), one.at("CreateIndex"), one.at("ModifyIndex"),
                     one.at("LockIndex")});
  std::ranges::stable_sort(found, {}, &key_value::create_index);
  return found;
}

std::optional<consul_server::key_value> consul_server::find(const std::string& key) const {
  auto found = read(key_path(key) + "?consistent");
  if (found.empty()) return std::nullopt;
  return std::move(found.front());
}

std::vector<consul_server::key_value> consul_server::all(const std::string& prefix) const {
  return read(key_path(prefix) + "?recurse&consistent");
}

std::vector<std::string> consul_server::keys(const std::string& prefix) const {
  std::vector<std::string> found;
  for (auto& one : all(prefix)) found.push_back(std::move(one.key));
  return found;
}

void consul_server::put(const std::string& key, const std::string& value) const {
  ask("PUT", key_path(key), value);
}

void consul_server::erase(const std::string& key) const { ask("DELETE", key_path(key)); }

std::string consul_server::make_session(const session_options& how) const {
  const auto said =
      ask("PUT", "/v1/session/create",
          fmt::format(R"({{"TTL": "{}s", "LockDelay": "{}ms", "Behavior": "{}"}})", how.ttl.count(),
                      how.lock_delay.count(), how.deletes ? "delete" : "release"));
  return json::parse(said.body).at("ID");
}

void consul_server::destroy_session(const std::string& id) const {
  ask("PUT", "/v1/session/destroy/" + id);
}

std::vector<std::string> consul_server::sessions() const {
  std::vector<std::string> found;
  for (const auto& one : json::parse(ask("GET", "/v1/session/list?consistent").body))
    found.push_back(one.at("ID"));
  return found;
}

bool consul_server::lock(const std::string& key, const std::string& session,
                         const std::string& value, std::uint64_t flags) const {
  return ask("PUT", fmt::format("{}?acquire={}&flags={}", key_path(key), session, flags), value)
      .body.starts_with("true");
}

void consul_server::unlock(const std::string& key, const std::string& session) const {
  const auto said =
      ask("PUT", fmt::format("{}?release={}&flags={}", key_path(key), session, lock_flags));
  if (!said.body.starts_with("true")) throw std::runtime_error("the session does not have " + key);
}

std::string consul_server::make_token(const std::string& rules) const {
  static std::atomic<unsigned> number{0};
  const auto policy = fmt::format("policy-{}", ++number);
  ask("PUT", "/v1/acl/policy", json{{"Name", policy}, {"Rules", rules}}.dump());
  const json body{{"Policies", json::array({json{{"Name", policy}}})}};
  return json::parse(ask("PUT", "/v1/acl/token", body.dump()).body).at("SecretID");
}

void consul_server::erase_token(const std::string& secret) const {
  for (const auto& one : json::parse(ask("GET", "/v1/acl/tokens").body)) {
    const auto accessor = one.at("AccessorID").get<std::string>();
    const auto whole = json::parse(ask("GET", "/v1/acl/token/" + accessor).body);
    if (whole.at("SecretID") == secret) ask("DELETE", "/v1/acl/token/" + accessor);
  }
}

}  // namespace holdfast::testing

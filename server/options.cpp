#include "options.hpp"

#include <holdfast/url.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>

namespace holdfast::server {

namespace {

error bad_value(std::string_view name, std::string_view what) {
  return {errc::misconfigured, fmt::format("{} takes {}", name, what)};
}

template <class Number>
bool take_number(Number& into, std::string_view text, Number low, Number high) {
  Number value{};
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (wrong != std::errc{} || end != text.data() + text.size() || value < low || value > high)
    return false;
  into = value;
  return true;
}

// "127.0.0.1:7420", "[::1]:7420", "localhost", ":7420".
bool take_address(listen_address& into, std::string_view text) {
  auto host = text;
  std::string_view port;
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == std::string_view::npos) return false;
    host = text.substr(1, end - 1);
    const auto rest = text.substr(end + 1);
    if (!rest.empty() && !rest.starts_with(':')) return false;
    if (!rest.empty()) port = rest.substr(1);
  } else if (const auto colon = text.rfind(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (host.find(':') != std::string_view::npos) return false;
  }
  if (!host.empty()) into.host = host;
  return port.empty() || take_number<std::uint16_t>(into.port, port, 0, 65535);
}

void take_hosts(std::vector<std::string>& into, std::string_view text) {
  while (!text.empty()) {
    const auto end = std::min(text.find(','), text.size());
    std::string name{text.substr(0, end)};
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    if (!name.empty()) into.push_back(std::move(name));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

bool take_duration(std::chrono::nanoseconds& into, std::string_view text) {
  const auto parsed = parse_duration(text);
  using namespace std::chrono_literals;
  if (!parsed || *parsed < 1ms || *parsed > 24h) return false;
  into = *parsed;
  return true;
}

std::string_view trimmed(std::string_view text) {
  const auto begin = std::min(text.find_first_not_of(" \t\r"), text.size());
  text.remove_prefix(begin);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

}  // namespace

result<void> set(options& of, std::string_view name, std::string_view value) {
  const auto text = [&](std::string& into) -> result<void> {
    into = value;
    if (value.empty()) return bad_value(name, "a text");
    return {};
  };
  const auto number = [&](std::size_t& into) -> result<void> {
    if (take_number<std::size_t>(into, value, 1, 10'000'000)) return {};
    return bad_value(name, "a number from 1 to 10000000");
  };
  const auto time = [&](std::chrono::nanoseconds& into) -> result<void> {
    if (take_duration(into, value)) return {};
    return bad_value(name, "a duration from 1ms to 24h, such as 10s");
  };
  if (name == "store") return text(of.store);
  if (name == "tls-cert") return text(of.tls_cert);
  if (name == "tls-key") return text(of.tls_key);
  if (name == "client-ca") return text(of.client_ca);
  if (name == "keys") return text(of.keys);
  if (name == "state") return text(of.state);
  if (name == "connections") return number(of.connections);
  if (name == "connections-per-address") return number(of.connections_per_address);
  if (name == "leases-per-key") return number(of.leases_per_key);
  if (name == "waiters-per-key") return number(of.waiters_per_key);
  if (name == "watchers") return number(of.watchers);
  if (name == "request-time") return time(of.request_time);
  if (name == "idle-time") return time(of.idle_time);
  if (name == "host") {
    take_hosts(of.hosts, value);
    return {};
  }
  if (name == "listen") {
    if (take_address(of.listen, value)) return {};
    return bad_value(name, "an address such as 127.0.0.1:7420 or [::1]:7420");
  }
  return error{errc::misconfigured, fmt::format("there is no setting \"{}\"", name)};
}

result<void> read_config(options& into, const std::string& file) {
  std::ifstream in{file};
  if (!in) return error{errc::misconfigured, fmt::format("the file {} cannot be read", file)};
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const auto text = trimmed(line);
    if (text.empty() || text.starts_with('#')) continue;
    const auto equals = std::min(text.find('='), text.size());
    auto done = set(into, trimmed(text.substr(0, equals)),
                    trimmed(text.substr(std::min(equals + 1, text.size()))));
    if (!done)
      return error{errc::misconfigured, fmt::format("line {} of {}: {}; a line is NAME = VALUE",
                                                    number, file, done.error().message())};
  }
  return {};
}

// What is left is for connections, which need the most, and of which one more or less is noticed the least.
void fit(options& of, std::size_t files, bool is_embedded) {
  constexpr std::size_t others = 200;  // the store, the state
  const std::size_t of_a_session = is_embedded ? 2 : 20;
  of.processes = std::min(of.processes, files / 4);
  of.sessions = std::min(of.sessions, files / 4 / of_a_session);
  const auto taken = std::min(others, files / 8) + of.processes + of.sessions * of_a_session;
  of.connections = std::min(of.connections, files - taken);
}

bool is_loopback(const listen_address& at) {
  const bool is_numeric = at.host.find_first_not_of("0123456789.") == std::string::npos;
  return at.host == "localhost" || at.host == "::1" || (is_numeric && at.host.starts_with("127."));
}

result<void> check(const options& of) {
  const auto wrong = [](std::string sentence) {
    return error{errc::misconfigured, std::move(sentence)};
  };
  const bool has_tls = !of.tls_cert.empty();
  if (has_tls != !of.tls_key.empty()) return wrong("--tls-cert and --tls-key go together");
  if (!of.client_ca.empty() && !has_tls)
    return wrong("--client-ca needs --tls-cert and --tls-key: client certificates are of TLS");
  if (is_loopback(of.listen) || (has_tls && !of.keys.empty())) return {};
  return wrong(fmt::format(
      "on {} other machines could take and break locks, or read the keys on their way: give "
      "--keys and --tls-cert with --tls-key, or listen on 127.0.0.1",
      of.listen.host));
}

}  // namespace holdfast::server

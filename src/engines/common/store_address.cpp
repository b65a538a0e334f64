#include "engines/common/store_address.hpp"

#include "support/secret.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace holdfast::engines {

error bad_address(const store_url& url, std::string_view what) {
  return not_done{errc::misconfigured, fmt::format("The store address {} {}", url.str(), what)};
}

error bad_hosts(const store_url& url, std::string_view what) {
  const auto first = url.path().find_first_not_of('/');
  if (!url.endpoints().empty() || first == std::string::npos) return bad_address(url, what);
  // What was meant as the host is in the path; and where that has an @, so may a password be.
  const bool may_be_quoted = url.path().find('@') == std::string::npos;
  const auto meant = may_be_quoted ? url.path().substr(first) : std::string{"user@host"};
  return not_done{
      errc::misconfigured,
      fmt::format("The store address {} lacks the // before its host; write {}://{}.",
                  may_be_quoted ? url.str() : url.scheme() + ":...", url.scheme(), meant)};
}

std::string text_option(const store_url& url, std::string_view key, std::string_view fallback) {
  const auto* given = url.find(key);
  return std::string{given == nullptr ? fallback : std::string_view{*given}};
}

bool is_this_machine(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

result<std::vector<member_address>> read_members(const store_url& url, bool use_tls,
                                                 std::uint16_t usual_port, std::string_view example,
                                                 std::string_view how_to_turn_on) {
  if (url.endpoints().empty())
    return bad_hosts(url, fmt::format("must name at least one server: {}.", example));
  std::vector<member_address> out;
  for (const auto& at : url.endpoints()) {
    auto tls = read_tls_files(url, use_tls, at.host, how_to_turn_on);
    if (!tls) return std::move(tls).error();
    const auto port = at.port.value_or(usual_port);
    const bool is_ipv6 = at.host.find(':') != std::string::npos;
    out.push_back(
        {at.host, port,
         is_ipv6 ? fmt::format("[{}]:{}", at.host, port) : fmt::format("{}:{}", at.host, port),
         std::move(*tls)});
  }
  return out;
}

bool has_tls_options(const store_url& url) {
  constexpr std::array options{"ca_file", "cert_file", "key_file", "server_name"};
  return std::ranges::any_of(options,
                             [&](const char* option) { return url.find(option) != nullptr; });
}

result<tls_files> read_tls_files(const store_url& url, bool use_tls, std::string_view host,
                                 std::string_view how_to_turn_on) {
  if (!use_tls && has_tls_options(url))
    return bad_address(url, fmt::format("has options for TLS, but {}.", how_to_turn_on));
  return tls_files{text_option(url, "ca_file"), text_option(url, "cert_file"),
                   text_option(url, "key_file"), text_option(url, "server_name", host)};
}

result<login> read_login(const store_url& url, bool may_lack_password) {
  auto password = support::password_for(url);
  if (!password) return std::move(password).error();
  if (!may_lack_password && !url.user().empty() && password->empty())
    return bad_address(url,
                       "names a user but no password; give it by password_file or password_env.");
  return login{url.user(), std::move(*password)};
}

}  // namespace holdfast::engines

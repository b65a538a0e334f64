// Store addresses. Strict on purpose: an address that means something else than it seems to is refused, because what it
// guards is a user's lock.
//
// Secrets. A password that was not %-escaped can end up in any part of the address (a slash in it
// ends the host part early), so no sentence quotes any part of an address that has an @ in it.
#include <chrono>

#include <holdfast/url.hpp>

#include "support/text.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace holdfast {

namespace {

constexpr std::size_t longest_url = 4096;
constexpr std::size_t longest_host = 253;  // of DNS names
constexpr std::string_view host_characters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
constexpr std::string_view scheme_characters = "abcdefghijklmnopqrstuvwxyz0123456789+.-";
constexpr std::string_view key_characters = "abcdefghijklmnopqrstuvwxyz0123456789_.-";

error bad_url(std::string message) {
  return {errc::misconfigured, "The store address is wrong: " + std::move(message)};
}

// Quotes parts of one address in messages, or hides them where they could be part of a password.
class quoter {
 public:
  explicit quoter(std::string_view whole) : open_(whole.find('@') == std::string_view::npos) {}
  std::string operator()(std::string_view part) const {
    return open_ ? support::quoted(part) : std::string{"(not shown)"};
  }

 private:
  bool open_;
};

struct text_pair {
  std::string_view before, after;
  bool found = false;
};

text_pair split(std::string_view text, char at) {
  const auto position = text.find(at);
  if (position == std::string_view::npos) return {text, {}, false};
  return {text.substr(0, position), text.substr(position + 1), true};
}

// %-decoded, and still harmless afterwards.
result<std::string> decode(std::string_view raw, std::string_view what) {
  auto plain = support::percent_decode(raw);
  if (!plain) {
    return bad_url(
        fmt::format("the {} has a % without two hex digits after it; write a plain % as "
                    "%25.",
                    what));
  }
  if (!support::is_utf8(*plain)) {
    return bad_url(fmt::format("the {} is not valid UTF-8 once its %-escapes are decoded.", what));
  }
  if (support::has_control(*plain)) {
    return bad_url(fmt::format("the {} has a control character in it; remove it.", what));
  }
  return std::move(*plain);
}

// What to do about an address without a scheme, as far as it shows what was meant and may be quoted.
std::string scheme_advice(std::string_view text) {
  const auto slashes = text.find("//");
  const auto word = text.substr(0, slashes);
  const bool is_word =
      !word.empty() && word.find_first_not_of(scheme_characters) == std::string_view::npos;
  if (text.find('@') == std::string_view::npos && slashes != std::string_view::npos && is_word)
    return fmt::format("there is no colon after its scheme; write {}.",
                       support::quoted(fmt::format("{}:{}", word, text.substr(slashes))));
  if (text.starts_with('/'))
    return "it does not begin with a scheme; if it is a path, write file: before it.";
  return "it does not begin with a scheme such as file: or redis:// .";
}

result<std::string> parse_scheme(std::string_view text) {
  const auto [raw, rest, found] = split(text, ':');
  std::string scheme{raw};
  std::transform(scheme.begin(), scheme.end(), scheme.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const bool letter_first = !scheme.empty() && scheme[0] >= 'a' && scheme[0] <= 'z';
  if (!found || !letter_first || scheme.find_first_not_of(scheme_characters) != std::string::npos) {
    return bad_url(scheme_advice(text));
  }
  return scheme;
}

result<std::uint16_t> parse_port(std::string_view raw, const quoter& quote) {
  std::uint16_t port = 0;
  const auto end = raw.data() + raw.size();
  const auto read = std::from_chars(raw.data(), end, port);
  if (raw.empty() || raw.size() > 5 || read.ec != std::errc{} || read.ptr != end || port == 0) {
    return bad_url(
        fmt::format("the port {} is not a number from 1 to 65535. (If it is part of a "
                    "password, write / ? # @ : % and , in it as %-escapes.)",
                    quote(raw)));
  }
  return port;
}

// The host, and in `rest` what follows it.
result<std::string> parse_bracketed(std::string_view raw, std::string_view& rest,
                                    const quoter& quote) {
  const auto close = raw.find(']');
  if (close == std::string_view::npos) return bad_url("a [ in the host part is never closed.");
  std::string host{raw.substr(1, close - 1)};
  in6_addr ignored{};
  if (inet_pton(AF_INET6, host.c_str(), &ignored) != 1) {
    return bad_url(fmt::format("{} is not an IPv6 address.", quote(host)));
  }
  rest = raw.substr(close + 1);
  if (!rest.empty() && rest.front() != ':') {
    return bad_url("something other than a port follows the ] of the host part.");
  }
  return host;
}

result<std::string> parse_plain_host(std::string_view raw, std::string_view& rest,
                                     const quoter& quote) {
  const std::string host{split(raw, ':').before};
  rest = raw.substr(host.size());
  if (host.empty()) return bad_url("a host is empty; write host or host:port.");
  if (rest.find(':', 1) != std::string_view::npos && !rest.empty()) {
    return bad_url("a host has more than one colon; put an IPv6 address into brackets.");
  }
  if (host.size() > longest_host || host.find_first_not_of(host_characters) != std::string::npos) {
    return bad_url(
        fmt::format("{} is not a host name; use letters, digits, dots and dashes (and "
                    "punycode for others).",
                    quote(host)));
  }
  return host;
}

result<endpoint> parse_endpoint(std::string_view raw, const quoter& quote) {
  std::string_view rest;
  auto host =
      raw.starts_with('[') ? parse_bracketed(raw, rest, quote) : parse_plain_host(raw, rest, quote);
  if (!host) return std::move(host).error();
  endpoint at{std::move(*host), std::nullopt};
  if (!rest.empty()) {
    const auto port = parse_port(rest.substr(1), quote);
    if (!port) return port.error();
    at.port = *port;
  }
  return at;
}

struct authority {
  std::string user, secret;
  std::vector<endpoint> endpoints;
};

result<authority> parse_authority(std::string_view raw, const quoter& quote) {
  authority parsed;
  if (const auto at = raw.rfind('@'); at != std::string_view::npos) {
    const auto [user, secret, has_secret] = split(raw.substr(0, at), ':');
    raw.remove_prefix(at + 1);
    if (user.find('@') != std::string_view::npos || secret.find_first_of("@:") != secret.npos) {
      return bad_url("write @ and : inside the user name or password as %40 and %3A.");
    }
    if (raw.empty()) return bad_url("a user name is given, but no host.");
    auto plain_user = decode(user, "user name");
    if (!plain_user) return std::move(plain_user).error();
    auto plain_secret = decode(secret, "password");
    if (!plain_secret) return std::move(plain_secret).error();
    parsed.user = std::move(*plain_user);
    parsed.secret = std::move(*plain_secret);
  }
  while (!raw.empty()) {
    const auto [host, others, more] = split(raw, ',');
    auto at = parse_endpoint(host, quote);
    if (!at) return std::move(at).error();
    parsed.endpoints.push_back(std::move(*at));
    if (more && others.empty()) return bad_url("the list of hosts ends in a comma.");
    raw = others;
  }
  return parsed;
}

using query_map = std::map<std::string, std::string, std::less<>>;

result<query_map> parse_query(std::string_view raw, const quoter& quote) {
  query_map query;
  for (bool more = true; more;) {
    const auto item = split(raw, '&');
    const auto [raw_key, raw_value, has_value] = split(item.before, '=');
    if (!has_value || raw_key.empty()) {
      return bad_url(
          fmt::format("the option {} is not of the form key=value.", quote(item.before)));
    }
    if (raw_key.find_first_not_of(key_characters) != std::string_view::npos) {
      return bad_url(
          fmt::format("the option name {} has other characters than small letters, "
                      "digits, dots and dashes.",
                      quote(raw_key)));
    }
    auto value = decode(raw_value, fmt::format("value of the option {}", quote(raw_key)));
    if (!value) return std::move(value).error();
    if (!query.emplace(raw_key, std::move(*value)).second) {
      return bad_url(fmt::format("the option {} is given twice; give it once.", quote(raw_key)));
    }
    raw = item.after;
    more = item.found;
  }
  return query;
}

result<void> check_text(std::string_view text) {
  if (text.empty()) {
    return bad_url("it is empty; give one such as file: or memory: .");
  }
  if (text.size() > longest_url) {
    return bad_url(
        fmt::format("it is {} bytes long; at most {} are allowed.", text.size(), longest_url));
  }
  if (!support::is_utf8(text) || support::has_control(text)) {
    return bad_url("it has a control character or invalid UTF-8 in it; remove that.");
  }
  if (text.find('#') != std::string_view::npos) {
    return bad_url("it has a # in it; write that as %23.");
  }
  return {};
}

}  // namespace

result<store_url> store_url::parse(std::string_view text) {
  if (auto ok = check_text(text); !ok) return std::move(ok).error();
  const quoter quote{text};
  auto scheme = parse_scheme(text);
  if (!scheme) return std::move(scheme).error();
  store_url url;
  url.scheme_ = std::move(*scheme);

  std::string_view rest = split(text, ':').after;
  if (rest.starts_with("//")) {
    rest.remove_prefix(2);
    const auto raw = rest.substr(0, rest.find_first_of("/?"));
    rest.remove_prefix(raw.size());
    if (!raw.empty() && rest.find('@') != std::string_view::npos) {
      // user:pass/word@host reads as host "user" with a path; better refused than printed.
      return bad_url(
          "there is an @ after the host part; write @ as %40, and / ? # : % and , "
          "inside a password as %-escapes too.");
    }
    auto parsed = parse_authority(raw, quote);
    if (!parsed) return std::move(parsed).error();
    url.user_ = std::move(parsed->user);
    url.secret_ = std::move(parsed->secret);
    url.endpoints_ = std::move(parsed->endpoints);
  }

  const auto [raw_path, raw_query, has_query] = split(rest, '?');
  auto path = decode(raw_path, "path");
  if (!path) return std::move(path).error();
  url.path_ = std::move(*path);
  if (has_query) {
    auto query = parse_query(raw_query, quote);
    if (!query) return std::move(query).error();
    url.query_ = std::move(*query);
  }
  return url;
}

}  // namespace holdfast

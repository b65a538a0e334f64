#include "router.hpp"

#include "body.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace holdfast::server {

namespace {

std::string in_small_letters(std::string_view text) {
  std::string out{text};
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

bool is_same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

// "[::1]:7420" is "::1", "localhost:7420" is "localhost".
std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) {
    const auto end = host.find(']');
    return end == std::string_view::npos ? host : host.substr(1, end - 1);
  }
  return host.substr(0, std::min(host.find(':'), host.size()));
}

bool is_ipv6(const std::string& host) {
  in6_addr ignored{};
  return inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

// Names can be made to lead here by whoever owns them (DNS rebinding), addresses cannot.
bool is_known_host(std::string_view header, const std::vector<std::string>& names) {
  const auto host = in_small_letters(without_port(header));
  if (header.starts_with('[') && is_ipv6(host)) return true;
  if (host == "localhost" || host.ends_with(".localhost")) return true;
  const bool is_address =
      !host.empty() && host.find_first_not_of("0123456789.") == std::string::npos;
  return is_address || std::ranges::find(names, host) != names.end();
}

bool is_json(std::string_view content_type) {
  auto kind = content_type.substr(0, std::min(content_type.find(';'), content_type.size()));
  while (!kind.empty() && kind.back() == ' ') kind.remove_suffix(1);
  return is_same_word(kind, "application/json");
}

// A browser says where the page that asks came from. Programs do not send it.
void judge_origin(const request& asked) {
  const auto site = asked.header("sec-fetch-site");
  const auto origin = asked.header("origin");
  const auto host = asked.header("host");
  const auto scheme_end = origin.find("://");
  const bool is_same =
      scheme_end != std::string_view::npos && is_same_word(origin.substr(scheme_end + 3), host);
  if ((!origin.empty() && !is_same) || site == "cross-site" || site == "same-site")
    throw refused({.status = 403,
                   .code = "bad_origin",
                   .detail = "this request was sent by a page that is not of this service"});
}

struct pattern_parts {
  std::string folder;  // "/v1/locks/"; empty: no parameter
  std::string shape;   // "/v1/locks/{}:acquire"
};

pattern_parts parts_of(std::string_view pattern) {
  const auto open = pattern.find('{');
  if (open == std::string_view::npos) return {{}, std::string{pattern}};
  const auto close = pattern.find('}', open);
  return {std::string{pattern.substr(0, open)},
          fmt::format("{}{{}}{}", pattern.substr(0, open), pattern.substr(close + 1))};
}

std::string allowed_methods(const std::vector<route>& routes) {
  std::string out;
  for (const auto& each : routes) out += fmt::format("{}{}", out.empty() ? "" : ", ", each.method);
  return out;
}

refused denied(std::string_view sentence) {
  return refused{{.status = 403, .code = "denied", .detail = std::string{sentence}}};
}

}  // namespace

void visit::check(scope wanted, std::string_view lock) const {
  if (!who->has(wanted)) throw denied("this key has not the scope for that");
  if (!lock.starts_with(who->prefix)) throw denied("this key is not for that name");
}

std::string narrowed(const visit& from) {
  const auto* asked = from.query.find("prefix");
  const std::string prefix = asked == nullptr ? "" : *asked;
  if (prefix.starts_with(from.who->prefix)) return prefix;
  if (from.who->prefix.starts_with(prefix)) return from.who->prefix;
  throw denied("this key is not for names with that prefix");
}

void router::add(route one) {
  auto parts = parts_of(one.pattern);
  if (!parts.folder.empty() && std::ranges::find(folders_, parts.folder) == folders_.end())
    folders_.push_back(parts.folder);
  routes_[std::move(parts.shape)].push_back(std::move(one));
}

std::vector<const route*> router::all() const {
  std::vector<const route*> out;
  for (const auto& [shape, routes] : routes_)
    for (const auto& each : routes) out.push_back(&each);
  return out;
}

router::found router::find(std::string_view path) const {
  // A path with braces is no shape of ours, but some lock's name.
  if (const auto exact = routes_.find(path);
      exact != routes_.end() && path.find('{') == std::string_view::npos)
    return {&exact->second, {}};
  for (const auto& folder : folders_) {
    if (!path.starts_with(folder) || path.size() == folder.size()) continue;
    const auto rest = path.substr(folder.size());
    const auto [name, verb] = split_verb(rest);
    if (!verb.empty()) {
      const auto it = routes_.find(fmt::format("{}{{}}:{}", folder, verb));
      if (it == routes_.end()) continue;
      return {&it->second, name};
    }
    if (const auto slash = rest.find('/'); slash != std::string_view::npos) {
      const auto it = routes_.find(fmt::format("{}{{}}{}", folder, rest.substr(slash)));
      if (it != routes_.end()) return {&it->second, rest.substr(0, slash)};
    }
    if (const auto it = routes_.find(folder + "{}"); it != routes_.end())
      return {&it->second, rest};
  }
  return {};
}

const key* router::who(const request& asked, const route& wanted) const {
  if (keys_.empty() || wanted.needs == scope::open) return &keys_.anybody();
  const auto shown = asked.header("authorization");
  constexpr std::string_view bearer = "bearer ";
  const key* known = nullptr;
  if (shown.size() > bearer.size() && is_same_word(shown.substr(0, bearer.size()), bearer))
    known = keys_.find(shown.substr(bearer.size()));
  if (known == nullptr)
    throw refused({.status = 401,
                   .code = "no_key",
                   .detail = "a key is needed here: send Authorization: Bearer KEY with one that "
                             "this service knows"});
  return known;
}

visit router::judge(const std::shared_ptr<exchange>& to, const route*& chosen) const {
  const auto& asked = to->asked();
  if (!is_known_host(asked.header("host"), policy_.hosts))
    throw refused({.status = 403,
                   .code = "bad_host",
                   .detail = "this service is not known by the name in the Host header; name it "
                             "with --host"});
  const auto [path, query_text] = split_target(asked.target);
  const auto [routes, parameter] = find(path);
  if (routes == nullptr)
    throw refused(
        not_found("there is nothing at this path; see /openapi.json. A ':' in a name is "
                  "written %3A"));
  const auto it = std::ranges::find(*routes, asked.method, &route::method);
  if (it == routes->end()) {
    problem why{.status = 405, .code = "bad_method", .detail = "not with this method"};
    why.allow = allowed_methods(*routes);
    throw refused(std::move(why));
  }
  chosen = &*it;
  if (asked.method != "GET") judge_origin(asked);
  visit out{to, who(asked, *it), {}, {}, it->plain, std::chrono::steady_clock::now()};
  if (!out.who->has(it->needs)) throw denied("this key has not the scope for that");
  if (!asked.body.empty() && (it->plain || !is_json(asked.header("content-type"))))
    throw refused({.status = 415,
                   .code = "bad_request",
                   .detail = it->plain
                                 ? "this call takes its parameters in the address, and no body"
                                 : "the body must be application/json"});
  if (!query_text.empty()) {
    if (!it->has_query)
      throw refused(bad_request(asked.method == "GET" ? "there are no parameters here"
                                                      : "parameters stand in the body here"));
    out.query = query{query_text};
  }
  if (it->pattern.find('{') == std::string_view::npos) return out;
  auto decoded = percent_decoded(parameter);
  if (!decoded)
    throw refused(bad_request("the path has a % without two hexadecimal digits behind it"));
  out.parameter = std::move(*decoded);
  if (it->pattern.find("{name}") != std::string_view::npos) {
    check_name_or_refuse(out.parameter);
    out.check(it->needs, out.parameter);
  }
  return out;
}

void router::serve(const std::shared_ptr<exchange>& to) const {
  const route* chosen = nullptr;
  try {
    auto one = judge(to, chosen);
    chosen->act(std::move(one));
  } catch (const refused& no) {
    to->respond(answer_of(no.why(), chosen != nullptr && chosen->plain));
  } catch (const lock_error& failure) {
    to->respond(answer_of(problem_of({failure.reason(), failure.what()}),
                          chosen != nullptr && chosen->plain));
  }
}

}  // namespace holdfast::server

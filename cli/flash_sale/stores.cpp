#include "flash_sale/stores.hpp"

#include "args.hpp"
#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>

namespace holdfast::cli::flash {

namespace {

struct known_store {
  std::string_view scheme;
  store_kind kind;
};

constexpr std::array known_stores{known_store{"redis", store_kind::redis},
                                  known_store{"rediss", store_kind::redis},
                                  known_store{"unix", store_kind::redis},
                                  known_store{"redlock", store_kind::redlock},
                                  known_store{"redlocks", store_kind::redlock},
                                  known_store{"mysql", store_kind::mysql},
                                  known_store{"zk", store_kind::zk},
                                  known_store{"zks", store_kind::zk},
                                  known_store{"etcd", store_kind::etcd},
                                  known_store{"etcds", store_kind::etcd},
                                  known_store{"consul", store_kind::consul},
                                  known_store{"consuls", store_kind::consul}};

// "mysql:" of "mysql://...": does an address begin here?
bool begins_address(std::string_view text) {
  const auto end = std::ranges::find_if_not(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '+' || c == '-' || c == '.';
  });
  const auto rest = text.substr(static_cast<std::size_t>(end - text.begin()));
  return end != text.begin() && rest.starts_with(":/");
}

std::vector<std::string> addresses_in(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    std::size_t end = list.find(',');
    while (end != std::string_view::npos && !begins_address(list.substr(end + 1)))
      end = list.find(',', end + 1);
    out.emplace_back(list.substr(0, end));
    list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
  }
  return out;
}

}  // namespace

std::string_view word(store_kind kind) noexcept {
  switch (kind) {
    case store_kind::redis:
      return "redis";
    case store_kind::redlock:
      return "redlock";
    case store_kind::mysql:
      return "mysql";
    case store_kind::zk:
      return "zk";
    case store_kind::etcd:
      return "etcd";
    case store_kind::consul:
      return "consul";
  }
  return "";
}

store_urls read_stores(const std::string& list) {
  store_urls out;
  for (const auto& text : addresses_in(list)) {
    const auto url = store_url::parse(text);
    if (!url) throw usage_error(fmt::format("--stores: {}", url.error().message()));
    const auto row = std::ranges::find(known_stores, url->scheme(), &known_store::scheme);
    if (row == known_stores.end())
      throw usage_error(fmt::format(
          "--stores takes addresses of redis, redlock, mysql, zk, etcd and consul, not {}.",
          without_secrets(url->str())));
    if (!out.emplace(row->kind, text).second)
      throw usage_error(fmt::format("--stores names {} twice.", word(row->kind)));
  }
  return out;
}

std::string password_of(const store_url& url) {
  if (url.has_secret()) return url.secret();
  if (const auto* file = url.find("password_file")) {
    std::ifstream in{*file};
    std::string line;
    std::getline(in, line);
    return line;
  }
  const auto* named = url.find("password_env");
  const char* value = std::getenv(named == nullptr ? "HOLDFAST_PASSWORD" : named->c_str());
  return value == nullptr ? "" : value;
}

std::string obstacle_to_plain(store_kind kind, const std::string& text) {
  const auto url = store_url::parse(text).value();
  if (kind == store_kind::redis) {
#if !HOLDFAST_FLASH_REDIS
    return "this build has no hiredis";
#endif
    if (url.scheme() == "rediss") return "hiredis 0.14 has no TLS";
  }
  if (kind == store_kind::mysql) {
#if !HOLDFAST_FLASH_SQL
    return "this build has no MariaDB Connector/C";
#endif
    const auto* tls = url.find("tls");
    if (url.find("ca_file") != nullptr || (tls != nullptr && *tls == "on"))
      return "the plain connections of the sale speak no TLS";
  }
  return "";
}

std::string with_option(const std::string& text, std::string_view name, std::string_view value) {
  const auto url = store_url::parse(text).value();
  if (url.find(name) != nullptr) return text;
  return fmt::format("{}{}{}={}", text, text.find('?') == std::string::npos ? '?' : '&', name,
                     value);
}

}  // namespace holdfast::cli::flash

// The servers that a sale was given, by kind.
#pragma once

#include <holdfast/url.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::cli::flash {

enum class store_kind { redis, redlock, mysql, zk, etcd, consul };
std::string_view word(store_kind kind) noexcept;

using store_urls = std::map<store_kind, std::string>;

// "redis://a,redlock://b,c,d": a comma ends an address only where another one begins. Throws usage_error.
store_urls read_stores(const std::string& list);

// In the address, in what it names (password_file, password_env), or in HOLDFAST_PASSWORD; empty when there is none.
std::string password_of(const store_url& url);

// Why the plain clients of the sale cannot speak to it (TLS, not built); empty when they can.
std::string obstacle_to_plain(store_kind kind, const std::string& url);

// With this option, unless it has one of that name.
std::string with_option(const std::string& url, std::string_view name, std::string_view value);

// How many commands the servers of this store have served so far, by their own counters; nothing where they do not
// tell.
std::optional<std::uint64_t> commands_served(store_kind kind, const std::string& url);

}  // namespace holdfast::cli::flash

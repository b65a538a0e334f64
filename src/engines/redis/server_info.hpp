// What a server tells about itself, as far as it lets us look. For diagnose().
#pragma once

#include "engines/redis/connections.hpp"
#include "engines/redis/settings.hpp"

#include <holdfast/engine.hpp>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::redis {

struct server_info {
  std::map<std::string, std::string, std::less<>> info;    // INFO; empty when that is refused
  std::map<std::string, std::string, std::less<>> config;  // CONFIG GET, what counts for locks
  std::string user;                                        // as which the server knows us
  // The user default: on, and without a password; nothing when that is refused.
  std::optional<bool> is_default_open;
  // What the layout needs and this user may not do, and whether it may do far more than that. Nothing when the server
  // cannot be asked (before Redis 7).
  std::optional<std::vector<std::string>> missing_rights;
  bool may_flush = false;
  nanoseconds clock_ahead{};             // of ours
  nanoseconds clock_unsure{};            // by so much, either way
  std::vector<nanoseconds> round_trips;  // sorted

  // An error only when the server does not answer.
  static result<server_info> ask(connections& server, const settings& how, const call& limits);

  // A field of INFO, a parameter; nothing when it is not known.
  std::optional<std::string_view> said(std::string_view field) const;
  std::optional<std::string_view> set_to(std::string_view parameter) const;
  std::optional<std::int64_t> number(std::string_view field) const;  // of INFO
  std::optional<std::int64_t> number_set_to(std::string_view parameter) const;
};

}  // namespace holdfast::engines::redis

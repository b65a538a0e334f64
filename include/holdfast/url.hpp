// A store's address: scheme:[//[user[:password]@]host[:port][,host...]][/path][?key=value&...]
//
// Parsed and validated once, here, for every engine. The password never leaves through anything that
// prints: str() is redacted, and only secret() (for an engine's login) gives it away.
#pragma once

#include <holdfast/result.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast {

struct endpoint {
  std::string host;                   // IPv6 addresses without their brackets
  std::optional<std::uint16_t> port;  // unset: the engine's usual one
};

class store_url {
 public:
  // misconfigured for anything that is not such an address: empty scheme, bad port, bad %-escape,
  // control characters, the same key twice. The sentence names the part, never the password.
  static result<store_url> parse(std::string_view text);

  const std::string& scheme() const noexcept { return scheme_; }
  const std::string& user() const noexcept { return user_; }
  const std::vector<endpoint>& endpoints() const noexcept { return endpoints_; }
  const std::string& path() const noexcept {
    return path_;
  }  // %-decoded, with its leading slash if any
  bool has_secret() const noexcept { return !secret_.empty(); }
  const std::string& secret() const noexcept { return secret_; }

  // The value of ?key=, decoded.
  const std::string* find(std::string_view key) const;
  // Typed look-ups: the fallback when absent, misconfigured when malformed or out of [low, high].
  result<std::int64_t> integer(std::string_view key, std::int64_t fallback, std::int64_t low,
                               std::int64_t high) const;
  result<std::chrono::nanoseconds> duration(std::string_view key, std::chrono::nanoseconds fallback,
                                            std::chrono::nanoseconds low,
                                            std::chrono::nanoseconds high) const;
  // misconfigured, naming the first key that is not in `known`: a misspelt option must not be ignored.
  result<void> allow_only(std::initializer_list<std::string_view> known) const;

  // Safe to print: the password is replaced by "***".
  std::string str() const;

 private:
  std::string scheme_, user_, secret_, path_;
  std::vector<endpoint> endpoints_;
  std::map<std::string, std::string, std::less<>> query_;
};

// "10s", "1.5s", "250ms", "2m", "1h", "100us", "5000ns"; a bare number counts seconds. misconfigured for
// NaN, infinity, negative values, unknown units and overflow.
result<std::chrono::nanoseconds> parse_duration(std::string_view text);

// The shortest text that reads well and parses back to about the same: "1.5s", "250ms", "forever".
std::string format_duration(std::chrono::nanoseconds duration);

// Lock names: 1-255 bytes of valid UTF-8, case-sensitive, no control characters (C0, DEL, C1), no leading or
// trailing space, no empty, "." or ".." segment between slashes. The same verdict on every store.
result<void> check_name(std::string_view name);

}  // namespace holdfast

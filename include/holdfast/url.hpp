// A store's address: scheme:[//[user[:password]@]host[:port][,host...]][/path][?key=value&...]
//
//   file:                                    the embedded store of this user
//   redis://cache.example:6379/2             one server, its database 2
//   etcd://a:2379,b:2379,c:2379/locks        a cluster, with a prefix for all names
//
// Parsed and validated once, here, for every engine: programs pass text to client::open() and need this header only to
// look at an address before that, or to write an engine. The password never leaves through anything that prints: str()
// is redacted, and only secret() (for an engine's login) gives it away. Pure functions and plain values: nothing here
// blocks, resolves a name or touches a store.
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

// Not resolved, not known to exist.
struct endpoint {
  std::string host;                   // IPv6 addresses without their brackets
  std::optional<std::uint16_t> port;  // 1 to 65535; unset: the engine's usual one
};

// An address in its parts. Const members from any thread.
class store_url {
 public:
  // misconfigured for anything that is not such an address: empty scheme, bad port, bad %-escape, control characters,
  // a '#', the same key twice, more than 4096 bytes. / ? # @ : % and , inside a user name or password must be written
  // as %-escapes. The sentence names the part, never the password: of an address with an '@' it quotes nothing at all.
  // Whether an engine knows the scheme, the path and the options is found out by client::try_open().
  static result<store_url> parse(std::string_view text);

  const std::string& scheme() const noexcept { return scheme_; }  // in small letters
  const std::string& user() const noexcept { return user_; }      // %-decoded
  // In the order written; empty where there is no host part.
  const std::vector<endpoint>& endpoints() const noexcept { return endpoints_; }
  // %-decoded, with its leading slash if any.
  const std::string& path() const noexcept { return path_; }
  // An empty password counts as none.
  bool has_secret() const noexcept { return !secret_.empty(); }
  // The password in clear text, for an engine's login. Do not print it.
  const std::string& secret() const noexcept { return secret_; }

  // The value of ?key=, decoded; null when it is absent. Lives as long as this address.
  const std::string* find(std::string_view key) const;
  // Typed look-ups: the fallback (unchecked) when absent, misconfigured when malformed or out of [low, high].
  result<std::int64_t> integer(std::string_view key, std::int64_t fallback, std::int64_t low,
                               std::int64_t high) const;
  result<std::chrono::nanoseconds> duration(std::string_view key, std::chrono::nanoseconds fallback,
                                            std::chrono::nanoseconds low,
                                            std::chrono::nanoseconds high) const;
  // misconfigured, naming the first key that is not in `known`: a misspelt option must not be ignored.
  result<void> allow_only(std::initializer_list<std::string_view> known) const;

  // Safe to print: the password is replaced by "***", and so is the value of an option whose name sounds like a secret.
  std::string str() const;

 private:
  std::string scheme_, user_, secret_, path_;
  std::vector<endpoint> endpoints_;
  std::map<std::string, std::string, std::less<>> query_;
};

// "10s", "1.5s", "250ms", "2m", "1h", "100us", "5000ns", "forever"; a bare number counts seconds. Parts of a nanosecond
// are rounded down. misconfigured for NaN, infinity, negative values, unknown units and overflow.
result<std::chrono::nanoseconds> parse_duration(std::string_view text);

// The shortest text that reads well and parses back to about the same (three decimals of its unit): "1.5s", "250ms",
// "forever" for nanoseconds::max(). A negative duration is shown as such, and is then no input for parse_duration().
std::string format_duration(std::chrono::nanoseconds duration);

// Lock names: 1-255 bytes of valid UTF-8, case-sensitive, no control characters (C0, DEL, C1), no leading or trailing
// space, no empty, "." or ".." segment between slashes. The same verdict on every store. misconfigured, with a sentence
// that says what to change. Every class that takes a name asks this by itself; ask it for names that users type in.
// Names are compared byte by byte: no Unicode normalisation.
result<void> check_name(std::string_view name);

}  // namespace holdfast

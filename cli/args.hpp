// From the raw command line to what a command works with.
//
// Two steps, after ripgrep: parse() splits the words by the table in commands.hpp and knows only text;
// the typed look-ups below give them a meaning and refuse what has none.
#pragma once

#include "commands.hpp"

#include <holdfast/client.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::cli {

// The command line is wrong: exit code 64. what() is a sentence that names the flag and the remedy.
class usage_error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Where a holdfast inside `run` looks for the password that stood in the address outside. Only the user sets it.
inline constexpr auto withheld_password = "HOLDFAST_STORE_PASSWORD";

class arguments {
 public:
  bool has(std::string_view name) const;
  // Of a flag ("--label") or a parameter ("NAME"); "" when it is absent.
  const std::string& text(std::string_view name) const;
  // The typed look-ups give the fallback when it is absent, and throw usage_error when malformed.
  nanoseconds duration(std::string_view name, nanoseconds fallback) const;
  std::int64_t integer(std::string_view name, std::int64_t fallback, std::int64_t low,
                       std::int64_t high) const;
  // Of --ttl, when it is given. Zero is refused here, and by check_ttl() what a store does not take.
  std::optional<nanoseconds> ttl() const;
  void check_ttl(const client& store) const;
  std::vector<unsigned> list(std::string_view name, std::vector<unsigned> fallback) const;
  // What stood after "--".
  const std::vector<std::string>& program() const noexcept { return program_; }

  // From --store, else HOLDFAST_STORE, else the embedded default. May hold a password: never print it.
  std::string store_text() const;
  // Opens it. A password in --store works, with a warning. Throws lock_error.
  client open_store(client_options options = {}) const;

 private:
  friend struct parser;
  std::map<std::string, std::string, std::less<>> values_;
  std::vector<std::string> program_;
};

// Says so when this store lives in our process alone, for commands that are about other processes.
void warn_if_private(const client& store);

struct invocation {
  const command* what;
  arguments args;
};

// Throws usage_error. Overwrites a password in argv, so that `ps` shows it no longer than it takes to get here.
invocation parse(int argc, char** argv);

}  // namespace holdfast::cli

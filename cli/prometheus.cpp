#include "prometheus.hpp"

#include "output.hpp"
#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string_view>

namespace holdfast::cli {

namespace {

// Of one lock, the entries of one mode.
struct sample {
  std::size_t holders = 0;
  std::size_t waiters = 0;
  nanoseconds oldest = unknown_time;
  std::uint64_t token = 0;
};

std::map<std::string_view, sample> samples_of(const lock_info& lock) {
  std::map<std::string_view, sample> by_mode;
  for (const auto& holder : lock.holders) {
    auto& of = by_mode[to_string(holder.mode)];
    ++of.holders;
    of.oldest = std::max(of.oldest, holder.age);
    of.token = std::max(of.token, holder.token.value);
  }
  for (const auto& waiter : lock.waiters) ++by_mode[to_string(waiter.mode)].waiters;
  return by_mode;
}

// The collector refuses a whole file for one byte that is not UTF-8, and a terminal may do as it is told.
std::string label_value(std::string_view text) {
  const std::string safe =
      is_utf8(text) && !stdout_is_terminal() ? std::string{text} : printable(text);
  std::string out;
  for (const char c : safe) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

struct metric {
  std::string_view name;
  std::string_view help;
  bool (*is_known)(const sample&);  // else there is no line
  std::string (*value)(const sample&);
};

constexpr metric metrics[] = {
    {"holdfast_lock_holders", "How many hold the lock in this mode.",
     [](const sample&) { return true; },
     [](const sample& of) { return std::to_string(of.holders); }},
    {"holdfast_lock_waiters", "How many wait for the lock in this mode.",
     [](const sample&) { return true; },
     [](const sample& of) { return std::to_string(of.waiters); }},
    {"holdfast_lock_held_seconds", "How long the oldest holder has held it.",
     [](const sample& of) { return of.oldest != unknown_time; },
     [](const sample& of) {
       return fmt::format("{}", std::chrono::duration<double>(of.oldest).count());
     }},
    {"holdfast_lock_token", "The largest fencing token of its holders.",
     [](const sample& of) { return of.token != 0; },
     [](const sample& of) { return std::to_string(of.token); }},
};

}  // namespace

std::string locks_prometheus(std::span<const lock_info> locks) {
  std::string text;
  for (const auto& row : metrics) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n", row.name, row.help);
    for (const auto& lock : locks)
      for (const auto& [mode, of] : samples_of(lock))
        if (row.is_known(of))
          text += fmt::format("{}{{lock=\"{}\",mode=\"{}\"}} {}\n", row.name,
                              label_value(lock.name), mode, row.value(of));
  }
  return text;
}

}  // namespace holdfast::cli

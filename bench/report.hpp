// What a baseline has found out, and how it is shown.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace baseline {

enum class bound { at_most, below, at_least };

struct finding {
  std::string what;
  std::string value;             // what was measured on either side
  double number;                 // what the target is about
  std::optional<double> target;  // none: shown for comparison
  std::string unit;              // "x" for ratios
  bound want = bound::at_most;

  bool met() const {
    if (!target) return true;
    switch (want) {
      case bound::at_most:
        return number <= *target;
      case bound::below:
        return number < *target;
      case bound::at_least:
        break;
    }
    return number >= *target;
  }
};

inline const char* sign(bound want) {
  return want == bound::at_most ? "<=" : want == bound::below ? "<" : ">=";
}

inline void print_table(const std::vector<finding>& found) {
  std::size_t widest = 0, widest_value = 0;
  for (const auto& f : found) {
    widest = std::max(widest, f.what.size());
    widest_value = std::max(widest_value, f.value.size());
  }
  for (const auto& f : found) {
    fmt::print("{:<{}}  {:<{}}  {:>8.2f}{:<2}", f.what, widest, f.value, widest_value, f.number,
               f.unit);
    if (f.target)
      fmt::print("  {:>2} {}{:<2}  {}", sign(f.want), *f.target, f.unit, f.met() ? "ok" : "MISSED");
    fmt::print("\n");
  }
}

inline void print_json(const std::vector<finding>& found) {
  fmt::print("[\n");
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& f = found[i];
    fmt::print(
        R"(  {{"what": "{}", "measured": "{}", "result": {:.4f}, "unit": "{}", "target": {}, "met": {}}}{})"
        "\n",
        f.what, f.value, f.number, f.unit, f.target ? fmt::format("{}", *f.target) : "null",
        f.met(), i + 1 < found.size() ? "," : "");
  }
  fmt::print("]\n");
}

inline void print(const std::vector<finding>& found, bool json) {
  json ? print_json(found) : print_table(found);
}

}  // namespace baseline

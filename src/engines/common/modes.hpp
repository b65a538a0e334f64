// What every engine that stores a mode says about it alike: a letter, and its weight against the capacity of the lock
// (grant_rule.hpp).
#pragma once

#include <holdfast/engine.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

namespace holdfast::engines {

constexpr std::uint64_t weight_of(lock_mode mode, std::uint64_t permits = 1) noexcept {
  switch (mode) {
    case lock_mode::exclusive:
      return rw_capacity;
    case lock_mode::shared:
      return 1;
    case lock_mode::upgradeable:
      return upgradeable_weight;
    case lock_mode::permits:
      return permits;
  }
  return rw_capacity;
}

// May a grant be downgraded so? Permits have no other mode, whatever they weigh.
constexpr bool shrinks(lock_mode is, lock_mode to) noexcept {
  if (to == lock_mode::shared) return is == lock_mode::exclusive || is == lock_mode::upgradeable;
  return to == lock_mode::upgradeable && is == lock_mode::exclusive;
}

constexpr char letter_of(lock_mode mode) noexcept {
  switch (mode) {
    case lock_mode::exclusive:
      return 'x';
    case lock_mode::shared:
      return 's';
    case lock_mode::upgradeable:
      return 'u';
    case lock_mode::permits:
      return 'p';
  }
  return 'x';
}

constexpr std::optional<lock_mode> mode_of(std::string_view letter) noexcept {
  for (const auto mode :
       {lock_mode::exclusive, lock_mode::shared, lock_mode::upgradeable, lock_mode::permits})
    if (letter.size() == 1 && letter.front() == letter_of(mode)) return mode;
  return std::nullopt;
}

}  // namespace holdfast::engines

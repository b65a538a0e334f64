// The exit codes of the command, all of them. The numbers are those of sysexits.h where it has one.
#pragma once

#include <holdfast/error.hpp>

#include <array>
#include <string_view>

namespace holdfast::cli {

namespace exit_code {
inline constexpr int ok = 0;
inline constexpr int nothing_there = 1;
inline constexpr int usage = 64;
inline constexpr int unavailable = 69;
inline constexpr int internal = 70;
inline constexpr int not_acquired = 75;
inline constexpr int lost = 76;
inline constexpr int denied = 77;
inline constexpr int misconfigured = 78;
inline constexpr int not_executable = 126;
inline constexpr int not_found = 127;
inline constexpr int by_signal = 128;  // plus the number of the signal
}  // namespace exit_code

struct exit_code_row {
  std::string_view code;
  std::string_view meaning;
};

// For the help and the manual.
inline constexpr std::array exit_code_table{
    exit_code_row{"0", "done; with run and elect: what the command itself ended with"},
    exit_code_row{"1", "there is no such latch"},
    exit_code_row{"64", "the command line is wrong"},
    exit_code_row{"69", "the store cannot be reached, or did not answer in time"},
    exit_code_row{"70", "the store answered nonsense, its data is damaged, or holdfast has a bug"},
    exit_code_row{"75", "the lock was not acquired in time (or not at once, with --no-wait)"},
    exit_code_row{"76", "the lock was lost while the command ran"},
    exit_code_row{"77", "the store denied it: permissions or credentials"},
    exit_code_row{
        "78",
        "misconfigured: a bad lock name or store URL, this store cannot do that, or doctor "
        "found something bad"},
    exit_code_row{"126", "the command to run is not executable"},
    exit_code_row{"127", "the command to run was not found"},
    exit_code_row{"128+N", "ended by signal N"},
};

constexpr int exit_code_for(errc code) noexcept {
  switch (code) {
    case errc::busy:
    case errc::timed_out:
      return exit_code::not_acquired;
    case errc::cancelled:
      return exit_code::by_signal + 2;
    case errc::not_held:
      return exit_code::nothing_there;
    case errc::lost:
      return exit_code::lost;
    case errc::unavailable:
    case errc::outcome_unknown:
      return exit_code::unavailable;
    case errc::denied:
      return exit_code::denied;
    case errc::unsupported:
    case errc::misconfigured:
      return exit_code::misconfigured;
    case errc::protocol:
      return exit_code::internal;
  }
  return exit_code::internal;
}

}  // namespace holdfast::cli

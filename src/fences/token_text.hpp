// What the fences that keep a token as text have in common: how it is read, and what is said of it.
#pragma once

#include <holdfast/error.hpp>
#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include "support/text.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace holdfast::fences {

inline constexpr int most_tries = 100;  // each that fails means that another holder was admitted

inline std::optional<std::uint64_t> token_in(std::string_view text) {
  std::uint64_t out = 0;
  const auto* const end = text.data() + text.size();
  const auto [at, code] = std::from_chars(text.data(), end, out);
  if (text.empty() || code != std::errc{} || at != end) return std::nullopt;
  return out;
}

inline error no_lease_has_it() {
  return {errc::misconfigured,
          "A fence was shown the token 0, which belongs to no lease; show it lease.token()."};
}

inline error changed_all_the_time(std::string_view fence) {
  return {errc::unavailable,
          fmt::format("The fence {} was changed by others all the time; try again.",
                      support::quoted(fence))};
}

// May our token come in where `held` is kept? True: it is to be written; false: it is there already.
inline result<bool> is_newer(fencing_token ours, std::string_view held, std::string_view fence) {
  const auto newest = token_in(held);
  if (!newest)
    return error{errc::protocol,
                 fmt::format("The fence {} holds {}, which is not a token. Find the newest token "
                             "of its lock (holdfast show), and write that there.",
                             support::quoted(fence), support::quoted(held))};
  if (*newest > ours.value)
    return error{errc::lost,
                 fmt::format("The fence {} has seen token {} and refuses the older {}: another "
                             "holder was here since. Stop.",
                             support::quoted(fence), *newest, ours.value)};
  return *newest < ours.value;
}

}  // namespace holdfast::fences

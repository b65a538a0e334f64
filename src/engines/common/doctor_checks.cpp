#include "engines/common/doctor_checks.hpp"

#include <holdfast/url.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::engines {

namespace {

using namespace std::chrono_literals;
using level = finding::level;

}  // namespace

std::string in_ms(nanoseconds length) {
  const std::chrono::duration<double, std::milli> ms{length};
  return ms < 10ms ? fmt::format("{:.2f} ms", ms.count()) : fmt::format("{:.0f} ms", ms.count());
}

finding not_allowed_to_look(std::string_view about, std::string_view refused,
                            std::string_view advice) {
  return {level::note, std::string{about},
          fmt::format("Not allowed to look ({}). {}", refused, advice)};
}

finding check_encryption(const encryption& how) {
  if (how.is_on)
    return {level::good, "encryption",
            how.cipher.empty()
                ? std::string{"TLS; certificate and name are verified."}
                : fmt::format("TLS ({}); certificate and name are verified.", how.cipher)};
  if (how.is_local)
    return {level::good, "encryption", "Plain text, which does not leave this machine."};
  return {level::warning, "encryption",
          fmt::format("Plain text over the network: password and locks can be read and changed on "
                      "the way. Use {}.",
                      how.to_turn_on)};
}

std::string clock_difference(nanoseconds ahead, nanoseconds unsure) {
  return fmt::format("The server's clock is {} {} ours (give or take {}).",
                     in_ms(ahead < 0ns ? -ahead : ahead), ahead < 0ns ? "behind" : "ahead of",
                     in_ms(unsure));
}

finding check_round_trips(std::vector<nanoseconds> took, const round_trip_limits& limits) {
  if (took.empty()) return {level::bad, "round trip", "The store does not answer."};
  std::ranges::sort(took);
  const auto measured = fmt::format("{} in the middle of {}, {} at worst.",
                                    in_ms(took[took.size() / 2]), took.size(), in_ms(took.back()));
  if (limits.bearable == 0ns || took.back() <= limits.bearable)
    return {level::note, "round trip", measured};
  return {level::warning, "round trip",
          fmt::format("{} That is much for a {} of {}: leases may be lost for no other reason. "
                      "Choose a longer ?{}=.",
                      measured, limits.setting, format_duration(limits.length), limits.setting)};
}

}  // namespace holdfast::engines

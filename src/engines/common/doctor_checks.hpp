// What `holdfast doctor` looks at on more than one store, in the same words.
#pragma once

#include <holdfast/engine.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines {

std::string in_ms(nanoseconds length);  // "0.31 ms", "12 ms"

// `advice`: what it should be.
finding not_allowed_to_look(std::string_view about, std::string_view refused,
                            std::string_view advice);
struct encryption {
  bool is_on = false;
  bool is_local = false;  // it does not leave this machine
  std::string_view to_turn_on;
  std::string_view cipher = {};
};
finding check_encryption(const encryption& how);
// "The server's clock is ... ahead of ours (give or take ...)."
std::string clock_difference(nanoseconds ahead, nanoseconds unsure);
// `bearable`: more than that at worst costs leases, unless the `setting` (of that length) is made longer. 0: none.
struct round_trip_limits {
  nanoseconds bearable{};
  std::string_view setting = {};
  nanoseconds length{};
};
finding check_round_trips(std::vector<nanoseconds> took, const round_trip_limits& limits);

}  // namespace holdfast::engines

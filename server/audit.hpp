// What must be told afterwards: who took which lock away. One line on the standard error each, in ASCII, so that a name
// cannot forge a line.
#pragma once

#include <holdfast/result.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace holdfast::server {

struct break_asked {
  std::string_view lock;
  std::string_view key;   // its name
  std::string_view peer;  // address
};
std::string audit_line(const break_asked& what, const result<std::size_t>& ended);
void audit_break(const break_asked& what, const result<std::size_t>& ended);

}  // namespace holdfast::server

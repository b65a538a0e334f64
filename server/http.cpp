#include "http.hpp"

#include <algorithm>
#include <cctype>

namespace holdfast::server {

std::string_view request::header(std::string_view lower_case_name) const noexcept {
  for (const auto& [name, value] : headers)
    if (std::ranges::equal(name, lower_case_name,
                           [](unsigned char a, char b) { return std::tolower(a) == b; }))
      return value;
  return {};
}

}  // namespace holdfast::server

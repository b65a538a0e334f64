// Files that are part of the program.
#pragma once

#include <string_view>

namespace holdfast::server::assets {

// The dashboard; in a program that was built without it, a page that says how to get it.
std::string_view page() noexcept;
std::string_view script() noexcept;
std::string_view style() noexcept;
std::string_view openapi() noexcept;

}  // namespace holdfast::server::assets

// Which engines this build has: the one table from URL scheme to engine.
#pragma once

#include <holdfast/engine.hpp>

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace holdfast::engines {

struct engine_entry {
  std::string_view scheme;
  result<std::unique_ptr<engine>> (*make)(const engine_config&);
  std::string (*schema)() = nullptr;  // see schema_of(); none where nothing must be set up
};

// Sorted by scheme.
std::span<const engine_entry> table();

}  // namespace holdfast::engines

// The table of ls and top.
#pragma once

#include "table.hpp"

#include <holdfast/engine.hpp>

#include <span>

namespace holdfast::cli {

// One row for each holder; a lock that shows none gets one row, too.
table lock_table(std::span<const lock_info> locks);

}  // namespace holdfast::cli

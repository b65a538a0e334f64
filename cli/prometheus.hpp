// What `ls --prometheus` prints: the text exposition format, for the text collector of a node exporter.
#pragma once

#include <holdfast/engine.hpp>

#include <span>
#include <string>

namespace holdfast::cli {

std::string locks_prometheus(std::span<const lock_info> locks);

}  // namespace holdfast::cli

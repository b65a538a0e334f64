// For the rare object whose last reference is dropped on a thread that its destructor would have to join.
#pragma once

#include <functional>

namespace holdfast::support {

// Runs `work` on a thread of its own. All such threads are joined before the program ends, but perhaps after the
// destruction of some objects with static storage duration: those that an engine uses in the background are never
// destroyed (`static const auto& the = *new ...`).
void run_elsewhere(std::function<void()> work) noexcept;

}  // namespace holdfast::support

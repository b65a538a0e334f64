// Putting a shard back in order after its last user died in the middle, or after a reboot.
#pragma once

#include "engines/file/mapping.hpp"

#include <cstdint>

namespace holdfast::engines::file {

// Forgets all lists of the shard and makes them anew from the records' words and the entries' states. A client that
// dies in here leaves the same work to the next. REQUIRES: the shard's mutex.
void rebuild(mapping& store, std::uint32_t shard_index);

// The order of the queue: upgrades, then by priority, then by arrival.
bool goes_before(const entry& a, const entry& b) noexcept;

// After a reboot there are no holders and no waiters; counters stay; tokens go on far above all that were given.
// REQUIRES: no other process is attached.
void begin_boot(mapping& store);

}  // namespace holdfast::engines::file

// For whoever outlives the process that held a lock, and knows that it is dead: a supervisor.
#pragma once

#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include <string_view>

namespace holdfast {

// Gives back exactly the grant that this owner (lease::owner()) of a dead process had, in the store at `url`, so that
// nobody needs to wait until the store notices the death. not_held when there is none (any more): then nothing was
// changed. REQUIRES: the process that had the lease is dead, and so is whatever worked under its protection. The
// store cannot check that; a process that still lives loses the lease, and hears of it late.
result<void> give_back(std::string_view url, std::string_view name, const owner_id& owner,
                       nanoseconds patience);

}  // namespace holdfast

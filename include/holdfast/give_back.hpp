// For a supervisor: a process that outlives the one that held a lock, and knows that it is dead.
//
//   const auto owner = read_owner_from(child.pipe);      // the child wrote its lease.owner()
//   child.kill_with_its_group();
//   auto done = holdfast::give_back(url, "nightly", owner, 1s);
#pragma once

#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include <string_view>

namespace holdfast {

// Gives back the grant that this owner (lease::owner()) of a dead process had, in the store at `url`, so that no waiter
// needs to wait until the store notices the death. REQUIRES: the process that had the lease is dead, and so is whatever
// worked under its protection. The store cannot check that; a process that still lives loses the lease, and hears of it
// late. REQUIRES: `name` is a valid lock name (check_name); it is not looked at here.
//
// Opens the store for this one call, as the dead client's next session: so it needs no client, and is for the death of
// a whole client, not of one of its leases (a store may end what else that client still had). Blocks for as long as
// opening takes (client::open), then for `patience`, then until the session has ended; not cancellable. Safe to call
// again, and from any thread.
//   not_held        there is no such grant (any more); nothing was changed. Final
//   unavailable, outcome_unknown   the store is away, or may still take the dead session for alive: try again, or leave
//                   it to the store, which notices the death by itself (capabilities().dead_holder_bound, or the ttl)
//   misconfigured, unsupported, denied, protocol   as for client::open
result<void> give_back(std::string_view url, std::string_view name, const owner_id& owner,
                       nanoseconds patience);

}  // namespace holdfast

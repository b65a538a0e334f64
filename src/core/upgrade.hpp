// Changing the mode of a lease that is held: the steps around the store's part.
//
// Whatever gets lost on the way, the lease is what it was, what it should be, or lost. When the store's answer is
// missing, the lease counts as the lesser of the two modes, and the store is asked in the background until it agrees
// (retry_thread.hpp); renewals go on meanwhile, and a release takes along whatever is there.
#pragma once

#include "core/blocking.hpp"

namespace holdfast::core {

struct upgrade_plan {
  grant old;
  acquire_options options;
};

// The answer while an earlier change of mode is in doubt.
error still_changing(const hold& state);
// Is this a lease of `name` that can be upgraded, with options that make sense?
result<upgrade_plan> prepare_upgrade(const lease& held, std::string_view name,
                                     const acquire_options& asked);
// `old` is referred to by the request: keep it until the answer is there.
request upgrade_request(hold& state, const grant& old, const acquire_options& options);
// Puts the new grant behind the lease, or gives it back when the lease was lost meanwhile.
result<void> adopt_upgrade(hold& state, std::uint64_t generation, const grant& won);
// The upgrade failed. If that is not certain, the store is asked until it is, and what it granted is taken back.
void end_upgrade(hold& state, std::uint64_t generation, const acquire_machine& machine);
// The upgrade of `base` went through and is not wanted any more: back to an upgradeable read, in the background.
void undo_upgrade(hold& state, std::uint64_t generation, const owner_id& owner,
                  const owner_id& base);

result<void> upgrade(lease& held, std::string_view name, const acquire_options& asked);
result<void> downgrade(lease& held, std::string_view name, lock_mode to);

}  // namespace holdfast::core

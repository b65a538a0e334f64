// Changing the mode of a lease that is held: the steps around the store's part.
#pragma once

#include "core/blocking.hpp"

namespace holdfast::core {

struct upgrade_plan {
  grant old;
  acquire_options options;
};

// Is this a lease of `name` that can be upgraded, with options that make sense?
result<upgrade_plan> prepare_upgrade(const lease& held, std::string_view name,
                                     const acquire_options& asked);
// `old` is referred to by the request: keep it until the answer is there.
request upgrade_request(const lease& held, const grant& old, const acquire_options& options);
// Puts the new grant behind the lease, or gives it back when the lease was lost meanwhile.
result<void> finish_upgrade(lease& held, const grant& won);

result<void> upgrade(lease& held, std::string_view name, const acquire_options& asked);
result<void> downgrade(lease& held, std::string_view name, lock_mode to);

}  // namespace holdfast::core

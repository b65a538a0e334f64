// release() and renew() of a lease without a blocked thread, for coroutines.
#pragma once

#include <holdfast/async.hpp>
#include <holdfast/lease.hpp>

namespace holdfast::core {

error nothing_held();
// The lease is touched where its coroutine is known to be there: when the operation begins.
async<void> async_release(lease& held);
async<void> async_renew(lease& held);

}  // namespace holdfast::core

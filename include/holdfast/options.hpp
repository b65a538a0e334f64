// Options of one acquire. An aggregate: write only what you change,
//   stock.acquire({.wait = 3s, .label = "nightly report"});
//
// Checked by every acquire, and by the constructors that keep them as the defaults of a handle: misconfigured for a
// negative time, a ttl that the store does not take or a bad label; unsupported for a priority where there are none.
// They are copied before the first wait, so they may go as soon as the call (or the async_ function) has returned.
#pragma once

#include <holdfast/types.hpp>

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>

namespace holdfast {

// As long as it takes; also the largest finite wait (about 292 years). It ends all the same when the store stays
// unavailable for longer than client_options::call_timeout: an acquire never sits out an outage.
inline constexpr nanoseconds forever = nanoseconds::max();

// gcc (12.2 and perhaps later) destroys the members of a braced aggregate twice when it is a temporary inside a
// co_await expression. So with gcc the async_ functions refuse temporaries at compile time; name the options first:
//   const holdfast::acquire_options options{.wait = 3s};
//   auto lease = co_await stock.async_acquire(options);
#if defined(__GNUC__) && !defined(__clang__)
// The comment is for the compiler's message, which quotes the line.
#define HOLDFAST_NAME_THE_OPTIONS_FIRST(refused) \
  refused = delete /* const acquire_options name{...}; then pass name */
#else
#define HOLDFAST_NAME_THE_OPTIONS_FIRST(refused) static_assert(true)
#endif

struct acquire_options {
  // ---- behaviour
  // How long to wait for it, from the call on, also behind other threads of this process. 0: one attempt (busy when it
  // is taken); otherwise timed_out when the time is over. Negative is refused as misconfigured. The answer comes within
  // this time plus 500 ms (or call_timeout, if that is shorter) even when the store does not answer at all; what it may
  // have granted is given back in the background.
  nanoseconds wait = forever;
  // Liveness bound, not a limit on how long you may hold: the lease is renewed at a third of it while this process
  // lives; when the process dies or is paused for longer than this, others may take the lock. The store may grant less
  // (capabilities().longest_validity). Unset: the client's default.
  std::optional<nanoseconds> ttl = std::nullopt;
  // Give the lock up (as lost) after holding it this long, however well renewals go. 0: no limit. Counts for this lease
  // alone, also when it was handed on inside the process. valid() does not look at it: it turns false when the thread
  // of the client that keeps the times has noticed.
  nanoseconds max_hold{0};
  // See types.hpp. About the store's queue only: inside a client exclusive acquires queue by priority, then arrival.
  queue_order order = queue_order::fifo;
  // Higher enters earlier; equal priorities keep the queue order. A holder is never interrupted. Other than 0 only
  // where capabilities().priorities; unsupported elsewhere.
  int priority = 0;
  // Insist on a grant, and so a token, of its own: never one that another thread of this process hands on (see
  // client_options::handoff_limit). Costs a round trip per lease. Shared leases and permits always have their own.
  bool own_token = false;
  // When this process dies, or lease::leave_behind() is called, the store keeps the grant until its ttl is over, so
  // that a successor of the client can adopt it (client_options::successor_of). So a crash frees the lock only then.
  // For services that hold locks for others. Only where capabilities().outlives_client; unsupported elsewhere.
  bool outlives_client = false;
  // Cancels the wait: the acquire ends as cancelled, also when stop was requested before it began. A waiter in the
  // store's queue is taken out first, which takes a round trip, or up to 500 ms per request from a store that does not
  // answer; then the rest is cleared up in the background. So nothing is left behind in the store for good. Does
  // nothing once the lease is there.
  std::stop_token stop{};
  // ---- for humans
  // Shown to operators by `holdfast ls`. At most 64 bytes of UTF-8 without control characters; else misconfigured. A
  // lock is handed on inside the process only to a waiter with the same label and ttl.
  std::string label{};
  // The label is the value of a candidate, which other programs on the store may read (etcd): it is kept as it is, also
  // when it is empty. election sets it.
  bool label_is_value = false;
};

}  // namespace holdfast

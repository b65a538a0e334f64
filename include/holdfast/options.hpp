// Options of one acquire. An aggregate: write only what you change,
//   stock.acquire({.wait = 3s, .label = "nightly report"});
#pragma once

#include <holdfast/types.hpp>

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>

namespace holdfast {

// As long as it takes; also the largest finite wait (about 292 years).
inline constexpr nanoseconds forever = nanoseconds::max();

// gcc (12.2 and perhaps later) destroys the members of a braced aggregate twice when it is a
// temporary inside a co_await expression. So with gcc the async_ functions refuse temporaries at
// compile time; name the options first:
//   const holdfast::acquire_options options{.wait = 3s};
//   auto lease = co_await stock.async_acquire(options);
#if defined(__GNUC__) && !defined(__clang__)
#define HOLDFAST_REFUSE_TEMPORARY(declaration) declaration = delete
#else
#define HOLDFAST_REFUSE_TEMPORARY(declaration) static_assert(true)
#endif

struct acquire_options {
  // ---- behaviour
  // How long to wait for it. 0: one attempt. Negative is refused as misconfigured. The answer comes within this time
  // plus 500 ms (or call_timeout, if that is shorter) even when the store does not answer at all; what it may have
  // granted is given back in the background.
  nanoseconds wait = forever;
  // Liveness bound, not a limit on how long you may hold: the lease is renewed at ttl/3 while this
  // process lives; when it dies or is paused for longer than this, others may take the lock. Unset: the
  // client's default.
  std::optional<nanoseconds> ttl = std::nullopt;
  // Give the lock up (as lost) after holding it this long, however well renewals go. 0: no limit. Counts for this lease
  // alone, also when it was handed on inside the process.
  nanoseconds max_hold{0};
  queue_order order = queue_order::fifo;
  // Higher enters earlier; equal priorities keep the queue order. Only where capabilities().priorities.
  int priority = 0;
  // Insist on a grant, and so a token, of its own: never one that another thread of this process
  // hands on (see client_options::handoff_limit). Costs a round trip per lease.
  bool own_token = false;
  // Cancels the wait. Nothing is left behind in the store.
  std::stop_token stop{};
  // ---- for humans
  // Shown to operators by `holdfast ls`. At most 64 bytes of UTF-8 without control characters.
  std::string label{};
};

}  // namespace holdfast

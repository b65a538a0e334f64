// What happened, for logs, metrics and traces: hooks that are called, and numbers that can be read.
//
//   struct log_losses : holdfast::observer {
//     void lost(std::string_view name, holdfast::fencing_token, std::string_view why) override { log(name, why); }
//   };
//   auto client = holdfast::client::open(url, {.observer = std::make_shared<log_losses>()});
#pragma once

#include <holdfast/error.hpp>
#include <holdfast/types.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace holdfast {

// Hooks. Called soon after the thing happened, one after the other in the order in which things happened, on a thread
// that the client keeps for that: not on the thread of the caller, never under
// a lock of ours. (If there is no memory or no thread to be had they are called where the thing happened.) So a hook
// may ask leases, take locks and drop handles; a hook that takes long delays the hooks behind it, but no
// renewal and no lease::lost(). What they throw is swallowed. The thread that drops the client's last handle waits for
// them. Without an observer nothing of this costs anything; with one, lock/unlock pairs lose some of their speed,
// because each reads the clock and wakes that thread, unless hears_pairs() says that nobody wants to know.
//
// One observer may serve several clients; then it is called by a thread of each, perhaps at once. The string_views and
// the error are good during the call only. In a forked child no hook is called.
class observer {
 public:
  virtual ~observer() = default;
  // False: acquired() and released() need not be called, and a pair keeps its speed. Asked when the client opens.
  virtual bool hears_pairs() const noexcept { return true; }
  // A lease was given out, by the store or handed on inside the process (then with the token of the grant); not for a
  // re-entry, an upgrade or a downgrade. `waited` counts from the call, the round trip included.
  virtual void acquired(std::string_view name, fencing_token token, nanoseconds waited) {
    (void)name, (void)token, (void)waited;
  }
  // A lease is over by release(), unlock() or destruction, or was handed on. Where the answer is not waited for, this
  // comes when the release is sent, and also when the store does not confirm it.
  virtual void released(std::string_view name, fencing_token token) { (void)name, (void)token; }
  // A release by unlock() or a destructor, which could not report it otherwise, failed: the store had let go
  // before (not_held or lost; lost() was or is called as well), or did not confirm it (unavailable,
  // outcome_unknown ...): then it is given back in the background. Also an unlock of what was not locked.
  // lease::release() returns its error instead.
  virtual void release_failed(std::string_view name, const error& why) { (void)name, (void)why; }
  // A lease can no longer be claimed; called just after its lost() fired. `why` is a sentence for people.
  virtual void lost(std::string_view name, fencing_token token, std::string_view why) {
    (void)name, (void)token, (void)why;
  }
  // A renewal call, which may be about many leases, was not answered or was refused. Nothing is lost yet: it is tried
  // again until the leases' validity ends. Also for lease::renew().
  virtual void renew_failed(const error& why) { (void)why; }
  // During an acquire the store did not answer a request, and was asked what became of it. Called once, at the end of
  // the acquire; `adopted` says whether that got its lease in the end. Not for what is cleared up in the background.
  virtual void settled(std::string_view name, bool adopted) { (void)name, (void)adopted; }
};

// Counts by powers of two: bucket i holds durations in [2^i, 2^(i+1)) ns, the last one also everything longer (more
// than three days).
struct histogram {
  std::array<std::uint64_t, 48> buckets{};
  std::uint64_t count = 0;
  nanoseconds sum{};
  // An upper bound of the q-quantile (0 < q <= 1), exact to a factor of two. 0 when nothing was counted.
  nanoseconds quantile(double q) const noexcept;
};

// A snapshot of one client since it was opened (client::metrics). Counters only rise, but are not read at one instant:
// sums may be off by what happens meanwhile. Watch `lost` (should be 0), `renew_failed` (trouble, before anything is
// lost) and the upper end of `wait`.
struct metrics {
  // Leases given out by the store; local hand-offs and re-entries not included.
  std::uint64_t acquired = 0;
  std::uint64_t handed_off = 0;  // leases passed on inside this process
  std::uint64_t reentered = 0;   // re-entries of a recursive_mutex
  // Acquires and upgrades that ended so; `failed` is every other error.
  std::uint64_t busy = 0, timed_out = 0, cancelled = 0, failed = 0;
  // Releases told to the store, whatever it answered; no hand-offs.
  std::uint64_t released = 0;
  // Leases that were lost. One that only its release showed as lost counts as released, too.
  std::uint64_t lost = 0;
  // Leases in renewal calls that were answered, whatever the verdict; and renewal calls that were not.
  std::uint64_t renewed = 0, renew_failed = 0;
  // Requests without an answer, of which the store could say to the acquire what had become of them.
  std::uint64_t settled = 0;
  // Leases held at this moment; re-entries count as one. Rises and falls.
  std::uint64_t held_now = 0;
  // Times of acquires: of those that had to wait in this process or in the store, each; of uncontended ones of a mutex
  // one in 16 (with an observer each). Failed acquires are not in it.
  histogram wait;
  // How long leases were held until their release; sampled as `wait`. Lost ones are not in it.
  histogram hold;
  // How long renewal calls took, one entry each, failed ones included.
  histogram renew;
};

}  // namespace holdfast

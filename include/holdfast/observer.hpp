// What happened, for logs, metrics and traces.
#pragma once

#include <holdfast/error.hpp>
#include <holdfast/types.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace holdfast {

// Hooks. Called soon after the thing happened, one after the other in the order in which things happened, on a thread
// that the client keeps for that (and for the callbacks of lease::lost()): never on the thread of the caller, never
// under a lock of ours. So a hook may ask leases, take locks and drop handles; a hook that takes long delays those
// behind it and nothing else. What they throw is swallowed. The thread that drops the client's last handle waits for
// them. Without an observer nothing of this costs anything; with one, lock/unlock pairs lose some of their speed.
class observer {
 public:
  virtual ~observer() = default;
  virtual void acquired(std::string_view name, fencing_token token, nanoseconds waited) {
    (void)name, (void)token, (void)waited;
  }
  virtual void released(std::string_view name, fencing_token token) { (void)name, (void)token; }
  // An unlock() that could not report it otherwise: not_held, unavailable ...
  virtual void release_failed(std::string_view name, const error& why) { (void)name, (void)why; }
  virtual void lost(std::string_view name, fencing_token token, std::string_view why) {
    (void)name, (void)token, (void)why;
  }
  virtual void renew_failed(const error& why) { (void)why; }
  // A request whose answer never came was cleared up: adopted or removed.
  virtual void settled(std::string_view name, bool adopted) { (void)name, (void)adopted; }
};

// Counts by powers of two: bucket i holds durations in [2^i, 2^(i+1)) ns.
struct histogram {
  std::array<std::uint64_t, 48> buckets{};
  std::uint64_t count = 0;
  nanoseconds sum{};
  // An upper bound of the q-quantile (0 < q <= 1), exact to a factor of two.
  nanoseconds quantile(double q) const noexcept;
};

// A snapshot; counters only rise.
struct metrics {
  std::uint64_t acquired = 0;    // leases given out, local hand-offs and re-entries not included
  std::uint64_t handed_off = 0;  // leases passed on inside this process
  std::uint64_t reentered = 0;
  std::uint64_t busy = 0, timed_out = 0, cancelled = 0, failed = 0;
  std::uint64_t released = 0;
  std::uint64_t lost = 0;
  std::uint64_t renewed = 0, renew_failed = 0;
  std::uint64_t settled = 0;
  std::uint64_t held_now = 0;
  histogram wait;   // of acquires that had to wait, each; of the others one in 16
  histogram hold;   // one in 16 of the uncontended ones, all others
  histogram renew;  // one entry per renewal call
};

}  // namespace holdfast

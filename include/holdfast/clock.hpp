// Where time comes from. Programs use system_clock() without naming it; unit tests give client_options::clock a fake
// one and move it by hand.
#pragma once

#include <holdfast/types.hpp>

namespace holdfast {

// A steady clock. Implementations must be callable from any thread at any time, must never go back, and must outlive
// every client that was opened with them. They must not block: the client's own threads read them, and valid() does.
class clock {
 public:
  virtual ~clock() = default;
  // The time at some moment during the call.
  virtual steady_time now() const noexcept = 0;
  // Never later than now(), perhaps some milliseconds older, and several times cheaper to read. Good for "not before"
  // marks such as the instant before a request is sent; useless for "is it over yet".
  virtual steady_time recent() const noexcept { return now(); }
  // The sibling for what never leaves this machine: it stands still while the machine is suspended, as a store of this
  // machine does. A client uses it for everything where capabilities().clock is local_steady. The reference lives as
  // long as this clock.
  virtual const clock& local() const noexcept { return *this; }
};

// The machine's steady clock, counting the time in which the machine was suspended (CLOCK_BOOTTIME): a server gives a
// lock away while its holder's machine sleeps, so validity must go on counting. Equal to std::chrono::steady_clock
// until the first suspend in the life of this process, ahead of it afterwards. local() is std::chrono::steady_clock
// (CLOCK_MONOTONIC, and its coarse sibling for recent(), where that is sane). Where a system has no CLOCK_BOOTTIME both
// are steady_clock, and a suspended machine's leases look valid for too long after it wakes. Never destroyed; usable
// from any thread, also while the program ends.
const clock& system_clock() noexcept;

}  // namespace holdfast

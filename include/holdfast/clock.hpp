// Where time comes from. Real code uses steady_clock; unit tests move a fake one by hand.
#pragma once

#include <holdfast/types.hpp>

namespace holdfast {

class clock {
 public:
  virtual ~clock() = default;
  virtual steady_time now() const noexcept = 0;
  // Never later than now(), perhaps some milliseconds older, and several times cheaper to read. Good
  // for "not before" marks such as the instant before a request is sent; useless for "is it over yet".
  virtual steady_time recent() const noexcept { return now(); }
  // The sibling for what never leaves this machine: it stands still while the machine is suspended, as the store does.
  virtual const clock& local() const noexcept { return *this; }
};

// The machine's steady clock, counting the time in which the machine was suspended (CLOCK_BOOTTIME): a server gives a
// lock away while its holder's machine sleeps, so validity must go on counting. Equal to std::chrono::steady_clock
// until the first suspend in the life of this process, ahead of it afterwards. local() is std::chrono::steady_clock
// (CLOCK_MONOTONIC, and its coarse sibling for recent()).
const clock& system_clock() noexcept;

}  // namespace holdfast

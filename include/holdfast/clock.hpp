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
};

// The machine's steady clock (CLOCK_MONOTONIC, and its coarse sibling for recent()).
const clock& system_clock() noexcept;

}  // namespace holdfast

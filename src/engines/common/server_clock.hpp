// Where the server's clock decides when a grant ends: what is taken off every validity for that.
#pragma once

#include <holdfast/types.hpp>

#include <chrono>

namespace holdfast::engines {

// That much may two clocks differ in speed: a hundredth.
inline constexpr unsigned server_drift_ppm = 10'000;
inline constexpr nanoseconds server_margin = std::chrono::milliseconds{2};

}  // namespace holdfast::engines

// The wall clock of a server that a test starts, to be shifted while it runs (tests/clock_shim).
//
//   shifted_clock clock;
//   redis_server server{{.environment = clock.environment()}};
//   clock.jump(1h);
#pragma once

#include "support/temp_dir.hpp"

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace holdfast::testing {

class shifted_clock {
 public:
  shifted_clock() { write(0); }
  // For the server: NAME=value.
  std::vector<std::string> environment() const {
    return {"LD_PRELOAD=" + std::string{HOLDFAST_CLOCK_SHIM}, "HOLDFAST_CLOCK_SHIFT=" + path_};
  }
  // From its true time.
  void jump(std::chrono::seconds by) { write(by.count()); }

 private:
  void write(std::int64_t seconds) {
    std::fstream file{path_, std::ios::in | std::ios::out | std::ios::binary};
    if (!file) file.open(path_, std::ios::out | std::ios::binary);
    file.write(reinterpret_cast<const char*>(&seconds), sizeof seconds);
  }
  temp_dir dir_;
  const std::string path_ = dir_.file("shift");
};

}  // namespace holdfast::testing

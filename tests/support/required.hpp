// HOLDFAST_REQUIRE_ENGINES=redis,etcd   the engines whose tests must not be skipped for want of a server (CI sets it;
// "all" is all).
#pragma once

#include <cstdlib>
#include <string>

namespace holdfast::testing {

inline bool is_required(const std::string& engine) {
  const char* list = std::getenv("HOLDFAST_REQUIRE_ENGINES");
  if (list == nullptr) return false;
  const auto among = "," + std::string{list} + ",";
  return among == ",all," || among.find("," + engine + ",") != std::string::npos;
}

}  // namespace holdfast::testing

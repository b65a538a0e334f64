// What a test needs, and whether it may do without.
//
//   HOLDFAST_REQUIRE_ENGINES=redis,etcd   the engines whose tests must not be skipped for want of a server (CI sets it;
//                                         "all" is all)
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace holdfast::testing {

struct availability {
  bool ok = false;
  std::string why;  // not
  explicit operator bool() const noexcept { return ok; }
};

inline bool is_required(const std::string& engine) {
  const char* list = std::getenv("HOLDFAST_REQUIRE_ENGINES");
  if (list == nullptr) return false;
  const auto among = "," + std::string{list} + ",";
  return among == ",all," || among.find("," + engine + ",") != std::string::npos;
}

// In SetUp(): without it the test is skipped, or fails where it is required.
inline void need(const availability& server, const std::string& engine) {
  if (server) return;
  ASSERT_FALSE(is_required(engine)) << server.why;
  GTEST_SKIP() << server.why;
}

}  // namespace holdfast::testing

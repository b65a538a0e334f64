// A second process for tests: this very binary, started again as a child that obeys one-line
// commands.
//
//   child other{url};
//   EXPECT_EQ(other.ask("acquire stock 10s"), "granted");   // NAME TTL
#pragma once

#include "support/line_program.hpp"

#include <optional>
#include <string>

namespace holdfast::testing {

class child : public line_program {
 public:
  explicit child(const std::string& url);
};

// For main(): runs as such a child when the arguments say so. The exit code, or nothing when this
// is no child.
std::optional<int> run_as_child(int argc, char** argv);

}  // namespace holdfast::testing

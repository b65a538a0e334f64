// Runs the built `holdfast` in a folder of its own, as a reader of a page would.
#pragma once

#include "support/temp_dir.hpp"

#include <set>
#include <string>

namespace documents {

struct said {
  int code = -1;
  std::string text;  // of both outputs
};

class workplace {
 public:
  // A line of shell, with the built holdfast first in the PATH and a file store of its own as HOLDFAST_STORE.
  said run(const std::string& line);

 private:
  holdfast::testing::temp_dir dir_;
  int runs_ = 0;
};

// The store schemes of this build, without the colon.
std::set<std::string> schemes_of_this_build();

}  // namespace documents

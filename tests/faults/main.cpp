// The test program, and its own second process (support/child.hpp).
#include "support/child.hpp"

#include <gtest/gtest.h>

int main(int argc, char** argv) {
  if (const auto code = holdfast::testing::run_as_child(argc, argv)) return *code;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

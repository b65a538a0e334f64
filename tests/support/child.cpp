#include "support/child.hpp"

#include <string_view>

namespace holdfast::testing {

namespace {

constexpr const char* child_flag = "--holdfast-child";

}  // namespace

child::child(const std::string& url) : line_program({"/proc/self/exe", child_flag, url}) {}

int obey(const std::string& url);  // child_main.cpp

std::optional<int> run_as_child(int argc, char** argv) {
  if (argc != 3 || std::string_view{argv[1]} != child_flag) return std::nullopt;
  return obey(argv[2]);
}

}  // namespace holdfast::testing

// Every variable of the environment that is ours and read, by the library, the command or the tests, stands in a page.
#include "documents/page.hpp"

#include <gtest/gtest.h>

#include <initializer_list>

namespace documents {

namespace {

namespace fs = std::filesystem;

const char* const install_page = "docs/start/install.md";
const char* const cli_page = "docs/reference/cli.md";
const char* const testing_page = "docs/internals/testing.md";

std::set<std::string> in_sources(std::initializer_list<const char*> folders,
                                 const std::string& pattern) {
  std::set<std::string> out;
  for (const char* folder : folders)
    for (const auto& entry : fs::recursive_directory_iterator{root() / folder})
      if (entry.path().extension() == ".cpp" || entry.path().extension() == ".hpp")
        out.merge(found_in(content(entry.path()), pattern));
  return out;
}

std::set<std::string> in_pages(std::initializer_list<const char*> pages) {
  std::set<std::string> out;
  for (const char* path : pages) out.merge(found_in(read_page(path).prose(), "HOLDFAST_[A-Z_]+"));
  return out;
}

}  // namespace

// What is quoted whole is the name of a variable: read here, or set for a command that is run.
TEST(variables, of_the_library_and_the_command_are_in_the_reference) {
  const auto documented = in_pages({cli_page, install_page, testing_page});
  const auto used = in_sources({"src", "cli", "include"}, "\"(HOLDFAST_[A-Z_]+)\"");
  EXPECT_TRUE(used.contains("HOLDFAST_STORE"));
  for (const auto& name : used)
    EXPECT_TRUE(documented.contains(name)) << name << " is in none of the pages";
}

TEST(variables, that_tests_read_are_on_their_page) {
  const auto documented = in_pages({testing_page});
  auto read = in_sources({"tests"}, "getenv\\(\"(HOLDFAST_[A-Z_]+)\"");
  read.merge(in_sources({"tests"}, "(?:from_environment|number_from)\\(\"(HOLDFAST_[A-Z_]+)\""));
  EXPECT_TRUE(read.contains("HOLDFAST_SOAK_SECONDS"));
  for (const auto& name : read)
    EXPECT_TRUE(documented.contains(name)) << testing_page << " lacks " << name;
}

TEST(variables, that_the_reference_names_are_used) {
  const auto used = in_sources({"src", "cli", "include"}, "\"(HOLDFAST_[A-Z_]+)\"");
  for (const auto& name : in_pages({cli_page}))
    EXPECT_TRUE(used.contains(name)) << cli_page << " names " << name;
}

// Switches are variables of the build.
TEST(variables, switches_of_engines_are_on_the_page_on_installing) {
  const auto documented = in_pages({install_page});
  for (const auto& engine : found_in(content(root() / "src/engines/CMakeLists.txt"),
                                     "holdfast_engine\\(\\s*NAME ([a-z]+)")) {
    std::string name = "HOLDFAST_ENGINE_";
    for (const char letter : engine) name += static_cast<char>(letter - 'a' + 'A');
    EXPECT_TRUE(documented.contains(name)) << install_page << " lacks " << name;
  }
}

}  // namespace documents

// Folders and files that a page must name, because a reader looks for them there.
#include "documents/page.hpp"

#include <gtest/gtest.h>

namespace documents {

namespace {

const char* const architecture = "docs/internals/architecture.md";
const char* const testing_page = "docs/internals/testing.md";

std::set<std::string> spans_of_column(const table& of, std::size_t column) {
  std::set<std::string> out;
  for (const auto& row : of.rows)
    for (const auto& span : code_spans(row.at(column))) out.insert(span);
  return out;
}

}  // namespace

TEST(folders, of_src_are_those_of_the_architecture) {
  const auto named = spans_of_column(read_page(architecture).table_under("The folders"), 0);
  std::set<std::string> there;
  for (const auto& folder : folders_in("src")) there.insert("src/" + folder + '/');
  for (const auto& folder : folders_in("src/engines")) there.insert("src/engines/" + folder + '/');
  std::set<std::string> named_of_src;
  for (const auto& name : named)
    if (name.starts_with("src/")) named_of_src.insert(name);
  EXPECT_EQ(named_of_src, there);
}

TEST(folders, of_tests_are_named_in_the_architecture) {
  std::set<std::string> named;
  for (const auto& row : read_page(architecture).table_under("The folders").rows)
    if (row.at(0) == "`tests/`")
      for (const auto& span : code_spans(row.at(1))) named.insert(span);
  EXPECT_EQ(named, folders_in("tests"));
}

TEST(folders, of_tests_are_those_of_the_page_on_testing) {
  std::set<std::string> named;
  for (const auto& span : spans_of_column(read_page(testing_page).table_under("Testing"), 1))
    named.merge(found_in(span, "^tests/([a-z0-9_]+)"));
  EXPECT_EQ(named, folders_in("tests"));
}

TEST(folders, headers_of_the_test_support_are_those_of_the_table_of_helpers) {
  const auto helpers = read_page(testing_page).table_under("Helpers (`tests/support`)");
  EXPECT_EQ(spans_of_column(helpers, 0), files_in("tests/support", ".hpp"));
}

TEST(folders, files_of_core_are_its_pieces) {
  std::set<std::string> named;
  for (const auto& file :
       spans_of_column(read_page(architecture).table_under("The pieces of core"), 1)) {
    const auto both = file.find(".{hpp,cpp}");
    named.insert(both == std::string::npos ? file : file.substr(0, both) + ".hpp");
    if (both != std::string::npos) named.insert(file.substr(0, both) + ".cpp");
  }
  auto there = files_in("src/core", ".hpp");
  there.merge(files_in("src/core", ".cpp"));
  EXPECT_EQ(named, there);
}

}  // namespace documents

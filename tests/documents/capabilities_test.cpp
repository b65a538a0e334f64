#include "documents/capabilities.hpp"
#include "documents/command.hpp"
#include "support/temp_dir.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace documents {

TEST(capabilities, every_field_of_explain_has_a_meaning) {
  std::set<std::string> described;
  for (const auto& row : read_page(capabilities_page).table_under("What the fields mean").rows)
    for (const auto& field : code_spans(row.at(0))) described.insert(field);
  std::set<std::string> printed;
  workplace here;
  const auto said = nlohmann::json::parse(here.run("holdfast explain --json --store memory:").text);
  for (const auto& [field, value] : said.items()) printed.insert(field);
  EXPECT_EQ(described, printed);
}

TEST(capabilities, of_memory_are_what_explain_says) {
  expect_as_explained("memory", [](const auto&) { return "memory:"; });
}

TEST(capabilities, of_a_file_are_what_explain_says) {
  const holdfast::testing::temp_dir dir;
  expect_as_explained("file", [&](const auto&) { return "file:" + dir.file("locks"); });
}

// A column of a scheme that no test asks about could say anything.
TEST(capabilities, have_no_column_that_is_not_compared) {
  const std::set<std::string> compared{"memory", "file", "redis",  "mysql",
                                       "etcd",   "zk",   "consul", "http"};
  const auto declared = declared_capabilities();
  for (std::size_t column = 1; column < declared.header.size(); ++column) {
    const auto scheme = found_in(declared.header[column], "`([a-z]+):");
    ASSERT_EQ(scheme.size(), 1U) << declared.header[column];
    EXPECT_TRUE(compared.contains(*scheme.begin())) << declared.header[column];
  }
}

}  // namespace documents

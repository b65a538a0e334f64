// Links inside the tree, and pages that have a twin in Chinese.
#include "documents/page.hpp"

#include <gtest/gtest.h>

namespace documents {

namespace {

namespace fs = std::filesystem;

const std::string twin_ending = ".zh-CN.md";

bool leads_out(const std::string& target) {
  return target.find("://") != std::string::npos || target.starts_with("mailto:");
}

}  // namespace

TEST(links, lead_to_files_and_headings_that_exist) {
  const auto pages = all_pages();
  EXPECT_GT(pages.size(), 50U);
  for (const auto& path : pages) {
    for (const auto& [line, target] : read_page(path).links) {
      if (leads_out(target)) continue;
      const auto hash = target.find('#');
      const auto file = target.substr(0, hash);
      const auto to = file.empty() ? path : (path.parent_path() / file).lexically_normal();
      if (!fs::exists(root() / to)) {
        ADD_FAILURE() << path.string() << ':' << line << " leads to " << target
                      << ", which does not exist";
      } else if (hash != std::string::npos && to.extension() == ".md") {
        EXPECT_TRUE(read_page(to).has_anchor(target.substr(hash + 1)))
            << path.string() << ':' << line << " leads to " << target
            << "; there is no such heading";
      }
    }
  }
}

TEST(twins, have_as_many_headings_and_code_blocks) {
  std::size_t twins = 0;
  for (const auto& path : all_pages()) {
    if (!path.string().ends_with(twin_ending)) continue;
    ++twins;
    SCOPED_TRACE(path.string());
    const auto english = path.string().substr(0, path.string().size() - twin_ending.size()) + ".md";
    ASSERT_TRUE(fs::exists(root() / english)) << "there is no " << english;
    const auto here = read_page(path);
    const auto there = read_page(english);
    EXPECT_EQ(here.headings.size(), there.headings.size());
    EXPECT_EQ(here.code_blocks.size(), there.code_blocks.size());
    EXPECT_EQ(here.tables.size(), there.tables.size());
  }
  EXPECT_GT(twins, 10U);
}

// As the page of all pages says.
TEST(twins, exist_of_all_start_pages_and_guides) {
  for (const char* folder : {"docs/start", "docs/guides"})
    for (const auto& name : files_in(folder, ".md"))
      EXPECT_TRUE(name.ends_with(twin_ending) ||
                  fs::exists(root() / folder / (name.substr(0, name.size() - 3) + twin_ending)))
          << folder << '/' << name << " has no twin";
}

}  // namespace documents

// The packages that tools/setup installs, by purpose, against the tables of the pages on installing.
#include "documents/page.hpp"

#include <gtest/gtest.h>

#include <map>
#include <regex>

namespace documents {

namespace {

using packages_by_purpose = std::map<std::string, std::set<std::string>>;

// [build]="g++ make ..."
packages_by_purpose installed_by_setup() {
  auto script = content(root() / "tools/setup");
  script = script.substr(script.find("declare -A packages=("));
  script = script.substr(0, script.find("\n)"));
  static const std::regex purpose{"\\[([a-z]+)\\]=\"([^\"]*)\""};
  packages_by_purpose out;
  for (std::sregex_iterator it{script.begin(), script.end(), purpose}, end; it != end; ++it)
    out[(*it)[1].str()] = found_in((*it)[2].str(), "[^\\s]+");
  return out;
}

packages_by_purpose on_page(const char* path, const char* section) {
  packages_by_purpose out;
  for (const auto& row : read_page(path).table_under(section).rows)
    for (const auto& package : code_spans(row.at(2)))
      out[code_spans(row.at(1)).at(0)].insert(package);
  return out;
}

}  // namespace

TEST(packages, that_setup_installs_are_those_of_the_page) {
  EXPECT_TRUE(installed_by_setup()["build"].contains("cmake"));
  EXPECT_EQ(on_page("docs/start/install.md", "From a clone, on Debian 12"), installed_by_setup());
}

TEST(packages, that_setup_installs_are_those_of_the_chinese_page) {
  EXPECT_EQ(on_page("docs/start/install.zh-CN.md", "在 Debian 12 上从源码安装"),
            installed_by_setup());
}

}  // namespace documents

#include "documents/capabilities.hpp"
#include "documents/command.hpp"
#include "support/redis_server.hpp"

#include <gtest/gtest.h>

namespace documents {

using holdfast::testing::redis_server;

class redis_capabilities : public ::testing::Test {
 protected:
  void SetUp() override { need(redis_server::available(), "redis"); }
  static std::string url_with(const std::string& options) {
    const auto url = holdfast::testing::shared_redis().url();
    return options.empty() ? url : url + '?' + options;
  }
};

TEST_F(redis_capabilities, are_what_explain_says) { expect_as_explained("redis", url_with); }

TEST_F(redis_capabilities, have_a_column_for_each_layout) {
  workplace here;
  const auto refusal = here.run("holdfast explain --store '" + url_with("layout=none") + "'").text;
  const auto begin = refusal.find("there are ");
  ASSERT_NE(begin, std::string::npos) << refusal;
  std::string columns;
  for (const auto& heading : declared_capabilities().header) columns += heading;
  auto layouts = found_in(refusal.substr(begin), "[a-z]+(?:-[a-z]+)*");
  for (const char* word : {"there", "are", "and", "native"}) layouts.erase(word);
  EXPECT_FALSE(layouts.empty());
  for (const auto& layout : layouts)
    EXPECT_NE(columns.find("layout=" + layout + '`'), std::string::npos) << layout;
}

}  // namespace documents

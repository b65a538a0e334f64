#include "documents/capabilities.hpp"
#include "support/zookeeper_server.hpp"

#include <gtest/gtest.h>

namespace documents {

using holdfast::testing::zookeeper_server;

class zk_capabilities : public ::testing::Test {
 protected:
  void SetUp() override { need(zookeeper_server::available(), "zk"); }
};

TEST_F(zk_capabilities, are_what_explain_says) {
  expect_as_explained("zk", [](const std::string& options) {
    const auto url = holdfast::testing::shared_zookeeper().url();
    return options.empty() ? url : url + '?' + options;
  });
}

}  // namespace documents

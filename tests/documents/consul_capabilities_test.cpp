#include "documents/capabilities.hpp"
#include "support/consul_server.hpp"

#include <gtest/gtest.h>

namespace documents {

using holdfast::testing::consul_server;

class consul_capabilities : public ::testing::Test {
 protected:
  void SetUp() override { need(consul_server::available(), "consul"); }
};

TEST_F(consul_capabilities, are_what_explain_says) {
  expect_as_explained("consul", [](const std::string& options) {
    const auto url = holdfast::testing::shared_consul().url();
    return options.empty() ? url : url + '?' + options;
  });
}

}  // namespace documents

#include "documents/capabilities.hpp"
#include "support/etcd_server.hpp"

#include <gtest/gtest.h>

namespace documents {

using holdfast::testing::etcd_server;

class etcd_capabilities : public ::testing::Test {
 protected:
  void SetUp() override { need(etcd_server::available(), "etcd"); }
};

TEST_F(etcd_capabilities, are_what_explain_says) {
  expect_as_explained("etcd", [](const std::string& options) {
    const auto url = holdfast::testing::shared_etcd().url();
    return options.empty() ? url : url + '?' + options;
  });
}

}  // namespace documents

#include "documents/capabilities.hpp"
#include "support/serve_process.hpp"

#include <gtest/gtest.h>

namespace documents {

using holdfast::testing::serve_process;

class http_capabilities : public ::testing::Test {
 protected:
  void SetUp() override { need(serve_process::available(), "http"); }
};

// Over the store that a service has unless it is told otherwise.
TEST_F(http_capabilities, are_what_explain_says) {
  expect_as_explained("http", [](const std::string& options) {
    const auto url = holdfast::testing::shared_serve().url();
    return options.empty() ? url : url + '?' + options;
  });
}

}  // namespace documents

#include "documents/capabilities.hpp"
#include "support/mariadb_server.hpp"

#include <gtest/gtest.h>

namespace documents {

using holdfast::testing::mariadb_server;

class mysql_capabilities : public ::testing::Test {
 protected:
  void SetUp() override { need(mariadb_server::available(), "mysql"); }
};

TEST_F(mysql_capabilities, are_what_explain_says) {
  expect_as_explained("mysql", [](const std::string& options) {
    return holdfast::testing::shared_mariadb().url(options);
  });
}

}  // namespace documents

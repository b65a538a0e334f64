// One MariaDB for all tests of a suite, gone with its last one: the sandbox of the next suite looks for processes that
// are left behind. And for signals as usual, so what Connector/C does to SIGPIPE, for the whole process, is undone.
#pragma once

#include "mysql_recipes.hpp"
#include "support/mariadb_server.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <memory>

namespace e2e {

class mysql_suite : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::sigaction(SIGPIPE, nullptr, &broken_pipe);
    if (holdfast::testing::mariadb_server::available())
      server = std::make_unique<holdfast::testing::mariadb_server>();
  }
  static void TearDownTestSuite() {
    server.reset();
    ::sigaction(SIGPIPE, &broken_pipe, nullptr);
  }
  void SetUp() override {
    if (!server) GTEST_SKIP() << holdfast::testing::mariadb_server::available().why;
    server->sql("DROP TABLE IF EXISTS stock, holdfast_fence");
    server->sql(recipes::schema);
  }
  static std::unique_ptr<database> connect() { return std::make_unique<database>(server->url()); }

  static inline std::unique_ptr<holdfast::testing::mariadb_server> server;

 private:
  static inline struct sigaction broken_pipe {};
};

}  // namespace e2e

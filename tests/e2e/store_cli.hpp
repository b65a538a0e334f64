// The command against a real server that one test has for itself.
#pragma once

#include "e2e/shell.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace e2e {

template <class Server>
class store_cli : public ::testing::Test {
 protected:
  // Everything from now on uses this server.
  Server& start(typename Server::options how = {}) {
    server_ = std::make_unique<Server>(std::move(how));
    box.set("HOLDFAST_STORE", server_->url());
    return *server_;
  }
  Server& running() const { return *server_; }
  // The findings of doctor by what they are about.
  std::map<std::string, nlohmann::json> findings(const std::string& url) {
    const auto said = box.run({"doctor", "--json", "--store", url});
    EXPECT_TRUE(said.code == 0 || said.code == 78) << said.err;
    std::map<std::string, nlohmann::json> out;
    const auto all = nlohmann::json::parse(said.out);
    for (const auto& one : all["findings"]) out[one["about"]] = one;
    return out;
  }

  sandbox box;  // looks for processes that are left behind, so the server must be gone before it

 private:
  std::unique_ptr<Server> server_;
};

}  // namespace e2e

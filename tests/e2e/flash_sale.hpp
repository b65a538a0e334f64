// holdfast flash-sale for tests: with few buyers, on two processes, so that it leaves room for what runs beside it.
#pragma once

#include "e2e/shell.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace e2e {

struct sale_words {
  std::string schemes;  // names or families
  std::string stores{};
  std::string faults = "none";
  int stock = 60;
  int buyers = 8;
};

class flash_sale_cli : public ::testing::Test {
 protected:
  flash_sale_cli() { box.set("TMPDIR", box.folder()); }

  outcome sell_with(const sale_words& how, std::vector<std::string> more) {
    std::vector<std::string> words{"flash-sale",
                                   "--schemes",
                                   how.schemes,
                                   "--faults",
                                   how.faults,
                                   "--stock",
                                   std::to_string(how.stock),
                                   "--buyers",
                                   std::to_string(how.buyers),
                                   "--processes",
                                   "2",
                                   "--ttl",
                                   "1s"};
    if (!how.stores.empty()) words.insert(words.end(), {"--stores", how.stores});
    words.insert(words.end(), more.begin(), more.end());
    return box.start(words)->wait(seconds{110});
  }

  // The whole report; a scheme that fails where it should not is a failure of the test.
  nlohmann::json sell(const sale_words& how) {
    const auto said = sell_with(how, {"--json", "-"});
    EXPECT_EQ(said.code, 0) << said.err << said.out;
    const auto report = nlohmann::json::parse(said.out, nullptr, false);
    EXPECT_FALSE(report.is_discarded()) << said.out << said.err;
    for (const auto& one : report.value("schemes", nlohmann::json::array()))
      EXPECT_TRUE(one.contains("runs")) << one.dump();
    return report;
  }
  // Of the only scheme in it.
  static nlohmann::json run_of(const nlohmann::json& report, const std::string& under = "none") {
    const auto run = report.at("schemes").at(0).at("runs").at(under);
    EXPECT_FALSE(run.contains("failed")) << run.dump();
    return run;
  }

  // All went as it should: what was there is sold once, and the books are in balance.
  static void expect_clean(const nlohmann::json& report, int stock) {
    for (const auto& one : report.at("schemes")) {
      SCOPED_TRACE(one.at("name").get<std::string>());
      for (const auto& [under, run] : one.at("runs").items()) {
        SCOPED_TRACE(under + ": " + run.dump());
        ASSERT_FALSE(run.contains("failed"));
        EXPECT_EQ(run["oversold"], 0);
        EXPECT_EQ(run["lost_updates"], 0);
        EXPECT_EQ(run["note"], "");
        EXPECT_EQ(run["sold_out"], true);
        // Who was killed may have sold without knowing.
        EXPECT_LE(run["unexplained"].get<int>(), run["unknown"].get<int>());
        EXPECT_EQ(run["sold"].get<int>() + run["unexplained"].get<int>(), stock);
        if (under == "none") {
          EXPECT_EQ(run["unknown"], 0);
        }
      }
    }
  }

  // An unsafe scheme does not fail each time, so the load grows until it does.
  bool fails_under_load(const std::string& scheme, const std::string& stores = {}) {
    for (const int stock : {60, 240, 960, 2000}) {
      const auto run =
          run_of(sell({.schemes = scheme, .stores = stores, .stock = stock, .buyers = 16}));
      if (run.at("oversold") > 0 && run.at("lost_updates") > 0) return true;
    }
    return false;
  }

  sandbox box;
};

}  // namespace e2e

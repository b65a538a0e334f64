#include "conformance/conformance.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <random>

namespace holdfast::testing {

namespace {

std::string memory_store(const temp_dir&) {
  static std::atomic<int> number{0};
  return "memory:conformance-" + std::to_string(++number);
}

std::string file_store(const temp_dir& dir) { return "file:" + dir.file("store"); }

bool is_required(const std::string& engine) {
  const char* list = std::getenv("HOLDFAST_REQUIRE_ENGINES");
  if (list == nullptr) return false;
  const auto among = "," + std::string{list} + ",";
  return among == ",all," || among.find("," + engine + ",") != std::string::npos;
}

std::optional<std::string> given_url(std::string engine) {
  std::ranges::transform(engine, engine.begin(), [](unsigned char c) { return std::toupper(c); });
  const char* url = std::getenv(("HOLDFAST_TEST_URL_" + engine).c_str());
  if (url == nullptr) return std::nullopt;
  return url;
}

}  // namespace

const std::vector<engine_row>& engine_table() {
  static const std::vector<engine_row> table{
      {"memory", "memory", memory_store},
      {"file", "file", file_store},
  };
  return table;
}

void conformance::SetUp() {
  const auto& row = GetParam();
  const auto schemes = known_schemes();
  if (std::ranges::find(schemes, row.scheme) == schemes.end()) {
    ASSERT_FALSE(is_required(row.name)) << "this build has no engine for " << row.scheme << ":";
    GTEST_SKIP() << "this build has no engine for " << row.scheme << ":";
  }
  url_ = given_url(row.name).value_or(row.own_store(dir_));
  auto opened = client::try_open(url_);
  if (!opened && !is_required(row.name) && opened.error().code() == errc::unavailable) {
    GTEST_SKIP() << opened.error().message();
  }
  ASSERT_TRUE(is_ok(opened));
  probe_ = *opened;
  prefix_ = "test-" + std::to_string(std::random_device{}()) + "/";
}

std::size_t conformance::waiters(const std::string& of) const {
  return probe_->inspect(of).value().waiters.size();
}

std::size_t conformance::holders(const std::string& of) const {
  return probe_->inspect(of).value().holders.size();
}

}  // namespace holdfast::testing

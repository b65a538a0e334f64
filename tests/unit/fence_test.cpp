#include <holdfast/fence.hpp>

#include "support/expect.hpp"
#include "support/temp_dir.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

namespace holdfast {
namespace {

using testing::fails_with;
using testing::is_ok;

struct fence : ::testing::Test {
  testing::temp_dir dir;
  std::string path = dir.file("stock.fence");
  file_fence under_test{path};
};

TEST_F(fence, older_tokens_are_refused_once_a_newer_was_seen) {
  EXPECT_EQ(under_test.newest().value().value, 0U);
  EXPECT_TRUE(is_ok(under_test.admit({7})));
  EXPECT_TRUE(is_ok(under_test.admit({7}))) << "the same holder comes again";
  EXPECT_TRUE(is_ok(under_test.admit({9})));
  EXPECT_TRUE(fails_with(under_test.admit({8}), errc::lost));
  EXPECT_EQ(under_test.newest().value().value, 9U);
}

TEST_F(fence, the_token_outlives_the_object) {
  ASSERT_TRUE(is_ok(under_test.admit({UINT64_MAX - 1})));
  EXPECT_TRUE(fails_with(file_fence{path}.admit({5}), errc::lost));
  EXPECT_TRUE(is_ok(file_fence{path}.admit({UINT64_MAX})));
}

TEST_F(fence, token_zero_is_of_no_lease) {
  EXPECT_TRUE(fails_with(under_test.admit({0}), errc::misconfigured));
}

TEST_F(fence, damage_is_an_error_and_not_an_open_door) {
  ASSERT_TRUE(is_ok(under_test.admit({7})));
  for (const auto* content : {"garbage", "0000000000000000000x\n", "00000000000000000007",
                              "99999999999999999999\n", "00000000000000000007\nmore", "\n"}) {
    std::ofstream{path, std::ios::trunc} << content;
    EXPECT_TRUE(fails_with(under_test.admit({8}), errc::protocol)) << content;
    EXPECT_TRUE(fails_with(under_test.newest(), errc::protocol)) << content;
  }
}

TEST_F(fence, what_is_not_a_plain_file_is_refused) {
  ASSERT_EQ(::symlink("/tmp/elsewhere", path.c_str()), 0);
  EXPECT_TRUE(fails_with(under_test.admit({1}), errc::misconfigured));
  ASSERT_EQ(::unlink(path.c_str()), 0);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(fails_with(under_test.admit({1}), errc::misconfigured));
  EXPECT_TRUE(fails_with(file_fence{dir.file("no/such/folder")}.admit({1}), errc::misconfigured));
}

TEST_F(fence, the_file_is_private) {
  ASSERT_TRUE(is_ok(under_test.admit({1})));
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0077U, 0U);
}

TEST_F(fence, of_many_at_once_the_newest_stays) {
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> next{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 25; ++round) {
        const auto outcome = file_fence{path}.admit({++next});
        if (!outcome) {
          EXPECT_EQ(outcome.error().code(), errc::lost);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(under_test.newest().value().value, 100U);
}

// ---- sql_fence; what a real server makes of it is in e2e/mysql_fence_test.cpp

TEST(sql_fence, wants_a_resource_that_fits_and_a_plain_table) {
  const auto made = [](const std::string& resource, const std::string& table) -> result<void> {
    try {
      const sql_fence the{resource, table};
      return {};
    } catch (const lock_error& e) {
      return error{e.reason(), e.what()};
    }
  };
  EXPECT_TRUE(is_ok(made(std::string(255, 'x'), "holdfast_fence")));
  EXPECT_TRUE(is_ok(made("'; DROP TABLE x; --", "shop.Fences_2")));
  EXPECT_TRUE(fails_with(made("", "fences"), errc::misconfigured));
  EXPECT_TRUE(fails_with(made(std::string(256, 'x'), "fences"), errc::misconfigured));
  for (const auto* table : {"", "a b", "a;b", "`a`", "a.b.c", ".a", "a.", "a-b", "\xc3\xa4"})
    EXPECT_TRUE(fails_with(made("a", table), errc::misconfigured)) << table;
}

TEST(sql_fence, passes_its_values_on_beside_the_text) {
  const sql_fence the{"o'brien", "shop.fences"};
  EXPECT_NE(the.schema().find("CREATE TABLE IF NOT EXISTS shop.fences ("), std::string::npos);
  EXPECT_EQ(the.statement().find("brien"), std::string::npos);
  const auto outcome = the.admit({7}, [&](const auto& text, const auto& resource, auto token) {
    EXPECT_EQ(text, the.statement());
    EXPECT_EQ(std::count(text.begin(), text.end(), '?'), 2);
    EXPECT_EQ(resource, "o'brien");
    return result<std::uint64_t>{token};
  });
  EXPECT_TRUE(is_ok(outcome));
}

TEST(sql_fence, is_closed_when_the_answer_is_not_clear) {
  const sql_fence the{"stock"};
  const auto answering = [](result<std::uint64_t> answer) {
    return [answer](const auto&, const auto&, auto) { return answer; };
  };
  EXPECT_TRUE(fails_with(the.admit({7}, answering(8)), errc::lost));
  EXPECT_TRUE(fails_with(the.admit({7}, answering(0)), errc::protocol)) << "a driver without ids";
  EXPECT_TRUE(
      fails_with(the.admit({7}, answering(error{errc::unavailable, "gone"})), errc::unavailable));
  EXPECT_TRUE(fails_with(the.admit({0}, answering(0)), errc::misconfigured));
}

}  // namespace
}  // namespace holdfast

#include <holdfast/fence.hpp>

#include "support/expect.hpp"
#include "support/temp_dir.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

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

}  // namespace
}  // namespace holdfast

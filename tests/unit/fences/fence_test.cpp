#include <holdfast/fence.hpp>

#include "support/expect.hpp"
#include "support/temp_dir.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <sstream>
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

// ---- etcd_fence; what a real server makes of it is in e2e/etcd_fence_test.cpp

const std::string seven = "00000000000000000007", eight = "00000000000000000008";

// A message or bytes in protobuf's wire format, shorter than 128 bytes.
std::string part(unsigned number, const std::string& content) {
  return std::string{static_cast<char>(number << 3U | 2U), static_cast<char>(content.size())} +
         content;
}

// A TxnResponse that shows what a key holds.
std::string answer_showing(const std::string& key, const std::string& value) {
  return part(3, part(1, part(2, part(1, key) + part(5, value))));
}

const std::string succeeded = "\x10\x01";

TEST(etcd_fence, wants_a_key_and_a_token) {
  using testing::thrown_by;
  EXPECT_EQ(thrown_by([] { etcd_fence{""}; }), errc::misconfigured);
  const etcd_fence the{"f"};
  EXPECT_EQ(thrown_by([&] { the.admission({0}); }), errc::misconfigured);
  EXPECT_EQ(thrown_by([&] { the.guard({0}); }), errc::misconfigured);
  EXPECT_EQ(etcd_fence::value({7}), seven);
  EXPECT_EQ(etcd_fence::value({UINT64_MAX}), "18446744073709551615");
}

std::string from_hex(std::istringstream words) {
  std::string out;
  for (unsigned byte = 0; words >> std::hex >> byte;) out.push_back(static_cast<char>(byte));
  return out;
}

TEST(etcd_fence, writes_the_messages_of_etcd) {
  const auto hex = [](const char* words) { return from_hex(std::istringstream{words}); };
  const etcd_fence the{"f"};
  const auto read_on_failure = hex("1a 5 a 3 a 1 66");
  EXPECT_EQ(the.guard({7}), hex("a 1d 8 0 10 3 1a 1 66 3a 14") + seven + read_on_failure);
  EXPECT_EQ(the.admission({7}), hex("a 1d 8 1 10 3 1a 1 66 3a 14") + seven +
                                    hex("12 5 a 3 a 1 66") + hex("1a 1b 12 19 a 1 66 12 14") +
                                    seven + read_on_failure);
}

TEST(etcd_fence, writes_long_keys) {
  const std::string key(300, 'k');
  EXPECT_NE(etcd_fence{key}.guard({7}).find("\x1a\xac\x02" + key), std::string::npos);
}

TEST(etcd_fence, judges_by_what_the_key_held) {
  const etcd_fence the{"f"};
  EXPECT_TRUE(is_ok(the.judge({7}, answer_showing("f", seven))));
  EXPECT_TRUE(is_ok(the.judge({7}, succeeded))) << "a guard that held shows nothing";
  EXPECT_TRUE(is_ok(the.judge({7}, succeeded + answer_showing("g", eight)))) << "another's key";
  const auto refused = the.judge({7}, succeeded + answer_showing("f", eight));
  EXPECT_TRUE(fails_with(refused, errc::lost));
  EXPECT_EQ(refused.error().message(),
            "The fence \"f\" has seen token 8 and refuses the older 7: another holder was here "
            "since. Nothing was done; stop.");
  EXPECT_TRUE(fails_with(the.judge({8}, answer_showing("f", seven)), errc::misconfigured));
}

TEST(etcd_fence, believes_the_newest_of_several_reads) {
  const etcd_fence the{"f"};
  const auto old = answer_showing("f", seven), now = answer_showing("f", eight);
  EXPECT_TRUE(fails_with(the.judge({7}, old + now), errc::lost));
  EXPECT_TRUE(fails_with(the.judge({7}, now + old), errc::lost));
}

TEST(etcd_fence, is_closed_when_the_answer_is_not_clear) {
  const etcd_fence the{"f"};
  EXPECT_TRUE(fails_with(the.judge({7}, ""), errc::misconfigured)) << "no token there";
  EXPECT_TRUE(fails_with(the.judge({7}, "FAILURE"), errc::protocol));
  for (const std::string held : {"", "7", "0000000000000000000x", "000000000000000000007",
                                 "99999999999999999999", "-0000000000000000007"})
    EXPECT_TRUE(fails_with(the.judge({7}, answer_showing("f", held)), errc::protocol)) << held;
}

TEST(etcd_fence, survives_answers_that_are_cut_or_scrambled) {
  const etcd_fence the{"f"};
  const auto whole = answer_showing("f", seven);
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(the.judge({7}, whole.substr(0, length))) << length;
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (unsigned byte = 0; byte < 256; ++byte) {
      auto scrambled = whole;
      scrambled[at] = static_cast<char>(byte);
      const bool says_succeeded = at == 0 && byte == 0x10;
      if (scrambled != whole && !says_succeeded) {
        EXPECT_FALSE(the.judge({7}, scrambled)) << at << " is " << byte;
      }
    }
}

}  // namespace
}  // namespace holdfast

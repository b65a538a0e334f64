#include <holdfast/error.hpp>
#include <holdfast/types.hpp>

#include "support/fork.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>

namespace holdfast {
namespace {

TEST(error, every_code_has_a_name_and_a_sentence_of_its_own) {
  std::set<std::string> names, sentences;
  for (int code = 1; code <= static_cast<int>(errc::protocol); ++code) {
    names.insert(to_string(static_cast<errc>(code)));
    sentences.insert(make_error_code(static_cast<errc>(code)).message());
  }
  EXPECT_EQ(names.size(), 11U);
  EXPECT_EQ(sentences.size(), 11U);
  EXPECT_STREQ(to_string(static_cast<errc>(99)), "unknown");
}

TEST(error, compares_with_the_conditions_of_the_standard) {
  EXPECT_EQ(make_error_code(errc::timed_out), std::errc::timed_out);
  EXPECT_EQ(make_error_code(errc::denied), std::errc::permission_denied);
  EXPECT_NE(make_error_code(errc::lost), std::errc::timed_out);
}

TEST(error, the_exception_says_only_our_sentence) {
  const lock_error thrown{error{errc::busy, "The lock \"x\" is busy."}};
  EXPECT_STREQ(thrown.what(), "The lock \"x\" is busy.");
  EXPECT_EQ(thrown.reason(), errc::busy);
}

TEST(owner, is_written_as_hex_with_all_its_zeros) {
  EXPECT_EQ(to_string(owner_id{{0x1, 0xabc}, 0x1f}), "00000000000000010000000000000abc-1f");
}

TEST(fork, a_child_has_another_generation_and_the_parent_keeps_its_own) {
  const auto here = support::fork_generation();
  const auto child = ::fork();
  if (child == 0) ::_exit(support::fork_generation() == here ? 1 : 0);
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(support::fork_generation(), here);
}

}  // namespace
}  // namespace holdfast

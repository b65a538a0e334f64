#include <chrono>

#include <holdfast/url.hpp>

#include "support/expect.hpp"
#include "support/names.hpp"
#include "support/text.hpp"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

using testing::fails_with;
using testing::is_ok;

TEST(name, harmless_and_merely_hostile_looking_names_are_good) {
  for (const auto& name : testing::good_names()) EXPECT_TRUE(is_ok(check_name(name))) << name;
}

TEST(name, names_that_mean_different_things_to_different_stores_are_refused) {
  for (const auto& name : testing::bad_names()) {
    EXPECT_TRUE(fails_with(check_name(name), errc::misconfigured)) << support::quoted(name);
  }
}

TEST(name, the_sentence_cannot_move_a_cursor) {
  const auto refused = check_name("a\x1b[2J\nb");
  ASSERT_FALSE(refused);
  EXPECT_FALSE(support::has_control(refused.error().message())) << refused.error().message();
}

TEST(text, quoted_hides_what_deceives_the_eye) {
  EXPECT_EQ(support::quoted("plain \xc3\xa9"), "\"plain \xc3\xa9\"");
  EXPECT_EQ(support::quoted("a\"b\\"), "\"a\\\"b\\\\\"");
  EXPECT_EQ(support::quoted("\xe2\x80\xae"
                            "abc"),
            "\"\\u{202e}abc\"");
  EXPECT_EQ(support::quoted("\xff"), "\"\\xff\"");
  EXPECT_EQ(support::quoted("\x1b[2J"), "\"\\u{1b}[2J\"");
  EXPECT_EQ(support::quoted("123456", 4), "\"1234...\"");
}

TEST(text, percent_encoding_is_undone_by_decoding) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(support::percent_decode(support::percent_encode(all)), all);
  EXPECT_EQ(support::percent_encode("/a b", "/"), "/a%20b");
  EXPECT_FALSE(support::percent_decode("%"));
  EXPECT_FALSE(support::percent_decode("%2"));
  EXPECT_FALSE(support::percent_decode("%2g"));
}

}  // namespace
}  // namespace holdfast

#include "engines/http/messages.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace holdfast::engines::http {
namespace {

constexpr std::string_view problem = "application/problem+json";

error told(int status, std::string_view code, std::string_view done,
           std::string_view type = problem) {
  return read_refusal(status, type,
                      "{\"code\":\"" + std::string{code} + R"(","detail":"a sentence","done":)" +
                          std::string{done} + "}",
                      "http://store")
      .why;
}

TEST(http_refusals, only_what_says_so_has_had_no_effect) {
  EXPECT_EQ(told(503, "unavailable", "false").code(), errc::unavailable);
  EXPECT_TRUE(told(503, "unavailable", "false").is_not_done());
  EXPECT_EQ(told(503, "unavailable", "null").code(), errc::outcome_unknown);
  EXPECT_FALSE(told(503, "stopping", "null").is_not_done());
  EXPECT_TRUE(told(503, "stopping", "false").is_not_done());
}

// An answer that was too large to be sent: what was asked has been carried out.
TEST(http_refusals, too_much_is_a_doubt_unless_it_says_that_nothing_was_done) {
  EXPECT_TRUE(told(429, "too_many", "false").is_not_done());
  EXPECT_EQ(told(429, "too_many", "null").code(), errc::outcome_unknown);
  EXPECT_FALSE(told(429, "too_many", "null").is_not_done());
}

TEST(http_refusals, a_proxy_that_lets_nobody_through_has_done_nothing) {
  const auto why = read_refusal(429, "text/html", "<p>too many</p>", "http://store").why;
  EXPECT_EQ(why.code(), errc::unavailable);
  EXPECT_TRUE(why.is_not_done());
}

}  // namespace
}  // namespace holdfast::engines::http

#include "server/path.hpp"

#include "server/body.hpp"
#include "support/names.hpp"
#include "unit/serve/fakes.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace holdfast::server {
namespace {

using testing::refusal_of;
using testing::status_of;
using namespace std::string_literals;

// As a careful client writes a name.
std::string encoded(std::string_view name) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string out;
  for (const char c : name) {
    const auto byte = static_cast<std::uint8_t>(c);
    out += {'%', digits[byte >> 4U], digits[byte & 15U]};
  }
  return out;
}

TEST(serve_path, percent_is_decoded_once) {
  const std::vector<std::pair<std::string, std::string>> all{
      {"", ""},         {"plain", "plain"},
      {"a%2Fb", "a/b"}, {"a%2fb", "a/b"},
      {"%2500", "%00"}, {"%252F", "%2F"},
      {"a+b", "a+b"},   {"%00", "\0"s},
      {"%ff", "\xff"},  {"%E9%94%81", "\xe9\x94\x81"},
      {"%41%42", "AB"}, {"a%20b", "a b"},
  };
  for (const auto& [text, meaning] : all) EXPECT_EQ(percent_decoded(text), meaning) << text;
}

TEST(serve_path, percent_without_two_digits_is_nothing) {
  for (const auto* text :
       {"%", "a%", "%4", "%zz", "%4g", "%g4", "%%41", "% 41", "%-1", "%+1", "a%2"})
    EXPECT_FALSE(percent_decoded(text)) << text;
}

TEST(serve_path, every_byte_survives_the_encoding) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    EXPECT_EQ(percent_decoded(encoded(one)), one) << byte;
  }
}

TEST(serve_path, names_are_judged_after_decoding_as_everywhere) {
  for (const auto& name : testing::good_names()) {
    const auto decoded = percent_decoded(encoded(name));
    ASSERT_EQ(decoded, name);
    EXPECT_EQ(status_of([&] { check_name_or_refuse(*decoded); }), 0) << name;
  }
  for (const auto& name : testing::bad_names()) {
    const auto why =
        refusal_of([&] { check_name_or_refuse(percent_decoded(encoded(name)).value()); });
    ASSERT_TRUE(why) << name;
    EXPECT_EQ(why->status, 400);
    EXPECT_EQ(why->code, "misconfigured");
    EXPECT_EQ(why->done, false);
  }
}

TEST(serve_path, the_query_begins_at_the_first_question_mark) {
  EXPECT_EQ(split_target("/lock?name=a?b").path, "/lock");
  EXPECT_EQ(split_target("/lock?name=a?b").query, "name=a?b");
  EXPECT_EQ(split_target("/lock").query, "");
  EXPECT_EQ(split_target("/v1/locks/a%3Fb").path, "/v1/locks/a%3Fb");
}

TEST(serve_path, the_verb_is_behind_the_last_colon) {
  const auto parts = [](std::string_view text) {
    const auto [name, verb] = split_verb(text);
    return std::pair{std::string{name}, std::string{verb}};
  };
  EXPECT_EQ(parts("a:acquire"), std::pair("a"s, "acquire"s));
  EXPECT_EQ(parts("a:b:acquire"), std::pair("a:b"s, "acquire"s));
  EXPECT_EQ(parts("a%3Aacquire"), std::pair("a%3Aacquire"s, ""s));
  EXPECT_EQ(parts("a"), std::pair("a"s, ""s));
  EXPECT_EQ(parts(":acquire"), std::pair(""s, "acquire"s));
  EXPECT_EQ(parts("a:"), std::pair("a"s, ""s));
}

TEST(serve_path, a_query_gives_its_parameters) {
  const query asked{"ttl=10s&name=a%2Fb&empty=&bare&&label=x%3Dy=z"};
  const auto value = [&](std::string_view name) {
    const auto* found = asked.find(name);
    return found == nullptr ? "(none)" : *found;
  };
  EXPECT_EQ(value("ttl"), "10s");
  EXPECT_EQ(value("name"), "a/b");
  EXPECT_EQ(value("empty"), "");
  EXPECT_EQ(value("bare"), "");
  EXPECT_EQ(value("label"), "x=y=z");
  EXPECT_EQ(value("other"), "(none)");
  EXPECT_TRUE(query{""}.empty());
  EXPECT_TRUE(query{"&&"}.empty());
}

TEST(serve_path, a_query_that_can_be_read_in_two_ways_is_refused) {
  for (const auto* text : {"a=1&a=2", "a=1&%61=2", "a&a", "a=%", "%=1", "a=%zz"})
    EXPECT_EQ(status_of([&] { query{text}; }), 400) << text;
}

TEST(serve_path, a_parameter_that_nobody_knows_is_refused) {
  const query asked{"name=a&tll=10s"};
  EXPECT_EQ(status_of([&] { asked.allow_only({"name", "tll"}); }), 0);
  EXPECT_EQ(status_of([&] { asked.allow_only({"name", "ttl"}); }), 400);
}

}  // namespace
}  // namespace holdfast::server

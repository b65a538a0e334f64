#include "server/body.hpp"

#include "unit/serve/fakes.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::server {
namespace {

using namespace std::chrono_literals;
using testing::refusal_of;
using testing::status_of;

constexpr auto forever_ns = std::chrono::nanoseconds::max();

TEST(serve_body, fields_are_read_as_what_they_are) {
  fields in{
      R"({"t":"text","n":-3,"u":18446744073709551615,"b":true,"d":"250ms","s":1.5,"l":["a","b"]})"};
  EXPECT_EQ(in.text("t", 10), "text");
  EXPECT_EQ(in.whole("n", -5, 5), -3);
  EXPECT_EQ(in.natural("u"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(in.truth("b"), true);
  EXPECT_EQ(in.duration("d", 0ns, forever_ns), 250ms);
  EXPECT_EQ(in.duration("s", 0ns, forever_ns), 1500ms);
  EXPECT_EQ(in.texts("l", 2, 1), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(status_of([&] { in.nothing_else(); }), 0);
}

TEST(serve_body, no_body_and_null_are_absent_fields) {
  for (const auto* body : {"", "{}", R"({"a":null})"}) {
    fields in{body};
    EXPECT_FALSE(in.has("a"));
    EXPECT_FALSE(in.text("a", 10));
    EXPECT_FALSE(in.whole("a", 0, 1));
    EXPECT_FALSE(in.natural("a"));
    EXPECT_FALSE(in.truth("a"));
    EXPECT_FALSE(in.duration("a", 0ns, 1s));
    EXPECT_TRUE(in.texts("a", 1, 1).empty());
    EXPECT_TRUE(in.objects("a", 1).empty());
    EXPECT_EQ(status_of([&] { in.nothing_else(); }), 0) << body;
  }
}

TEST(serve_body, what_is_no_object_is_refused) {
  const std::string deep = R"({"a":)" + std::string(100, '[') + std::string(100, ']') + "}";
  for (const auto& body : std::vector<std::string>{" ",
                                                   "[]",
                                                   "1",
                                                   "null",
                                                   "\"x\"",
                                                   "{",
                                                   "}",
                                                   "{}{}",
                                                   "{\"a\":1,}",
                                                   "{'a':1}",
                                                   "{\"a\":01}",
                                                   "{\"a\":NaN}",
                                                   "{\"a\":Infinity}",
                                                   "{\"a\":1}x",
                                                   "// no\n{}",
                                                   "{\"a\":\"\xff\"}",
                                                   "{\"a\":\"\\ud800\"}",
                                                   "{\"a\":\"b\nc\"}",
                                                   std::string("{\0}", 3),
                                                   deep,
                                                   std::string(60'000, '['),
                                                   std::string(60'000, '{')}) {
    const auto why = refusal_of([&] { fields{body}; });
    ASSERT_TRUE(why) << body.substr(0, 40);
    EXPECT_EQ(why->status, 400);
    EXPECT_EQ(why->code, "bad_request");
  }
}

// A proxy may keep the first and the service the last.
TEST(serve_body, a_field_given_twice_is_refused) {
  for (const auto* body :
       {R"({"ttl":"1s","ttl":"2s"})", R"({"a":{"b":1,"b":2}})", R"({"a":1,"\u0061":2})"})
    EXPECT_EQ(status_of([&] { fields{body}; }), 400) << body;
  EXPECT_EQ(status_of([&] { fields{R"({"a":{"x":1},"b":{"x":2}})"}; }), 0);
}

TEST(serve_body, another_type_is_refused_with_a_sentence_that_names_the_field) {
  struct row {
    const char* body;
    std::function<void(fields&)> read;
  };
  const auto text = [](fields& in) { in.text("f", 3); };
  const auto whole = [](fields& in) { in.whole("f", 1, 10); };
  const auto natural = [](fields& in) { in.natural("f"); };
  const auto truth = [](fields& in) { in.truth("f"); };
  const auto time = [](fields& in) { in.duration("f", 1ms, 1h); };
  const auto list = [](fields& in) { in.texts("f", 2, 3); };
  const auto objects = [](fields& in) { in.objects("f", 1); };
  const std::vector<row> all{
      {R"({"f":1})", text},
      {R"({"f":"four"})", text},
      {R"({"f":["a"]})", text},
      {R"({"f":0})", whole},
      {R"({"f":11})", whole},
      {R"({"f":1.0})", whole},
      {R"({"f":"1"})", whole},
      {R"({"f":1e1})", whole},
      {R"({"f":18446744073709551615})", whole},
      {R"({"f":1e400})", whole},
      {R"({"f":true})", whole},
      {R"({"f":-1})", natural},
      {R"({"f":0.5})", natural},
      {R"({"f":"7"})", natural},
      {R"({"f":18446744073709551616})", natural},
      {R"({"f":1})", truth},
      {R"({"f":"true"})", truth},
      {R"({"f":"fast"})", time},
      {R"({"f":"-1s"})", time},
      {R"({"f":-1})", time},
      {R"({"f":0})", time},
      {R"({"f":"2h"})", time},
      {R"({"f":1e300})", time},
      {R"({"f":true})", time},
      {R"({"f":"10 s"})", time},
      {R"({"f":"forever"})", time},
      {R"({"f":"a"})", list},
      {R"({"f":["a","b","c"]})", list},
      {R"({"f":["a",1]})", list},
      {R"({"f":["four"]})", list},
      {R"({"f":{}})", objects},
      {R"({"f":[1]})", objects},
      {R"({"f":[{},{}]})", objects},
  };
  for (const auto& each : all) {
    const auto why = refusal_of([&] {
      fields in{each.body};
      each.read(in);
    });
    ASSERT_TRUE(why) << each.body;
    EXPECT_EQ(why->status, 400) << each.body;
    // What the parser itself cannot hold is no JSON to it; everything else is named.
    if (why->detail.find("no JSON") == std::string::npos) {
      EXPECT_NE(why->detail.find("\"f\""), std::string::npos) << each.body << ": " << why->detail;
    }
  }
}

TEST(serve_body, a_misspelt_field_is_not_ignored) {
  fields in{R"({"ttl":"1s","wiat":"5s"})"};
  in.duration("ttl", 0ns, 1h);
  in.duration("wait", 0ns, 1h);
  const auto why = refusal_of([&] { in.nothing_else(); });
  ASSERT_TRUE(why);
  EXPECT_NE(why->detail.find("\"wiat\""), std::string::npos) << why->detail;
}

// The sentence is shown in terminals and logs.
TEST(serve_body, the_name_of_an_unknown_field_is_shown_as_plain_text) {
  fields in{R"({"\u001b[2J\"\r\nSet-Cookie: x\u00e9 and much more than forty bytes of it":1})"};
  const auto why = refusal_of([&] { in.nothing_else(); });
  ASSERT_TRUE(why);
  for (const char c : why->detail) EXPECT_TRUE(c >= ' ' && c <= '~') << static_cast<int>(c);
  EXPECT_LT(why->detail.size(), 90U);
}

TEST(serve_body, a_list_of_objects_is_read_field_by_field) {
  fields in{R"({"asks":[{"name":"a"},{"name":"b","more":1}]})"};
  auto all = in.objects("asks", 2);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].text("name", 10), "a");
  EXPECT_EQ(all[1].text("name", 10), "b");
  EXPECT_EQ(status_of([&] { all[0].nothing_else(); }), 0);
  EXPECT_EQ(status_of([&] { all[1].nothing_else(); }), 400);
}

}  // namespace
}  // namespace holdfast::server

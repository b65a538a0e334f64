#include "server/problems.hpp"

#include "server/audit.hpp"
#include "server/json_text.hpp"
#include "unit/serve/fakes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::server {
namespace {

std::string header_of(const response& answer, std::string_view name) {
  for (const auto& [each, value] : answer.headers)
    if (each == name) return value;
  return {};
}

TEST(serve_problems, each_code_of_the_library_has_the_status_of_the_contract) {
  struct row {
    errc code;
    int status;
    const char* word;
    bool is_certain, says_when;
  };
  for (const auto& each :
       std::vector<row>{{errc::busy, 409, "busy", true, false},
                        {errc::timed_out, 408, "timed_out", true, false},
                        {errc::cancelled, 503, "cancelled", true, true},
                        {errc::not_held, 404, "not_held", true, false},
                        {errc::lost, 410, "lost", true, false},
                        {errc::unavailable, 503, "unavailable", true, true},
                        {errc::outcome_unknown, 503, "outcome_unknown", false, true},
                        {errc::unsupported, 501, "unsupported", true, false},
                        {errc::denied, 403, "denied", true, false},
                        {errc::misconfigured, 400, "misconfigured", true, false},
                        {errc::protocol, 502, "protocol", false, false}}) {
    const auto answer = answer_of(problem_of({each.code, "a sentence"}));
    EXPECT_EQ(answer.status, each.status) << each.word;
    EXPECT_EQ(answer.content_type, "application/problem+json");
    EXPECT_EQ(header_of(answer, "Retry-After"), each.says_when ? "1" : "") << each.word;
    const auto body = nlohmann::json::parse(answer.body);
    EXPECT_EQ(body["status"], each.status);
    EXPECT_EQ(body["code"], each.word);
    EXPECT_EQ(body["detail"], "a sentence");
    EXPECT_EQ(body["type"], "about:blank");
    if (each.is_certain)
      EXPECT_EQ(body["done"], false) << each.word;
    else
      EXPECT_TRUE(body["done"].is_null()) << each.word;
  }
}

TEST(serve_problems, an_owner_that_the_store_has_ended_is_said) {
  auto why = problem_of({errc::unavailable, "no replica has it"});
  EXPECT_FALSE(nlohmann::json::parse(json_of(why)).contains("over"));
  why.over = true;
  EXPECT_EQ(nlohmann::json::parse(json_of(why))["over"], true);
}

TEST(serve_problems, the_service_has_problems_of_its_own) {
  EXPECT_EQ(bad_request("x").status, 400);
  EXPECT_EQ(not_found("x").status, 404);
  EXPECT_EQ(too_many("x").status, 429);
  EXPECT_EQ(header_of(answer_of(too_many("x")), "Retry-After"), "1");
  EXPECT_EQ(stopping().status, 503);
  EXPECT_EQ(header_of(answer_of(stopping()), "Retry-After"), "1");
  EXPECT_EQ(header_of(answer_of({.status = 401, .code = "no_key"}), "WWW-Authenticate"), "Bearer");
  EXPECT_EQ(
      header_of(answer_of({.status = 405, .code = "bad_method", .allow = "GET, PUT"}), "Allow"),
      "GET, PUT");
}

// It is found out when the request has been carried out already.
TEST(serve_problems, an_answer_without_room_does_not_say_that_nothing_was_done) {
  EXPECT_EQ(too_much_to_send().status, 429);
  EXPECT_TRUE(nlohmann::json::parse(json_of(too_much_to_send()))["done"].is_null());
  EXPECT_EQ(nlohmann::json::parse(json_of(too_many("x")))["done"], false);
}

TEST(serve_problems, the_plain_calls_get_one_line) {
  const auto answer = answer_of(problem_of({errc::busy, "lock 'a' is held"}), true);
  EXPECT_EQ(answer.status, 409);
  EXPECT_EQ(answer.content_type, "text/plain; charset=utf-8");
  EXPECT_EQ(answer.body, "busy: lock 'a' is held\n");
}

TEST(serve_problems, holders_are_told_when_it_is_busy) {
  auto why = problem_of({errc::busy, "x"});
  why.holders = R"([{"label":"me"}])";
  EXPECT_EQ(nlohmann::json::parse(json_of(why))["holders"][0]["label"], "me");
}

TEST(serve_problems, every_status_has_its_title) {
  for (const int status :
       {200, 204, 400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 429, 431, 501, 502, 503})
    EXPECT_NE(title_of(status), title_of(500)) << status;
}

// ---- JSON

const std::vector<std::string>& hostile_texts() {
  static const std::vector<std::string> all{
      "",
      "plain",
      "\"; DROP TABLE",
      "back\\slash",
      "<script>alert(1)</script>",
      "a\nb\r\nc\td",
      std::string("nul\0nul", 7),
      "\x1b]0;title\x07",
      "\x7f",
      "\xe2\x80\xae"
      "gnp.exe",
      "\xf0\x9f\x94\x92",
      "\xe2\x80\xa8line separator",
      "caf\xc3\xa9",
  };
  return all;
}

TEST(serve_json, any_text_comes_back_as_it_was_and_is_ascii_on_the_way) {
  for (const auto& text : hostile_texts()) {
    const auto json = json_string(text);
    for (const char c : json) EXPECT_TRUE(c >= ' ' && c < 0x7f) << json;
    EXPECT_EQ(nlohmann::json::parse(json).get<std::string>(), text);
  }
}

TEST(serve_json, bytes_that_are_no_utf8_are_shown_as_unknown) {
  for (const std::string bad :
       {"\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x9f\x94", "a\x80"}) {
    const auto text = nlohmann::json::parse(json_string(bad)).get<std::string>();
    EXPECT_NE(text.find("\xef\xbf\xbd"), std::string::npos) << json_string(bad);
  }
}

TEST(serve_json, objects_and_lists_are_json) {
  EXPECT_EQ(json_object{}.text(), "{}");
  EXPECT_EQ(json_array{}.text(), "[]");
  const auto text = json_object{}
                        .add("s", "a\"b")
                        .add("t", true)
                        .add("n", std::numeric_limits<std::uint64_t>::max())
                        .add("i", -1)
                        .add("d", 0.5)
                        .add("nan", std::nan(""))
                        .add("inf", std::numeric_limits<double>::infinity())
                        .add_json("l", json_array{}.add_json("1").add_json("{}").text())
                        .text();
  const auto back = nlohmann::json::parse(text);
  EXPECT_EQ(back["s"], "a\"b");
  EXPECT_EQ(back["t"], true);
  EXPECT_EQ(back["n"], std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(back["i"], -1);
  EXPECT_EQ(back["d"], 0.5);
  EXPECT_TRUE(back["nan"].is_null());
  EXPECT_TRUE(back["inf"].is_null());
  EXPECT_EQ(back["l"].size(), 2U);
}

// ---- the audit line

TEST(serve_audit, a_break_is_one_line_with_who_and_what) {
  EXPECT_EQ(audit_line({"stock/42", "admin", "127.0.0.1"}, std::size_t{2}),
            "holdfast serve: audit: break lock=\"stock/42\" key=\"admin\" peer=127.0.0.1 "
            "holders_ended=2\n");
  EXPECT_EQ(audit_line({"a", "", "::1"}, error{errc::unavailable, "the store is away"}),
            "holdfast serve: audit: break lock=\"a\" key=\"\" peer=::1 failed=unavailable\n");
}

TEST(serve_audit, no_name_forges_a_second_line) {
  for (const auto& name : hostile_texts()) {
    const auto line = audit_line({name, name, "127.0.0.1"}, std::size_t{0});
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    for (const char c : line.substr(0, line.size() - 1)) EXPECT_TRUE(c >= ' ' && c < 0x7f);
  }
}

}  // namespace
}  // namespace holdfast::server

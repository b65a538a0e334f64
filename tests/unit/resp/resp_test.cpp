#include "resp/resp.hpp"

#include "support/expect.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::resp {
namespace {

using testing::fails_with;
using testing::is_ok;
using kind = value::kind;
using namespace std::string_literals;

// A value as one line of text, so that expectations can be read.
std::string shown(const value& v) {
  const auto list = [&v](char open, char close) {
    auto out = std::string{open};
    for (const auto& item : v.items) out += (out.size() > 1 ? " " : "") + shown(item);
    return out + close;
  };
  switch (v.what) {
    case kind::null:
      return "null";
    case kind::simple:
      return fmt::format("simple:{}", v.text);
    case kind::error:
      return fmt::format("error:{}", v.text);
    case kind::integer:
      return fmt::format("{}", v.integer);
    case kind::bulk:
      return fmt::format("\"{}\"", v.text);
    case kind::boolean:
      return v.integer != 0 ? "true" : "false";
    case kind::real:
      return fmt::format("real:{}", v.text);
    case kind::big:
      return fmt::format("big:{}", v.text);
    case kind::verbatim:
      return fmt::format("verbatim:{}", v.text);
    case kind::array:
      return list('[', ']');
    case kind::map:
      return list('{', '}');
    case kind::set:
      return list('<', '>');
    case kind::push:
      return list('(', ')');
  }
  return "?";
}

struct sample {
  std::string wire;
  std::string meaning;
};

const std::vector<sample>& samples() {
  static const std::vector<sample> all{
      {"+OK\r\n", "simple:OK"},
      {"+\r\n", "simple:"},
      {"-ERR no such thing\r\n", "error:ERR no such thing"},
      {":123\r\n", "123"},
      {":-1\r\n", "-1"},
      {":+7\r\n", "7"},
      {":9223372036854775807\r\n", "9223372036854775807"},
      {":-9223372036854775808\r\n", "-9223372036854775808"},
      {"$5\r\nhello\r\n", "\"hello\""},
      {"$0\r\n\r\n", "\"\""},
      {"$4\r\n\r\n\r\n\r\n", "\"\r\n\r\n\""},
      {"$3\r\na\0b\r\n"s, "\"a\0b\""s},
      {"$-1\r\n", "null"},
      {"*-1\r\n", "null"},
      {"_\r\n", "null"},
      {"#t\r\n", "true"},
      {"#f\r\n", "false"},
      {",3.25\r\n", "real:3.25"},
      {",10\r\n", "real:10"},
      {",-1.5e-10\r\n", "real:-1.5e-10"},
      {",inf\r\n", "real:inf"},
      {",-inf\r\n", "real:-inf"},
      {",nan\r\n", "real:nan"},
      {"(3492890328409238509324850943850943825024385\r\n",
       "big:3492890328409238509324850943850943825024385"},
      {"(-1\r\n", "big:-1"},
      {"=15\r\ntxt:Some string\r\n", "verbatim:Some string"},
      {"=4\r\nmkd:\r\n", "verbatim:"},
      {"!21\r\nSYNTAX invalid syntax\r\n", "error:SYNTAX invalid syntax"},
      {"*0\r\n", "[]"},
      {"*3\r\n$1\r\na\r\n:2\r\n*1\r\n$-1\r\n", "[\"a\" 2 [null]]"},
      {"*2\r\n*0\r\n*0\r\n", "[[] []]"},
      {"%0\r\n", "{}"},
      {"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n", "{simple:a 1 simple:b [2]}"},
      {"~2\r\n#t\r\n_\r\n", "<true null>"},
      {">3\r\n+message\r\n$1\r\nc\r\n$1\r\nm\r\n", "(simple:message \"c\" \"m\")"},
      {"|1\r\n+ttl\r\n:3600\r\n:7\r\n", "7"},
      {"|0\r\n|1\r\n+a\r\n*1\r\n:1\r\n+OK\r\n", "simple:OK"},
      {"*2\r\n:1\r\n|1\r\n+ttl\r\n:9\r\n:2\r\n", "[1 2]"},
      {"|1\r\n+a\r\n+b\r\n>1\r\n:1\r\n", "(1)"},
      {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "[[[[[[[[1]]]]]]]]"},
  };
  return all;
}

// Nothing of this may be waited for, either: the last byte is the one that gives it away.
const std::vector<std::string>& hostile() {
  static const std::vector<std::string> all{
      "x",
      "\r",
      "\n",
      "\0"s,
      "HTTP/1.1 400 Bad Request",
      ";4\r\n",
      ".\r\n",
      "+a\n",
      "+a\rb",
      "-a\n",
      ":\r\n",
      ":-\r\n",
      ":+\r\n",
      ":+-1\r\n",
      ":1 \r\n",
      ": 1\r\n",
      ":0x1\r\n",
      ":1.5\r\n",
      ":9223372036854775808\r\n",
      ":-9223372036854775809\r\n",
      ":99999999999999999999\r\n",
      ":000000000000000000001",
      "$2147483647\r\n",
      "$18446744073709551615\r\n",
      "$18446744073709551616\r\n",
      "$99999999999999999999\r\n",
      "$-2\r\n",
      "$-0\r\n",
      "$+1\r\n",
      "$\r\n",
      "$?\r\n",
      "$1\r\nab",
      "$1\r\na\rb",
      "$0\r\nx",
      "*1000000000\r\n",
      "*1048577\r\n",
      "*18446744073709551615\r\n",
      "*-2\r\n",
      "*?\r\n",
      "*\r\n",
      "%524289\r\n",
      "%9223372036854775808\r\n",
      "%-1\r\n",
      "~-1\r\n",
      "~1048577\r\n",
      ">-1\r\n",
      "|-1\r\n",
      "|524289\r\n",
      "=-1\r\n",
      "=3\r\ntxt\r\n",
      "=4\r\ntext\r\n",
      "!-1\r\n",
      "_x\r\n",
      "#\r\n",
      "#true\r\n",
      ",\r\n",
      ",.5\r\n",
      ",1.\r\n",
      ",1e\r\n",
      ",1e5x\r\n",
      ",infinity\r\n",
      "(\r\n",
      "(-\r\n",
      "(1.5\r\n",
      "*1\r\n>1\r\n",
      "|1\r\n>0\r\n",
      "*2\r\n*1048575\r\n",  // fits alone, but not together
      "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
      "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n|0\r\n",
  };
  return all;
}

value taken(std::string_view bytes) {
  auto parsed = take(bytes);
  EXPECT_TRUE(is_ok(parsed));
  EXPECT_TRUE(bytes.empty());
  return parsed ? *std::move(parsed) : value{};
}

TEST(resp, every_type_is_understood) {
  for (const auto& [wire, meaning] : samples()) {
    SCOPED_TRACE(wire);
    frame_scanner framing;
    const auto whole = framing.next(wire);
    ASSERT_TRUE(is_ok(whole));
    EXPECT_EQ(whole->length, wire.size());
    EXPECT_EQ(whole->push, meaning.front() == '(');
    EXPECT_EQ(shown(taken(wire)), meaning);
  }
}

TEST(resp, it_does_not_matter_where_the_network_splits) {
  for (const auto& [wire, meaning] : samples()) {
    SCOPED_TRACE(wire);
    const auto stream = wire + wire;
    frame_scanner byte_by_byte;
    for (std::size_t split = 0; split < wire.size(); ++split) {
      EXPECT_EQ(byte_by_byte.next(std::string_view{wire}.substr(0, split)).value().length, 0U);
      frame_scanner in_two;
      ASSERT_EQ(in_two.next(std::string_view{wire}.substr(0, split)).value().length, 0U);
      EXPECT_EQ(in_two.next(stream).value().length, wire.size()) << split;
      // The next frame begins afresh.
      EXPECT_EQ(in_two.next(wire).value().length, wire.size()) << split;
      std::string_view cut = std::string_view{wire}.substr(0, split);
      EXPECT_TRUE(fails_with(take(cut), errc::protocol)) << split;
    }
    EXPECT_EQ(byte_by_byte.next(wire).value().length, wire.size());
  }
}

TEST(resp, what_is_not_the_protocol_is_refused_at_once) {
  for (const auto& wire : hostile()) {
    SCOPED_TRACE(wire);
    frame_scanner at_once;
    EXPECT_TRUE(fails_with(at_once.next(wire), errc::protocol));
    auto bytes = std::string_view{wire};
    EXPECT_TRUE(fails_with(take(bytes), errc::protocol));
    EXPECT_EQ(bytes, wire);

    frame_scanner byte_by_byte;
    bool refused = false;
    for (std::size_t size = 1; size <= wire.size() && !refused; ++size) {
      const auto outcome = byte_by_byte.next(std::string_view{wire}.substr(0, size));
      refused = !outcome;
      EXPECT_TRUE(refused || outcome->length == 0) << size;
    }
    EXPECT_TRUE(refused);
  }
}

TEST(resp, a_fresh_connection_forgets_the_frame_before) {
  frame_scanner framing;
  ASSERT_EQ(framing.next("*2\r\n*1\r\n$3\r\nab").value().length, 0U);
  framing.reset();
  const auto first = framing.next(":1\r\n").value();
  EXPECT_EQ(first.length, 4U);
  EXPECT_FALSE(first.push);
}

TEST(resp, values_are_taken_one_after_the_other) {
  std::string_view bytes = ":1\r\n$1\r\na\r\n*1\r\n:2\r\n";
  EXPECT_EQ(shown(take(bytes).value()), "1");
  EXPECT_EQ(shown(take(bytes).value()), "\"a\"");
  EXPECT_EQ(shown(take(bytes).value()), "[2]");
  EXPECT_TRUE(bytes.empty());
  EXPECT_TRUE(fails_with(take(bytes), errc::protocol));
}

TEST(resp, limits_are_those_of_the_caller) {
  const caps small{.frame = 16, .elements = 4, .depth = 2};
  const auto refuses = [&small](std::string_view wire) {
    frame_scanner framing{small};
    auto bytes = wire;
    return !framing.next(wire) && !take(bytes, small);
  };
  const auto accepts = [&small](std::string_view wire) {
    frame_scanner framing{small};
    const auto whole = framing.next(wire);
    auto bytes = wire;
    return whole && whole->length == wire.size() && take(bytes, small) && bytes.empty();
  };
  EXPECT_TRUE(accepts("$9\r\n123456789\r\n"));
  EXPECT_TRUE(refuses("$10\r\n"));  // 17 bytes in all
  EXPECT_TRUE(accepts("+1234567890123\r\n"));
  EXPECT_TRUE(refuses("+12345678901234\r\n"));
  EXPECT_TRUE(refuses("+1234567890123456"));  // does not end in time
  EXPECT_TRUE(accepts("*4\r\n_\r\n_\r\n_\r\n_\r\n"));
  EXPECT_TRUE(refuses("*5\r\n"));
  EXPECT_TRUE(refuses("%3\r\n"));
  EXPECT_TRUE(refuses("*2\r\n*3\r\n"));
  EXPECT_TRUE(accepts("*1\r\n*1\r\n_\r\n"));
  EXPECT_TRUE(refuses("*1\r\n*1\r\n*0\r\n"));
}

TEST(resp, a_frame_of_the_largest_size_is_no_overflow) {
  const auto most = std::numeric_limits<std::size_t>::max();
  const caps none{.frame = most, .elements = most, .depth = 8};
  for (const auto* wire : {"$18446744073709551615\r\na", "*18446744073709551615\r\n:1\r\n",
                           "%9223372036854775807\r\n:1\r\n"}) {
    frame_scanner framing{none};
    static_cast<void>(framing.next(wire));
    std::string_view bytes = wire;
    EXPECT_FALSE(take(bytes, none)) << wire;
  }
}

TEST(resp, a_command_is_read_back_as_it_was_written) {
  std::string every;
  for (int byte = 0; byte < 256; ++byte) every += static_cast<char>(byte);
  std::string wire;
  append_command(wire, {"SET", every, "", "\r\n", "$-1\r\n"});
  frame_scanner framing;
  EXPECT_EQ(framing.next(wire).value().length, wire.size());
  const auto command = taken(wire);
  ASSERT_EQ(command.items.size(), 5U);
  EXPECT_EQ(command.items[0].text, "SET");
  EXPECT_EQ(command.items[1].text, every);
  EXPECT_EQ(command.items[2].text, "");
  EXPECT_EQ(command.items[3].text, "\r\n");
  EXPECT_EQ(command.items[4].text, "$-1\r\n");
}

TEST(resp, a_command_can_be_written_word_by_word) {
  std::string wire;
  append_head(wire, 5);
  append_word(wire, "PX");
  for (const std::int64_t number :
       {std::int64_t{0}, std::int64_t{-7}, std::numeric_limits<std::int64_t>::max(),
        std::numeric_limits<std::int64_t>::min()}) {
    append_word(wire, number);
  }
  EXPECT_EQ(shown(taken(wire)),
            "[\"PX\" \"0\" \"-7\" \"9223372036854775807\" \"-9223372036854775808\"]");
  EXPECT_TRUE(wire.starts_with("*5\r\n$2\r\nPX\r\n$1\r\n0\r\n$2\r\n-7\r\n"));
}

}  // namespace
}  // namespace holdfast::resp

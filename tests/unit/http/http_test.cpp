#include "http/http.hpp"

#include "support/expect.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace holdfast::http {
namespace {

using testing::fails_with;
using testing::is_ok;
using namespace std::string_literals;

std::string plain_answer(std::string_view body, std::string_view status = "200 OK") {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", status,
      body.size(), body);
}

std::string chunked_answer(std::string_view chunks) {
  return fmt::format("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}", chunks);
}

struct sample {
  std::string wire;
  int status;
  std::string body;
};

const std::vector<sample>& samples() {
  static const std::vector<sample> all{
      {plain_answer(R"({"a":1})"), 200, R"({"a":1})"},
      {plain_answer(""), 200, ""},
      {plain_answer("\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "409 Conflict"), 409,
       "\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"},
      {plain_answer("a\0b"s, "503 Service Unavailable"), 503, "a\0b"s},
      {"HTTP/1.1 204 No Content\r\n\r\n", 204, ""},
      {"HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n", 304, ""},
      {"HTTP/1.1 200\r\ncontent-length:2\r\n\r\nok", 200, "ok"},
      {"HTTP/1.0 200 OK\r\nCONTENT-LENGTH: \t 2 \t\r\nX-Empty:\r\n\r\nok", 200, "ok"},
      {chunked_answer("0\r\n\r\n"), 200, ""},
      {chunked_answer("5\r\nhello\r\n0\r\n\r\n"), 200, "hello"},
      {chunked_answer("1\r\na\r\nA;name=value\r\n0123456789\r\n00\r\n\r\n"), 200, "a0123456789"},
      {chunked_answer("2\r\n\r\n\r\n0\r\n\r\n"), 200, "\r\n"},
      {"HTTP/1.1 200 OK\r\ntransfer-encoding: CHUNKED\r\n\r\n1\r\nx\r\n0\r\n\r\n", 200, "x"},
  };
  return all;
}

// ---- requests

TEST(http_request, a_post_has_its_body_and_its_length) {
  std::string out = "before";
  append_request(out, {.method = "POST",
                       .target = "/v1/locks/a:acquire",
                       .host = "127.0.0.1:7420",
                       .credentials = "Bearer x",
                       .body = "{}"});
  EXPECT_EQ(out,
            "beforePOST /v1/locks/a:acquire HTTP/1.1\r\nHost: 127.0.0.1:7420\r\n"
            "Accept: application/json\r\nAuthorization: Bearer x\r\n"
            "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
}

TEST(http_request, without_a_body_only_a_post_says_how_long_it_is) {
  std::string post, get;
  append_request(post, {.method = "POST", .target = "/x", .host = "h"});
  append_request(get,
                 {.method = "GET", .target = "/x", .host = "h", .accepts = "text/event-stream"});
  EXPECT_EQ(post,
            "POST /x HTTP/1.1\r\nHost: h\r\nAccept: application/json\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(get, "GET /x HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n");
}

// ---- heads

TEST(http_head, says_what_the_answer_is) {
  const std::string wire =
      "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/problem+json\r\n"
      "Retry-After: 7\r\nContent-Length: 12\r\n\r\n";
  std::size_t searched = 0;
  const auto bytes = wire + "more";
  const auto found = read_head(bytes, searched);
  ASSERT_TRUE(is_ok(found));
  ASSERT_TRUE(*found);
  EXPECT_EQ((*found)->status, 429);
  EXPECT_EQ((*found)->content_type, "application/problem+json");
  EXPECT_EQ((*found)->retry_after, "7");
  EXPECT_EQ((*found)->length, 12U);
  EXPECT_FALSE((*found)->is_chunked);
  EXPECT_EQ((*found)->bytes, wire.size());
}

TEST(http_head, is_nothing_until_its_last_byte_has_come) {
  const auto wire = plain_answer("");
  std::size_t searched = 0;
  for (std::size_t arrived = 0; arrived < wire.size(); ++arrived) {
    const auto found = read_head(std::string_view{wire}.substr(0, arrived), searched);
    ASSERT_TRUE(is_ok(found)) << arrived;
    ASSERT_FALSE(*found) << arrived;
  }
  const auto found = read_head(wire, searched);
  ASSERT_TRUE(is_ok(found));
  EXPECT_TRUE(*found);
}

TEST(http_head, that_does_not_end_is_refused_at_its_limit) {
  const caps limits{.head = 64, .body = 64};
  const auto begin = "HTTP/1.1 200 OK\r\nX: "s;
  std::size_t searched = 0;
  const auto short_one = begin + std::string(63 - begin.size(), 'x');
  EXPECT_TRUE(is_ok(read_head(short_one, searched, limits)));
  EXPECT_TRUE(fails_with(read_head(short_one + "x", searched, limits), errc::protocol));
  // The end behind the limit does not help.
  searched = 0;
  EXPECT_TRUE(fails_with(read_head(short_one + "x\r\n\r\n", searched, limits), errc::protocol));
}

// What one reader takes for one thing and another for another.
const std::vector<std::string>& hostile_heads() {
  static const std::vector<std::string> all{
      "\r\n\r\n",
      "SSH-2.0-OpenSSH_9.2\r\n\r\n",
      "HTTP/2 200 OK\r\n\r\n",
      "HTTP/2.0 200 OK\r\n\r\n",
      "http/1.1 200 OK\r\n\r\n",
      " HTTP/1.1 200 OK\r\n\r\n",
      "HTTP/1.1  200 OK\r\n\r\n",
      "HTTP/1.1 20 OK\r\n\r\n",
      "HTTP/1.1 2000 OK\r\n\r\n",
      "HTTP/1.1 2x0 OK\r\n\r\n",
      "HTTP/1.1 +20 OK\r\n\r\n",
      "HTTP/1.1 100 Continue\r\n\r\n",
      "HTTP/1.1 101 Switching Protocols\r\n\r\n",
      "HTTP/1.1 600 Odd\r\n\r\n",
      "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
      "HTTP/1.1 200 OK\r\n: no name\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
      "HTTP/1.1 200 OK\r\n Content-Length: 0\r\n\r\n",
      "HTTP/1.1 200 OK\r\nA: b\r\n folded: 1\r\n\r\n",
      "HTTP/1.1 200 OK\r\nA: b\nContent-Length: 0\r\n\r\n",
      "HTTP/1.1 200 OK\r\nA: b\rContent-Length: 0\r\n\r\n",
      "HTTP/1.1 200 OK\r\nA: \0\r\n\r\n"s,
      "HTTP/1.1 200 OK\r\nA: \x7f\r\n\r\n",
      "HTTP/1.1 200 OK\r\nA\xc3\xa9: b\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 1.0\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 0x10\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 1 2\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\ncontent-length: 0\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
  };
  return all;
}

TEST(http_head, that_is_none_or_can_be_read_in_two_ways_is_refused) {
  for (const auto& wire : hostile_heads()) {
    std::size_t searched = 0;
    EXPECT_TRUE(fails_with(read_head(wire, searched), errc::protocol)) << wire;
    answer_scanner scanner;
    EXPECT_TRUE(fails_with(scanner.next(wire), errc::protocol)) << wire;
    EXPECT_TRUE(fails_with(read_answer(wire), errc::protocol)) << wire;
  }
}

// A reader to whom a bare line feed ends a line sees a header where we see a part of the first line.
TEST(http_head, whose_first_line_can_be_read_in_two_ways_is_refused) {
  for (const auto& wire : {"HTTP/1.1 200 OK\nContent-Length: 5\r\nContent-Length: 0\r\n\r\n"s,
                           "HTTP/1.1 200 OK\rContent-Length: 5\r\nContent-Length: 0\r\n\r\n"s,
                           "HTTP/1.1 200 O\0K\r\nContent-Length: 0\r\n\r\n"s,
                           "HTTP/1.x 200 OK\r\nContent-Length: 0\r\n\r\n"s}) {
    std::size_t searched = 0;
    EXPECT_TRUE(fails_with(read_head(wire, searched), errc::protocol)) << wire;
  }
}

// ---- answers

TEST(http_answer, is_read_as_what_it_is) {
  for (const auto& [wire, status, body] : samples()) {
    const auto read = read_answer(wire);
    ASSERT_TRUE(is_ok(read)) << wire;
    EXPECT_EQ(read->status, status);
    EXPECT_EQ(read->body, body) << wire;
  }
}

TEST(http_answer, has_a_kind_without_its_parameters) {
  const auto read = read_answer(
      "HTTP/1.1 200 OK\r\nContent-Type: Application/JSON ; charset=UTF-8\r\nRetry-After: 3\r\n"
      "Content-Length: 0\r\n\r\n");
  ASSERT_TRUE(is_ok(read));
  EXPECT_EQ(read->content_type, "application/json");
  EXPECT_EQ(read->retry_after, "3");
}

TEST(http_answer, cut_short_or_followed_by_more_is_none) {
  for (const auto& [wire, status, body] : samples()) {
    for (std::size_t length = 0; length < wire.size(); ++length)
      EXPECT_TRUE(fails_with(read_answer(std::string_view{wire}.substr(0, length)), errc::protocol))
          << length << " of " << wire;
    EXPECT_TRUE(fails_with(read_answer(wire + "x"), errc::protocol)) << wire;
  }
}

// The lengths that a scanner finds when so many bytes come at a time.
std::optional<std::vector<std::size_t>> lengths_in(std::string_view stream, std::size_t step) {
  answer_scanner scanner;
  std::vector<std::size_t> out;
  std::size_t begin = 0;
  for (std::size_t arrived = 0; arrived < stream.size();) {
    arrived = std::min(arrived + step, stream.size());
    for (;;) {
      const auto length = scanner.next(stream.substr(begin, arrived - begin));
      if (!length) return std::nullopt;
      if (*length == 0) break;
      out.push_back(*length);
      begin += *length;
    }
  }
  return out;
}

TEST(http_scanner, however_the_network_splits_answers_they_are_the_same) {
  std::string stream;
  std::vector<std::size_t> lengths;
  for (const auto& each : samples()) {
    stream += each.wire;
    lengths.push_back(each.wire.size());
  }
  for (const std::size_t step : {1U, 2U, 3U, 7U, 19U, 100U, 100'000U})
    EXPECT_EQ(lengths_in(stream, step), lengths) << step;
}

TEST(http_scanner, waits_for_every_byte_of_an_answer) {
  for (const auto& [wire, status, body] : samples()) {
    answer_scanner scanner;
    for (std::size_t arrived = 0; arrived < wire.size(); ++arrived) {
      const auto length = scanner.next(std::string_view{wire}.substr(0, arrived));
      ASSERT_TRUE(is_ok(length)) << wire;
      ASSERT_EQ(*length, 0U) << arrived << " of " << wire;
    }
    EXPECT_EQ(scanner.next(wire).value(), wire.size()) << wire;
  }
}

// Its end would be that of the connection, and a connection that was cut would look the same.
TEST(http_scanner, an_answer_without_a_length_is_refused) {
  answer_scanner scanner;
  EXPECT_TRUE(fails_with(scanner.next("HTTP/1.1 200 OK\r\n\r\n"), errc::protocol));
}

TEST(http_scanner, a_body_over_the_limit_is_refused_before_it_comes) {
  const caps limits{.head = 1024, .body = 10};
  const auto judged = [&](const std::string& wire) { return answer_scanner{limits}.next(wire); };
  EXPECT_TRUE(is_ok(judged(plain_answer("0123456789"))));
  EXPECT_TRUE(fails_with(judged("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n"), errc::protocol));
  EXPECT_TRUE(fails_with(judged("HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n"),
                         errc::protocol));
  EXPECT_TRUE(is_ok(judged(chunked_answer("5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n"))));
  EXPECT_TRUE(fails_with(judged(chunked_answer("b\r\n")), errc::protocol));
  EXPECT_TRUE(fails_with(judged(chunked_answer("5\r\n01234\r\n6\r\n")), errc::protocol));
  EXPECT_TRUE(fails_with(read_answer(plain_answer("0123456789a"), limits), errc::protocol));
}

// ---- chunks

TEST(http_chunk, that_is_none_is_refused) {
  for (const auto& wire :
       {"\r\n"s, "x\r\n"s, "-1\r\n"s, "+1\r\n"s, "0x1\r\n"s, ";a\r\n"s, "1 1\r\n"s, "5\nhello\r\n"s,
        "1\r\nab\r\n"s, "1\r\na\rb"s, "10000000000000000\r\n"s, "ffffffffffffffff\r\n"s, "65\r\n"s,
        "0\r\nTrailer: x\r\n\r\n"s, std::string(256, '0'), "1;" + std::string(300, 'x')}) {
    EXPECT_TRUE(fails_with(next_chunk(wire, 100), errc::protocol)) << wire;
    EXPECT_TRUE(fails_with(answer_scanner{{.head = 1024, .body = 100}}.next(chunked_answer(wire)),
                           errc::protocol))
        << wire;
  }
}

TEST(http_chunk, is_nothing_until_its_last_byte_has_come) {
  const auto wire = "3;x=y\r\nabc\r\n"s;
  for (std::size_t arrived = 0; arrived < wire.size(); ++arrived) {
    const auto next = next_chunk(std::string_view{wire}.substr(0, arrived), 100);
    ASSERT_TRUE(is_ok(next)) << arrived;
    EXPECT_EQ(next->bytes, 0U) << arrived;
  }
  const auto more = wire + "more";
  const auto whole = next_chunk(more, 100);
  ASSERT_TRUE(is_ok(whole));
  EXPECT_EQ(whole->bytes, wire.size());
  EXPECT_EQ(whole->data, "abc");
}

// ---- streams

// What a stream's body carries when so many bytes come at a time; nothing when it is refused.
std::optional<std::string> carried(std::string_view stream, std::size_t step) {
  stream_scanner scanner;
  std::string out;
  std::size_t begin = 0;
  bool has_head = false;
  for (std::size_t arrived = 0; arrived < stream.size();) {
    arrived = std::min(arrived + step, stream.size());
    for (;;) {
      const auto here = stream.substr(begin, arrived - begin);
      if (here.empty()) break;
      const auto piece = scanner.next(here);
      if (!piece) return std::nullopt;
      if (piece->bytes == 0) break;
      if (piece->is_head == std::exchange(has_head, true)) return "a head in the wrong place";
      if (!piece->is_head) {
        const auto bytes = here.substr(0, piece->bytes);
        out += scanner.is_chunked() ? next_chunk(bytes, bytes.size()).value().data : bytes;
      }
      begin += piece->bytes;
    }
  }
  return out;
}

TEST(http_stream, gives_its_head_and_then_what_comes) {
  const auto head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"s;
  const auto chunked = head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n";
  for (const std::size_t step : {1U, 2U, 5U, 1000U}) {
    EXPECT_EQ(carried(chunked, step), "hello!") << step;
    EXPECT_EQ(carried(head + "\r\nhello!", step), "hello!") << step;
  }
}

TEST(http_stream, that_ends_or_is_none_is_refused) {
  const auto head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"s;
  EXPECT_EQ(carried(head + "1\r\na\r\n0\r\n\r\n", 1), std::nullopt);
  EXPECT_EQ(carried(head + "200000\r\n", 1), std::nullopt);
  EXPECT_EQ(carried("220 mail.example ESMTP\r\n\r\n", 1), std::nullopt);
}

// ---- events

using event_list = std::vector<std::pair<std::string, std::string>>;

event_list events_in(std::string_view body, std::size_t step) {
  event_reader reader;
  std::vector<event> read;
  for (std::size_t at = 0; at < body.size(); at += step)
    EXPECT_TRUE(is_ok(reader.read(body.substr(at, step), read)));
  event_list out;
  for (auto& each : read) out.emplace_back(std::move(each.name), std::move(each.data));
  return out;
}

TEST(http_events, however_they_are_split_they_are_the_same) {
  const auto body =
      ": a comment\n\n"
      "event: granted\ndata: {\"token\":1}\n\n"
      "data: one\ndata:two\ndata:  three\n\n"
      "event:renewed\r\ndata: {}\r\nid: 7\r\nretry: 5\r\n\r\n"
      "event: without data\n\n"
      "data\n\n"
      "data: last: with a colon\n\n"
      "event: never ends\ndata: x\n"s;
  const event_list expected{{"granted", R"({"token":1})"},
                            {"message", "one\ntwo\n three"},
                            {"renewed", "{}"},
                            {"message", ""},
                            {"message", "last: with a colon"}};
  for (const std::size_t step : {1U, 2U, 3U, 10U, 1000U})
    EXPECT_EQ(events_in(body, step), expected) << step;
}

TEST(http_events, one_that_is_too_long_is_refused) {
  const std::string part(1000, 'x');
  std::vector<event> read;
  event_reader one_line;
  result<void> outcome;
  for (int i = 0; i < 2000 && outcome; ++i) outcome = one_line.read(part, read);
  EXPECT_TRUE(fails_with(outcome, errc::protocol));
  event_reader many_lines;
  outcome = {};
  for (int i = 0; i < 2000 && outcome; ++i) outcome = many_lines.read("data: " + part + "\n", read);
  EXPECT_TRUE(fails_with(outcome, errc::protocol));
  EXPECT_TRUE(read.empty());
}

}  // namespace
}  // namespace holdfast::http

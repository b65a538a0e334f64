// A server that is broken, hostile, gone or about to go costs a clean error: the right code, a sentence, and no memory.
#include "grpc/channel.hpp"
#include "net/reactor.hpp"

#include "support/expect.hpp"
#include "support/wait_until.hpp"
#include "unit/grpc/server.hpp"

#include <gtest/gtest.h>

#include <future>
#include <random>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using grpc::channel;
using testing::call;
using testing::fails_with;
using testing::gate;
using testing::grpc_reply;
using testing::grpc_to;
using testing::h2_peer;
using testing::line_server;
using testing::peer;
using testing::stream_ear;
using testing::text_of;
using testing::wait_until;
using testing::within;
using kind = h2_peer::kind;

struct grpc_hostile : ::testing::Test {
  std::unique_ptr<net::reactor> reactor = std::move(net::reactor::start()).value();

  // What a call comes to when the server does `what` to each message but "hello".
  template <class Action>
  result<grpc::reply> call_when(Action what, bool connection_lives = true) {
    line_server server{[&](peer& client) {
      h2_peer http{client};
      while (const auto got = http.next(kind::message)) {
        if (got->text == "hello") {
          http.reply(got->stream, got->text);
        } else {
          what(http, got->stream);
        }
      }
    }};
    auto options = grpc_to(server.port());
    options.largest_message = 1 << 20;
    channel on{*reactor, options};
    EXPECT_EQ(text_of(call(on, "hello")), "hello");
    auto got = call(on, "a");
    EXPECT_EQ(text_of(call(on, "hello")), "hello");
    EXPECT_EQ(server.connections(), connection_lives ? 1 : 2);
    if (!got) {
      EXPECT_NE(got.error().message().find(options.description), std::string::npos)
          << got.error().message();
    }
    return got;
  }
};

bool says(const result<grpc::reply>& got, std::string_view words) {
  if (!got && got.error().message().find(words) != std::string::npos) return true;
  ADD_FAILURE() << text_of(got);
  return false;
}

// ---- Answers that are not gRPC -----------------------------------------------------------------------------------

TEST_F(grpc_hostile, an_http_error_page_is_not_grpc) {
  const auto got = call_when([](h2_peer& http, std::int32_t stream) {
    http.begin(stream, {{":status", "404"}, {"content-type", "text/html"}});
    http.say_raw(stream, "<html>not here</html>");
    http.finish_with(stream, {});
  });
  EXPECT_TRUE(fails_with(got, errc::protocol));
  EXPECT_TRUE(says(got, "HTTP status 404"));
  EXPECT_TRUE(says(got, "not a gRPC server"));
}

TEST_F(grpc_hostile, another_content_type_is_not_grpc) {
  const auto got = call_when([](h2_peer& http, std::int32_t stream) {
    http.begin(stream, {{":status", "200"}, {"content-type", "text/html\x1b"}});
    http.say_raw(stream, std::string(100'000, 'x'));
    http.finish_with(stream, {});
  });
  EXPECT_TRUE(fails_with(got, errc::protocol));
}

TEST_F(grpc_hostile, an_answer_without_a_status_is_an_error) {
  const auto got = call_when([](h2_peer& http, std::int32_t stream) {
    http.begin(stream);
    http.say(stream, "x");
    http.finish_with(stream, {});
  });
  EXPECT_TRUE(fails_with(got, errc::protocol));
  EXPECT_TRUE(says(got, "without a status"));
}

TEST_F(grpc_hostile, a_status_that_is_no_number_is_unknown) {
  const auto got = call_when([](h2_peer& http, std::int32_t stream) {
    http.begin(stream);
    http.finish_with(stream, {{"grpc-status", "0x"}});
  });
  ASSERT_TRUE(testing::is_ok(got));
  EXPECT_EQ(got->status, grpc::status::unknown);
}

TEST_F(grpc_hostile, no_message_two_messages_and_half_a_message_are_errors) {
  const auto none = call_when([](h2_peer& http, std::int32_t stream) {
    http.begin(stream);
    http.finish(stream, 0);
  });
  EXPECT_TRUE(fails_with(none, errc::protocol));
  const auto two = call_when([](h2_peer& http, std::int32_t stream) {
    http.begin(stream);
    http.say(stream, "a");
    http.say(stream, "b");
    http.finish(stream, 0);
  });
  EXPECT_TRUE(fails_with(two, errc::protocol));
  EXPECT_TRUE(says(two, "2 messages"));
  const auto half = call_when([](h2_peer& http, std::int32_t stream) {
    http.begin(stream);
    http.say_raw(stream, {"\0\0\0\0\x09half", 9});
    http.finish(stream, 0);
  });
  EXPECT_TRUE(fails_with(half, errc::protocol));
  EXPECT_TRUE(says(half, "middle of a message"));
}

TEST_F(grpc_hostile, a_compressed_message_is_an_error) {
  const auto got = call_when([](h2_peer& http, std::int32_t stream) {
    http.begin(stream);
    http.say_raw(stream, {"\1\0\0\0\1x", 6});
    http.finish(stream, 0);
  });
  EXPECT_TRUE(fails_with(got, errc::protocol));
  EXPECT_TRUE(says(got, "compressed"));
}

TEST_F(grpc_hostile, a_message_beyond_the_cap_is_refused_when_it_is_announced) {
  const auto got = call_when([](h2_peer& http, std::int32_t stream) {
    http.begin(stream);
    http.say_raw(stream, {"\0\x7f\xff\xff\xff", 5});
  });
  EXPECT_TRUE(fails_with(got, errc::protocol));
  EXPECT_TRUE(says(got, "2147483647 bytes"));
}

TEST_F(grpc_hostile, header_fields_beyond_the_cap_are_refused) {
  const auto got = call_when([](h2_peer& http, std::int32_t stream) {
    h2_peer::fields head{{":status", "200"}, {"content-type", "application/grpc"}}, trailers;
    for (int i = 0; i < 40; ++i) head["x-" + std::to_string(i)] = std::string(1000, 'x');
    for (int i = 0; i < 40; ++i) trailers["y-" + std::to_string(i)] = std::string(1000, 'y');
    http.begin(stream, head);
    http.finish_with(stream, trailers);
  });
  EXPECT_TRUE(fails_with(got, errc::protocol));
  EXPECT_TRUE(says(got, "header fields"));
}

// ---- Requests that are broken off --------------------------------------------------------------------------------

TEST_F(grpc_hostile, a_refused_stream_was_certainly_not_executed) {
  const auto got = call_when(
      [](h2_peer& http, std::int32_t stream) { http.reset(stream, NGHTTP2_REFUSED_STREAM); });
  EXPECT_TRUE(fails_with(got, errc::unavailable));
}

TEST_F(grpc_hostile, a_reset_stream_may_have_been_executed) {
  for (const auto code : {NGHTTP2_INTERNAL_ERROR, NGHTTP2_CANCEL, NGHTTP2_NO_ERROR}) {
    const auto got = call_when([code](h2_peer& http, std::int32_t stream) {
      http.begin(stream);
      http.reset(stream, code);
    });
    EXPECT_TRUE(fails_with(got, errc::outcome_unknown));
  }
}

TEST_F(grpc_hostile, a_connection_that_ends_in_the_middle_leaves_the_outcome_unknown) {
  line_server server{[](peer& client) {
    h2_peer http{client};
    const auto got = http.next(kind::message);
    if (!got) return;
    if (client.number == 2) return http.echo();
    http.begin(got->stream);
    http.say_raw(got->stream, {"\0\0\0\0\x09half", 9});
  }};
  channel on{*reactor, grpc_to(server.port())};
  EXPECT_TRUE(fails_with(call(on, "a"), errc::outcome_unknown));
}

TEST_F(grpc_hostile, goaway_finishes_the_old_refuses_the_unseen_and_lets_new_calls_go_elsewhere) {
  gate go;
  std::atomic<int> seen{0};
  line_server server{[&](peer& client) {
    h2_peer http{client};
    if (client.number > 1) return http.echo();
    const auto first = http.next(kind::message);
    ++seen;
    const auto second = http.next(kind::message);
    ++seen;
    if (!first || !second) return;
    http.goaway(first->stream, NGHTTP2_NO_ERROR, "max_age");
    go.wait(&server.stopping());
    http.reply(first->stream, first->text);
    while (http.next()) {
    }
  }};
  channel on{*reactor, grpc_to(server.port())};
  auto first = std::async(std::launch::async, [&] { return call(on, "first"); });
  ASSERT_TRUE(wait_until([&] { return seen == 1; }));
  auto second = std::async(std::launch::async, [&] { return call(on, "second"); });
  const auto refused = second.get();
  EXPECT_TRUE(fails_with(refused, errc::unavailable));
  EXPECT_TRUE(says(refused, "max_age"));
  EXPECT_EQ(text_of(call(on, "third")), "third");
  EXPECT_EQ(server.connections(), 2);
  EXPECT_EQ(first.wait_for(0s), std::future_status::timeout);
  go.open();
  EXPECT_EQ(text_of(first.get()), "first");
  EXPECT_EQ(on.generation(), 2U);
}

TEST_F(grpc_hostile, goaway_between_calls_costs_nobody_anything) {
  line_server server{[](peer& client) {
    h2_peer http{client};
    while (const auto got = http.next(kind::message)) {
      http.reply(got->stream, got->text);
      http.goaway(got->stream);
    }
  }};
  channel on{*reactor, grpc_to(server.port())};
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(text_of(call(on, "a")), "a");
    EXPECT_TRUE(wait_until([&] { return on.generation() == 0; }));
  }
  EXPECT_EQ(server.connections(), 20);
}

// ---- Servers that are none ---------------------------------------------------------------------------------------

TEST_F(grpc_hostile, an_http1_server_is_told_from_a_grpc_server) {
  line_server server{[](peer& client) {
    if (!client.read_line()) return;
    client.write("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    while (client.read_line()) {
    }
  }};
  channel on{*reactor, grpc_to(server.port())};
  const auto got = call(on, "a");
  EXPECT_TRUE(fails_with(got, errc::protocol));
  EXPECT_TRUE(says(got, "not HTTP/2"));
}

TEST_F(grpc_hostile, a_server_that_never_says_hello_is_unavailable) {
  line_server server{[](peer& client) {
    while (client.read_line()) {
    }
  }};
  auto options = grpc_to(server.port());
  options.connect_timeout = 100ms;
  channel on{*reactor, options};
  EXPECT_TRUE(fails_with(call(on, "a"), errc::unavailable));
}

TEST_F(grpc_hostile, garbage_in_the_middle_ends_the_connection_cleanly) {
  std::minstd_rand random{11};
  for (int round = 0; round < 30; ++round) {
    std::string garbage(40 + random() % 400, '\0');
    for (auto& c : garbage) c = static_cast<char>(random());
    line_server server{[&](peer& client) {
      h2_peer http{client};
      if (client.number > 1) return http.echo();
      if (http.next(kind::message)) http.raw(garbage);
    }};
    channel on{*reactor, grpc_to(server.port())};
    const auto got = call(on, "a");
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code(), errc::outcome_unknown) << got.error().message();
    EXPECT_TRUE(wait_until([&] { return text_of(call(on, "b")) == "b"; }));
  }
}

TEST_F(grpc_hostile, a_flood_of_pings_ends_the_connection) {
  line_server server{[](peer& client) {
    h2_peer http{client};
    if (client.number > 1) return http.echo();
    if (!http.next(kind::message)) return;
    for (int i = 0; i < 5000; ++i) http.ping();
    while (http.next()) {
    }
  }};
  channel on{*reactor, grpc_to(server.port())};
  EXPECT_TRUE(says(call(on, "a"), "flood of pings"));
}

// ---- Is anybody there? -------------------------------------------------------------------------------------------

TEST_F(grpc_hostile, a_ping_of_the_server_is_answered) {
  std::atomic<bool> answered{false};
  line_server server{[&](peer& client) {
    h2_peer http{client};
    while (const auto got = http.next()) {
      if (got->what == kind::message) {
        http.ping();
        http.reply(got->stream, got->text);
      }
      if (got->what == kind::pong) answered = true;
    }
  }};
  channel on{*reactor, grpc_to(server.port())};
  EXPECT_EQ(text_of(call(on, "a")), "a");
  EXPECT_TRUE(wait_until([&] { return answered.load(); }));
}

grpc::channel_options impatient(const line_server& server) {
  auto options = grpc_to(server.port());
  options.longest_silence = 200ms;
  options.ping_interval = 100ms;
  return options;
}

TEST_F(grpc_hostile, a_stream_on_a_connection_whose_peer_has_vanished_ends) {
  std::atomic<int> pings{0};
  line_server server{[&](peer& client) {
    h2_peer http{client};
    http.next(kind::request);
    http.fall_silent();
    while (const auto got = http.next())
      if (got->what == kind::ping) ++pings;
  }};
  stream_ear ear;
  channel on{*reactor, impatient(server)};
  on.open_stream("/test.Echo/Chat", {}, ear);
  const auto end = ear.end();
  EXPECT_TRUE(fails_with(end, errc::unavailable));
  EXPECT_TRUE(says(end, "not even an answer to a ping"));
  EXPECT_EQ(pings, 1);
  EXPECT_EQ(on.generation(), 0U);
}

TEST_F(grpc_hostile, a_quiet_stream_on_a_live_connection_stays) {
  std::atomic<int> pings{0};
  line_server server{[&](peer& client) {
    h2_peer http{client};
    while (const auto got = http.next())
      if (got->what == kind::ping) ++pings;
  }};
  stream_ear ear;
  channel on{*reactor, impatient(server)};
  on.open_stream("/test.Echo/Chat", {}, ear);
  EXPECT_TRUE(wait_until([&] { return pings >= 5; }));
  EXPECT_FALSE(ear.is_over());
  EXPECT_EQ(on.generation(), 1U);
}

TEST_F(grpc_hostile, pings_are_no_more_frequent_than_allowed) {
  std::atomic<int> pings{0};
  line_server server{[&](peer& client) {
    h2_peer http{client};
    while (const auto got = http.next())
      if (got->what == kind::ping) ++pings;
  }};
  auto options = impatient(server);
  options.ping_interval = 1h;
  stream_ear ear;
  channel on{*reactor, options};
  on.open_stream("/test.Echo/Chat", {}, ear);
  EXPECT_TRUE(wait_until([&] { return pings == 1; }));
  EXPECT_TRUE(testing::stays_true([&] { return pings == 1 && !ear.is_over(); }, 500ms));
}

TEST_F(grpc_hostile, a_call_without_deadline_does_not_wait_for_ever_for_a_vanished_peer) {
  line_server server{[&](peer& client) {
    h2_peer http{client};
    http.next(kind::message);
    http.fall_silent();
    while (http.next()) {
    }
  }};
  channel on{*reactor, impatient(server)};
  EXPECT_TRUE(fails_with(call(on, "a", {}), errc::outcome_unknown));
}

TEST_F(grpc_hostile, a_given_up_call_on_a_silent_connection_ends_the_connection) {
  line_server server{[&](peer& client) {
    h2_peer http{client};
    if (client.number > 1) return http.echo();
    const auto first = http.next(kind::message);
    if (!first) return;
    http.reply(first->stream, first->text);
    http.fall_silent();
    while (http.next()) {
    }
  }};
  channel on{*reactor, impatient(server)};
  EXPECT_EQ(text_of(call(on, "hello")), "hello");
  EXPECT_TRUE(fails_with(call(on, "a", within(50ms)), errc::outcome_unknown));
  EXPECT_TRUE(wait_until([&] { return on.generation() == 0; }));
  EXPECT_TRUE(wait_until([&] { return text_of(call(on, "b")) == "b"; }));
  EXPECT_EQ(server.connections(), 2);
}

TEST_F(grpc_hostile, a_peer_that_does_not_read_holds_nobody_beyond_the_deadline) {
  gate end;
  line_server server{[&](peer& client) {
    { h2_peer http{client}; }
    end.wait();
  }};
  channel on{*reactor, grpc_to(server.port())};
  const std::string large(8 << 20, 'x');
  EXPECT_TRUE(fails_with(call(on, large, within(100ms)), errc::unavailable));
  EXPECT_TRUE(fails_with(call(on, "small", within(50ms)), errc::unavailable));
  end.open();
}

// ---- All at once -------------------------------------------------------------------------------------------------

TEST_F(grpc_hostile, threads_survive_a_server_that_does_a_bit_of_everything) {
  std::atomic<bool> over{false};
  line_server server{[&](peer& client) {
    std::minstd_rand random{static_cast<unsigned>(client.number)};
    h2_peer http{client, {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 5}}};
    while (const auto got = http.next(kind::message)) {
      switch (over ? 99 : random() % 40) {
        case 0:
          http.reset(got->stream, NGHTTP2_REFUSED_STREAM);
          break;
        case 1:
          http.reset(got->stream, NGHTTP2_INTERNAL_ERROR);
          break;
        case 2:
          http.goaway(got->stream);
          http.reply(got->stream, got->text);
          break;
        case 3:
          return;
        case 4:
          http.raw("garbage that is longer than a frame head");
          return;
        case 5:
          break;  // no answer
        case 6:
          http.ping();
          [[fallthrough]];
        default:
          http.reply(got->stream, got->text);
      }
    }
  }};
  channel on{*reactor, grpc_to(server.port())};
  std::atomic<int> wrong{0}, right{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 150; ++i) {
          const auto text = std::to_string(t) + "-" + std::to_string(i);
          result<grpc::reply> got = grpc::reply{};
          if (i % 4 == 0) {
            grpc_reply async;
            on.send_now("/test.Echo/Say", text, {}, within(100ms), async);
            got = async.get();
          } else {
            got = call(on, text, within(100ms));
          }
          if (got && got->body == text) ++right;
          if (got && got->body != text) ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(right, 0);
  over = true;
  EXPECT_TRUE(wait_until([&] { return text_of(call(on, "end")) == "end"; }));
}

}  // namespace
}  // namespace holdfast

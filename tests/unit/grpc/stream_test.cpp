// Streams: messages in both directions for as long as both sides like.
#include "grpc/channel.hpp"
#include "net/reactor.hpp"

#include "support/expect.hpp"
#include "support/wait_until.hpp"
#include "unit/grpc/server.hpp"

#include <gtest/gtest.h>

#include <future>
#include <set>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using grpc::channel;
using testing::call;
using testing::fails_with;
using testing::grpc_to;
using testing::h2_peer;
using testing::line_server;
using testing::peer;
using testing::stream_ear;
using testing::text_of;
using testing::wait_until;
using kind = h2_peer::kind;

constexpr auto chat = "/test.Echo/Chat";

// A stream's messages come back one by one; "bye" ends it, "burst N" brings N messages. Other calls are echoed.
void talk(h2_peer& http) {
  std::set<std::int32_t> chats;
  while (const auto got = http.next()) {
    if (got->what == kind::request && got->text == chat) {
      http.begin(got->stream);
      chats.insert(got->stream);
    }
    if (got->what != kind::message) continue;
    if (!chats.contains(got->stream)) {
      http.reply(got->stream, got->text);
    } else if (got->text == "bye") {
      http.finish(got->stream, 11, "enough");
    } else if (got->text.starts_with("burst ")) {
      for (int i = std::stoi(got->text.substr(6)); i > 0; --i)
        http.say(got->stream, std::to_string(i));
    } else {
      http.say(got->stream, got->text);
    }
  }
}

struct grpc_stream : ::testing::Test {
  std::unique_ptr<net::reactor> reactor = std::move(net::reactor::start()).value();
  std::atomic<int> resets{0};
  line_server server{[](peer& client) {
    h2_peer http{client};
    talk(http);
  }};
};

TEST_F(grpc_stream, messages_go_to_and_fro_in_order) {
  stream_ear ear;
  channel on{*reactor, grpc_to(server.port())};
  const auto id = on.open_stream(chat, {}, ear);
  std::vector<std::string> expected;
  for (int i = 0; i < 200; ++i) {
    expected.push_back("message " + std::to_string(i));
    EXPECT_TRUE(on.write(id, expected.back()));
  }
  ASSERT_TRUE(ear.hears(200));
  EXPECT_EQ(ear.heard(), expected);
  std::promise<std::thread::id> where;
  reactor->post([&] { where.set_value(std::this_thread::get_id()); });
  EXPECT_EQ(ear.thread(), where.get_future().get());
}

TEST_F(grpc_stream, the_servers_end_brings_its_status) {
  stream_ear ear;
  channel on{*reactor, grpc_to(server.port())};
  const auto id = on.open_stream(chat, {}, ear);
  on.write(id, "a");
  on.write(id, "bye");
  const auto end = ear.end();
  ASSERT_TRUE(testing::is_ok(end));
  EXPECT_EQ(end->status, grpc::status::out_of_range);
  EXPECT_EQ(end->message, "enough");
  EXPECT_EQ(ear.heard(), std::vector<std::string>{"a"});
  EXPECT_FALSE(on.write(id, "too late"));
  on.cancel(id);  // does nothing
  EXPECT_EQ(text_of(call(on, "b")), "b");
  EXPECT_EQ(ear.late(), 0);
}

TEST_F(grpc_stream, cancel_tells_the_server_and_ends_it) {
  std::promise<std::uint32_t> code;
  line_server listening{[&](peer& client) {
    h2_peer http{client};
    if (const auto got = http.next(kind::reset)) code.set_value(got->code);
    http.echo();
  }};
  stream_ear ear;
  channel on{*reactor, grpc_to(listening.port())};
  const auto id = on.open_stream(chat, {}, ear);
  ASSERT_TRUE(wait_until([&] { return on.generation() == 1; }));
  on.write(id, "a");
  on.cancel(id);
  EXPECT_TRUE(fails_with(ear.end(), errc::cancelled));
  EXPECT_EQ(code.get_future().get(), static_cast<std::uint32_t>(NGHTTP2_CANCEL));
  EXPECT_FALSE(on.write(id, "b"));
  EXPECT_EQ(text_of(call(on, "c")), "c");
  EXPECT_EQ(on.generation(), 1U);
}

TEST_F(grpc_stream, a_stream_that_is_cancelled_before_the_connection_is_up_never_begins) {
  stream_ear ear;
  channel on{*reactor, grpc_to(server.port())};
  on.cancel(on.open_stream(chat, {}, ear));
  EXPECT_TRUE(fails_with(ear.end(), errc::cancelled));
  EXPECT_EQ(text_of(call(on, "a")), "a");
}

TEST_F(grpc_stream, a_lost_connection_ends_its_streams_and_their_ids_are_not_used_again) {
  stream_ear first, second, third;
  channel on{*reactor, grpc_to(server.port())};
  const auto one = on.open_stream(chat, {}, first);
  const auto two = on.open_stream(chat, {}, second);
  on.write(one, "a");
  ASSERT_TRUE(first.hears(1));
  on.drop({errc::unavailable, "a test wants it"});
  EXPECT_TRUE(fails_with(first.end(), errc::unavailable));
  EXPECT_TRUE(fails_with(second.end(), errc::unavailable));
  const auto three = on.open_stream(chat, {}, third);
  EXPECT_EQ((std::set{one, two, three, channel::stream_id{0}}.size()), 4U);
  EXPECT_FALSE(on.write(one, "b"));
  EXPECT_TRUE(on.write(three, "c"));
  EXPECT_TRUE(third.hears(1));
}

TEST_F(grpc_stream, without_a_server_a_stream_ends_at_once) {
  stream_ear ear;
  channel on{*reactor, grpc_to(testing::free_port())};
  on.open_stream(chat, {}, ear);
  EXPECT_TRUE(fails_with(ear.end(), errc::unavailable));
}

TEST_F(grpc_stream, calls_and_streams_do_not_wait_for_each_other) {
  std::vector<std::unique_ptr<stream_ear>> ears;
  channel on{*reactor, grpc_to(server.port())};
  std::vector<channel::stream_id> ids;
  for (int i = 0; i < 20; ++i) {
    ears.push_back(std::make_unique<stream_ear>());
    ids.push_back(on.open_stream(chat, {}, *ears.back()));
  }
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 100; ++i) {
          const auto text = std::to_string(t) + "-" + std::to_string(i);
          if (!on.write(ids[static_cast<std::size_t>(t * 5 + i % 5)], text)) ++wrong;
          if (text_of(call(on, text)) != text) ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  for (const auto& ear : ears) EXPECT_TRUE(ear->hears(20));
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(grpc_stream, many_and_large_messages_come_through) {
  stream_ear many, large;
  channel on{*reactor, grpc_to(server.port())};
  on.write(on.open_stream(chat, {}, many), "burst 5000");
  const auto id = on.open_stream(chat, {}, large);
  const std::string text(2'000'000, 'x');
  for (int i = 0; i < 5; ++i) on.write(id, text);
  EXPECT_TRUE(many.hears(5000));
  EXPECT_TRUE(large.hears(5));
  EXPECT_EQ(large.heard().back(), text);
}

TEST_F(grpc_stream, a_stream_outlives_a_goaway_that_spares_it) {
  line_server leaving{[](peer& client) {
    h2_peer http{client};
    if (client.number > 1) return talk(http);
    const auto opened = http.next(kind::request);
    if (!opened) return;
    http.begin(opened->stream);
    http.goaway(opened->stream);
    while (const auto got = http.next(kind::message)) {
      if (got->text == "bye") {
        http.finish(got->stream, 0);
      } else {
        http.say(got->stream, got->text);
      }
    }
  }};
  stream_ear ear;
  channel on{*reactor, grpc_to(leaving.port())};
  const auto id = on.open_stream(chat, {}, ear);
  ASSERT_TRUE(on.write(id, "a"));
  ASSERT_TRUE(ear.hears(1));
  EXPECT_EQ(text_of(call(on, "elsewhere")), "elsewhere");
  EXPECT_TRUE(on.write(id, "b"));
  EXPECT_TRUE(ear.hears(2));
  on.write(id, "bye");
  ASSERT_TRUE(testing::is_ok(ear.end()));
  EXPECT_TRUE(ear.end()->ok());
  EXPECT_EQ(leaving.connections(), 2);
}

// A listener that gives up its own stream from within, as an engine does.
TEST_F(grpc_stream, a_listener_may_cancel_write_and_open_from_within) {
  struct busy final : grpc::stream_listener {
    void on_message(std::string_view message) noexcept override {
      if (message == "again") on->write(id, "and again");
      if (message == "and again") on->cancel(id);
    }
    void on_end(result<grpc::reply> why) noexcept override {
      if (!why && why.error().code() == errc::cancelled) {
        other = on->open_stream(chat, {}, ear);
        on->write(other, "new");
      }
    }
    std::unique_ptr<channel> on;
    std::atomic<channel::stream_id> id{0}, other{0};
    stream_ear ear;
  } listener;
  listener.on = std::make_unique<channel>(*reactor, grpc_to(server.port()));
  listener.id = listener.on->open_stream(chat, {}, listener);
  listener.on->write(listener.id, "again");
  EXPECT_TRUE(listener.ear.hears(1));
  listener.on.reset();
}

}  // namespace
}  // namespace holdfast

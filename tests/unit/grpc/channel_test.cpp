// Calls on one gRPC connection: whose answer is whose, what a request looks like, deadlines, flow control.
#include "grpc/channel.hpp"
#include "net/reactor.hpp"

#include "support/expect.hpp"
#include "support/wait_until.hpp"
#include "unit/grpc/server.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <list>
#include <random>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using grpc::channel;
using testing::call;
using testing::echoing;
using testing::fails_with;
using testing::gate;
using testing::grpc_reply;
using testing::grpc_to;
using testing::h2_peer;
using testing::is_ok;
using testing::line_server;
using testing::peer;
using testing::text_of;
using testing::wait_until;
using testing::within;
using kind = h2_peer::kind;

struct grpc_channel : ::testing::Test {
  std::unique_ptr<net::reactor> reactor = std::move(net::reactor::start()).value();
};

// ---- Whose answer is whose ---------------------------------------------------------------------------------------

TEST_F(grpc_channel, each_of_16_threads_gets_its_own_answers) {
  line_server server{echoing()};
  channel on{*reactor, grpc_to(server.port())};
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 16; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 200; ++i) {
          const auto text = std::to_string(t) + "-" + std::to_string(i);
          if (text_of(call(on, text)) != text) ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(grpc_channel, answers_may_come_in_any_order) {
  line_server server{[](peer& client) {
    h2_peer http{client};
    std::vector<h2_peer::event> got;
    while (got.size() < 3) {
      auto one = http.next(kind::message);
      if (!one) return;
      got.push_back(*one);
    }
    for (auto one = got.rbegin(); one != got.rend(); ++one) http.reply(one->stream, one->text);
    http.echo();
  }};
  channel on{*reactor, grpc_to(server.port())};
  std::vector<std::future<std::string>> all;
  for (const auto* text : {"a", "b", "c"})
    all.push_back(std::async(std::launch::async, [&on, text] { return text_of(call(on, text)); }));
  EXPECT_EQ(all[0].get(), "a");
  EXPECT_EQ(all[1].get(), "b");
  EXPECT_EQ(all[2].get(), "c");
}

TEST_F(grpc_channel, handlers_are_told_on_the_reactors_thread) {
  line_server server{echoing()};
  channel on{*reactor, grpc_to(server.port())};
  std::promise<std::thread::id> where;
  reactor->post([&] { where.set_value(std::this_thread::get_id()); });
  const auto reactors = where.get_future().get();
  grpc_reply sent, sent_now;
  on.send("/test.Echo/Say", "a", {}, within(10s), sent);
  on.send_now("/test.Echo/Say", "b", {}, within(10s), sent_now);
  EXPECT_EQ(text_of(sent.get()), "a");
  EXPECT_EQ(text_of(sent_now.get()), "b");
  EXPECT_EQ(sent.thread, reactors);
  EXPECT_EQ(sent_now.thread, reactors);
}

TEST_F(grpc_channel, threads_and_handlers_share_the_connection) {
  line_server server{echoing()};
  channel on{*reactor, grpc_to(server.port())};
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 6; ++t) {
      threads.emplace_back([&, t] {
        std::list<grpc_reply> replies;
        for (int i = 0; i < 100; ++i) {
          const auto text = std::to_string(t) + "-" + std::to_string(i);
          if (i % 3 == 0) {
            if (text_of(call(on, text)) != text) ++wrong;
            continue;
          }
          auto& mine = replies.emplace_back();
          if (i % 3 == 1) on.send("/test.Echo/Say", text, {}, within(20s), mine);
          if (i % 3 == 2) on.send_now("/test.Echo/Say", text, {}, within(20s), mine);
        }
        for (auto& one : replies)
          if (!one.get() || one.times != 1) ++wrong;
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(grpc_channel, a_blocking_call_on_the_reactors_thread_is_refused) {
  line_server server{echoing()};
  channel on{*reactor, grpc_to(server.port())};
  std::promise<result<grpc::reply>> answer;
  reactor->post([&] { answer.set_value(call(on, "a")); });
  EXPECT_TRUE(fails_with(answer.get_future().get(), errc::misconfigured));
}

// ---- What a request looks like -----------------------------------------------------------------------------------

TEST_F(grpc_channel, a_request_has_the_fields_that_grpc_wants) {
  std::promise<h2_peer::fields> seen;
  line_server server{[&](peer& client) {
    h2_peer http{client};
    const auto got = http.next(kind::message);
    if (!got) return;
    seen.set_value(http.headers_of(got->stream));
    http.reply(got->stream, got->text);
    http.echo();
  }};
  channel on{*reactor, grpc_to(server.port())};
  ASSERT_TRUE(is_ok(
      on.call("/pkg.Service/Method", "x", {{"token", "abc"}, {"hasleader", "true"}}, within(3s))));
  auto fields = seen.get_future().get();
  EXPECT_EQ(fields[":method"], "POST");
  EXPECT_EQ(fields[":scheme"], "http");
  EXPECT_EQ(fields[":path"], "/pkg.Service/Method");
  EXPECT_EQ(fields[":authority"], "127.0.0.1:" + std::to_string(server.port()));
  EXPECT_EQ(fields["te"], "trailers");
  EXPECT_EQ(fields["content-type"], "application/grpc");
  EXPECT_EQ(fields["user-agent"], "holdfast");
  EXPECT_EQ(fields["token"], "abc");
  EXPECT_EQ(fields["hasleader"], "true");
  // Up to 3 s, of which some have passed: in microseconds that is seven digits.
  EXPECT_EQ(fields["grpc-timeout"].size(), 8U) << fields["grpc-timeout"];
  EXPECT_EQ(fields["grpc-timeout"].back(), 'u');
}

TEST_F(grpc_channel, a_call_without_a_deadline_says_nothing_of_one) {
  std::promise<bool> said;
  line_server server{[&](peer& client) {
    h2_peer http{client};
    const auto got = http.next(kind::message);
    if (!got) return;
    said.set_value(http.headers_of(got->stream).contains("grpc-timeout"));
    http.reply(got->stream, got->text);
    http.echo();
  }};
  channel on{*reactor, grpc_to(server.port())};
  EXPECT_EQ(text_of(call(on, "a", {})), "a");
  EXPECT_FALSE(said.get_future().get());
}

TEST_F(grpc_channel, a_repeated_request_has_a_small_head) {
  std::vector<std::size_t> lengths;
  line_server server{[&](peer& client) {
    h2_peer http{client};
    while (const auto got = http.next()) {
      if (got->what == kind::request) lengths.push_back(got->length);
      if (got->what == kind::message) http.reply(got->stream, got->text);
    }
  }};
  {
    channel on{*reactor, grpc_to(server.port())};
    const grpc::header_list extra{{"token", std::string(60, 't')}};
    for (int i = 0; i < 3; ++i)
      ASSERT_TRUE(is_ok(on.call("/etcdserverpb.KV/Txn", "x", extra, within(10s))));
  }
  ASSERT_EQ(lengths.size(), 3U);
  EXPECT_GT(lengths[0], 100U);
  EXPECT_LT(lengths[2], 50U);
}

TEST_F(grpc_channel, an_empty_message_is_a_message) {
  line_server server{echoing()};
  channel on{*reactor, grpc_to(server.port())};
  const auto got = call(on, "");
  ASSERT_TRUE(is_ok(got));
  EXPECT_TRUE(got->ok());
  EXPECT_EQ(got->body, "");
}

// ---- Status ------------------------------------------------------------------------------------------------------

TEST_F(grpc_channel, a_status_after_a_body_takes_the_body_away) {
  line_server server{[](peer& client) {
    h2_peer http{client};
    while (const auto got = http.next(kind::message)) {
      http.begin(got->stream);
      http.say(got->stream, "half of it");
      http.finish(got->stream, 9, "it %25 did%0anot work, 100%");
    }
  }};
  channel on{*reactor, grpc_to(server.port())};
  const auto got = call(on, "a");
  ASSERT_TRUE(is_ok(got));
  EXPECT_EQ(got->status, grpc::status::failed_precondition);
  EXPECT_EQ(got->message, "it % did\nnot work, 100%");
  EXPECT_EQ(got->body, "");
}

TEST_F(grpc_channel, a_status_may_come_alone) {
  line_server server{[](peer& client) {
    h2_peer http{client};
    while (const auto got = http.next(kind::message))
      http.only(got->stream, {{":status", "200"},
                              {"content-type", "application/grpc"},
                              {"grpc-status", "16"},
                              {"grpc-message", "who are you?"}});
  }};
  channel on{*reactor, grpc_to(server.port())};
  const auto got = call(on, "a");
  ASSERT_TRUE(is_ok(got));
  EXPECT_EQ(got->status, grpc::status::unauthenticated);
  EXPECT_EQ(got->message, "who are you?");
}

// ---- Deadlines and stops -----------------------------------------------------------------------------------------

// Answers nothing but "hello", and notes what is given up.
struct deaf_server {
  std::atomic<int> cancelled{0}, requests{0};
  line_server server{[this](peer& client) {
    h2_peer http{client};
    while (const auto got = http.next()) {
      if (got->what == kind::message) {
        ++requests;
        if (got->text == "hello") http.reply(got->stream, "hello");
      }
      if (got->what == kind::reset && got->code == NGHTTP2_CANCEL) ++cancelled;
    }
  }};
};

TEST_F(grpc_channel, a_deadline_gives_the_call_up_and_tells_the_server) {
  deaf_server deaf;
  channel on{*reactor, grpc_to(deaf.server.port())};
  ASSERT_EQ(text_of(call(on, "hello")), "hello");
  EXPECT_TRUE(fails_with(call(on, "a", within(50ms)), errc::outcome_unknown));
  EXPECT_TRUE(wait_until([&] { return deaf.cancelled == 1; }));
  grpc_reply async;
  on.send("/test.Echo/Say", "b", {}, within(50ms), async);
  EXPECT_TRUE(fails_with(async.get(), errc::outcome_unknown));
  EXPECT_TRUE(wait_until([&] { return deaf.cancelled == 2; }));
  EXPECT_EQ(text_of(call(on, "hello")), "hello");
  EXPECT_EQ(deaf.server.connections(), 1);
}

TEST_F(grpc_channel, a_deadline_that_has_passed_sends_nothing) {
  deaf_server deaf;
  channel on{*reactor, grpc_to(deaf.server.port())};
  ASSERT_EQ(text_of(call(on, "hello")), "hello");
  EXPECT_TRUE(fails_with(call(on, "a", within(-1ms)), errc::unavailable));
  grpc_reply async;
  on.send("/test.Echo/Say", "b", {}, within(-1ms), async);
  EXPECT_TRUE(fails_with(async.get(), errc::unavailable));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(fails_with(call(on, "c", within(10s, stop.get_token())), errc::unavailable));
  EXPECT_EQ(text_of(call(on, "hello")), "hello");
  EXPECT_EQ(deaf.requests, 2);
}

TEST_F(grpc_channel, a_stop_ends_leader_and_follower_and_handler) {
  deaf_server deaf;
  channel on{*reactor, grpc_to(deaf.server.port())};
  std::stop_source stop;
  auto first =
      std::async(std::launch::async, [&] { return call(on, "a", {.stop = stop.get_token()}); });
  auto second =
      std::async(std::launch::async, [&] { return call(on, "b", {.stop = stop.get_token()}); });
  grpc_reply third;
  on.send("/test.Echo/Say", "c", {}, {.stop = stop.get_token()}, third);
  ASSERT_TRUE(wait_until([&] { return deaf.requests == 3; }));
  stop.request_stop();
  EXPECT_TRUE(fails_with(first.get(), errc::outcome_unknown));
  EXPECT_TRUE(fails_with(second.get(), errc::outcome_unknown));
  EXPECT_TRUE(fails_with(third.get(), errc::outcome_unknown));
  EXPECT_TRUE(wait_until([&] { return deaf.cancelled == 3; }));
  EXPECT_EQ(text_of(call(on, "hello")), "hello");
}

TEST_F(grpc_channel, an_answer_that_comes_too_late_is_nobodys) {
  gate go;
  line_server server{[&](peer& client) {
    h2_peer http{client};
    const auto first = http.next(kind::message);
    if (first) http.reply(first->stream, first->text);
    const auto slow = http.next(kind::message);
    go.wait();
    if (slow) http.reply(slow->stream, slow->text);
    http.echo();
  }};
  channel on{*reactor, grpc_to(server.port())};
  EXPECT_EQ(text_of(call(on, "first")), "first");
  EXPECT_TRUE(fails_with(call(on, "late", within(50ms)), errc::outcome_unknown));
  go.open();
  EXPECT_EQ(text_of(call(on, "next")), "next");
  EXPECT_EQ(server.connections(), 1);
}

// ---- Flow control ------------------------------------------------------------------------------------------------

TEST_F(grpc_channel, large_messages_go_through_in_both_directions) {
  line_server server{echoing()};
  channel on{*reactor, grpc_to(server.port())};
  std::string large(3'000'000, 'x');
  std::mt19937 random{7};
  for (auto& c : large) c = static_cast<char>(random());
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 4; ++i) {
        const auto got = call(on, large, within(30s));
        EXPECT_TRUE(is_ok(got));
        EXPECT_TRUE(got && got->body == large);
        EXPECT_EQ(text_of(call(on, "small")), "small");
      }
    });
  }
  threads.clear();
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(grpc_channel, a_small_window_of_the_server_slows_but_does_not_stop) {
  line_server server{[](peer& client) {
    h2_peer{client, {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 100}}}.echo();
  }};
  channel on{*reactor, grpc_to(server.port())};
  const std::string large(20'000, 'x');
  EXPECT_EQ(text_of(call(on, large)), large);
}

TEST_F(grpc_channel, a_window_of_zero_means_that_the_request_was_not_sent) {
  std::atomic<int> opened{0};
  std::atomic<bool> reset{false};
  line_server server{[&](peer& client) {
    h2_peer http{client};
    while (const auto got = http.next()) {
      if (got->what == kind::request) ++opened;
      if (got->what == kind::reset) {
        reset = true;
        http.set({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 65535}});
      }
      if (got->what == kind::message) {
        if (got->text == "hello") http.set({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0}});
        http.reply(got->stream, got->text);
      }
    }
  }};
  channel on{*reactor, grpc_to(server.port())};
  EXPECT_EQ(text_of(call(on, "hello")), "hello");
  EXPECT_TRUE(fails_with(call(on, "a", within(100ms)), errc::unavailable));
  EXPECT_TRUE(wait_until([&] { return reset.load(); }));
  EXPECT_EQ(opened, 2);
  EXPECT_EQ(text_of(call(on, "b")), "b");
}

TEST_F(grpc_channel, more_calls_than_the_server_takes_at_once_wait_their_turn) {
  gate go;
  std::atomic<int> requests{0};
  line_server server{[&](peer& client) {
    h2_peer http{client, {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1}}};
    while (const auto got = http.next(kind::message)) {
      ++requests;
      go.wait();
      http.reply(got->stream, got->text);
    }
  }};
  channel on{*reactor, grpc_to(server.port())};
  auto first = std::async(std::launch::async, [&] { return text_of(call(on, "first")); });
  ASSERT_TRUE(wait_until([&] { return requests == 1; }));
  // Its turn does not come in time: it has certainly not been executed.
  EXPECT_TRUE(fails_with(call(on, "impatient", within(50ms)), errc::unavailable));
  grpc_reply async;
  on.send("/test.Echo/Say", "impatient too", {}, within(50ms), async);
  EXPECT_TRUE(fails_with(async.get(), errc::unavailable));
  auto third = std::async(std::launch::async, [&] { return text_of(call(on, "third")); });
  go.open();
  EXPECT_EQ(first.get(), "first");
  EXPECT_EQ(third.get(), "third");
  EXPECT_EQ(text_of(call(on, "fourth")), "fourth");
  EXPECT_EQ(requests, 3);
}

// ---- Coming and going --------------------------------------------------------------------------------------------

TEST_F(grpc_channel, nobody_there_is_unavailable_and_found_when_it_is) {
  const auto port = testing::free_port();
  channel on{*reactor, grpc_to(port)};
  const auto got = call(on, "a");
  EXPECT_TRUE(fails_with(got, errc::unavailable));
  EXPECT_NE(got.error().message().find("grpc://127.0.0.1:" + std::to_string(port)),
            std::string::npos);
  EXPECT_EQ(on.generation(), 0U);
}

TEST_F(grpc_channel, a_dropped_connection_is_made_anew) {
  line_server server{echoing()};
  channel on{*reactor, grpc_to(server.port())};
  EXPECT_EQ(text_of(call(on, "a")), "a");
  EXPECT_EQ(on.generation(), 1U);
  on.drop({errc::unavailable, "a test wants it"});
  EXPECT_EQ(text_of(call(on, "b")), "b");
  EXPECT_EQ(on.generation(), 2U);
}

TEST_F(grpc_channel, the_end_of_the_channel_ends_everything_on_it) {
  deaf_server deaf;
  auto on = std::make_unique<channel>(*reactor, grpc_to(deaf.server.port()));
  grpc_reply async;
  testing::stream_ear ear;
  on->send("/test.Echo/Say", "a", {}, {}, async);
  on->open_stream("/test.Echo/Chat", {}, ear);
  ASSERT_TRUE(wait_until([&] { return deaf.requests == 1; }));
  on.reset();
  EXPECT_EQ(async.times, 1);
  EXPECT_TRUE(ear.is_over());
  EXPECT_TRUE(fails_with(async.get(), errc::outcome_unknown));
  EXPECT_TRUE(fails_with(ear.end(), errc::unavailable));
}

TEST_F(grpc_channel, a_forked_child_is_refused_and_leaves_the_parents_connection_alone) {
  line_server server{echoing()};
  auto on = std::make_unique<channel>(*reactor, grpc_to(server.port()));
  ASSERT_EQ(text_of(call(*on, "a")), "a");
  const pid_t child = ::fork();
  if (child == 0) {
    const auto is_refusal = [](const result<grpc::reply>& got) {
      return !got && got.error().code() == errc::misconfigured;
    };
    grpc_reply async;
    testing::stream_ear ear;
    on->send("/test.Echo/Say", "b", {}, {}, async);
    on->open_stream("/test.Echo/Chat", {}, ear);
    const bool right = is_refusal(call(*on, "c")) && async.times == 1 && is_refusal(async.get()) &&
                       ear.is_over() && is_refusal(ear.end()) && !on->write(1, "x");
    on.reset();
    reactor.reset();
    _exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(text_of(call(*on, "d")), "d");
  EXPECT_EQ(on->generation(), 1U);
}

}  // namespace
}  // namespace holdfast

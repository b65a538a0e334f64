// One connection, many callers: whose answer is whose; what is pushed to no caller; and how a connection ends.
#include "support/expect.hpp"
#include "support/temp_dir.hpp"
#include "unit/net/channel_fixture.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace holdfast::testing {
namespace {

using net::channel;

// ---- Whose answer is whose ---------------------------------------------------------------------------------------

TEST_F(net_channel, each_of_16_threads_gets_its_own_answers) {
  line_server server;
  channel on{*reactor, to(server)};
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 16; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 300; ++i) {
          const auto line = std::to_string(t) + "-" + std::to_string(i);
          if (answer_of(ask(on, line)) != line) ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(net_channel, answers_in_one_byte_segments_are_put_together) {
  line_server server{[](peer& client) {
    while (const auto line = client.read_line())
      for (const char c : *line + "\n") client.write({&c, 1});
  }};
  channel on{*reactor, to(server)};
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(answer_of(ask(on, "a longer line " + std::to_string(i))).back(), '0' + i % 10);
}

TEST_F(net_channel, an_answer_of_many_megabytes_arrives_whole) {
  line_server server{[](peer& client) {
    while (const auto line = client.read_line())
      client.write(std::string(std::stoul(*line), 'x') + "\n");
  }};
  channel on{*reactor, to(server)};
  EXPECT_EQ(answer_of(ask(on, "9000000")).size(), 9'000'000U);
  EXPECT_EQ(answer_of(ask(on, "3")), "xxx");
}

TEST_F(net_channel, several_frames_of_one_call_come_together) {
  line_server server;
  channel on{*reactor, to(server)};
  std::string into = "old content";
  ASSERT_TRUE(is_ok(on.exchange("a\nb\nc\n", 3, within(10s), into)));
  EXPECT_EQ(into, "a\nb\nc\n");
  reply first, second;
  on.send("d\ne\n", 2, within(10s), first);
  on.send_now("f\ng\n", 2, within(10s), second);
  EXPECT_EQ(answer_of(first.get()), "d\ne\n");
  EXPECT_EQ(answer_of(second.get()), "f\ng\n");
}

TEST_F(net_channel, a_call_without_answers_is_done_when_it_is_sent) {
  std::atomic<int> seen{0};
  line_server server{[&](peer& client) {
    while (const auto line = client.read_line()) {
      ++seen;
      if (*line != "quiet") client.write(*line + "\n");
    }
  }};
  channel on{*reactor, to(server)};
  std::string into;
  ASSERT_TRUE(is_ok(on.exchange("quiet\n", 0, within(10s), into)));
  EXPECT_TRUE(into.empty());
  reply async;
  on.send("quiet\n", 0, within(10s), async);
  EXPECT_EQ(answer_of(async.get()), "");
  EXPECT_EQ(answer_of(ask(on, "loud")), "loud");
  EXPECT_EQ(seen, 3);
}

TEST_F(net_channel, a_host_name_is_resolved) {
  line_server server;
  auto options = to(server);
  options.where.host = "localhost";
  channel on{*reactor, options};
  EXPECT_EQ(answer_of(ask(on, "hello")), "hello");
}

TEST_F(net_channel, a_host_name_that_does_not_exist_is_unavailable) {
  auto options = to_port(1);
  options.where.host = "no-such-host.invalid";
  channel on{*reactor, options};
  EXPECT_TRUE(fails_with(ask(on, "hello"), errc::unavailable));
}

TEST_F(net_channel, a_unix_socket_does_as_well) {
  const temp_dir dir;
  line_server server{[](peer& client) { client.echo(); }, dir.file("socket")};
  auto options = to_port(0);
  options.where.host = dir.file("socket");
  options.where.is_unix = true;
  channel on{*reactor, options};
  EXPECT_EQ(answer_of(ask(on, "hello")), "hello");
}

// ---- Pushes and streams ------------------------------------------------------------------------------------------

TEST_F(net_channel, pushes_reach_the_listener_and_not_the_callers) {
  line_server server{[](peer& client) {
    while (const auto line = client.read_line())
      client.write("!before " + *line + "\n" + *line + "\n!after\n");
  }};
  listener ears;
  auto options = to(server);
  options.listener = &ears;
  channel on{*reactor, options};
  EXPECT_EQ(answer_of(ask(on, "a")), "a");
  ASSERT_TRUE(ears.hears(3));
  EXPECT_EQ(ears.heard(), (std::vector<std::string>{"up 1", "!before a", "!after"}));
}

TEST_F(net_channel, a_stream_connects_by_itself_hears_and_comes_back_after_a_loss) {
  gate go;
  line_server server{[&](peer& client) {
    client.write("!welcome " + std::to_string(client.number) + "\n");
    if (client.number == 1) return go.wait();
    client.echo();
  }};
  listener ears;
  auto options = to(server);
  options.listener = &ears;
  options.keep_open = true;
  channel on{*reactor, options};
  ASSERT_TRUE(ears.hears(2));
  go.open();
  ASSERT_TRUE(ears.hears(5));
  const auto heard = ears.heard();
  EXPECT_EQ(heard[0], "up 1");
  EXPECT_EQ(heard[1], "!welcome 1");
  EXPECT_EQ(heard[2], "down: " + options.description + " closed the connection");
  EXPECT_EQ(heard[3], "up 2");
  EXPECT_EQ(heard[4], "!welcome 2");
  EXPECT_EQ(answer_of(ask(on, "a call on a stream")), "a call on a stream");
}

// ---- Lifetime ----------------------------------------------------------------------------------------------------

TEST_F(net_channel, destruction_completes_what_is_pending_and_silences_the_listener) {
  gate go;
  line_server server{[&](peer& client) {
    client.read_line();
    go.wait();
  }};
  listener ears;
  reply sent, now, unsent;
  {
    auto options = to(server);
    options.listener = &ears;
    channel on{*reactor, options};
    on.send("a\n", 1, {}, sent);
    on.send_now("b\n", 1, {}, now);
    ASSERT_TRUE(ears.hears(1));
    channel never{*reactor, to(server)};
    never.send("c\n", 1, {}, unsent);
  }
  EXPECT_EQ(sent.times + now.times + unsent.times, 3) << "done when the destructor returns";
  EXPECT_TRUE(fails_with(sent.get(), errc::outcome_unknown));
  EXPECT_TRUE(fails_with(now.get(), errc::outcome_unknown));
  EXPECT_FALSE(unsent.get().has_value());
  EXPECT_EQ(ears.heard(), std::vector<std::string>{"up 1"});
  go.open();
}

TEST_F(net_channel, a_handler_may_destroy_the_channel) {
  line_server server;
  struct last_word final : net::reply_handler {
    std::unique_ptr<channel> on;
    std::atomic<bool> told{false};
    void on_reply(result<std::string_view>) noexcept override {
      on.reset();
      told = true;
    }
  } handler;
  handler.on = std::make_unique<channel>(*reactor, to(server));
  handler.on->send("a\n", 1, {}, handler);
  EXPECT_TRUE(wait_until([&] { return handler.told.load(); }));
}

TEST_F(net_channel, a_blocking_call_on_the_reactors_thread_is_refused) {
  line_server server;
  channel on{*reactor, to(server)};
  std::promise<errc> code;
  reactor->post([&] { code.set_value(ask(on, "a").error().code()); });
  EXPECT_EQ(code.get_future().get(), errc::misconfigured);
}

TEST_F(net_channel, a_forked_child_is_refused_and_leaves_the_parents_connection_alone) {
  line_server server;
  auto on = std::make_unique<channel>(*reactor, to(server));
  ASSERT_EQ(answer_of(ask(*on, "a")), "a");
  const pid_t child = ::fork();
  if (child == 0) {
    reply async;
    on->send("b\n", 1, {}, async);
    const auto refused = ask(*on, "c");
    const bool right = !refused && refused.error().code() == errc::misconfigured &&
                       refused.error().message().find("after fork()") != std::string::npos &&
                       async.failure && async.failure->code() == errc::misconfigured;
    on.reset();
    reactor.reset();
    _exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(answer_of(ask(*on, "d")), "d");
  reply async;
  on->send("e\n", 1, within(10s), async);
  EXPECT_EQ(answer_of(async.get()), "e\n");
  EXPECT_EQ(on->generation(), 1U);
}

}  // namespace
}  // namespace holdfast::testing

// One connection, many callers: it is lost, refused, not greeted, full or nonsense. Each call is told the reason, and
// whether it may have been executed.
#include "support/expect.hpp"
#include "support/temp_dir.hpp"
#include "unit/net/channel_fixture.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <vector>

namespace holdfast::testing {
namespace {

using net::channel;

TEST_F(net_channel, loss_before_the_answer_is_outcome_unknown_and_the_next_call_reconnects) {
  line_server server{[](peer& client) {
    if (client.number > 1) return client.echo();
    client.read_line();
    client.read_line();
    client.write("half an ans");
  }};
  auto options = to(server);
  channel on{*reactor, options};
  reply async;
  auto sync = std::async(std::launch::async, [&] { return ask(on, "a"); });
  on.send("b\n", 1, within(10s), async);
  const auto lost = sync.get();
  ASSERT_TRUE(fails_with(lost, errc::outcome_unknown));
  EXPECT_EQ(lost.error().message(),
            options.description + " closed the connection before it answered");
  EXPECT_TRUE(fails_with(async.get(), errc::outcome_unknown));
  std::string into;
  const auto again = on.exchange("c\n", 1, within(10s), into);
  ASSERT_TRUE(is_ok(again));
  EXPECT_EQ(*again, 2U);
  EXPECT_EQ(on.generation(), 2U);
  EXPECT_EQ(into, "c\n");
}

TEST_F(net_channel, a_reset_is_told_with_its_reason) {
  line_server server{[](peer& client) {
    client.read_line();
    client.reset();
  }};
  channel on{*reactor, to(server)};
  const auto lost = ask(on, "a");
  ASSERT_TRUE(fails_with(lost, errc::outcome_unknown));
  EXPECT_NE(lost.error().message().find("Connection reset by peer"), std::string::npos)
      << lost.error().message();
}

TEST_F(net_channel, an_idle_connection_that_ends_is_noticed_before_the_next_call) {
  gate go;
  line_server server{[&](peer& client) {
    if (client.number > 1) return client.echo();
    client.write(client.read_line().value_or("") + "\n");
    go.wait();
  }};
  channel on{*reactor, to(server)};
  ASSERT_EQ(answer_of(ask(on, "a")), "a");
  go.open();
  ASSERT_TRUE(wait_until([&] { return on.generation() == 0; }));
  EXPECT_EQ(answer_of(ask(on, "b")), "b");
}

TEST_F(net_channel, what_was_not_yet_sent_is_unavailable) {
  gate go;
  line_server server{[&](peer&) { go.wait(); }};  // does not read
  channel on{*reactor, to(server)};
  reply big, behind, last;
  on.send(std::string(std::size_t{24} << 20U, 'x') + "\n", 1, within(10s), big);
  ASSERT_TRUE(wait_until([&] { return on.generation() != 0; }));
  EXPECT_TRUE(stays_true([&] { return big.times == 0; }, 20ms));  // let it fill the socket
  on.send("behind\n", 1, within(10s), behind);
  on.send_now("last\n", 1, within(10s), last);
  on.drop({errc::unavailable, "the test says so"});
  EXPECT_TRUE(fails_with(big.get(), errc::outcome_unknown));
  EXPECT_TRUE(fails_with(behind.get(), errc::unavailable));
  EXPECT_TRUE(fails_with(last.get(), errc::unavailable));
  EXPECT_NE(big.failure->message().find("the test says so"), std::string::npos);
  go.open();
}

TEST_F(net_channel, a_server_that_never_reads_does_not_cost_all_memory) {
  gate go;
  line_server server{[&](peer&) { go.wait(); }};
  std::vector<reply> many(6);  // outlive the channel: most are told by its destructor
  channel on{*reactor, to(server)};
  const std::string big(std::size_t{24} << 20U, 'x');
  for (auto& one : many) on.send_now(big, 1, within(10s), one);
  const auto refused = many.back().get();
  ASSERT_TRUE(fails_with(refused, errc::unavailable));
  EXPECT_NE(refused.error().message().find("does not read"), std::string::npos)
      << refused.error().message();
  EXPECT_EQ(many.front().times, 0);
  go.open();
}

TEST_F(net_channel, a_server_that_reads_late_costs_nobody_an_answer) {
  gate go;
  line_server server{[&](peer& client) {
    go.wait();
    while (const auto line = client.read_line())
      if (!client.write(line->substr(0, 5) + "\n")) return;
  }};
  channel on{*reactor, to(server)};
  std::vector<reply> many(40);
  const std::string half_a_megabyte(std::size_t{1} << 19U, 'x');
  for (auto& one : many) on.send_now(half_a_megabyte + "\n", 1, within(20s), one);
  auto sync =
      std::async(std::launch::async, [&] { return answer_of(ask(on, "short", within(20s))); });
  go.open();
  for (const auto& one : many) EXPECT_EQ(answer_of(one.get()), "xxxxx\n");
  EXPECT_EQ(sync.get(), "short");
}

TEST_F(net_channel, refused_connection_is_unavailable_with_its_reason) {
  const auto options = to_port(free_port());
  channel on{*reactor, options};
  const auto refused = ask(on, "a");
  ASSERT_TRUE(fails_with(refused, errc::unavailable));
  EXPECT_NE(refused.error().message().find(options.description), std::string::npos);
  EXPECT_NE(refused.error().message().find("Connection refused"), std::string::npos)
      << refused.error().message();
}

TEST_F(net_channel, failed_attempts_become_rare_and_calls_between_them_fail_at_once) {
  line_server server{[](peer& client) { client.read_line(); }};
  auto options = to(server);
  options.greeting = "hello\n";
  options.greeting_replies = 1;
  channel on{*reactor, options};
  int calls = 0;
  for (const auto end = std::chrono::steady_clock::now() + 300ms;
       std::chrono::steady_clock::now() < end; ++calls)
    ASSERT_TRUE(fails_with(ask(on, "a"), errc::unavailable));
  // 10, 20, 40, 80 and 160 ms, each at least half of it.
  EXPECT_LE(server.connections(), 8);
  EXPECT_GT(calls, server.connections());
}

TEST_F(net_channel, connects_again_when_the_server_is_back) {
  const temp_dir dir;
  auto options = to_port(0);
  options.where.host = dir.file("socket");
  options.where.is_unix = true;
  channel on{*reactor, options};
  EXPECT_TRUE(fails_with(ask(on, "a"), errc::unavailable));
  line_server server{[](peer& client) { client.echo(); }, dir.file("socket")};
  EXPECT_TRUE(wait_until([&] { return ask(on, "b").has_value(); }));
}

TEST_F(net_channel, a_server_that_does_not_greet_in_time_is_unavailable) {
  gate go;
  line_server server{[&](peer&) { go.wait(); }};
  auto options = to(server);
  options.greeting = "hello\n";
  options.greeting_replies = 1;
  options.connect_timeout = 50ms;
  channel on{*reactor, options};
  const auto late = ask(on, "a");
  ASSERT_TRUE(fails_with(late, errc::unavailable));
  EXPECT_NE(late.error().message().find("no connection within 50 ms"), std::string::npos)
      << late.error().message();
  go.open();
}

TEST_F(net_channel, a_refused_greeting_fails_every_call_with_its_code) {
  line_server server;
  auto options = to(server);
  options.greeting = "let me\nin\n";
  options.greeting_replies = 2;
  options.greeted = [](std::string_view frames) -> result<void> {
    return error{errc::denied, "wrong password: " + std::string{frames}};
  };
  channel on{*reactor, options};
  const auto refused = ask(on, "a");
  ASSERT_TRUE(fails_with(refused, errc::denied));
  EXPECT_EQ(refused.error().message(), "wrong password: let me\nin\n");
  EXPECT_TRUE(fails_with(ask(on, "b"), errc::denied)) << "in the back-off";
  EXPECT_EQ(on.generation(), 0U);
}

TEST_F(net_channel, nonsense_is_a_protocol_error_and_ends_the_connection) {
  line_server server{[](peer& client) {
    if (client.number > 1) return client.echo();
    client.read_line();
    client.write("?what\n");
    client.read_line();
  }};
  channel on{*reactor, to(server)};
  EXPECT_TRUE(fails_with(ask(on, "a"), errc::protocol));
  EXPECT_TRUE(wait_until([&] { return ask(on, "b").has_value(); }));
}

TEST_F(net_channel, an_answer_that_nobody_asked_for_ends_the_connection) {
  line_server server{[](peer& client) {
    if (client.number > 1) return client.echo();
    client.read_line();
    client.write("one\ntwo\n");
    client.read_line();
  }};
  channel on{*reactor, to(server)};
  EXPECT_EQ(answer_of(ask(on, "a")), "one");
  EXPECT_TRUE(wait_until([&] { return ask(on, "b").has_value() && on.generation() == 2; }));
}

}  // namespace
}  // namespace holdfast::testing

// One connection, many callers: some give up, at their deadline or when they are stopped. Answers that come late are
// never taken for others.
#include "support/expect.hpp"
#include "unit/net/channel_fixture.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::testing {
namespace {

using net::channel;

// Answers the first line when the gate is opened, the others at once.
line_server::script slow_first(const gate& go) {
  return [&go](peer& client) {
    bool first = client.number == 1;
    while (const auto line = client.read_line()) {
      if (std::exchange(first, false)) go.wait();
      if (!client.write("answer to " + *line + "\n")) return;
    }
  };
}

TEST_F(net_channel, late_answer_is_never_taken_for_another_calls) {
  gate go;
  line_server server{slow_first(go)};
  channel on{*reactor, to(server)};
  const auto late = ask(on, "a", within(30ms));
  EXPECT_TRUE(fails_with(late, errc::outcome_unknown));
  EXPECT_NE(late.error().message().find("did not answer within"), std::string::npos)
      << late.error().message();
  auto next = std::async(std::launch::async, [&] { return answer_of(ask(on, "b")); });
  go.open();
  EXPECT_EQ(next.get(), "answer to b");
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(net_channel, leader_that_gives_up_hands_the_lead_on) {
  gate go;
  line_server server{slow_first(go)};
  channel on{*reactor, to(server)};
  auto leader = std::async(std::launch::async, [&] { return ask(on, "a", within(100ms)); });
  std::vector<std::future<std::string>> followers;
  for (int i = 0; i < 4; ++i) {
    followers.push_back(
        std::async(std::launch::async, [&, i] { return answer_of(ask(on, std::to_string(i))); }));
  }
  EXPECT_TRUE(fails_with(leader.get(), errc::outcome_unknown));
  go.open();
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(followers[static_cast<std::size_t>(i)].get(), "answer to " + std::to_string(i));
}

TEST_F(net_channel, stop_interrupts_a_leader_and_a_follower_at_once) {
  line_server server{[](peer& client) {
    while (client.read_line()) {
    }
  }};
  channel on{*reactor, to(server)};
  std::stop_source stop;
  auto first =
      std::async(std::launch::async, [&] { return ask(on, "a", {.stop = stop.get_token()}); });
  auto second =
      std::async(std::launch::async, [&] { return ask(on, "b", {.stop = stop.get_token()}); });
  ASSERT_TRUE(wait_until([&] { return on.generation() != 0; }));
  EXPECT_EQ(first.wait_for(50ms), std::future_status::timeout);
  const auto asked = std::chrono::steady_clock::now();
  stop.request_stop();
  EXPECT_TRUE(fails_with(first.get(), errc::outcome_unknown));
  EXPECT_TRUE(fails_with(second.get(), errc::outcome_unknown));
  EXPECT_LT(std::chrono::steady_clock::now() - asked, 2s);
}

TEST_F(net_channel, a_call_that_is_stopped_or_late_before_it_begins_is_not_sent) {
  std::atomic<int> lines{0};
  line_server server{[&](peer& client) {
    while (const auto line = client.read_line()) {
      ++lines;
      client.write(*line + "\n");
    }
  }};
  channel on{*reactor, to(server)};
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(fails_with(ask(on, "a", {.stop = stop.get_token()}), errc::unavailable));
  EXPECT_TRUE(fails_with(ask(on, "b", within(-1ms)), errc::unavailable));
  reply async;
  on.send("c\n", 1, within(-1ms), async);
  EXPECT_TRUE(fails_with(async.get(), errc::unavailable));
  EXPECT_EQ(answer_of(ask(on, "d")), "d");
  EXPECT_EQ(lines, 1);
}

TEST_F(net_channel, a_call_that_gives_up_before_the_connection_is_there_is_never_sent) {
  gate go;
  std::vector<std::string> lines;
  std::mutex guard;
  line_server server{[&](peer& client) {
    const auto greeting = client.read_line();
    go.wait();
    client.write("welcome\n");
    while (const auto line = client.read_line()) {
      {
        std::lock_guard locked{guard};
        lines.push_back(*line);
      }
      client.write(*line + "\n");
    }
  }};
  auto options = to(server);
  options.greeting = "hello\n";
  options.greeting_replies = 1;
  options.connect_timeout = 10s;
  channel on{*reactor, options};
  reply before, behind;
  on.send("before\n", 1, within(10s), before);
  EXPECT_TRUE(fails_with(ask(on, "withdrawn", within(30ms)), errc::unavailable));
  reply also;
  on.send("also withdrawn\n", 1, within(30ms), also);
  on.send("behind\n", 1, within(10s), behind);
  EXPECT_TRUE(fails_with(also.get(), errc::unavailable));
  go.open();
  EXPECT_EQ(answer_of(before.get()), "before\n");
  EXPECT_EQ(answer_of(behind.get()), "behind\n");
  EXPECT_EQ(answer_of(ask(on, "last")), "last");
  EXPECT_EQ(lines, (std::vector<std::string>{"before", "behind", "last"}));
}

TEST_F(net_channel, asynchronous_calls_give_up_at_their_deadline_and_at_their_stop) {
  gate go;
  line_server server{slow_first(go)};
  channel on{*reactor, to(server)};
  std::stop_source stop;
  reply late, now, stopped, patient;
  on.send("a\n", 1, within(30ms), late);
  on.send_now("b\n", 1, within(40ms), now);
  on.send("c\n", 1, {.stop = stop.get_token()}, stopped);
  on.send("d\n", 1, {}, patient);
  EXPECT_TRUE(fails_with(late.get(), errc::outcome_unknown));
  EXPECT_TRUE(fails_with(now.get(), errc::outcome_unknown));
  EXPECT_EQ(stopped.times, 0);
  stop.request_stop();
  EXPECT_TRUE(fails_with(stopped.get(), errc::outcome_unknown));
  go.open();
  EXPECT_EQ(answer_of(patient.get()), "answer to d\n");
  EXPECT_EQ(answer_of(ask(on, "e")), "answer to e");
}

TEST_F(net_channel, a_silent_connection_with_abandoned_calls_is_replaced) {
  line_server server{[](peer& client) {
    if (client.number > 1) return client.echo();
    while (client.read_line()) {
    }
  }};
  auto options = to(server);
  options.longest_silence = 200ms;
  channel on{*reactor, options};
  EXPECT_TRUE(fails_with(ask(on, "a", within(10ms)), errc::outcome_unknown));
  const auto pending = ask(on, "b");
  EXPECT_TRUE(fails_with(pending, errc::outcome_unknown));
  EXPECT_NE(pending.error().message().find("has sent nothing for"), std::string::npos)
      << pending.error().message();
  EXPECT_TRUE(wait_until([&] { return ask(on, "c").has_value(); }));
  EXPECT_EQ(on.generation(), 2U);
}

}  // namespace
}  // namespace holdfast::testing

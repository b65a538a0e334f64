// One connection, many callers: whose answer is whose, whatever the network, the deadlines and the server do.
#include "net/channel.hpp"
#include "net/reactor.hpp"

#include "net_line_server.hpp"
#include "support/expect.hpp"
#include "support/temp_dir.hpp"
#include "support/wait_until.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <list>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using net::channel;
using testing::ask;
using testing::fails_with;
using testing::gate;
using testing::is_ok;
using testing::line_server;
using testing::peer;
using testing::to;
using testing::wait_until;
using testing::within;

// Remembers what it was told, and where.
class reply final : public net::reply_handler {
 public:
  void on_reply(result<std::string_view> frames) noexcept override {
    thread = std::this_thread::get_id();
    if (frames) {
      text = *frames;
    } else {
      failure = frames.error();
    }
    times.fetch_add(1);
  }
  bool came() const {
    return wait_until([this] { return times.load() > 0; });
  }
  result<std::string> get() const {
    if (!came()) return error{errc::timed_out, "the handler was never told"};
    if (failure) return *failure;
    return text;
  }

  std::atomic<int> times{0};
  std::thread::id thread;
  std::string text;
  std::optional<error> failure;
};

class listener final : public net::channel_listener {
 public:
  void on_push(std::string_view frame) noexcept override {
    note(std::string{frame.substr(0, frame.size() - 1)});
  }
  void on_up(std::uint64_t generation) noexcept override {
    note("up " + std::to_string(generation));
  }
  void on_down(const error& why) noexcept override { note("down: " + why.message()); }
  std::vector<std::string> heard() const {
    std::lock_guard locked{guard_};
    return heard_;
  }
  bool hears(std::size_t count) const {
    return wait_until([&] { return heard().size() >= count; });
  }

 private:
  void note(std::string what) {
    std::lock_guard locked{guard_};
    heard_.push_back(std::move(what));
  }
  mutable std::mutex guard_;
  std::vector<std::string> heard_;
};

struct net_channel : ::testing::Test {
  std::unique_ptr<net::reactor> reactor = std::move(net::reactor::start()).value();
};

std::string answer_of(const result<std::string>& got) {
  return got ? *got : "(" + got.error().message() + ")";
}

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
  auto options = testing::to_port(1);
  options.where.host = "no-such-host.invalid";
  channel on{*reactor, options};
  EXPECT_TRUE(fails_with(ask(on, "hello"), errc::unavailable));
}

TEST_F(net_channel, a_unix_socket_does_as_well) {
  const testing::temp_dir dir;
  line_server server{[](peer& client) { client.echo(); }, dir.file("socket")};
  auto options = testing::to_port(0);
  options.where.host = dir.file("socket");
  options.where.is_unix = true;
  channel on{*reactor, options};
  EXPECT_EQ(answer_of(ask(on, "hello")), "hello");
}

// ---- Deadlines and stops ---------------------------------------------------------------------------------------

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

// ---- Loss --------------------------------------------------------------------------------------------------------

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
  EXPECT_TRUE(testing::stays_true([&] { return big.times == 0; }, 20ms));  // let it fill the socket
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
  const auto options = testing::to_port(testing::free_port());
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
  const testing::temp_dir dir;
  auto options = testing::to_port(0);
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

// ---- Calls that nobody waits for ---------------------------------------------------------------------------------

TEST_F(net_channel, send_completes_in_order_on_the_reactors_thread) {
  line_server server;
  channel on{*reactor, to(server)};
  std::thread::id reactors;
  std::promise<void> known;
  reactor->post([&] {
    reactors = std::this_thread::get_id();
    known.set_value();
  });
  known.get_future().wait();

  std::vector<reply> many(1000);
  for (std::size_t i = 0; i < many.size(); ++i)
    on.send(std::to_string(i) + "\n", 1, within(10s), many[i]);
  for (std::size_t i = 0; i < many.size(); ++i) {
    ASSERT_EQ(answer_of(many[i].get()), std::to_string(i) + "\n");
    EXPECT_EQ(many[i].thread, reactors);
    EXPECT_EQ(many[i].times, 1);
  }
}

TEST_F(net_channel, send_now_completes_although_nobody_reads) {
  line_server server;
  channel on{*reactor, to(server)};
  reply alone;
  on.send_now("a\n", 1, within(10s), alone);
  EXPECT_EQ(answer_of(alone.get()), "a\n");
  reply again;
  on.send_now("b\n", 1, within(10s), again);
  EXPECT_EQ(answer_of(again.get()), "b\n");
}

TEST_F(net_channel, send_now_goes_out_before_a_later_exchange_and_is_answered_first) {
  line_server server;
  channel on{*reactor, to(server)};
  std::vector<reply> many(200);
  const auto own = std::this_thread::get_id();
  for (auto& one : many) {
    const auto i = std::to_string(&one - many.data());
    on.send_now("now " + i + "\n", 1, within(10s), one);
    ASSERT_EQ(answer_of(ask(on, "sync " + i)), "sync " + i);
  }
  for (const auto& one : many) {
    EXPECT_EQ(answer_of(one.get()), "now " + std::to_string(&one - many.data()) + "\n");
    EXPECT_NE(one.thread, own) << "a stranger's continuation ran on a caller's thread";
  }
}

// Sends again from its own completion, as a coroutine does.
class chain final : public net::reply_handler {
 public:
  chain(channel& on, int length) : on_(on), left_(length) {}
  void begin() { on_.send(std::to_string(left_) + "\n", 1, within(10s), *this); }
  void on_reply(result<std::string_view> frames) noexcept override {
    if (!frames || *frames != std::to_string(left_) + "\n") wrong = true;
    if (--left_ > 0) return begin();
    ended = true;
  }
  std::atomic<bool> ended{false}, wrong{false};

 private:
  channel& on_;
  int left_;
};

TEST_F(net_channel, threads_and_chains_of_sends_share_a_connection) {
  line_server server;
  channel on{*reactor, to(server)};
  std::list<chain> chains;
  for (int i = 0; i < 50; ++i) chains.emplace_back(on, 100).begin();
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i)
          if (answer_of(ask(on, std::to_string(i))) != std::to_string(i)) ++wrong;
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  for (const auto& one : chains) {
    EXPECT_TRUE(wait_until([&] { return one.ended.load(); }));
    EXPECT_FALSE(one.wrong);
  }
}

TEST_F(net_channel, a_handler_that_retries_at_once_does_not_recurse) {
  channel on{*reactor, testing::to_port(testing::free_port())};
  struct stubborn final : net::reply_handler {
    channel* on = nullptr;
    std::atomic<int> left{20'000};
    void on_reply(result<std::string_view>) noexcept override {
      if (--left > 0) on->send("a\n", 1, within(10s), *this);
    }
  } handler;
  handler.on = &on;
  on.send("a\n", 1, within(10s), handler);
  EXPECT_TRUE(wait_until([&] { return handler.left == 0; }));
}

// Everything at once, with deadlines so short that many calls are abandoned: a wrong answer would be seen.
TEST_F(net_channel, storm_of_abandoned_calls_mixes_up_no_answers) {
  line_server server{[](peer& client) {
    std::minstd_rand random{static_cast<unsigned>(client.number)};
    while (const auto line = client.read_line()) {
      if (random() % 64 == 0) std::this_thread::sleep_for(1ms);
      if (!client.write(*line + "\n")) return;
    }
  }};
  channel on{*reactor, to(server)};
  std::atomic<int> wrong{0}, answered{0}, given_up{0};
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        std::minstd_rand random{t + 1};
        std::list<std::pair<std::string, reply>> strangers;
        for (int i = 0; i < 300; ++i) {
          const auto line = std::to_string(t) + "-" + std::to_string(i);
          const auto length = std::chrono::microseconds{random() % 2000};
          if (random() % 3 == 0) {
            auto& one = strangers.emplace_back();
            one.first = line + "\n";
            if (random() % 2 == 0) {
              on.send(one.first, 1, within(length), one.second);
            } else {
              on.send_now(one.first, 1, within(length), one.second);
            }
            continue;
          }
          const auto got = ask(on, line, within(length));
          (got ? answered : given_up)++;
          if (got && *got != line) ++wrong;
        }
        for (const auto& [expected, one] : strangers) {
          if (!one.came() || one.times != 1) ++wrong;
          if (!one.failure && one.text != expected) ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(answered, 0);
  EXPECT_EQ(answer_of(ask(on, "after the storm")), "after the storm");
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(net_channel, storm_of_losses_answers_every_call_exactly_once) {
  line_server server{[](peer& client) {
    std::minstd_rand random{static_cast<unsigned>(client.number)};
    for (auto left = random() % 40; left > 0; --left) {
      const auto line = client.read_line();
      if (!line || !client.write(*line + "\n")) return;
    }
    if (random() % 2 == 0) client.reset();
  }};
  channel on{*reactor, to(server)};
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < 6; ++t) {
      threads.emplace_back([&, t] {
        std::list<reply> strangers;
        for (int i = 0; i < 200; ++i) {
          const auto line = std::to_string(t) + "-" + std::to_string(i);
          if (i % 3 == 0) on.send(line + "\n", 1, within(5s), strangers.emplace_back());
          if (i % 3 == 1) on.send_now(line + "\n", 1, within(5s), strangers.emplace_back());
          const auto got = ask(on, line, within(5s));
          if (got && *got != line) ++wrong;
        }
        for (const auto& one : strangers)
          if (!one.came() || one.times != 1) ++wrong;
      });
    }
  }
  EXPECT_EQ(wrong, 0);
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

// ---- The reactor -------------------------------------------------------------------------------------------------

TEST_F(net_channel, timers_run_in_order_of_time_and_can_be_cancelled) {
  std::mutex guard;
  std::vector<int> ran;
  const auto note = [&](int which) {
    return [&, which] {
      std::lock_guard locked{guard};
      ran.push_back(which);
    };
  };
  const auto now = std::chrono::steady_clock::now();
  reactor->at(now + 30ms, note(3));
  const auto never = reactor->at(now + 20ms, note(2));
  reactor->at(now + 10ms, note(1));
  EXPECT_TRUE(reactor->cancel(never));
  EXPECT_FALSE(reactor->cancel(never));
  EXPECT_TRUE(wait_until([&] {
    std::lock_guard locked{guard};
    return ran.size() == 2;
  }));
  EXPECT_EQ(ran, (std::vector{1, 3}));
  EXPECT_GE(std::chrono::steady_clock::now(), now + 30ms);
}

TEST_F(net_channel, work_that_throws_does_not_end_the_reactor) {
  std::promise<void> after;
  reactor->post([] { throw std::runtime_error("from the test"); });
  reactor->post([&] { after.set_value(); });
  EXPECT_EQ(after.get_future().wait_for(testing::patience), std::future_status::ready);
}

TEST_F(net_channel, the_reactor_runs_what_was_posted_before_it_ends) {
  std::atomic<int> ran{0};
  for (int i = 0; i < 100; ++i) reactor->post([&] { ++ran; });
  reactor.reset();
  EXPECT_EQ(ran, 100);
}

}  // namespace
}  // namespace holdfast

// A protocol without a socket: bytes in, events out. And a framing is all that a new one with ordered replies needs.
#include "net/ordered_protocol.hpp"

#include "support/expect.hpp"
#include "unit/net/channel_fixture.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace holdfast::testing {
namespace {

using net::protocol_events;
using urgency = protocol_events::urgency;

struct net_ordered_protocol : ::testing::Test {
  explicit net_ordered_protocol(net::channel_options how = to_port(1)) {
    how.listener = &ears;
    how.make_greeting = [this] { return "hello " + std::to_string(++greetings) + "\n"; };
    how.greeting_replies = 1;
    speaks = std::make_unique<net::ordered_protocol>(
        std::make_shared<const net::channel_options>(std::move(how)),
        std::make_shared<std::atomic<net::channel_listener*>>(&ears));
  }
  net::protocol& wire() { return *speaks; }
  protocol_events receive(std::string_view bytes) {
    protocol_events out;
    wire().parse(bytes);
    consumed = wire().receive(bytes, out);
    return out;
  }
  std::string output() {
    protocol_events out;
    std::string chunk;
    wire().take_output(chunk, out);
    return chunk;
  }
  void greet() {
    EXPECT_EQ(output(), "hello 1\n");
    EXPECT_FALSE(receive("").greeted);
    EXPECT_TRUE(receive("welcome\n").greeted);
    wire().on_up(1);
  }
  void run_callbacks() {
    std::unique_lock locked{guard};
    wire().run_callbacks(locked);
  }

  listener ears;
  int greetings = 0;
  std::size_t consumed = 0;
  std::mutex guard;
  std::unique_ptr<net::ordered_protocol> speaks;
};

TEST_F(net_ordered_protocol, sends_the_greeting_first_and_requests_when_it_is_accepted) {
  reply early;
  protocol_events out;
  speaks->begin({"a\n", 1, {}, 0}, early, true, out);
  EXPECT_TRUE(wire().is_urgent());
  greet();
  EXPECT_EQ(output(), "a\n");
  EXPECT_EQ(output(), "");
  EXPECT_EQ(receive("answer\nhalf").take_callbacks(), urgency::now);
  EXPECT_EQ(consumed, 7U);
  EXPECT_EQ(early.times, 0) << "only run_callbacks() tells";
  run_callbacks();
  EXPECT_EQ(early.text, "answer\n");
  EXPECT_FALSE(wire().is_urgent());
  EXPECT_EQ(ears.heard(), std::vector<std::string>{"up 1"});
}

TEST_F(net_ordered_protocol, gives_answers_to_threads_in_the_order_of_their_requests) {
  greet();
  std::string first_into, second_into;
  net::blocked_exchange first{first_into}, second{second_into};
  protocol_events out;
  speaks->begin({"a\n", 1, {}, 0}, first, out);
  speaks->begin({"b\n", 1, {}, 0}, second, out);
  EXPECT_EQ(output(), "a\nb\n");
  auto got = receive("1\n!news\n2\n");
  EXPECT_EQ(got.take_done(), &first);
  EXPECT_EQ(got.take_done(), &second);
  EXPECT_EQ(got.take_done(), nullptr);
  EXPECT_EQ(got.take_callbacks(), urgency::now) << "of the push";
  EXPECT_EQ(first_into + second_into, "1\n2\n");
}

TEST_F(net_ordered_protocol, throws_away_the_late_answer_of_an_abandoned_call) {
  greet();
  std::string first_into, second_into;
  net::blocked_exchange first{first_into}, second{second_into};
  protocol_events out;
  speaks->begin({"a\n", 1, {}, 0}, first, out);
  speaks->begin({"b\n", 1, {}, 0}, second, out);
  output();
  wire().abandon(first, out);
  EXPECT_EQ(first.failure->code(), errc::outcome_unknown);
  EXPECT_LT(out.check_at, steady_time::max()) << "the server may be gone";
  auto got = receive("late\n2\n");
  EXPECT_EQ(got.take_done(), &second);
  EXPECT_EQ(first_into, "");
  EXPECT_EQ(second_into, "2\n");
}

TEST_F(net_ordered_protocol, knows_what_has_certainly_not_left) {
  greet();
  reply left, stuck, queued;
  protocol_events out;
  speaks->begin({"aaaa\n", 1, {}, 0}, left, false, out);
  speaks->begin({"bbbb\n", 1, {}, 0}, stuck, false, out);
  EXPECT_EQ(output(), "aaaa\nbbbb\n");
  wire().on_written(5, out);
  speaks->begin({"cccc\n", 1, {}, 0}, queued, false, out);
  wire().on_lost({errc::unavailable, "gone"}, true, out);
  run_callbacks();
  EXPECT_EQ(left.failure->code(), errc::outcome_unknown);
  EXPECT_EQ(stuck.failure->code(), errc::unavailable);
  EXPECT_EQ(queued.failure->code(), errc::unavailable);
}

TEST_F(net_ordered_protocol, ends_the_connection_for_what_is_not_its_protocol) {
  greet();
  EXPECT_EQ(receive("?\n").failure->code(), errc::protocol);
  EXPECT_EQ(receive("unasked\n").failure->code(), errc::protocol);
}

// ---- A protocol of ZooKeeper's kind: length, number of the request (negative: unasked), body.

std::string packed(std::int32_t number, std::string_view body) {
  std::string out;
  for (const auto value :
       {static_cast<std::uint32_t>(4 + body.size()), static_cast<std::uint32_t>(number)})
    for (const unsigned shift : {24U, 16U, 8U, 0U})
      out += static_cast<char>(value >> shift & 0xFFU);
  return out.append(body);
}

std::uint32_t number_at(std::string_view bytes) {
  std::uint32_t out = 0;
  for (const char c : bytes.substr(0, 4)) out = out << 8U | static_cast<unsigned char>(c);
  return out;
}

class numbered_framing final : public net::framing {
 public:
  result<frame> next(std::string_view bytes) override {
    if (bytes.size() < 8) return frame{};
    const std::size_t length = 4 + number_at(bytes);
    if (length > 1 << 20) return error{errc::protocol, "a frame is too long"};
    if (bytes.size() < length) return frame{};
    return frame{.length = length, .push = number_at(bytes.substr(4)) > 0x7FFFFFFFU};
  }
};

TEST_F(net_channel, a_new_protocol_with_ordered_replies_is_a_framing) {
  // The requests are lines, so that the server is simple. It resumes the session that the greeting names.
  line_server server{[](peer& client) {
    client.write(packed(0, client.read_line().value_or("") + "+"));
    for (int i = 1; const auto line = client.read_line(); ++i)
      if (!client.write(packed(-1, "event") + packed(i, *line))) return;
  }};
  struct push_counter final : net::channel_listener {
    void on_push(std::string_view) noexcept override { ++pushes; }
    std::atomic<int> pushes{0};
  } events;
  std::mutex guard;
  std::string session = "s";
  auto options = to(server);
  options.make_framing = [] { return std::make_unique<numbered_framing>(); };
  options.make_greeting = [&] {
    const std::lock_guard locked{guard};
    return session + "\n";
  };
  options.greeting_replies = 1;
  options.greeted = [&](std::string_view frames) -> result<void> {
    const std::lock_guard locked{guard};
    session = frames.substr(8);
    return {};
  };
  options.listener = &events;
  net::channel on{*reactor, options};
  std::string into;
  ASSERT_TRUE(is_ok(on.exchange("get\n", 1, within(10s), into)));
  EXPECT_EQ(into, packed(1, "get"));
  on.drop({errc::unavailable, "the test says so"});
  ASSERT_TRUE(wait_until([&] { return on.exchange("set\n", 1, within(10s), into).has_value(); }));
  EXPECT_EQ(into, packed(1, "set"));
  const std::lock_guard locked{guard};
  EXPECT_EQ(session, "s++");
  EXPECT_TRUE(wait_until([&] { return events.pushes == 2; }));
}

}  // namespace
}  // namespace holdfast::testing

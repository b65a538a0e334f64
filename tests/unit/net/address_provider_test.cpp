// Where a channel connects to may be asked before each attempt; and several channels may share one reactor.
#include "support/expect.hpp"
#include "unit/net/channel_fixture.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::testing {
namespace {

using net::channel;

net::address at(std::uint16_t port) {
  net::address where;
  where.host = "127.0.0.1";
  where.port = port;
  return where;
}

net::channel_options by(net::address_provider provider) {
  auto options = to_port(0);
  options.description = "line://found";
  options.find_address = std::move(provider);
  return options;
}

// Answers every line with its name in front.
line_server::script named(const std::string& name) {
  return [name](peer& client) {
    while (const auto line = client.read_line())
      if (!client.write(name + " " + *line + "\n")) return;
  };
}

// Does not answer before the test says so; then at once, and twice.
class slow_provider {
 public:
  net::address_provider provider() {
    return [this](const net::address_found& done) {
      {
        const std::lock_guard locked{guard_};
        asked_.push_back(done);
      }
      if (port_ == 0) return;
      done(at(port_));
      done(at(1));
    };
  }
  void answer_from_now_on(std::uint16_t port) { port_ = port; }
  std::size_t asked() const {
    const std::lock_guard locked{guard_};
    return asked_.size();
  }
  bool is_asked(std::size_t times) const {
    return wait_until([&] { return asked() >= times; });
  }
  net::address_found answer_to(std::size_t which) const {
    const std::lock_guard locked{guard_};
    return asked_[which];
  }

 private:
  std::atomic<std::uint16_t> port_{0};
  mutable std::mutex guard_;
  std::vector<net::address_found> asked_;
};

using net_address_provider = net_channel;

TEST_F(net_address_provider, is_asked_before_each_attempt_and_moves_the_channel) {
  auto first = std::make_unique<line_server>(named("first"));
  line_server second{named("second")};
  std::atomic<std::uint16_t> port{first->port()};
  std::atomic<int> asked{0};
  channel on{*reactor, by([&](const net::address_found& done) {
               ++asked;
               done(at(port.load()));
             })};
  EXPECT_EQ(answer_of(ask(on, "a")), "first a");
  EXPECT_EQ(answer_of(ask(on, "b")), "first b");
  EXPECT_EQ(asked, 1) << "not while the connection is there";
  port = second.port();
  first.reset();
  ASSERT_TRUE(wait_until([&] { return answer_of(ask(on, "c")) == "second c"; }));
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(on.generation(), 2U);
}

TEST_F(net_address_provider, that_fails_fails_the_calls_and_is_asked_again_with_growing_pauses) {
  std::atomic<int> asked{0};
  channel on{*reactor, by([&](const net::address_found& done) {
               ++asked;
               done(error{errc::outcome_unknown, "no sentinel has answered"});
             })};
  int calls = 0;
  for (const auto end = std::chrono::steady_clock::now() + 300ms;
       std::chrono::steady_clock::now() < end; ++calls) {
    const auto refused = ask(on, "a");
    // Whatever the provider met with: nothing of this call has left.
    ASSERT_TRUE(fails_with(refused, errc::unavailable));
    ASSERT_EQ(refused.error().message(),
              "line://found cannot be reached: no sentinel has answered");
  }
  EXPECT_GE(asked, 2);
  EXPECT_LE(asked, 8);  // 10, 20, 40, 80 and 160 ms, each at least half of it
  EXPECT_GT(calls, asked);
}

TEST_F(net_address_provider, that_is_late_is_unavailable_and_its_late_answer_counts_for_nothing) {
  line_server server;
  slow_provider slow;
  auto options = by(slow.provider());
  options.connect_timeout = 50ms;
  channel on{*reactor, options};
  const auto late = ask(on, "a");
  ASSERT_TRUE(fails_with(late, errc::unavailable));
  EXPECT_EQ(late.error().message(), "line://found cannot be reached: no address within 50 ms");
  reactor->post([&] { slow.answer_to(0)(at(server.port())); });
  ASSERT_TRUE(wait_until([&] {
    static_cast<void>(ask(on, "b", within(1ms)));
    return slow.asked() >= 2;
  }));
  EXPECT_EQ(server.connections(), 0);
  slow.answer_from_now_on(server.port());
  EXPECT_TRUE(wait_until([&] { return ask(on, "c").has_value(); }));
}

TEST_F(net_address_provider, may_be_asked_while_the_channel_is_closed) {
  slow_provider slow;
  reply unsent;
  {
    channel on{*reactor, by(slow.provider())};
    on.send("a\n", 1, {}, unsent);
    ASSERT_TRUE(slow.is_asked(1));
  }
  EXPECT_EQ(unsent.times, 1);
  EXPECT_TRUE(fails_with(unsent.get(), errc::unavailable));
  std::atomic<bool> answered{false};
  reactor->post([&] {
    slow.answer_to(0)(at(1));
    slow.answer_to(0)(error{errc::unavailable, "too late"});
    answered = true;
  });
  EXPECT_TRUE(wait_until([&] { return answered.load(); }));
}

// What Sentinel needs: the address is asked over another channel of the same reactor.
class asked_over final : public net::reply_handler {
 public:
  static net::address_provider provider(channel& over) {
    return [&over](net::address_found done) {
      over.send("where\n", 1, within(1s), *new asked_over{std::move(done)});
    };
  }

 private:
  explicit asked_over(net::address_found done) : done_(std::move(done)) {}
  void on_reply(result<std::string_view> frames) noexcept override {
    const auto done = std::move(done_);
    const result<std::string> said =
        frames ? result<std::string>{std::string{*frames}} : result<std::string>{frames.error()};
    delete this;
    if (!said) return done(said.error());
    done(at(static_cast<std::uint16_t>(std::stoul(*said))));
  }
  net::address_found done_;
};

TEST_F(net_address_provider, may_ask_over_another_channel_of_the_same_reactor) {
  auto master = std::make_unique<line_server>(named("old"));
  line_server promoted{named("new")};
  std::atomic<std::uint16_t> port{master->port()};
  line_server sentinel{[&](peer& client) {
    while (client.read_line())
      if (!client.write(std::to_string(port) + "\n")) return;
  }};
  channel to_sentinel{*reactor, to(sentinel)};
  auto options = by(asked_over::provider(to_sentinel));
  options.keep_open = true;
  listener ears;
  options.listener = &ears;
  channel on{*reactor, options};
  ASSERT_TRUE(ears.hears(1));
  EXPECT_EQ(answer_of(ask(on, "a")), "old a");
  port = promoted.port();
  master.reset();
  ASSERT_TRUE(ears.hears(3)) << "down, and up again by itself";
  EXPECT_EQ(ears.heard().back(), "up 2");
  EXPECT_EQ(answer_of(ask(on, "b")), "new b");
}

// What Redlock needs.
TEST_F(net_channel, several_servers_on_one_reactor_do_not_wait_for_one_that_is_stopped) {
  gate go;
  line_server stopped{[&](peer&) { go.wait(); }};
  line_server second{named("second")}, third{named("third")};
  channel to_stopped{*reactor, to(stopped)};
  channel to_second{*reactor, to(second)}, to_third{*reactor, to(third)};
  std::vector<reply> unanswered(20);
  for (auto& handler : unanswered) to_stopped.send("x\n", 1, within(400ms), handler);
  to_stopped.send_now("y\n", 1, within(400ms), unanswered.front());

  for (int i = 0; i < 200; ++i) {
    reply one_way, other_way;
    to_second.send("a\n", 1, within(10s), one_way);
    to_third.send("b\n", 1, within(10s), other_way);
    ASSERT_EQ(answer_of(one_way.get()), "second a\n");
    ASSERT_EQ(answer_of(other_way.get()), "third b\n");
    ASSERT_EQ(answer_of(ask(to_second, "c")), "second c");
    ASSERT_EQ(answer_of(ask(to_third, "d")), "third d");
  }
  for (auto& handler : unanswered) EXPECT_TRUE(fails_with(handler.get(), errc::outcome_unknown));
  go.open();
}

}  // namespace
}  // namespace holdfast::testing

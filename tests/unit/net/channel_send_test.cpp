// One connection, many callers: calls that nobody waits for, alone, mixed with others, and in storms.
#include "unit/net/channel_fixture.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <list>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace holdfast::testing {
namespace {

using net::channel;

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
  channel on{*reactor, to_port(free_port())};
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

}  // namespace
}  // namespace holdfast::testing

// The connections of several clients on one reactor (Redlock), to a server that is found by asking (Sentinel).
#include "engines/redis/connections.hpp"

#include "support/expect.hpp"
#include "support/redis_server.hpp"
#include "support/wait_until.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::testing {
namespace {

using engines::redis::connections;
using engines::redis::settings;

struct redis_connections : ::testing::Test {
  void SetUp() override { need(redis_server::available(), "redis"); }

  std::unique_ptr<connections> connect(const redis_server& server, connections::transport over) {
    settings how;
    how.where.host = "127.0.0.1";
    how.where.port = server.port();
    how.url = server.url();
    how.connections = 2;
    auto made = std::move(connections::start(how, std::move(over))).value();
    made->connect(false, {}, {});
    return made;
  }
  static std::string ask(connections& over, std::vector<std::string_view> words,
                         std::chrono::nanoseconds length = 10s) {
    call soon;
    soon.deadline = std::chrono::steady_clock::now() + length;
    const auto got = words.size() == 1 ? over.run(over.of("a"), {words[0]}, soon)
                                       : over.run(over.of("a"), {words[0], words[1]}, soon);
    return got ? std::string{got->values.front().text} : "(" + got.error().message() + ")";
  }

  std::unique_ptr<net::reactor> reactor = std::move(net::reactor::start()).value();
};

TEST_F(redis_connections, to_three_servers_share_one_reactor_and_one_stopped_slows_no_other) {
  redis_server first;
  const redis_server second, third;
  redis_command(second, {"SET", "name", "second"});
  redis_command(third, {"SET", "name", "third"});
  auto to_first = connect(first, {.reactor = reactor.get()});
  auto to_second = connect(second, {.reactor = reactor.get()});
  auto to_third = connect(third, {.reactor = reactor.get()});
  ASSERT_EQ(ask(*to_first, {"PING"}), "PONG");
  first.stop();
  std::atomic<int> failed{0};
  call soon;
  soon.deadline = std::chrono::steady_clock::now() + 300ms;
  for (int i = 0; i < 20; ++i)
    to_first->post(to_first->of("a"), engines::redis::command({"PING"}), soon, {},
                   [&](const result<engines::redis::answer>& got) { failed += got ? 0 : 1; });
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(ask(*to_second, {"GET", "name"}), "second");
    ASSERT_EQ(ask(*to_third, {"GET", "name"}), "third");
  }
  EXPECT_TRUE(wait_until([&] { return failed == 20; }));
  // What was posted for it, and the look once a second, must not hurt when it is gone and its reactor is not.
  to_first.reset();
  EXPECT_TRUE(stays_true([&] { return ask(*to_second, {"GET", "name"}) == "second"; }, 1200ms));
  first.resume();
}

// As when an answer that comes on it drops the last owner.
TEST_F(redis_connections, can_end_on_the_thread_of_a_shared_reactor) {
  const redis_server server;
  auto ending = connect(server, {.reactor = reactor.get()});
  auto staying = connect(server, {.reactor = reactor.get()});
  ASSERT_EQ(ask(*ending, {"PING"}), "PONG");
  std::atomic<bool> ended{false};
  reactor->post([&] {
    ending.reset();
    ended = true;
  });
  ASSERT_TRUE(wait_until([&] { return ended.load(); }));
  EXPECT_TRUE(stays_true([&] { return ask(*staying, {"PING"}) == "PONG"; }, 1200ms));
}

TEST_F(redis_connections, follow_the_address_provider_to_another_server) {
  auto old_master = std::make_unique<redis_server>();
  const redis_server new_master;
  redis_command(*old_master, {"SET", "name", "old"});
  redis_command(new_master, {"SET", "name", "new"});
  std::atomic<std::uint16_t> port{old_master->port()};
  const auto provider = [&](const net::address_found& done) {
    net::address where;
    where.host = "127.0.0.1";
    where.port = port;
    done(std::move(where));
  };
  auto over = connect(*old_master, {.find_address = provider});
  EXPECT_EQ(ask(*over, {"GET", "name"}), "old");
  port = new_master.port();
  old_master->kill();
  EXPECT_TRUE(wait_until([&] { return ask(*over, {"GET", "name"}) == "new"; }));
}

}  // namespace
}  // namespace holdfast::testing

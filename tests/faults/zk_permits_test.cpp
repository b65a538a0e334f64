// What breaks here: permits. The session ends while they are asked for; clients do not agree on their number. What must
// hold: those who ask go on; all permits that are out are of one number.
#include "faults/zk_faults.hpp"

#include <barrier>
#include <deque>
#include <optional>
#include <thread>

namespace holdfast::testing {
namespace {

class zk_permits : public zk_faults {
 protected:
  static std::size_t permits_out(const zookeeper_server& server) {
    return ephemerals(server, "/seats/leases/").size();
  }
};

// Requests that were on their way are lost; those that were made meanwhile reach the server in the next session.
TEST_F(zk_permits, are_had_again_after_the_session_ended_under_requests) {
  const zookeeper_server server;
  fault_proxy net{server.port()};
  const auto a = client::open(zk_url(net, "session=4s"));
  net.delay(fault_proxy::replies, 20ms);  // so there are always requests under way
  std::atomic<bool> done{false};
  std::array<std::atomic<int>, 8> grants{};
  std::vector<std::thread> busy;
  for (std::size_t i = 0; i < grants.size(); ++i)
    busy.emplace_back([&, i] {
      counting_semaphore seats{a, fmt::format("seats-{}", i), 2};
      while (!done) {
        auto held = seats.acquire_permits(1, {.wait = 2 * patience});
        if (held && held->release()) ++grants[i];
      }
    });
  for (int round = 0; round < 5; ++round) {
    auto kept = mutex{a, "kept"}.acquire({.wait = patience});
    EXPECT_TRUE(is_ok(kept)) << "round " << round;
    if (!kept) break;
    net.refuse(), net.cut();  // see end_session in zk_sessions_test.cpp
    EXPECT_TRUE(zookeeper_hand{server}.expire(contenders(server, "kept").at(0).session));
    net.heal();
    net.delay(fault_proxy::replies, 20ms);
    EXPECT_TRUE(wait_until([&] { return !kept->valid(); }));
    std::array<int, grants.size()> before{};
    for (std::size_t i = 0; i < grants.size(); ++i) before[i] = grants[i];
    for (std::size_t i = 0; i < grants.size(); ++i)
      EXPECT_TRUE(wait_until([&] { return grants[i] >= before[i] + 2; })) << "round " << round;
  }
  done = true;
  for (auto& one : busy) one.join();
}

// ---- their number

// One has made its permit and does not know yet that it is the only one. Another comes, with the number that was last
// in use.
TEST_F(zk_permits, numbers_are_not_changed_under_another_holder) {
  const zookeeper_server server;
  fault_proxy net{server.port()};
  const auto a = client::open(zk_url(net, "session=20s")), b = client::open(server.url());
  counting_semaphore two{a, "seats", 2}, three{b, "seats", 3};
  ASSERT_TRUE(is_ok(three.acquire_permits(1, {.wait = patience})));  // and is given back
  ASSERT_TRUE(wait_until([&] { return permits_out(server) == 0; }));
  net.hold(fault_proxy::replies);
  auto waiting =
      std::async(std::launch::async, [&] { return two.acquire_permits(1, {.wait = 3s}); });
  ASSERT_TRUE(wait_until([&] { return permits_out(server) == 1; }));
  auto other = three.acquire_permits(1, {.wait = 0s});
  net.heal();
  auto held = get(waiting);
  EXPECT_FALSE(held && other) << "one of two, and one of three";
  for (const auto* outcome : {&held, &other}) {
    if (!*outcome) {
      EXPECT_TRUE(fails_with(*outcome, errc::misconfigured));
    }
  }
}

// The same when it learns of its permit by asking what became of its request.
TEST_F(zk_permits, numbers_are_not_changed_by_one_whose_answer_was_lost) {
  const zookeeper_server server;
  fault_proxy net{server.port()};
  const auto a = client::open(zk_url(net, "session=20s")), b = client::open(server.url());
  counting_semaphore two{a, "seats", 2}, three{b, "seats", 3};
  ASSERT_TRUE(is_ok(three.acquire_permits(1, {.wait = patience})));
  ASSERT_TRUE(wait_until([&] { return permits_out(server) == 0; }));
  net.drop(fault_proxy::replies);
  auto waiting = std::async(std::launch::async,
                            [&] { return two.acquire_permits(1, {.wait = 2 * patience}); });
  ASSERT_TRUE(wait_until([&] { return permits_out(server) == 1; }));
  auto other = three.acquire_permits(1, {.wait = 0s});
  ASSERT_TRUE(is_ok(other));
  net.heal(), net.cut();
  EXPECT_TRUE(fails_with(get(waiting), errc::misconfigured)) << "one of two, and one of three";
  EXPECT_TRUE(other->valid());
  EXPECT_EQ(permits_out(server), 1U);
}

// An unused name may be used with another number, unless what lies there is not ours to remove.
TEST_F(zk_permits, number_may_change_when_none_is_out) {
  const zookeeper_server server;
  const auto a = client::open(server.url());
  for (const std::size_t number : {3U, 2U, 5U}) {
    auto held = counting_semaphore{a, "seats", number}.acquire_permits(number, {.wait = patience});
    ASSERT_TRUE(is_ok(held));
    EXPECT_EQ(permits_out(server), number);
    ASSERT_TRUE(is_ok(held->release()));
  }
  zookeeper_hand{server}.create({.path = "/seats/leases/notes"});
  EXPECT_TRUE(is_ok(counting_semaphore{a, "seats", 5}.acquire_permits(1, {.wait = patience})));
  EXPECT_TRUE(fails_with(counting_semaphore{a, "seats", 4}.acquire_permits(1, {.wait = patience}),
                         errc::misconfigured));
}

// Each is a node, and all are made by one request, of which a server takes 1 MB; more, and it closes the connection.
TEST_F(zk_permits, more_than_a_packet_are_refused_in_words) {
  const zookeeper_server server;
  const auto top = "/" + std::string(200, 't');
  zookeeper_hand{server}.create({.path = top});
  const auto a = client::open(server.url() + top);
  auto held = mutex{a, "other"}.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(held));
  const auto dropped = [&] { return server.metric("zk_connection_drop_count"); };
  const auto before = dropped();
  std::string name;
  for (int i = 0; i < 63; ++i)
    name += "\xF0\x9F\x98\x80";  // which a path cannot have: each takes 12
  counting_semaphore seats{a, name, 1000};
  const std::string label(64, 'x');
  EXPECT_TRUE(
      fails_with(seats.acquire_permits(1000, {.wait = 3s, .label = label}), errc::unsupported));
  EXPECT_EQ(dropped(), before);
  EXPECT_TRUE(held->valid());
  EXPECT_TRUE(is_ok(seats.acquire_permits(500, {.wait = patience, .label = label})));
}

TEST_F(zk_permits, clients_with_different_numbers_never_both_enter) {
  const zookeeper_server server;
  std::deque<client> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(client::open(server.url()));
  constexpr int rounds = 40;
  std::atomic<int> inside{0}, entered{0};
  std::barrier<> together{3};
  std::vector<std::thread> crowd;
  for (std::size_t i = 0; i < clients.size(); ++i)
    crowd.emplace_back([&, i] {
      counting_semaphore seats{clients[i], "seats", 2 + i};
      for (int round = 0; round < rounds; ++round) {
        together.arrive_and_wait();
        auto held = seats.acquire_permits(1, {.wait = 0s});
        if (held) {
          ++inside, ++entered;
        } else {
          EXPECT_TRUE(held.error().code() == errc::misconfigured ||
                      held.error().code() == errc::busy)
              << held.error().message();
        }
        together.arrive_and_wait();
        EXPECT_LE(inside, 1) << "round " << round;
        together.arrive_and_wait();
        if (held) {
          --inside;
          EXPECT_TRUE(is_ok(held->release()));
        }
      }
    });
  for (auto& one : crowd) one.join();
  EXPECT_GT(entered, 0);
}

}  // namespace
}  // namespace holdfast::testing

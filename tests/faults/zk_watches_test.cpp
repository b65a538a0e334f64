// What breaks here: nothing but patience. Names are waited for that never come, and counters that were forgotten. What
// must hold: the waiting costs the server next to nothing, for as long as it lasts and afterwards.
#include "faults/zk_faults.hpp"

namespace holdfast::testing {
namespace {

class zk_watches : public zk_faults {};

// Its node stays for a while; it counts as absent, and no change of it is to be expected.
TEST_F(zk_watches, wait_for_a_forgotten_counter_is_quiet) {
  const zookeeper_server server;
  const auto a = client::open(server.url() + "?session=20s");
  const latch loaded{a, "loaded", 5, 500ms};
  ASSERT_TRUE(wait_until([&] { return !loaded.value(); })) << "it is to be forgotten";
  const auto before = server.requests();
  EXPECT_TRUE(fails_with(loaded.wait(2s), errc::timed_out));
  EXPECT_LT(server.requests() - before, 60);
}

// While one that is to be forgotten soon is waited for, that time comes.
TEST_F(zk_watches, wait_for_a_counter_that_is_being_forgotten_is_quiet) {
  const zookeeper_server server;
  const auto a = client::open(server.url() + "?session=20s");
  const latch loaded{a, "loaded", 5, 700ms};
  const auto before = server.requests();
  EXPECT_TRUE(fails_with(loaded.wait(2s), errc::timed_out));
  EXPECT_LT(server.requests() - before, 60);
  EXPECT_TRUE(fails_with(loaded.value(), errc::not_held));
  latch next{a, "loaded", 1};
  ASSERT_TRUE(is_ok(next.count_down()));
  EXPECT_TRUE(is_ok(loaded.wait(patience))) << "the next one of the name is heard of";
}

// No client may come back to its name: so whoever lists them takes it away.
TEST_F(zk_watches, forgotten_counters_are_gone_after_they_were_listed) {
  const zookeeper_server server;
  const auto a = client::open(server.url());
  const latch brief{a, "brief", 5, 300ms}, lasting{a, "lasting", 5};
  ASSERT_TRUE(wait_until([&] { return !brief.value(); }));
  const auto listed = a.latches();
  ASSERT_TRUE(is_ok(listed));
  EXPECT_EQ(listed->size(), 1U);
  zookeeper_hand hand{server};
  for (const std::string folder : {"/~counters", "/~kept"})
    EXPECT_TRUE(
        wait_until([&] { return hand.children(folder) == std::vector<std::string>{"lasting"}; }));
  EXPECT_EQ(lasting.value().value_or(0), 5U);
}

// Whether it may be changed depends on what may not be read: the change said so again and again, for ever.
TEST_F(zk_watches, counter_whose_time_may_not_be_read_is_refused) {
  const zookeeper_server server;
  zookeeper_hand operators{server};
  operators.log_in("other:user");
  operators.create({.path = "/~kept"});
  operators.create({.path = "/~kept/loaded", .data = "1000", .rights = jute::creator_only()});
  const auto a = client::open(server.url());
  EXPECT_TRUE(fails_with(latch(a, "loaded").set(5), errc::denied));
}

TEST_F(zk_watches, names_that_never_come_leave_a_bounded_number_behind) {
  const zookeeper_server server;
  const auto a = client::open(server.url() + "?session=20s");
  std::int64_t most = 0;
  for (int i = 0; i < 3000; ++i) {
    const latch never{a, fmt::format("never-{}", i)};
    ASSERT_TRUE(fails_with(never.wait(1ms), errc::timed_out));
    if (i % 250 == 249) most = std::max(most, server.metric("zk_watch_count"));
  }
  EXPECT_GT(most, 100) << "they were watched";
  EXPECT_LE(most, 1100);
  // What is waited for is not among those that were removed.
  latch loaded{a, "never-2999", 1};
  auto waiting = std::async(std::launch::async, [&] { return loaded.wait(patience); });
  ASSERT_TRUE(is_ok(loaded.count_down()));
  EXPECT_TRUE(is_ok(waiting.get()));
}

}  // namespace
}  // namespace holdfast::testing

// What breaks here: the network, for real. Servers, and the clients that live beside them, are cut off: packets vanish,
// nothing is closed or reset, and everybody runs on and believes what it likes. What must hold: never two valid
// holders at a time, compared by the one clock of all (C3); a holder that is cut off says so when its time is up (S2,
// S5), although its server answers it all the while; tokens rise over all of it (S1); after healing all waiters are
// served (L2).
#include "faults/partition.hpp"
#include "faults/zk_faults.hpp"

namespace holdfast::testing {
namespace {

using cut_up_ensemble = cut_up<zookeeper_server>;

class zk_partition : public zk_faults {
 protected:
  void SetUp() override {
    zk_faults::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (const auto lab = network_lab::available(); !lab) GTEST_SKIP() << lab.why;
  }
};

// Nine seconds are believed for six.
void expect_no_loss_without_leader(leader_is_cut how) {
  cut_up_ensemble all;
  expect_a_kept_lease(all, all.servers.url() + "?session=9s", 6s, how);
}

TEST_F(zk_partition, leader_cut_off_from_all_costs_no_lease) {
  expect_no_loss_without_leader(leader_is_cut::from_all);
}

// It still talks to its clients, and for a moment it does not know that it leads nobody.
TEST_F(zk_partition, leader_cut_off_from_the_other_nodes_costs_no_lease) {
  expect_no_loss_without_leader(leader_is_cut::from_nodes);
}

// The holder sees one server only, which hears of no other, and which answers pings out of its own memory for four
// seconds: twice as long as the session lasts at the leader. So only what a majority has agreed to is proof.
TEST_F(zk_partition, holder_on_the_minority_side_is_lost_although_its_server_answers_pings) {
  cut_up_ensemble all{3, {.sync_limit = 16}};
  token_log tokens;
  for (int round = 0; round < 3; ++round) {
    const auto leader = all.servers.leader();
    const auto alone = round == 1 ? leader : (leader + 1) % 3, beside = (alone + 1) % 3;
    const auto a = all.open(alone, all.servers.url(alone) + "?session=2s", {.call_timeout = 2s});
    const auto b = all.open(beside, all.servers.url() + "?session=20s");
    mutex ours{a, "stock"}, theirs{b, "stock"};
    auto held = ours.acquire({.wait = patience, .ttl = 2s});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    const loss_recorder loss{*held};
    successor next{theirs, *held, 6s};
    ASSERT_TRUE(one_waits(all.servers, "stock"));
    const auto node = contenders(all.servers, "stock").at(0).path;
    zookeeper_hand hand{all.servers, {.node = alone}};
    all.lab.cut(alone);
    const auto cut = std::chrono::steady_clock::now();
    const auto end = end_of_validity(*held);
    EXPECT_TRUE(hand.ping()) << "the test is about this: its server still answers";
    EXPECT_TRUE(hand.remembers(node)) << "and still shows its node";
    ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
    EXPECT_LE(loss.when() - end, 250ms);
    EXPECT_LE(end, cut + 2s) << "nothing can have been agreed to after the cut";
    EXPECT_FALSE(held->renew());
    EXPECT_FALSE(ours.try_acquire()) << "a minority grants nothing";
    auto other = next.get();
    ASSERT_TRUE(is_ok(other)) << "round " << round;
    tokens.add(other->token());
    EXPECT_LT(end, next.when()) << "round " << round;
    EXPECT_FALSE(held->valid());
    all.lab.join(alone);
    EXPECT_TRUE(is_proven(all.servers, *other));
    EXPECT_TRUE(is_ok(other->release()));
    ASSERT_TRUE(all.heals());
    auto again = acquire_at_last(ours);
    ASSERT_TRUE(is_ok(again));
    tokens.add(again->token());
    EXPECT_TRUE(is_ok(again->release()));
  }
  EXPECT_TRUE(leaves_nothing(all.servers)) << left_behind(all.servers);
}

// In line before the cut, and next when the holder goes; its server hears of neither, nor of the end of its session.
TEST_F(zk_partition, waiter_on_the_minority_side_gets_nothing_until_it_is_back) {
  cut_up_ensemble all{3, {.sync_limit = 16}};
  const auto alone = (all.servers.leader() + 1) % 3;
  const auto outside = all.open(network_lab::hub, all.servers.url() + "?session=10s");
  const auto inside = all.open(alone, all.servers.url(alone) + "?session=2s");
  mutex ours{outside, "stock"}, theirs{inside, "stock"};
  auto held = ours.acquire({.wait = patience, .ttl = 6s});
  ASSERT_TRUE(is_ok(held));
  auto waiting = std::async(std::launch::async, [&] { return acquire_at_last(theirs); });
  ASSERT_TRUE(one_waits(all.servers, "stock"));
  all.lab.cut(alone);
  const auto first = held->token();
  ASSERT_TRUE(wait_until([&] { return held->release().has_value() || !held->valid(); }));
  auto second = ours.acquire({.wait = 2 * patience, .ttl = 6s});
  ASSERT_TRUE(is_ok(second)) << "the waiter's session is over, and so is its turn";
  EXPECT_GT(second->token(), first);
  EXPECT_TRUE(stays_true([&] { return second->valid() && !is_ready(waiting); }, 1s));
  all.lab.join(alone);
  const auto newest = second->token();
  EXPECT_TRUE(is_ok(second->release()));
  auto served = testing::get(waiting, 4 * patience);
  ASSERT_TRUE(is_ok(served));
  EXPECT_GT(served->token(), newest);
  EXPECT_TRUE(is_ok(served->release()));
}

// ---- everybody fights, and cables are pulled

class zk_partition_history : public zk_partition {};

void check_record(cut_up_ensemble& all, fighters& everybody, history& record,
                  std::size_t holders_hit) {
  ASSERT_TRUE(all.heals());
  everybody.forget();
  EXPECT_TRUE(wait_until([&] { return everybody.everybody_was_served(); }, 3 * patience))
      << everybody.story();
  everybody.stop();
  ::testing::Test::RecordProperty("grants", static_cast<int>(record.size()));
  EXPECT_GE(record.losses(), holders_hit) << "a run without faults";
  EXPECT_EQ(record.check(), 0);
  EXPECT_TRUE(leaves_nothing(all.servers)) << left_behind(all.servers);
}

TEST_F(zk_partition_history, never_two_holders_while_holders_are_cut_off) {
  cut_up_ensemble all{5};
  history record;
  fighters everybody{record, 0};
  let_all_fight(all, everybody);
  for (int round = 0; round < 4; ++round) {
    ASSERT_TRUE(is_busy(record, 30)) << "a run without load\n" << everybody.story();
    // The one beside the leader, beside another server, and one that knew all of them.
    const auto leader = all.servers.leader();
    const std::size_t victim = std::array{leader, (leader + 1) % 3, std::size_t{3}, leader}.at(
        static_cast<std::size_t>(round));
    ASSERT_TRUE(everybody.let_linger(victim));
    all.lab.cut(victim);
    EXPECT_TRUE(is_busy(record, 20)) << "the others go on\n" << everybody.story();
    all.lab.join(victim);
    ASSERT_TRUE(all.heals());
  }
  check_record(all, everybody, record, 3);
}

TEST_F(zk_partition_history, never_two_holders_while_nodes_part) {
  cut_up_ensemble all{5};
  history record;
  fighters everybody{record, 0};
  let_all_fight(all, everybody);
  ASSERT_TRUE(is_busy(record, 30)) << "a run without load";

  // All clients still hear both sides.
  auto leader = all.servers.leader();
  ASSERT_TRUE(everybody.let_linger(leader));
  all.depose(leader);
  EXPECT_TRUE(is_busy(record, 20)) << "two are enough\n" << everybody.story();
  all.reinstate(leader);
  ASSERT_TRUE(all.heals());

  // No majority anywhere.
  leader = all.servers.leader();
  ASSERT_TRUE(everybody.let_linger(5));
  for (const auto node : {leader, (leader + 1) % 3}) all.lab.cut(node);
  EXPECT_TRUE(falls_silent(record));
  for (const auto node : {leader, (leader + 1) % 3}) all.lab.join(node);
  check_record(all, everybody, record, 1);
}

}  // namespace
}  // namespace holdfast::testing

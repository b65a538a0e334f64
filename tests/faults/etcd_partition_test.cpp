// What breaks here: the network, for real. Nodes, and the clients that live beside them, are cut off: packets vanish,
// nothing is closed or reset, and everybody runs on and believes what it likes. What must hold: never two valid
// holders at a time, compared by the one clock of all (C3); a holder who is cut off says so when its time is up (S2,
// S5); tokens rise over all of it (S1); a minority shows nothing rather than what it remembers; after healing whoever
// waits is served (L2).
#include "faults/etcd_history.hpp"
#include "faults/partition.hpp"

namespace holdfast::testing {
namespace {

using cut_up_cluster = cut_up<etcd_server>;

steady_time now() { return std::chrono::steady_clock::now(); }

class etcd_partition : public etcd_faults {
 protected:
  void SetUp() override {
    etcd_faults::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (const auto lab = network_lab::available(); !lab) GTEST_SKIP() << lab.why;
  }
};

long long ms(nanoseconds length) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(length).count();
}

// ---- the leader is cut off; the holder is not

// Six seconds are enough to find the next leader, and for it to be found.
void leader_is_lost_and_no_lease(leader_is_cut how) {
  cut_up_cluster all;
  expect_a_kept_lease(all, all.servers.url() + "?session=6s", 6s, how);
}

TEST_F(etcd_partition, leader_cut_off_from_all_costs_no_lease) {
  leader_is_lost_and_no_lease(leader_is_cut::from_all);
}

// It still talks to its clients, and for a moment it does not know that it leads nobody.
TEST_F(etcd_partition, leader_cut_off_from_the_other_nodes_costs_no_lease) {
  leader_is_lost_and_no_lease(leader_is_cut::from_nodes);
}

// Two seconds may or may not be enough. Whoever keeps its lock has it, and whoever loses it says so in time.
TEST_F(etcd_partition, short_session_is_kept_or_lost_on_time_when_the_leader_is_cut_off) {
  cut_up_cluster all;
  const auto url = all.servers.url() + "?session=2s";
  const auto a = all.open(network_lab::hub, url), b = all.open(network_lab::hub, url);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  token_log tokens;
  int kept = 0;
  for (int round = 0; round < 4; ++round) {
    const auto how = round % 2 == 0 ? leader_is_cut::from_nodes : leader_is_cut::from_all;
    auto held = ours.acquire({.wait = patience, .ttl = 2s});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    const loss_recorder loss{*held};
    successor next{theirs, *held, 2s};
    ASSERT_TRUE(wait_for_entries(all.servers, "stock", 2));
    const auto leader = all.servers.leader();
    isolate(all, leader, how);
    const auto cut = now();
    auto end = held->valid_until();
    ASSERT_TRUE(wait_until([&] {
      if (held->valid()) end = held->valid_until();
      return !held->valid() || end > cut + 3s;
    }));
    if (held->valid()) {
      ++kept;
      static_cast<void>(held->release());
    } else {
      EXPECT_TRUE(wait_until([&] { return loss.fired(); }));
      EXPECT_LE(loss.when() - end, 250ms);
    }
    auto other = next.get();
    ASSERT_TRUE(is_ok(other)) << "round " << round;
    tokens.add(other->token());
    static_cast<void>(other->release());
    heal(all, leader, how);
    ASSERT_TRUE(all.heals());
  }
  RecordProperty("kept_of_4", kept);
  EXPECT_TRUE(leaves_nothing(all.servers)) << left_behind(all.servers);
}

// ---- the holder is cut off, too

// It sees one node only, which runs, answers, and hears of no other. A leader even answers keep-alives for a while.
TEST_F(etcd_partition, holder_on_the_minority_side_is_lost_before_anybody_else_holds) {
  cut_up_cluster all;
  token_log tokens;
  for (int round = 0; round < 3; ++round) {
    const auto leader = all.servers.leader();
    const auto alone = round % 2 == 0 ? leader : (leader + 1) % 3;
    const auto beside = (alone + 1) % 3;
    const auto a = all.open(alone, all.servers.url(alone) + "?session=2s", {.call_timeout = 2s});
    const auto b = all.open(beside, all.servers.url() + "?session=6s");
    mutex ours{a, "stock"}, theirs{b, "stock"};
    auto held = ours.acquire({.wait = patience, .ttl = 2s});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    const loss_recorder loss{*held};
    successor next{theirs, *held, 6s};
    ASSERT_TRUE(wait_for_entries(all.servers, "stock", 2));
    all.lab.cut(alone);
    const auto cut = now();
    const auto end = end_of_validity(*held);
    ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
    EXPECT_LE(loss.when() - end, 250ms);
    EXPECT_LE(end, cut + 2s) << "nothing can have been renewed after the cut";
    auto other = next.get();
    ASSERT_TRUE(is_ok(other)) << "round " << round;
    tokens.add(other->token());
    EXPECT_LT(end, next.when()) << "round " << round;
    EXPECT_FALSE(held->renew());
    EXPECT_FALSE(ours.try_acquire()) << "a minority grants nothing";
    EXPECT_TRUE(other->valid());
    EXPECT_TRUE(is_proven(all.servers, *other));
    all.lab.join(alone);
    EXPECT_TRUE(is_ok(other->release()));
    auto again = acquire_at_last(ours);
    ASSERT_TRUE(is_ok(again));
    tokens.add(again->token());
    EXPECT_TRUE(is_ok(again->release()));
    ASSERT_TRUE(all.heals());
    RecordProperty(
        fmt::format("ms_after_cut_{}_{}", alone == leader ? "leader" : "follower", round),
        fmt::format("lost {}, next {}", ms(loss.when() - cut), ms(next.when() - cut)));
  }
  EXPECT_TRUE(leaves_nothing(all.servers)) << left_behind(all.servers);
}

// ---- what a minority says

TEST_F(etcd_partition, minority_shows_nothing_rather_than_what_it_remembers) {
  cut_up_cluster all;
  const auto leader = all.servers.leader();
  for (const auto alone : {leader, (leader + 1) % 3}) {
    const auto inside =
        all.open(alone, all.servers.url(alone) + "?session=2s", {.call_timeout = 1s});
    const auto outside = all.open(network_lab::hub, all.servers.url());
    mutex ours{outside, "stock"}, theirs{inside, "stock"};
    auto held = ours.acquire({.wait = patience, .ttl = 10s});
    ASSERT_TRUE(is_ok(held));
    ASSERT_EQ(inside.inspect("stock").value().holders.size(), 1U);
    ASSERT_TRUE(is_ok(inside.inspect("free")));
    all.lab.cut(alone);
    // An answer that was on its way may still come, and is true: what it says has not changed yet.
    EXPECT_TRUE(wait_until([&] { return !inside.inspect("stock"); }));
    ASSERT_TRUE(wait_until([&] { return held->release().has_value() || !held->valid(); }));
    auto second = ours.acquire({.wait = patience, .ttl = 10s});
    ASSERT_TRUE(is_ok(second));
    EXPECT_NE(all.servers.etcdctl_at(alone, {"get", "--prefix", "--consistency=s", "stock/"}), "")
        << "the test is about this: it remembers";
    auto newcomer = all.lab.at(alone, [&] {
      return std::async(std::launch::async,
                        [&] { return client::try_open(all.servers.url(alone)); });
    });
    EXPECT_TRUE(stays_true(
        [&] {
          return !inside.inspect("stock") && !inside.inspect("free") && !inside.list() &&
                 !theirs.try_acquire();
        },
        3s));
    EXPECT_FALSE(newcomer.get()) << "nobody comes in";
    all.lab.join(alone);
    auto seen = inside.inspect("stock");
    EXPECT_TRUE(wait_until([&] { return seen || (seen = inside.inspect("stock")); }, 2 * patience));
    ASSERT_TRUE(is_ok(seen));
    ASSERT_EQ(seen->holders.size(), 1U);
    EXPECT_EQ(seen->holders[0].token, second->token()) << "the first answer is a true one";
    EXPECT_TRUE(is_ok(second->release()));
    ASSERT_TRUE(all.heals());
  }
  EXPECT_TRUE(leaves_nothing(all.servers)) << left_behind(all.servers);
}

// In line before the cut, and next when the holder goes; its node does not hear of that, nor of the end of its session.
TEST_F(etcd_partition, waiter_on_the_minority_side_gets_nothing_until_it_is_back) {
  cut_up_cluster all;
  const std::size_t alone = all.servers.leader();
  const auto outside = all.open(network_lab::hub, all.servers.url() + "?session=5s");
  const auto inside = all.open(alone, all.servers.url(alone) + "?session=2s");
  mutex ours{outside, "stock"}, theirs{inside, "stock"};
  auto held = ours.acquire({.wait = patience, .ttl = 5s});
  ASSERT_TRUE(is_ok(held));
  auto waiting = std::async(std::launch::async, [&] { return acquire_at_last(theirs); });
  ASSERT_TRUE(wait_for_entries(all.servers, "stock", 2));
  all.lab.cut(alone);
  ASSERT_TRUE(wait_until([&] { return held->release().has_value() || !held->valid(); }));
  auto second = ours.acquire({.wait = 2 * patience, .ttl = 5s});
  ASSERT_TRUE(is_ok(second)) << "the waiter's session is over, and so is its turn";
  EXPECT_GT(second->token(), held->token());
  EXPECT_TRUE(stays_true([&] { return second->valid() && !is_ready(waiting); }, 1s));
  all.lab.join(alone);
  const auto newest = second->token();
  EXPECT_TRUE(is_ok(second->release()));
  auto served = testing::get(waiting);
  ASSERT_TRUE(is_ok(served));
  EXPECT_GT(served->token(), newest);
  EXPECT_TRUE(is_proven(all.servers, *served));
  EXPECT_TRUE(is_ok(served->release()));
}

// ---- everybody fights, and cables are pulled

class etcd_partition_history : public etcd_partition {};

void check(cut_up_cluster& all, fighters& everybody, history& record, std::size_t holders_hit) {
  ASSERT_TRUE(all.heals());
  everybody.forget();
  EXPECT_TRUE(wait_until([&] { return everybody.everybody_was_served(); }, 2 * patience));
  everybody.stop();
  ::testing::Test::RecordProperty("grants", static_cast<int>(record.size()));
  EXPECT_GE(record.losses(), holders_hit) << "a run without faults";
  EXPECT_EQ(record.check(), 0) << "nobody stalls here, so no server has an excuse";
  EXPECT_TRUE(leaves_nothing(all.servers)) << left_behind(all.servers);
}

TEST_F(etcd_partition_history, never_two_holders_while_holders_are_cut_off) {
  cut_up_cluster all{5};
  etcd_record record;
  fighters everybody{record, 0};
  let_all_fight(all, everybody);
  for (int round = 0; round < 4; ++round) {
    ASSERT_TRUE(is_busy(record, 30)) << "a run without load";
    // The one beside the leader, beside another node, and one who knew all of them.
    const auto leader = all.servers.leader();
    const std::size_t victim = std::array{leader, (leader + 1) % 3, std::size_t{3}, leader}.at(
        static_cast<std::size_t>(round));
    ASSERT_TRUE(everybody.let_linger(victim));
    all.lab.cut(victim);
    EXPECT_TRUE(is_busy(record, 20)) << "the others go on";
    all.lab.join(victim);
  }
  check(all, everybody, record, 4);
}

TEST_F(etcd_partition_history, never_two_holders_while_nodes_part) {
  cut_up_cluster all{5};
  etcd_record record;
  fighters everybody{record, 0};
  let_all_fight(all, everybody);
  ASSERT_TRUE(is_busy(record, 30)) << "a run without load";

  // All clients still hear both sides.
  auto leader = all.servers.leader();
  ASSERT_TRUE(everybody.let_linger(leader));
  all.depose(leader);
  EXPECT_TRUE(is_busy(record, 20)) << "two are enough";
  all.reinstate(leader);

  // Whoever leads, as soon as it does: nobody has come to rest since the last time.
  for (int round = 0; round < 2; ++round) {
    leader = all.servers.leader();
    all.lab.cut(leader);
    EXPECT_TRUE(is_busy(record, 2)) << "round " << round;
    all.lab.join(leader);
  }

  // No majority anywhere.
  leader = all.servers.leader();
  ASSERT_TRUE(everybody.let_linger(5));
  for (const auto node : {leader, (leader + 1) % 3}) all.lab.cut(node);
  EXPECT_TRUE(falls_silent(record));
  for (const auto node : {leader, (leader + 1) % 3}) all.lab.join(node);
  check(all, everybody, record, 2);
}

}  // namespace
}  // namespace holdfast::testing

// What breaks here: nodes of a Redlock under clients that fight for one lock, and one node's clock. What must hold: the
// record of all grants shows no two holders and rising tokens; what a clock that jumped can do is shown as it is.
#include "faults/history.hpp"
#include "faults/redlock_faults.hpp"

#include "support/shifted_clock.hpp"

namespace holdfast::testing {
namespace {

class redlock_history : public redlock_faults {
 protected:
  // Nodes that keep what they have acknowledged.
  static redlock_servers::options durable(std::size_t nodes) {
    return {.nodes = nodes, .each = {.config = {"appendonly yes", "appendfsync always"}}};
  }
};

TEST_F(redlock_history, never_two_holders_through_killed_and_stopped_nodes) {
  redlock_servers nodes{durable(5)};
  history record;
  fighters all{record, 25, "?quarantine=0"};
  for (int i = 0; i < 4; ++i) all.add(nodes.url(""));
  for (std::size_t round = 0; round < 5; ++round) {
    const auto floor = record.size();
    ASSERT_TRUE(wait_until([&] { return record.size() > floor + 25; }, 3 * patience))
        << "a run without load\n"
        << all.story();
    const auto one = round % 5, other = (round + 2) % 5;
    if (round % 2 == 0) {
      nodes[one].stop(), nodes[other].stop();
    } else {
      nodes[one].kill(), nodes[other].kill();
    }
    const auto after = record.size();
    EXPECT_TRUE(wait_until([&] { return record.size() > after + 10; }, 2 * patience))
        << "three are enough\n"
        << all.story();
    if (round % 2 == 0) {
      nodes[one].resume(), nodes[other].resume();
    } else {
      nodes[one].restart(), nodes[other].restart();
    }
  }
  all.forget();
  EXPECT_TRUE(wait_until([&] { return all.everybody_was_served(); }, 2 * patience)) << all.story();
  all.stop();
  record.check();
  RecordProperty("grants", static_cast<int>(record.size()));
  EXPECT_TRUE(wait_until([&] { return votes_for(nodes, "stock") == 0; }));
}

// A majority away for longer than the ttl, then back with what it had.
TEST_F(redlock_history, never_two_holders_through_lost_majorities) {
  redlock_servers nodes{durable(3)};
  history record;
  fighters all{record, 25, "?quarantine=0"};
  for (int i = 0; i < 3; ++i) all.add(nodes.url(""));
  for (int round = 0; round < 2; ++round) {
    const auto floor = record.size();
    ASSERT_TRUE(wait_until([&] { return record.size() > floor + 25; }, 3 * patience))
        << all.story();
    nodes[0].stop(), nodes[1].stop();
    const auto stopped = std::chrono::steady_clock::now();
    wait_until([&] { return std::chrono::steady_clock::now() - stopped > 3s; });
    nodes[1].resume(), nodes[0].resume();
  }
  all.forget();
  EXPECT_TRUE(wait_until([&] { return all.everybody_was_served(); }, 2 * patience)) << all.story();
  all.stop();
  record.check();
}

// Three that split the votes of three nodes: each needs two.
TEST_F(redlock_history, those_that_split_the_votes_make_progress) {
  redlock_servers nodes{{.nodes = 3}};
  history record;
  fighters all{record, 0, "?quarantine=0"};
  for (int i = 0; i < 3; ++i) all.add(nodes.url(""));
  for (int round = 0; round < 3; ++round) {
    all.forget();
    EXPECT_TRUE(wait_until([&] { return all.everybody_was_served(); }, 2 * patience))
        << all.story();
  }
  all.stop();
  record.check();
}

// F9: what nobody can help. The clock of one node jumps, its vote for the holder ends, and with two nodes that were
// away there is a second majority. The tokens tell the two apart, and the first holder hears of it.
TEST_F(redlock_history, a_clock_that_jumps_lets_a_second_holder_in_with_a_larger_token) {
  shifted_clock clock;
  redlock_servers nodes{{.nodes = 5, .environments = {{}, {}, clock.environment()}}};
  const auto a = client::open(nodes.url()), b = client::open(nodes.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  nodes[3].kill(), nodes[4].kill();
  auto held = ours.acquire({.ttl = 20s});
  ASSERT_TRUE(is_ok(held));
  nodes[3].restart(), nodes[4].restart();
  EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::busy)) << "three nodes have the first";
  clock.jump(std::chrono::hours{1});
  auto second = theirs.acquire({.wait = 5s, .ttl = 20s});
  ASSERT_TRUE(is_ok(second));
  EXPECT_GT(second->token(), held->token());
  EXPECT_TRUE(wait_until([&] {
    const auto renewed = held->renew();
    return !renewed && renewed.error().code() == errc::lost;
  })) << "three nodes say that it is gone";
  EXPECT_TRUE(second->valid());
  ASSERT_TRUE(wait_until([&] { return is_ok(second->renew()); }));  // a busy node may say nothing
}

}  // namespace
}  // namespace holdfast::testing

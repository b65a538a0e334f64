#include "engines/common/grant_rule.hpp"

#include <holdfast/engine.hpp>

#include <gtest/gtest.h>

namespace holdfast::engines {
namespace {

constexpr auto fifo = queue_order::fifo;
constexpr auto barging = queue_order::barging;
constexpr auto writer = rw_capacity;
constexpr std::uint64_t reader = 1;

constexpr queue_state with(std::uint64_t used, bool ahead = false, bool upgrade = false) {
  return {rw_capacity, used, ahead, upgrade};
}

TEST(grant_rule, a_free_lock_takes_anybody) {
  EXPECT_TRUE(may_enter(with(0), writer, fifo));
  EXPECT_TRUE(may_enter(with(0), reader, fifo));
  EXPECT_TRUE(may_enter(with(0), upgradeable_weight, fifo));
}

TEST(grant_rule, readers_share_and_writers_exclude) {
  EXPECT_TRUE(may_enter(with(reader), reader, fifo));
  EXPECT_FALSE(may_enter(with(reader), writer, fifo));
  EXPECT_FALSE(may_enter(with(writer), reader, fifo));
  EXPECT_FALSE(may_enter(with(writer), writer, fifo));
}

TEST(grant_rule, one_upgradeable_beside_readers) {
  EXPECT_TRUE(may_enter(with(5 * reader), upgradeable_weight, fifo));
  EXPECT_TRUE(may_enter(with(upgradeable_weight), reader, fifo));
  EXPECT_FALSE(may_enter(with(upgradeable_weight), upgradeable_weight, fifo));
  EXPECT_FALSE(may_enter(with(upgradeable_weight), writer, fifo));
}

TEST(grant_rule, nobody_overtakes_in_fifo_order) {
  EXPECT_FALSE(may_enter(with(reader, true), reader, fifo));
  EXPECT_FALSE(may_enter(with(0, true), writer, fifo));
  EXPECT_TRUE(may_enter(with(reader, true), reader, barging));
}

TEST(grant_rule, nobody_overtakes_an_upgrade) {
  EXPECT_FALSE(may_enter(with(upgradeable_weight, true, true), reader, barging));
  EXPECT_FALSE(may_enter(with(upgradeable_weight, true, true), reader, fifo));
}

TEST(grant_rule, an_upgrade_gives_its_own_weight_back) {
  EXPECT_TRUE(may_enter(with(upgradeable_weight, true), writer, fifo, upgradeable_weight));
  EXPECT_FALSE(may_enter(with(upgradeable_weight + reader), writer, fifo, upgradeable_weight));
}

TEST(grant_rule, permits_fill_up_to_n) {
  EXPECT_TRUE(may_enter({5, 3}, 2, fifo));
  EXPECT_FALSE(may_enter({5, 3}, 3, fifo));
  EXPECT_FALSE(may_enter({5, 6}, 1, fifo)) << "over-full must not wrap around";
}

}  // namespace
}  // namespace holdfast::engines

#include "engines/mysql/beliefs.hpp"

#include <gtest/gtest.h>

namespace holdfast::engines::mysql {
namespace {

using namespace std::chrono_literals;

class mysql_beliefs : public ::testing::Test {
 protected:
  mysql_beliefs() {
    all_.set_attention(3s);
    all_.begin_session(at(0s));
  }
  static steady_time at(nanoseconds when) { return steady_time{1000h + when}; }
  asking ask(nanoseconds when) const { return {at(when), all_.session()}; }
  static steady_time end(const beliefs::word& what) { return what.valid_from + what.ttl; }

  beliefs all_;
};

TEST_F(mysql_beliefs, end_of_the_row_bounds_what_is_short) {
  const auto said = all_.saw(1, 1s, {ask(5s), 700ms});
  EXPECT_EQ(end(said), at(5700ms));
  EXPECT_EQ(said.ttl, 1s);
}

TEST_F(mysql_beliefs, presence_bounds_what_is_long) {
  EXPECT_EQ(end(all_.saw(1, 60s, {ask(5s), 60s})), at(8s));
  all_.proven(ask(6s));
  EXPECT_EQ(end(*all_.without_asking(1, 60s, at(6s))), at(9s));
}

// Seen, but not written: nobody has promised it a grace from now on.
TEST_F(mysql_beliefs, sight_alone_is_no_presence) {
  EXPECT_EQ(end(all_.saw(1, 60s, {ask(30s), 40s})), at(10s + 3s));
  all_.proven(ask(30s));
  EXPECT_EQ(end(all_.saw(1, 60s, {ask(30s), 40s})), at(33s));
}

TEST_F(mysql_beliefs, row_with_little_left_is_believed_no_longer) {
  all_.proven(ask(5s));
  const auto said = all_.saw(1, 3600s, {ask(5s), 2s});
  EXPECT_LE(end(said), at(7s));
  EXPECT_GT(end(said), at(5s)) << "drift is taken off what is left";
}

TEST_F(mysql_beliefs, proof_of_a_new_session_counts_for_nothing_seen_before) {
  all_.saw(1, 60s, {ask(5s), 60s});
  all_.begin_session(at(20s));
  all_.proven(ask(21s));
  EXPECT_FALSE(all_.without_asking(1, 60s, at(21s))) << "it must be asked about";
  all_.saw(1, 60s, {ask(22s), 60s});
  all_.proven(ask(24s));
  EXPECT_EQ(end(*all_.without_asking(1, 60s, at(24s))), at(27s));
}

// The question was sent under the old session, its answer came under the new one.
TEST_F(mysql_beliefs, answer_belongs_to_the_session_in_which_it_was_asked_for) {
  const auto asked = ask(5s);
  all_.begin_session(at(6s));
  all_.proven(ask(7s));
  EXPECT_EQ(end(all_.saw(1, 60s, {asked, 60s})), at(8s));
  EXPECT_FALSE(all_.without_asking(1, 60s, at(7s)));
}

// The row was written when the question was sent; what was proven later counts for as long as that session is known.
TEST_F(mysql_beliefs, late_answer_counts_on_its_own_session_and_not_on_the_ones_after_it) {
  const auto asked = ask(5s);
  all_.proven(ask(6s));
  for (const auto begun : {7s, 8s, 9s}) all_.begin_session(at(begun));
  all_.proven(ask(9500ms));
  EXPECT_EQ(end(all_.saw(1, 60s, {asked, 60s})), at(9s)) << "6 s and the attention";
  all_.begin_session(at(10s));
  EXPECT_EQ(end(all_.saw(1, 60s, {asked, 60s})), at(8s)) << "too long ago: from the question on";
}

TEST_F(mysql_beliefs, row_is_due_at_a_third_of_its_ttl) {
  all_.saw(1, 60s, {ask(0s), 60s});
  EXPECT_TRUE(all_.without_asking(1, 60s, at(19s)));
  EXPECT_FALSE(all_.without_asking(1, 60s, at(20s)));
}

TEST_F(mysql_beliefs, what_is_held_is_remembered_beside_any_number_of_others) {
  all_.saw(1, 200s, {ask(0s), 200s});
  for (std::uint64_t i = 2; i < 2000; ++i)
    all_.saw(i, 1s, {ask(std::chrono::milliseconds{i * 20}), 1s});
  EXPECT_TRUE(all_.without_asking(1, 200s, at(41s)));
  EXPECT_FALSE(all_.without_asking(2, 1s, at(41s))) << "over, and forgotten";
}

TEST_F(mysql_beliefs, what_is_not_known_must_be_asked_about) {
  EXPECT_FALSE(all_.without_asking(7, 60s, at(0s)));
  all_.saw(7, 60s, {ask(0s), 60s});
  all_.forget(7);
  EXPECT_FALSE(all_.without_asking(7, 60s, at(0s)));
}

TEST_F(mysql_beliefs, renewals_come_often_enough_to_live_through_a_pause) {
  const auto said = all_.saw(1, 60s, {ask(0s), 60s});
  EXPECT_LE(said.valid_from + said.ttl / 3, at(350ms)) << "core renews at a third";
}

}  // namespace
}  // namespace holdfast::engines::mysql

// What a client knows of its own entries, by owner.
#include "engines/common/own_entries.hpp"

#include <gtest/gtest.h>

namespace holdfast::engines {
namespace {

struct known_entry : own_entry {};

class own_entries_of_a_client : public ::testing::Test {
 protected:
  using table = own_entries<known_entry>;
  using state = own_entry::state;

  static request ask(std::uint64_t sequence, std::string_view name = "a") {
    request out;
    out.name = name;
    out.owner = {{7, 8}, sequence};
    out.label = "north";
    out.ttl = std::chrono::seconds{3};
    out.mode = lock_mode::shared;
    out.weight = 1;
    return out;
  }
  table::ref drop(const table::ref& which) {
    const auto lock = all_.lock();
    return all_.drop(*which);
  }

  table all_;
};

TEST_F(own_entries_of_a_client, are_made_once_for_an_owner) {
  const auto first = all_.find_or_make(ask(1));
  EXPECT_EQ(first->name, "a");
  EXPECT_EQ(first->label, "north");
  EXPECT_EQ(first->ttl, std::chrono::seconds{3});
  EXPECT_EQ(first->mode, lock_mode::shared);
  EXPECT_EQ(first->weight, 1U);
  EXPECT_EQ(first->is, state::asking);
  EXPECT_EQ(all_.find_or_make(ask(1)), first);
  EXPECT_EQ(all_.find(ask(1).owner), first);
  EXPECT_NE(all_.find_or_make(ask(2)), first);
}

TEST_F(own_entries_of_a_client, are_not_those_of_another_client) {
  all_.find_or_make(ask(1));
  EXPECT_EQ(all_.find({{7, 9}, 1}), nullptr);
  EXPECT_EQ(all_.find(ask(2).owner), nullptr);
}

TEST_F(own_entries_of_a_client, are_gone_for_us_when_a_release_begins) {
  const auto leaving = all_.find_or_make(ask(1)), other = all_.find_or_make(ask(2, "b"));
  ASSERT_TRUE(all_.begin_release(*leaving));
  EXPECT_FALSE(all_.begin_release(*leaving)) << "one call releases it";
  EXPECT_EQ(all_.releasing("a"), std::vector{leaving});
  EXPECT_TRUE(all_.releasing("b").empty());
  const auto again = all_.find_or_make(ask(1));
  EXPECT_NE(again, leaving) << "what is released does not come back";
  EXPECT_EQ(drop(leaving), nullptr) << "nor does its end take along what came after it";
  EXPECT_EQ(all_.find(ask(1).owner), again);
  EXPECT_TRUE(all_.releasing("a").empty());
}

TEST_F(own_entries_of_a_client, are_held_again_when_a_release_was_not_answered) {
  const auto held = all_.find_or_make(ask(1));
  ASSERT_TRUE(all_.begin_release(*held));
  const auto until = steady_time{} + std::chrono::seconds{5};
  {
    const auto lock = all_.lock();
    all_.end_release(*held, until);
  }
  EXPECT_EQ(held->is, state::holding);
  EXPECT_EQ(held->until, until);
  EXPECT_TRUE(all_.releasing("a").empty());
  EXPECT_TRUE(all_.begin_release(*held));
}

TEST_F(own_entries_of_a_client, are_dropped_once) {
  const auto held = all_.find_or_make(ask(1));
  EXPECT_EQ(drop(held), held);
  EXPECT_EQ(drop(held), nullptr);
  EXPECT_EQ(all_.find(ask(1).owner), nullptr);
  const auto lock = all_.lock();
  EXPECT_TRUE(all_.all().empty());
}

}  // namespace
}  // namespace holdfast::engines

// Which keys a client uses again, and which it does not.
#include "engines/etcd/own_entries.hpp"

#include <gtest/gtest.h>

namespace holdfast::engines::etcd {
namespace {

class etcd_own_entries : public ::testing::Test {
 protected:
  own_entries::ref enter(std::string_view name = "a") {
    request ask;
    ask.name = name;
    ask.owner.sequence = ++last_;
    auto out = all_.find_or_make(ask);
    const auto lock = all_.lock();
    out->slot = all_.take_slot(name);
    return out;
  }
  void drop(const own_entries::ref& which, bool is_gone = true) {
    const auto lock = all_.lock();
    all_.drop(*which, is_gone);
  }

  own_entries all_;
  std::uint64_t last_ = 0;
};

TEST_F(etcd_own_entries, the_smallest_free_slot_is_taken) {
  const auto first = enter(), second = enter(), third = enter(), other = enter("b");
  EXPECT_EQ(first->slot, 0U);
  EXPECT_EQ(second->slot, 1U);
  EXPECT_EQ(third->slot, 2U);
  EXPECT_EQ(other->slot, 0U) << "each name has its own";
  drop(second);
  EXPECT_EQ(enter()->slot, 1U);
  EXPECT_EQ(enter()->slot, 3U);
}

TEST_F(etcd_own_entries, slot_of_one_that_is_leaving_is_not_free) {
  const auto first = enter();
  ASSERT_TRUE(all_.begin_release(*first));
  EXPECT_EQ(enter()->slot, 1U);
  drop(first);
  EXPECT_EQ(enter()->slot, 0U);
}

TEST_F(etcd_own_entries, slot_is_given_up_when_its_key_may_be_there_or_come_yet) {
  const auto lost = enter();
  drop(lost, false);
  const auto doubtful = enter();
  EXPECT_EQ(doubtful->slot, 1U);
  doubtful->in_doubt = true;
  drop(doubtful);
  EXPECT_EQ(enter()->slot, 2U);
}

TEST_F(etcd_own_entries, slot_is_given_back_once) {
  const auto first = enter();
  drop(first);
  const auto second = enter();
  drop(first);
  EXPECT_EQ(second->slot, 0U);
  EXPECT_EQ(enter()->slot, 1U);
}

}  // namespace
}  // namespace holdfast::engines::etcd

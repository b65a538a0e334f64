// Which waiters are handed the lock, and by which holder. The order itself: ../common/ordered_queue_test.cpp.
#include "engines/etcd/lock_queue.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace holdfast::engines::etcd {
namespace {

using standing = queue_entry::standing;

queue_entry at(std::int64_t created, lock_mode mode = lock_mode::exclusive) {
  queue_entry out;
  out.key = "a/" + std::to_string(created);
  out.created = out.modified = created;
  out.owner.sequence = static_cast<std::uint64_t>(created);
  out.token = {out.owner.sequence};
  out.mode = mode;
  out.weight = weight_of(mode);
  out.reused = true;
  return out;
}

queue_entry upgrade(std::int64_t created, std::int64_t of, bool granted) {
  auto out = at(created);
  out.replaces = of;
  out.entered = granted;
  return out;
}

queue_entry foreign(std::int64_t created) {
  auto out = at(created);
  out.foreign = true;
  return out;
}

constexpr auto shared = lock_mode::shared;

// "z" for each waiter that may watch nothing but its own key, in order of creation.
std::string passive_waiters(std::vector<queue_entry> all) {
  const lock_queue of{std::move(all)};
  std::string out;
  for (const auto& entry : of.all()) out += of.may_be_passive(entry) ? 'z' : '.';
  return out;
}

queue_entry labelled(std::int64_t created) {
  auto out = at(created);
  out.label = "north";
  out.reused = false;
  return out;
}

queue_entry overtaken(std::int64_t created) {
  auto out = at(created);
  out.modified = created + 100;
  out.version = 2;
  return out;
}

TEST(etcd_lock_queue, those_behind_an_exclusive_waiter_may_sleep) {
  EXPECT_EQ(passive_waiters({at(1), at(2), at(3), at(4)}), "..zz") << "the second one saw a holder";
  EXPECT_EQ(passive_waiters({at(1), at(2), at(3, shared), at(4), at(5)}), "....z");
  EXPECT_EQ(passive_waiters({at(1, shared), at(2, shared), at(3), at(4)}), "...z");
  EXPECT_EQ(passive_waiters({at(1), foreign(2), at(3), at(4)}), "...z")
      << "another program tells no waiter";
  EXPECT_EQ(passive_waiters({at(1), at(2), labelled(3), at(4)}), "...z");
  EXPECT_EQ(passive_waiters({at(1, shared), upgrade(2, 1, false), at(3), at(4)}), "...z");
  EXPECT_EQ(passive_waiters({at(1), overtaken(2), overtaken(3)}), "..z");
}

// The waiters to which the first entry of the queue hands over.
std::string successors(std::vector<queue_entry> all) {
  const lock_queue of{std::move(all)};
  std::string out;
  for (const auto& next : of.successors_of(of.all().front()))
    out += std::to_string(next.created) + (next.overtaken ? "! " : " ");
  return out;
}

TEST(etcd_lock_queue, successors_are_the_waiters_that_would_hold_next_each_alone) {
  EXPECT_EQ(successors({at(1)}), "");
  EXPECT_EQ(successors({at(1), at(2), at(3)}), "2 3 ");
  EXPECT_EQ(successors({at(1), at(2), at(3, shared), at(4)}), "2 ");
  EXPECT_EQ(successors({at(1), foreign(2), at(3)}), "") << "another program looks for itself";
  EXPECT_EQ(successors({at(1), labelled(2), at(3)}), "");
  EXPECT_EQ(successors({at(1), overtaken(2), at(3)}), "2! ");
  EXPECT_EQ(successors({at(1), at(2), overtaken(3), at(4)}), "2 ") << "it changes until then";
  std::vector<queue_entry> many;
  for (std::int64_t i = 1; i < 30; ++i) many.push_back(at(i));
  EXPECT_EQ(lock_queue{many}.successors_of(many.front()).size(), lock_queue::most_successors);
}

// A waiter that may sleep is handed the lock, or called, by the entry before it: none sleeps for ever.
TEST(etcd_lock_queue, each_passive_waiter_is_the_successor_of_the_entry_before_it) {
  std::minstd_rand dice{7};  // NOLINT: the same each time
  for (int round = 0; round < 2000; ++round) {
    std::vector<queue_entry> all;
    for (std::int64_t i = 1; i <= 6; ++i) {
      switch (dice() % 6) {
        case 0:
          all.push_back(at(i, shared));
          break;
        case 1:
          all.push_back(foreign(i));
          break;
        case 2:
          all.push_back(labelled(i));
          break;
        case 3:
          all.push_back(overtaken(i));
          break;
        default:
          all.push_back(at(i));
          break;
      }
    }
    const lock_queue of{all};
    for (const auto& waiter : of.all()) {
      if (!of.may_be_passive(waiter)) continue;
      // Later the entry before it holds, and those before that have gone.
      std::vector<queue_entry> rest;
      for (const auto& other : all)
        if (other.created >= waiter.created - 1) rest.push_back(other);
      const lock_queue then{rest};
      ASSERT_EQ(then.all().front().stands, standing::holder);
      const auto next = then.successors_of(then.all().front());
      ASSERT_FALSE(next.empty()) << "round " << round << " at " << waiter.created;
      ASSERT_EQ(next.front().created, waiter.created);
    }
  }
}

TEST(etcd_lock_queue, untouched_are_waiters_whose_token_may_have_become_too_small) {
  auto touched = at(4);
  touched.modified = 9;
  touched.version = 2;
  const lock_queue seen{{at(1, shared), at(3), touched, foreign(5)}};
  ASSERT_EQ(seen.untouched().size(), 1U);
  EXPECT_EQ(seen.untouched()[0]->created, 3);
}

}  // namespace
}  // namespace holdfast::engines::etcd

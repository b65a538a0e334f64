// Who holds, as every client finds it from the keys alone.
#include "engines/etcd/lock_queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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

queue_entry permits(std::int64_t created, std::uint64_t weight, std::uint64_t capacity) {
  auto out = at(created, lock_mode::permits);
  out.weight = weight;
  out.capacity = capacity;
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

// "h" holder, "w" waiter, "u" upgrade that waits, "-" hidden, "." idle; in order of creation.
std::string standings(const lock_queue& of) {
  std::string out;
  for (const auto& one : of.all()) out += "hwu-."[static_cast<std::size_t>(one.stands)];
  return out;
}

std::string standings(std::vector<queue_entry> all) {
  return standings(lock_queue{std::move(all)});
}

constexpr auto shared = lock_mode::shared;
constexpr auto upgradeable = lock_mode::upgradeable;

TEST(etcd_lock_queue, the_first_one_holds) {
  EXPECT_EQ(standings({at(9), at(5), at(7)}), "hww");
  EXPECT_EQ(standings(std::vector<queue_entry>{}), "");
}

TEST(etcd_lock_queue, readers_enter_together_and_nobody_overtakes_a_writer) {
  EXPECT_EQ(standings({at(1, shared), at(2, shared), at(3), at(4, shared)}), "hhww");
  EXPECT_EQ(standings({at(1), at(2, shared), at(3, shared), at(4)}), "hwww");
  EXPECT_EQ(standings({at(1, upgradeable), at(2, shared), at(3, upgradeable), at(4, shared)}),
            "hhww");
}

TEST(etcd_lock_queue, permits_fit_or_wait) {
  EXPECT_EQ(standings({permits(1, 2, 3), permits(2, 1, 3), permits(3, 1, 3)}), "hhw");
  EXPECT_EQ(standings({permits(1, 1, 3), permits(2, 3, 3), permits(3, 1, 3)}), "hww");
}

// The keys of those who may look at their own key only, by creation.
std::string passive_waiters(std::vector<queue_entry> all) {
  const lock_queue of{std::move(all)};
  std::string out;
  for (const auto& one : of.all()) out += of.may_sleep(one) ? 'z' : '.';
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
      << "a stranger tells nobody";
  EXPECT_EQ(passive_waiters({at(1), at(2), labelled(3), at(4)}), "...z");
  EXPECT_EQ(passive_waiters({at(1, shared), upgrade(2, 1, false), at(3), at(4)}), "...z");
  EXPECT_EQ(passive_waiters({at(1), overtaken(2), overtaken(3)}), "..z");
}

// To whom the first one of the lock_queue hands over.
std::string successors(std::vector<queue_entry> all) {
  const lock_queue of{std::move(all)};
  std::string out;
  for (const auto& one : of.successors_of(of.all().front()))
    out += std::to_string(one.created) + (one.overtaken ? "! " : " ");
  return out;
}

TEST(etcd_lock_queue, successors_are_those_who_would_hold_next_one_by_one) {
  EXPECT_EQ(successors({at(1)}), "");
  EXPECT_EQ(successors({at(1), at(2), at(3)}), "2 3 ");
  EXPECT_EQ(successors({at(1), at(2), at(3, shared), at(4)}), "2 ");
  EXPECT_EQ(successors({at(1), foreign(2), at(3)}), "") << "a stranger looks for itself";
  EXPECT_EQ(successors({at(1), labelled(2), at(3)}), "");
  EXPECT_EQ(successors({at(1), overtaken(2), at(3)}), "2! ");
  EXPECT_EQ(successors({at(1), at(2), overtaken(3), at(4)}), "2 ") << "it changes until then";
  std::vector<queue_entry> many;
  for (std::int64_t i = 1; i < 30; ++i) many.push_back(at(i));
  EXPECT_EQ(lock_queue{many}.successors_of(many.front()).size(), lock_queue::most_successors);
}

// Whoever may sleep is handed the lock, or called, by whoever is before it: nobody sleeps for ever, whatever the line.
TEST(etcd_lock_queue, each_sleeper_is_the_heir_of_the_one_before_it) {
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
    for (const auto& one : of.all()) {
      if (!of.may_sleep(one)) continue;
      // Later the one before it holds; those before that one have gone.
      std::vector<queue_entry> rest;
      for (const auto& other : all)
        if (other.created >= one.created - 1) rest.push_back(other);
      const lock_queue then{rest};
      ASSERT_EQ(then.all().front().stands, standing::holder);
      const auto next = then.successors_of(then.all().front());
      ASSERT_FALSE(next.empty()) << standings(of) << " at " << one.created;
      ASSERT_EQ(next.front().created, one.created);
    }
  }
}

TEST(etcd_lock_queue, another_capacity_waits_and_holds_the_others_up) {
  EXPECT_EQ(standings({permits(1, 1, 3), permits(2, 1, 4), permits(3, 1, 3)}), "hww");
  EXPECT_EQ(standings({permits(1, 1, 3), foreign(2), permits(3, 1, 3)}), "hww");
  EXPECT_EQ(standings({foreign(1), at(2, shared)}), "hw");
}

TEST(etcd_lock_queue, an_upgrade_waits_ahead_of_the_line_and_only_for_the_other_holders) {
  const lock_queue waits{{at(1, upgradeable), at(2, shared), at(3), upgrade(4, 1, false)}};
  EXPECT_EQ(standings(waits), "hhwu");
  EXPECT_FALSE(waits.lets_upgrade(waits.all()[3]));
  EXPECT_FALSE(waits.takes_barging(1)) << "nobody overtakes an upgrade";
  const lock_queue alone{{at(1, upgradeable), at(3), upgrade(4, 1, false)}};
  EXPECT_TRUE(alone.lets_upgrade(alone.all()[2]));
}

TEST(etcd_lock_queue, an_upgrade_that_has_entered_hides_what_it_came_from) {
  EXPECT_EQ(standings({at(1, upgradeable), at(3), upgrade(4, 1, true)}), "-wh");
  auto shrunk = upgrade(4, 1, true);
  shrunk.mode = upgradeable;
  shrunk.weight = weight_of(upgradeable);
  EXPECT_EQ(standings({at(1, upgradeable), shrunk, at(5, shared)}), "-hh");
  EXPECT_EQ(standings({at(1, upgradeable), shrunk, upgrade(6, 4, true), at(7, shared)}), "--hw");
}

TEST(etcd_lock_queue, an_upgrade_of_nothing_counts_for_nothing) {
  EXPECT_EQ(standings({upgrade(4, 1, false), at(5)}), ".h");
}

TEST(etcd_lock_queue, whoever_has_entered_by_a_mark_holds) {
  auto barged = at(5, shared);
  barged.entered = true;
  EXPECT_EQ(standings({at(1, shared), at(3), barged}), "hwh");
  EXPECT_EQ(standings({at(3), barged}), "wh") << "and is waited for";
}

TEST(etcd_lock_queue, barging_needs_those_who_keep_the_waiters_waiting) {
  const lock_queue seen{{at(1, shared), at(2, shared), at(3)}};
  const auto needed = seen.takes_barging(1);
  ASSERT_TRUE(needed);
  ASSERT_EQ(needed->size(), 2U) << "one reader is enough to keep a writer out";
  EXPECT_EQ(needed->back()->created, 3) << "and the writer, behind whom the others stay";
  EXPECT_FALSE(seen.takes(1));
  EXPECT_FALSE(seen.takes_barging(rw_capacity));
  const lock_queue with_foreigner{{at(1, shared), foreign(3)}};
  EXPECT_FALSE(with_foreigner.takes_barging(1)) << "it would not wait for us";
}

TEST(etcd_lock_queue, untouched_are_those_whose_token_may_have_become_too_small) {
  auto touched = at(4);
  touched.modified = 9;
  touched.version = 2;
  const lock_queue seen{{at(1, shared), at(3), touched, foreign(5)}};
  ASSERT_EQ(seen.untouched().size(), 1U);
  EXPECT_EQ(seen.untouched()[0]->created, 3);
}

TEST(etcd_lock_queue, version_changes_with_the_holders_and_with_nothing_else) {
  const auto first = lock_queue{{at(1), at(2)}}.version();
  EXPECT_NE(first, 0U);
  EXPECT_EQ(lock_queue(std::vector<queue_entry>{}).version(), 0U);
  EXPECT_EQ((lock_queue{{at(1), at(2), at(3)}}.version()), first) << "one more waiter";
  EXPECT_NE((lock_queue{{at(2)}}.version()), first);
  auto shrunk = at(1);
  shrunk.weight = 1;
  shrunk.entered = true;
  EXPECT_NE((lock_queue{{shrunk, at(2)}}.version()), first);
}

// Somebody leaves between the look at the queue and the transaction. It fails if one of the needed keys is gone; if
// not, there is room for the newcomer.
TEST(etcd_lock_queue, what_barging_needs_is_enough) {
  std::mt19937 random{11};
  const auto pick = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>{0, n - 1}(random);
  };
  int entered = 0;
  for (int run = 0; run < 5000; ++run) {
    std::vector<queue_entry> keys;
    for (std::int64_t i = 1; i <= 6; ++i) keys.push_back(permits(i, 1 + pick(4), 4));
    for (std::size_t gone = pick(3); gone > 0; --gone)
      keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(pick(keys.size())));
    const auto weight = 1 + pick(4);
    const lock_queue seen{keys};
    const auto needed = seen.takes_barging(weight);
    if (!needed) continue;
    std::vector<std::int64_t> relied_on;
    for (const auto* one : *needed) relied_on.push_back(one->created);
    for (std::size_t gone = pick(4); gone > 0 && !keys.empty(); --gone)
      keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(pick(keys.size())));
    const lock_queue then{keys};
    if (std::ranges::any_of(relied_on, [&](auto one) { return then.created_at(one) == nullptr; }))
      continue;
    ++entered;
    EXPECT_LE(then.used() + weight, 4U) << standings(seen) << " became " << standings(then);
  }
  EXPECT_GT(entered, 100);
}

// What the safety of the layout rests on: as long as its key is there, a holder stays a holder, whoever comes behind
// and whoever leaves.
TEST(etcd_lock_queue, a_holder_stays_one) {
  std::mt19937 random{20261115};
  const auto pick = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>{0, n - 1}(random);
  };
  for (int run = 0; run < 200; ++run) {
    const bool semaphore = run % 2 == 0;
    std::vector<queue_entry> keys;
    std::vector<std::int64_t> held;
    std::int64_t revision = 0;
    for (int step = 0; step < 60; ++step) {
      ++revision;
      if (keys.empty() || pick(5) < 3) {
        keys.push_back(semaphore ? permits(revision, 1 + pick(4), 4)
                                 : at(revision, std::array{lock_mode::exclusive, shared,
                                                           upgradeable}[pick(3)]));
      } else {
        keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(pick(keys.size())));
      }
      const lock_queue now{keys};
      EXPECT_LE(now.used(), now.capacity());
      for (const auto created : held)
        if (const auto* one = now.created_at(created)) {
          EXPECT_EQ(one->stands, standing::holder) << "run " << run << ", step " << step;
        }
      held.clear();
      for (const auto& one : now.all())
        if (one.stands == standing::holder) held.push_back(one.created);
      EXPECT_EQ(held.empty(), now.empty()) << "somebody holds as long as anybody is there";
    }
  }
}

}  // namespace
}  // namespace holdfast::engines::etcd

// Which entries hold, as every client finds it from their order alone.
#include "engines/common/ordered_queue.hpp"

#include "engines/common/modes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

namespace holdfast::engines {
namespace {

struct entry : ordered_entry {};
using queue = ordered_queue<entry>;
using standing = ordered_entry::standing;

entry at(std::int64_t created, lock_mode mode = lock_mode::exclusive) {
  entry out;
  out.created = created;
  out.owner.sequence = static_cast<std::uint64_t>(created);
  out.token = {out.owner.sequence};
  out.mode = mode;
  out.weight = weight_of(mode);
  return out;
}

entry permits(std::int64_t created, std::uint64_t weight, std::uint64_t capacity) {
  auto out = at(created, lock_mode::permits);
  out.weight = weight;
  out.capacity = capacity;
  return out;
}

entry upgrade(std::int64_t created, std::int64_t of, bool granted) {
  auto out = at(created);
  out.replaces = of;
  out.entered = granted;
  return out;
}

entry foreign(std::int64_t created) {
  auto out = at(created);
  out.foreign = true;
  return out;
}

// "h" holder, "w" waiter, "u" upgrade that waits, "-" hidden, "." idle; in order of creation.
std::string standings(const queue& of) {
  std::string out;
  for (const auto& each : of.all()) out += "hwu-."[static_cast<std::size_t>(each.stands)];
  return out;
}

std::string standings(std::vector<entry> all) { return standings(queue{std::move(all)}); }

constexpr auto shared = lock_mode::shared;
constexpr auto upgradeable = lock_mode::upgradeable;

TEST(ordered_queue, the_first_entry_holds) {
  EXPECT_EQ(standings({at(9), at(5), at(7)}), "hww");
  EXPECT_EQ(standings(std::vector<entry>{}), "");
}

TEST(ordered_queue, readers_enter_together_and_nobody_overtakes_a_writer) {
  EXPECT_EQ(standings({at(1, shared), at(2, shared), at(3), at(4, shared)}), "hhww");
  EXPECT_EQ(standings({at(1), at(2, shared), at(3, shared), at(4)}), "hwww");
  EXPECT_EQ(standings({at(1, upgradeable), at(2, shared), at(3, upgradeable), at(4, shared)}),
            "hhww");
}

TEST(ordered_queue, permits_fit_or_wait) {
  EXPECT_EQ(standings({permits(1, 2, 3), permits(2, 1, 3), permits(3, 1, 3)}), "hhw");
  EXPECT_EQ(standings({permits(1, 1, 3), permits(2, 3, 3), permits(3, 1, 3)}), "hww");
}

TEST(ordered_queue, another_capacity_waits_and_holds_the_others_up) {
  EXPECT_EQ(standings({permits(1, 1, 3), permits(2, 1, 4), permits(3, 1, 3)}), "hww");
  EXPECT_EQ(standings({permits(1, 1, 3), foreign(2), permits(3, 1, 3)}), "hww");
  EXPECT_EQ(standings({foreign(1), at(2, shared)}), "hw");
}

TEST(ordered_queue, an_upgrade_waits_ahead_of_the_queue_and_only_for_the_other_holders) {
  const queue waits{{at(1, upgradeable), at(2, shared), at(3), upgrade(4, 1, false)}};
  EXPECT_EQ(standings(waits), "hhwu");
  EXPECT_FALSE(waits.lets_upgrade(waits.all()[3]));
  EXPECT_FALSE(waits.takes_barging(1)) << "nobody overtakes an upgrade";
  const queue alone{{at(1, upgradeable), at(3), upgrade(4, 1, false)}};
  EXPECT_TRUE(alone.lets_upgrade(alone.all()[2]));
}

TEST(ordered_queue, an_upgrade_that_has_entered_hides_what_it_came_from) {
  EXPECT_EQ(standings({at(1, upgradeable), at(3), upgrade(4, 1, true)}), "-wh");
  auto shrunk = upgrade(4, 1, true);
  shrunk.mode = upgradeable;
  shrunk.weight = weight_of(upgradeable);
  EXPECT_EQ(standings({at(1, upgradeable), shrunk, at(5, shared)}), "-hh");
  EXPECT_EQ(standings({at(1, upgradeable), shrunk, upgrade(6, 4, true), at(7, shared)}), "--hw");
}

TEST(ordered_queue, an_upgrade_of_nothing_counts_for_nothing) {
  EXPECT_EQ(standings({upgrade(4, 1, false), at(5)}), ".h");
}

TEST(ordered_queue, an_entry_with_a_mark_holds) {
  auto barged = at(5, shared);
  barged.entered = true;
  EXPECT_EQ(standings({at(1, shared), at(3), barged}), "hwh");
  EXPECT_EQ(standings({at(3), barged}), "wh") << "and is waited for";
}

TEST(ordered_queue, barging_needs_what_keeps_the_waiters_waiting) {
  const queue seen{{at(1, shared), at(2, shared), at(3)}};
  const auto needed = seen.takes_barging(1);
  ASSERT_TRUE(needed);
  ASSERT_EQ(needed->size(), 2U) << "one reader is enough to keep a writer out";
  EXPECT_EQ(needed->back()->created, 3) << "and the writer, behind which the others stay";
  EXPECT_FALSE(seen.takes(1));
  EXPECT_FALSE(seen.takes_barging(rw_capacity));
  const queue with_foreigner{{at(1, shared), foreign(3)}};
  EXPECT_FALSE(with_foreigner.takes_barging(1)) << "it would not wait for us";
}

TEST(ordered_queue, an_upgrade_needs_what_it_replaces_and_the_first_waiter) {
  const queue seen{{at(1, upgradeable), at(3), at(4)}};
  const auto needed = seen.needed_to_upgrade(seen.all()[0]);
  ASSERT_EQ(needed.size(), 2U);
  EXPECT_EQ(needed[0]->created, 1);
  EXPECT_EQ(needed[1]->created, 3);
  EXPECT_TRUE(seen.takes_instead_of(seen.all()[0], rw_capacity));
  const queue reader_beside{{at(1, upgradeable), at(2, shared)}};
  EXPECT_FALSE(reader_beside.takes_instead_of(reader_beside.all()[0], rw_capacity));
}

TEST(ordered_queue, of_two_entries_of_an_owner_the_younger_counts) {
  auto again = at(7);
  again.owner = at(2).owner;
  auto other_program = at(9);
  other_program.owner = again.owner;
  other_program.foreign = true;
  const queue seen{{at(1), at(2), again, other_program}};
  ASSERT_NE(seen.find(again.owner), nullptr);
  EXPECT_EQ(seen.find(again.owner)->created, 7);
  EXPECT_EQ(seen.find(at(8).owner), nullptr);
}

TEST(ordered_queue, neighbours) {
  const queue seen{{at(1, upgradeable), upgrade(4, 1, true), upgrade(5, 3, false), at(6)}};
  EXPECT_EQ(standings(seen), "-h.w");
  EXPECT_EQ(seen.first_after(0)->created, 4);
  EXPECT_EQ(seen.first_after(4)->created, 6);
  EXPECT_EQ(seen.first_after(6), nullptr);
  EXPECT_EQ(seen.just_before(seen.all()[0]), nullptr);
  EXPECT_EQ(seen.just_before(seen.all()[3])->created, 5);
}

// What is taken out of a queue and put into another is judged there, whatever it was before.
TEST(ordered_queue, entries_are_judged_anew) {
  auto rest = queue{{at(1), at(2), at(3)}}.all();
  rest.erase(rest.begin());
  EXPECT_EQ(standings(rest), "hw");
}

TEST(ordered_queue, version_changes_with_the_holders_and_with_nothing_else) {
  const auto first = queue{{at(1), at(2)}}.version();
  EXPECT_NE(first, 0U);
  EXPECT_EQ(queue(std::vector<entry>{}).version(), 0U);
  EXPECT_EQ((queue{{at(1), at(2), at(3)}}.version()), first) << "one more waiter";
  EXPECT_NE((queue{{at(2)}}.version()), first);
  auto shrunk = at(1);
  shrunk.weight = 1;
  shrunk.entered = true;
  EXPECT_NE((queue{{shrunk, at(2)}}.version()), first);
}

// Entries go between the look at the queue and the transaction. It fails if a needed one is gone; if not, there is
// room for the newcomer.
TEST(ordered_queue, what_barging_needs_is_enough) {
  std::mt19937 random{11};
  const auto pick = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>{0, n - 1}(random);
  };
  int entered = 0;
  for (int run = 0; run < 5000; ++run) {
    std::vector<entry> keys;
    for (std::int64_t i = 1; i <= 6; ++i) keys.push_back(permits(i, 1 + pick(4), 4));
    for (std::size_t gone = pick(3); gone > 0; --gone)
      keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(pick(keys.size())));
    const auto weight = 1 + pick(4);
    const queue seen{keys};
    const auto needed = seen.takes_barging(weight);
    if (!needed) continue;
    std::vector<std::int64_t> relied_on;
    for (const auto* each : *needed) relied_on.push_back(each->created);
    for (std::size_t gone = pick(4); gone > 0 && !keys.empty(); --gone)
      keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(pick(keys.size())));
    const queue then{keys};
    if (std::ranges::any_of(relied_on,
                            [&](auto created) { return then.created_at(created) == nullptr; }))
      continue;
    ++entered;
    EXPECT_LE(then.used() + weight, 4U) << standings(seen) << " became " << standings(then);
  }
  EXPECT_GT(entered, 100);
}

// What the safety rests on: as long as its entry is there, a holder stays a holder, whatever comes behind or leaves.
TEST(ordered_queue, a_holder_stays_one) {
  std::mt19937 random{20261115};
  const auto pick = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>{0, n - 1}(random);
  };
  for (int run = 0; run < 200; ++run) {
    const bool semaphore = run % 2 == 0;
    std::vector<entry> keys;
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
      const queue now{keys};
      EXPECT_LE(now.used(), now.capacity());
      for (const auto created : held)
        if (const auto* still = now.created_at(created)) {
          EXPECT_EQ(still->stands, standing::holder) << "run " << run << ", step " << step;
        }
      held.clear();
      for (const auto& each : now.all())
        if (each.stands == standing::holder) held.push_back(each.created);
      EXPECT_EQ(held.empty(), now.empty()) << "an entry holds as long as there is any";
    }
  }
}

}  // namespace
}  // namespace holdfast::engines

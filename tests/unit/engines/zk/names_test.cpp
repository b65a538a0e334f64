// Names as paths, contenders by their names, and who of them holds.
#include "support/names.hpp"
#include "engines/zk/lock_queue.hpp"
#include "engines/zk/lone_folders.hpp"
#include "engines/zk/paths.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace holdfast::engines::zk {
namespace {

const layout& curator = *find_layout("curator");
const layout& kazoo = *find_layout("kazoo");

// ---- paths

TEST(zk_paths, plain_name_is_the_path_that_java_would_use) {
  EXPECT_EQ(path_of("/locks", "stock/sku-42"), "/locks/stock/sku-42");
  EXPECT_EQ(path_of("", "nightly report"), "/nightly report");
  EXPECT_EQ(path_of("", "орден/заказ"), "/орден/заказ");
}

TEST(zk_paths, what_another_lock_or_zookeeper_would_mistake_is_escaped) {
  EXPECT_EQ(path_of("", "zookeeper/quota"), "/~7Aookeeper/quota");
  EXPECT_EQ(path_of("", "a/zookeeper"), "/a/zookeeper");
  EXPECT_EQ(path_of("", "a/locks"), "/a/~6Cocks");
  EXPECT_EQ(path_of("", "a/leases/b"), "/a/~6Ceases/b");
  EXPECT_EQ(path_of("", "locks"), "/locks");
  EXPECT_EQ(path_of("", "a/007"), "/a/~3007") << "Curator would sort it before its own nodes";
  EXPECT_EQ(path_of("", "a/lock-0000000000"), "/a/lock~2D0000000000");
  EXPECT_EQ(path_of("", "~"), "/~7E");
  EXPECT_EQ(path_of("", "a\xF0\x9F\x98\x80"), "/a~F0~9F~98~80") << "ZooKeeper refuses it";
}

TEST(zk_paths, no_two_names_meet_and_every_name_comes_back) {
  std::set<std::string> paths, flat, counters;
  std::size_t count = 0;
  auto names = testing::good_names();
  for (const auto* more :
       {"a/locks", "a/leases", "a/~6Cocks", "a/lock-0000000000", "a/lock~2D0000000000", "~", "~7E",
        "zookeeper", "a/zookeeper", "~counters", "0", "~30", "-", "a~2Fb", "a/b"})
    names.emplace_back(more);
  std::set<std::string> unique{names.begin(), names.end()};
  for (const auto& name : unique) {
    ++count;
    const auto path = path_of("/r", name);
    paths.insert(path);
    flat.insert(flat_path_of("/r", name));
    counters.insert(counter_path("/r", name));
    EXPECT_EQ(decoded(path.substr(3)), name) << path;
    EXPECT_EQ(decoded(flat_path_of("/r", name).substr(3)), name);
    EXPECT_FALSE(path.starts_with("/r/~counters")) << path;
  }
  EXPECT_EQ(paths.size(), count);
  EXPECT_EQ(flat.size(), count);
  EXPECT_EQ(counters.size(), count);
}

TEST(zk_paths, no_segment_of_a_name_is_taken_for_a_contender) {
  for (const auto* name : {"a/_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000000",
                           "a/lock-0000000001", "a/x__WRIT__0000000001", "a/__READ__-000000001",
                           "a/latch-2147483647", "a/lease-0000000001", "a/lock--2147483648"}) {
    const auto path = path_of("", name);
    const auto last = last_of(path);
    EXPECT_FALSE(read_contender(curator, last)) << last;
    EXPECT_FALSE(read_permit(last)) << last;
  }
  EXPECT_FALSE(read_contender(kazoo, last_of(path_of("", "a/x__lock__0000000001"))));
}

TEST(zk_paths, rubbish_is_no_name) {
  for (const auto* path : {"~", "~4", "~zz", "a/~4g", "~counters"})
    EXPECT_FALSE(decoded(path)) << path;
}

// ---- contenders

TEST(zk_node_names, our_own_are_found_by_their_owner) {
  const owner_id owner{{0x0123456789abcdefU, 0xfedcba9876543210U}, 0x2a};
  EXPECT_EQ(prefix_of(curator, owner), "_c_01234567-89ab-cdef-fedc-ba9876543210-2a-");
  EXPECT_EQ(prefix_of(kazoo, owner), "0123456789abcdeffedcba9876543210-2a-");
  for (const auto* name : {"curator", "kazoo", "go-zk"}) {
    const auto& in = *find_layout(name);
    const auto one =
        read_contender(in, prefix_of(in, owner) + std::string{in.mutex} + "0000000007");
    ASSERT_TRUE(one) << name;
    EXPECT_EQ(one->owner, owner) << name;
    EXPECT_EQ(one->sequence, 7);
    const auto candidate =
        read_contender(in, prefix_of(in, owner) + address_of(4711, "host-1.example") +
                               std::string{in.candidate} + "0000000008");
    ASSERT_TRUE(candidate) << name;
    EXPECT_EQ(candidate->owner, owner);
    EXPECT_EQ(candidate->pid, 4711);
    EXPECT_EQ(candidate->host, "host-1.example");
  }
}

TEST(zk_node_names, those_of_other_programs_are_contenders_without_an_owner) {
  for (const auto* child :
       {"_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000003",
        "_c_0123456789abcdef0123456789abcdef-lock-0000000003", "lock-0000000003"}) {
    const auto one = read_contender(curator, child);
    ASSERT_TRUE(one) << child;
    EXPECT_FALSE(one->owner) << child;
    EXPECT_EQ(one->wants, wish::exclusive);
  }
  const auto reader =
      read_contender(curator, "_c_01234567-89ab-cdef-0123-456789abcdef-__READ__0000000003");
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->wants, wish::shared);
  ASSERT_TRUE(read_contender(kazoo, "0123456789abcdef0123456789abcdef__rlock__0000000003"));
  EXPECT_FALSE(read_contender(kazoo, "_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000003"));
}

TEST(zk_node_names, what_is_none_is_none) {
  for (const auto* child : {"", "b", "leases", "lock-", "lock-12", "lock-00000000012345",
                            "lock-000000000x", "__WRIT__"})
    EXPECT_FALSE(read_contender(curator, child)) << child;
}

TEST(zk_node_names, host_cannot_forge_a_base) {
  const owner_id owner{{1, 2}, 3};
  for (const auto* host : {"lock-", "x-latch-y", "lock-lock-0000000001", "a b/c\n", ""}) {
    const auto child = prefix_of(curator, owner) + address_of(1, host) + "latch-0000000009";
    const auto one = read_contender(curator, child);
    ASSERT_TRUE(one) << child;
    EXPECT_EQ(one->owner, owner) << child;
    EXPECT_EQ(one->sequence, 9) << child;
    EXPECT_EQ(child.find('/'), std::string::npos);
  }
}

// ---- the queue

std::string node(std::string_view base, std::int64_t sequence, unsigned owner = 1) {
  char digits[16];
  std::snprintf(digits, sizeof digits, "%010d", static_cast<std::int32_t>(sequence));
  return prefix_of(curator, {{1, 2}, owner}) + std::string{base} + digits;
}
lock_queue queue_of(const std::vector<std::string>& nodes) {
  const std::vector<std::string_view> children{nodes.begin(), nodes.end()};
  return {curator, children};
}

TEST(zk_lock_queue, exclusive_one_holds_when_nobody_is_before_it) {
  const auto queue = queue_of({node("lock-", 7, 2), node("lock-", 5, 1), "b", node("lock-", 9, 3)});
  ASSERT_EQ(queue.all().size(), 3U);
  EXPECT_TRUE(queue.holds(queue.all()[0]));
  EXPECT_EQ(queue.blocker_of(queue.all()[2]), &queue.all()[1]);
  EXPECT_TRUE(queue.is_next(queue.all()[1]));
  EXPECT_FALSE(queue.is_next(queue.all()[2]));
}

TEST(zk_lock_queue, reader_waits_for_the_nearest_writer_only) {
  const auto queue = queue_of({node("__WRIT__", 1), node("__READ__", 2), node("__WRIT__", 3),
                               node("__READ__", 4), node("__READ__", 5)});
  EXPECT_EQ(queue.blocker_of(queue.all()[1]), &queue.all()[0]);
  EXPECT_EQ(queue.blocker_of(queue.all()[4]), &queue.all()[2]);
  EXPECT_EQ(queue.blocker_of(queue.all()[2]), &queue.all()[1]);
  const auto readers = queue_of({node("__READ__", 2), node("__READ__", 4)});
  EXPECT_TRUE(readers.holds(readers.all()[1]));
}

// A writer may have become a reader, at its old place, by the time its node is gone.
TEST(zk_lock_queue, nobody_relies_on_being_next_behind_a_writer_or_a_reader) {
  for (const auto* first : {"__WRIT__", "__READ__"}) {
    const auto queue = queue_of({node(first, 1), node("__WRIT__", 2)});
    EXPECT_FALSE(queue.is_next(queue.all()[1])) << first;
  }
}

TEST(zk_lock_queue, order_is_kept_when_the_sequence_wraps) {
  const auto queue = queue_of({node("lock-", -2147483648LL, 3), node("lock-", 2147483647, 2),
                               node("lock-", 2147483646, 1), node("lock-", -2147483647LL, 4)});
  std::vector<std::uint64_t> owners;
  for (const auto& one : queue.all()) owners.push_back(one.owner->sequence);
  EXPECT_EQ(owners, (std::vector<std::uint64_t>{1, 2, 3, 4}));
}

TEST(zk_lock_queue, what_comes_after_the_last_number_is_in_no_order) {
  const auto queue = queue_of({node("lock-", 2147483646, 1), node("lock-", 2147483647, 2),
                               node("lock-", -2147483648LL, 3)});
  EXPECT_FALSE(queue.all()[0].is_in_no_order());
  EXPECT_TRUE(queue.all()[1].is_in_no_order());
  EXPECT_TRUE(queue.all()[2].is_in_no_order());
}

TEST(zk_lock_queue, nobody_barges_in_ahead_of_another_program) {
  const auto ours = queue_of({node("__READ__", 1), node("__WRIT__", 2)});
  EXPECT_EQ(ours.to_barge_in_beside(), &ours.all()[0]);
  const auto theirs =
      queue_of({node("__READ__", 1), "_c_01234567-89ab-cdef-0123-456789abcdef-__WRIT__0000000002"});
  EXPECT_EQ(theirs.to_barge_in_beside(), nullptr);
  EXPECT_EQ(queue_of({node("__WRIT__", 1), node("__READ__", 2)}).to_barge_in_beside(), nullptr);
  EXPECT_EQ(queue_of({}).to_barge_in_beside(), nullptr);
}

TEST(zk_lock_queue, version_changes_with_the_holders_and_with_nothing_else) {
  const auto one = queue_of({node("lock-", 1)}),
             waited_for = queue_of({node("lock-", 1), node("lock-", 2)});
  EXPECT_EQ(queue_of({}).version(), 0U);
  EXPECT_NE(one.version(), 0U);
  EXPECT_EQ(one.version(), waited_for.version());
  EXPECT_NE(one.version(), queue_of({node("lock-", 2)}).version());
}

// At every step of a random history: writers alone, readers with readers, and a holder stays one until it goes.
TEST(zk_lock_queue, holders_exclude_each_other_and_stay) {
  std::minstd_rand random{7};
  std::vector<std::string> nodes;
  std::set<std::string> held;
  for (int step = 0; step < 4000; ++step) {
    if (nodes.empty() || random() % 3 != 0) {
      nodes.push_back(node(random() % 2 == 0 ? "__READ__" : "__WRIT__", 2147483000LL + step,
                           static_cast<unsigned>(step)));
    } else {
      const auto gone = nodes.begin() + static_cast<std::ptrdiff_t>(random() % nodes.size());
      held.erase(*gone);
      nodes.erase(gone);
    }
    const auto queue = queue_of(nodes);
    std::size_t writers = 0, readers = 0;
    std::set<std::string> now;
    for (const auto& one : queue.all()) {
      if (!queue.holds(one)) continue;
      ++(one.wants == wish::exclusive ? writers : readers);
      now.insert(one.name);
    }
    EXPECT_TRUE(writers == 0 || (writers == 1 && readers == 0));
    EXPECT_TRUE(nodes.empty() || !now.empty());
    EXPECT_TRUE(std::ranges::includes(now, held)) << "step " << step;
    held = now;
    if (nodes.size() > 12) nodes.erase(nodes.begin());
    std::erase_if(held, [&](const std::string& name) {
      return std::ranges::find(nodes, name) == nodes.end();
    });
  }
}

// ---- the only user of a lock

TEST(zk_lone_folders, next_number_means_that_nobody_came) {
  lone_folders all;
  EXPECT_FALSE(all.expects_none("/a"));
  EXPECT_FALSE(all.note_alone("/a", {10, 1}, 5, 100));
  EXPECT_FALSE(all.expects_none("/a")) << "our own node is there";
  all.give_back("/a", 99);
  EXPECT_FALSE(all.expects_none("/a")) << "another owner's";
  all.give_back("/a", 100);
  EXPECT_TRUE(all.expects_none("/a"));
  EXPECT_TRUE(all.take("/a", {10, 1}, 6, 101));
  EXPECT_FALSE(all.take("/a", {10, 1}, 7, 102)) << "the one before has not been given back";
  all.give_back("/a", 101);
  EXPECT_FALSE(all.take("/a", {10, 1}, 8, 102)) << "a number is missing: another client was there";
  EXPECT_TRUE(all.take("/a", {10, 1}, 7, 102));
}

TEST(zk_lone_folders, another_folder_connection_or_an_unwatched_one_does_not_count) {
  lone_folders all;
  all.note_alone("/a", {10, 1}, 5, 100);
  all.give_back("/a", 100);
  EXPECT_FALSE(all.take("/a", {11, 1}, 6, 101)) << "made anew";
  EXPECT_FALSE(all.take("/a", {10, 2}, 6, 101)) << "another connection";
  EXPECT_FALSE(all.take("/a", {0, 1}, 6, 101)) << "not watched";
  all.forget("/a");
  EXPECT_FALSE(all.take("/a", {10, 1}, 6, 101)) << "it was deleted";
}

TEST(zk_lone_folders, numbers_wrap) {
  lone_folders all;
  all.note_alone("/a", {10, 1}, 2147483647, 100);
  all.give_back("/a", 100);
  EXPECT_TRUE(all.take("/a", {10, 1}, -2147483648, 101));
}

}  // namespace
}  // namespace holdfast::engines::zk

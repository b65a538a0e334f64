// Slots, tags, and the map of a cluster as its nodes tell it: no server.
#include "engines/redis/cluster_map.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>

namespace holdfast::engines::redis {
namespace {

TEST(slots, are_those_of_the_specification) {
  EXPECT_EQ(slot_of("123456789"), 0x31C3U % slot_count);
  EXPECT_EQ(slot_of("foo"), 12182U);
  EXPECT_EQ(slot_of("{user1000}.following"), slot_of("{user1000}.followers"));
  EXPECT_EQ(slot_of("{user1000}.following"), slot_of("user1000"));
  EXPECT_EQ(slot_of("foo{bar}{zap}"), slot_of("bar"));
  EXPECT_EQ(slot_of("foo{{bar}}zap"), slot_of("{bar"));
  EXPECT_NE(slot_of("foo{}{bar}"), slot_of("bar")) << "an empty tag is none";
  EXPECT_NE(slot_of("foo{bar"), slot_of("bar"));
}

// Part of the layout: what is written by one version is read by the next.
TEST(slots, tags_are_spread_evenly_and_stay_what_they_are) {
  std::set<std::string_view> all;
  for (unsigned tag = 0; tag < tag_count; ++tag) {
    EXPECT_EQ(slot_of_tag(tag) / (slot_count / tag_count), tag);
    EXPECT_EQ(slot_of(std::string{"hf:"}.append(tag_text(tag)).append("l:any {name}")),
              slot_of_tag(tag));
    all.insert(tag_text(tag));
  }
  EXPECT_EQ(all.size(), tag_count);
  EXPECT_EQ(tag_of("stock"), slot_of("stock") / 64);
  EXPECT_EQ(tag_of("{order-7}/stock"), tag_of("{order-7}/money"));
  EXPECT_EQ(tag_text(tag_of("foo")), tag_text(12182 / 64));
}

constexpr std::string_view three_nodes =
    "aaa 10.0.0.1:6379@16379 myself,master - 0 1426238317239 1 connected 0-5460 [93->-bbb]\n"
    "bbb 10.0.0.2:6379@16379,redis-b.example,shard-id=1 master - 0 1 2 connected 5461-10922\n"
    "ccc 10.0.0.3:6379@16379,,shard-id=2 slave aaa 0 1 1 connected\n"
    "ddd :0@0 master,noaddr - 0 1 3 disconnected 10923\n"
    "eee 10.0.0.5:6379@16379 handshake - 0 0 0 connected\n"
    "nonsense\n";

TEST(cluster_map, of_one_view) {
  const auto view = read_nodes(three_nodes, "10.0.0.1");
  ASSERT_EQ(view.size(), 3U);
  EXPECT_EQ(view[1].host_name, "redis-b.example");
  EXPECT_EQ(view[2].host_name, "");
  EXPECT_FALSE(view[2].is_master);
  const cluster_map map{{view}};
  ASSERT_EQ(map.masters().size(), 2U);
  EXPECT_EQ(map.nodes().size(), 3U);
  EXPECT_EQ(map.masters()[*map.master_of(93)].where, (node_address{"10.0.0.1", 6379}))
      << "until it has moved";
  EXPECT_EQ(map.masters()[*map.master_of(5461)].where, (node_address{"10.0.0.2", 6379}));
  EXPECT_FALSE(map.master_of(10923).has_value());
  EXPECT_EQ(map.slots_without_master(), slot_count - 10923);
}

TEST(cluster_map, node_that_does_not_know_its_address_has_the_one_that_was_asked) {
  const auto view = read_nodes("aaa :7000@17000 myself,master - 0 0 1 connected 0-16383\n", "::1");
  ASSERT_EQ(view.size(), 1U);
  EXPECT_EQ(view[0].where, (node_address{"::1", 7000}));
}

// A master that was cut off goes on claiming its slots, with the epoch that it had.
TEST(cluster_map, highest_epoch_counts_whoever_answers_first) {
  const auto old = read_nodes("aaa a:1@2 myself,master - 0 0 1 connected 0-16383\n", "a");
  const auto fresh = read_nodes(
      "aaa a:1@2 master,fail - 0 0 1 disconnected\n"
      "bbb b:1@2 myself,master - 0 0 7 connected 0-16383\n",
      "b");
  for (const auto& views : {std::vector{old, fresh}, std::vector{fresh, old}}) {
    const cluster_map map{views};
    EXPECT_EQ(map.masters()[*map.master_of(0)].where.host, "b");
    EXPECT_EQ(map.slots_without_master(), 0U);
  }
}

cluster_map map_of(std::string_view host, unsigned epoch) {
  return cluster_map{
      {read_nodes(std::string{"aaa "}.append(host).append(":1@2 myself,master - 0 0 ") +
                      std::to_string(epoch) + " connected 0-16383\n",
                  "a")}};
}

// The same, when it alone answers: what was learnt before counts.
TEST(cluster_map, older_map_is_refused_for_a_while) {
  using namespace std::chrono_literals;
  known_epochs known;
  const steady_time start{1h};
  EXPECT_FALSE(known.refuses(map_of("a", 1), start));
  EXPECT_FALSE(known.refuses(map_of("b", 7), start));
  EXPECT_TRUE(known.refuses(map_of("a", 1), start + 1s));
  EXPECT_TRUE(known.refuses(map_of("a", 1), start + 9s));
  EXPECT_FALSE(known.refuses(map_of("b", 7), start + 10s));
  EXPECT_TRUE(known.refuses(map_of("a", 1), start + 12s)) << "the time begins anew";
  EXPECT_FALSE(known.refuses(map_of("a", 1), start + 23s)) << "a cluster that was set up anew";
  EXPECT_FALSE(known.refuses(map_of("a", 1), start + 24s));
  EXPECT_FALSE(known.refuses(cluster_map{{}}, start + 25s)) << "no claim is no older claim";
}

TEST(cluster_map, what_is_no_answer_is_no_map) {
  for (const auto* text : {"", "\n\n\n", "a b c", "aaa a:b@c master - 0 0 1 connected 0-1",
                           "aaa a:1@2 master - 0 0 x connected 0-1"})
    EXPECT_TRUE(read_nodes(text, "a").empty()) << text;
  const auto odd = read_nodes("aaa a:1@2 master - 0 0 1 connected 5-1 99999 -3 1-x 7\n", "a");
  ASSERT_EQ(odd.size(), 1U);
  EXPECT_EQ(odd[0].slots, (std::vector<std::pair<unsigned, unsigned>>{{7, 7}}));
}

}  // namespace
}  // namespace holdfast::engines::redis

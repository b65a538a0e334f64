#include "server/waits.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::server {
namespace {

constexpr std::array<std::uint64_t, 2> ours{7, 7};

holder_info actor(const std::string& label, lock_mode mode = lock_mode::exclusive) {
  holder_info out;
  out.owner = {{1, 1}, 1};
  out.host = "host";
  out.pid = 10;
  out.label = label;
  out.mode = mode;
  return out;
}

lock_info lock_of(std::string name, std::vector<holder_info> holders,
                  std::vector<holder_info> waiters) {
  lock_info out;
  out.name = std::move(name);
  out.holders = std::move(holders);
  out.waiters = std::move(waiters);
  return out;
}

// "a>b by name", in the order in which they were found.
std::vector<std::string> edges_in(const wait_graph& graph) {
  std::vector<std::string> out;
  for (const auto& each : graph.waits)
    out.push_back(graph.actors[each.from].label + '>' + graph.actors[each.to].label + " by " +
                  each.name);
  return out;
}

using texts = std::vector<std::string>;

TEST(serve_waits, a_waiter_waits_for_each_holder_that_it_does_not_go_with) {
  const auto read = lock_mode::shared;
  const std::vector locks{
      lock_of("x", {actor("a", read), actor("b", read)}, {actor("c"), actor("d", read)})};
  const auto graph = waits_of(locks, ours);
  // The reader goes with the holders; what it waits for is the writer before it.
  EXPECT_EQ(edges_in(graph), (texts{"c>a by x", "c>b by x", "d>c by x"}));
  EXPECT_TRUE(graph.cycles.empty());
}

TEST(serve_waits, without_a_holder_those_before_it_are_waited_for) {
  const std::vector locks{lock_of("x", {}, {actor("a"), actor("b"), actor("c")})};
  EXPECT_EQ(edges_in(waits_of(locks, ours)), (texts{"b>a by x", "c>a by x", "c>b by x"}));
}

TEST(serve_waits, readers_go_with_each_other_and_with_one_that_may_write_later) {
  const auto read = lock_mode::shared, later = lock_mode::upgradeable;
  const std::vector locks{lock_of("x", {actor("a", later)}, {actor("b", read), actor("c", later)})};
  EXPECT_EQ(edges_in(waits_of(locks, ours)), texts{"c>a by x"});
}

TEST(serve_waits, a_circle_of_two_is_marked) {
  const std::vector locks{lock_of("x", {actor("a")}, {actor("b")}),
                          lock_of("y", {actor("b")}, {actor("a")}),
                          lock_of("z", {actor("a")}, {actor("outside")})};
  const auto graph = waits_of(locks, ours);
  ASSERT_EQ(graph.cycles.size(), 1U);
  ASSERT_EQ(graph.cycles[0].size(), 2U);
  for (const auto place : graph.cycles[0]) EXPECT_NE(graph.actors[place].label, "outside");
}

TEST(serve_waits, circles_are_told_apart) {
  std::vector<lock_info> locks;
  for (const auto* circle : {"p", "q"})
    for (int i = 0; i < 3; ++i)
      locks.push_back(lock_of(circle + std::to_string(i), {actor(circle + std::to_string(i))},
                              {actor(circle + std::to_string((i + 1) % 3))}));
  const auto graph = waits_of(locks, ours);
  ASSERT_EQ(graph.cycles.size(), 2U);
  EXPECT_EQ(graph.cycles[0].size(), 3U);
  EXPECT_EQ(graph.cycles[1].size(), 3U);
}

// Two threads of one program: the one gives back what the other waits for.
TEST(serve_waits, an_actor_that_waits_for_itself_is_no_circle) {
  const std::vector locks{lock_of("x", {actor("a")}, {actor("a")})};
  const auto graph = waits_of(locks, ours);
  EXPECT_EQ(graph.actors.size(), 1U);
  EXPECT_EQ(graph.waits.size(), 1U);
  EXPECT_TRUE(graph.cycles.empty());
}

// The process of both is the service, which says nothing of who they are.
TEST(serve_waits, clients_of_ours_without_a_label_are_actors_of_their_own) {
  auto one = actor(""), other = actor(""), here = actor("");
  one.owner = {ours, 1};
  other.owner = {ours, 2};
  here.owner = {};
  const std::vector locks{lock_of("x", {one}, {other, here, here})};
  EXPECT_EQ(waits_of(locks, ours).actors.size(), 4U);
  one.label = other.label = "same";
  EXPECT_EQ(waits_of(std::vector{lock_of("x", {one}, {other})}, ours).actors.size(), 1U);
}

TEST(serve_waits, a_long_chain_and_many_edges_are_bounded) {
  std::vector<lock_info> chain;
  constexpr std::size_t length = 19'000;
  for (std::size_t i = 0; i < length; ++i)
    chain.push_back(lock_of(std::to_string(i), {actor(std::to_string(i))},
                            {actor(std::to_string((i + 1) % length))}));
  const auto circle = waits_of(chain, ours);
  ASSERT_EQ(circle.cycles.size(), 1U);
  EXPECT_EQ(circle.cycles[0].size(), length);
  EXPECT_FALSE(circle.is_cut);
  std::vector<holder_info> queue;
  for (int i = 0; i < 300; ++i) queue.push_back(actor(std::to_string(i)));
  const auto crowd = waits_of(std::vector{lock_of("x", {}, queue)}, ours);
  EXPECT_TRUE(crowd.is_cut);
  EXPECT_EQ(crowd.waits.size(), 20'000U);
}

TEST(serve_waits, the_graph_is_json_whatever_the_labels_are) {
  const std::vector locks{lock_of("<x>", {actor("\"</script>\n")}, {actor("b")}),
                          lock_of("y", {actor("b")}, {actor("\"</script>\n")})};
  const auto text = json_of(waits_of(locks, ours));
  const auto read = nlohmann::json::parse(text);
  EXPECT_EQ(read["waits"][0]["name"], "<x>");
  EXPECT_EQ(read["actors"].size(), 2U);
  EXPECT_EQ(read["cycles"], nlohmann::json::parse("[[0,1]]"));
  EXPECT_EQ(read["cut"], false);
  for (const char c : text) EXPECT_TRUE(c >= ' ' && c < 0x7f);
}

}  // namespace
}  // namespace holdfast::server

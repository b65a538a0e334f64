// `holdfast run` holds the lock beyond the end of its command: --at-least and --wait-group.
#include "e2e/shell.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

namespace {

using namespace std::chrono_literals;
using e2e::alive;
using e2e::eventually;
using e2e::sandbox;

using counts = std::pair<std::size_t, std::size_t>;

// Ends at once with code 4, its id in the file `pid`.
std::vector<std::string> ending_early(const std::string& at_least) {
  return {"run", "a", "--at-least", at_least, "--", "sh", "-c", "echo $$ > pid; exit 4"};
}

TEST(at_least, the_lock_is_held_that_long_though_the_command_ends_sooner) {
  sandbox box;
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(box.run(ending_early("700ms")).code, 4);
  EXPECT_GE(std::chrono::steady_clock::now() - began, 700ms);
}

TEST(at_least, keeps_others_out_until_a_signal_ends_it) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    sandbox box;
    const auto holder = box.start(ending_early("10m"));
    const auto child = box.pid_in("pid");
    ASSERT_TRUE(eventually([&] { return !alive(child); }));
    EXPECT_EQ(box.run({"run", "a", "-n", "--", "true"}).code, 75);
    holder->send(signal);
    EXPECT_EQ(holder->wait().code, 4) << "the command's own";
    EXPECT_EQ(box.holders_and_waiters("a"), (counts{0, 0}));
  }
}

TEST(at_least, does_not_delay_a_command_that_takes_longer) {
  sandbox box;
  const auto holder = box.start(
      {"run", "a", "--at-least", "1ms", "--", "sh", "-c", "echo $$ > pid; " + box.until_let_go()});
  box.pid_in("pid");
  EXPECT_TRUE(box.let_go());
  EXPECT_EQ(holder->wait(5s).code, 0);
}

TEST(at_least, a_command_that_was_interrupted_gives_the_lock_back_at_once) {
  sandbox box;
  const auto holder = box.start(
      {"run", "a", "--at-least", "10m", "--", "sh", "-c", "echo $$ > pid; exec sleep 60"});
  box.pid_in("pid");
  holder->send(SIGINT);
  EXPECT_EQ(holder->wait().code, 128 + SIGINT);
  EXPECT_EQ(box.holders_and_waiters("a"), (counts{0, 0}));
}

TEST(at_least, a_loss_after_the_end_of_the_command_is_a_warning) {
  sandbox box;
  e2e::terminal screen{box, {"run", "a", "--at-least", "10m", "--", "sh", "-c", "exit 4"}};
  ASSERT_TRUE(screen.shows("The command has ended; \"a\" is held for another ")) << screen.seen();
  EXPECT_EQ(box.run({"break", "a", "--yes"}).code, 0);
  EXPECT_TRUE(screen.shows("after the command had ended, before --at-least was over"))
      << screen.seen();
  EXPECT_EQ(screen.wait(), 4) << "the command's own";
}

TEST(at_least, must_not_be_longer_than_max_hold) {
  sandbox box;
  const auto refused =
      box.run({"run", "a", "--at-least", "2s", "--max-hold", "1s", "--", "touch", "ran"});
  EXPECT_EQ(refused.code, 64);
  EXPECT_NE(refused.err.find("--at-least is longer than --max-hold"), std::string::npos);
  EXPECT_FALSE(std::ifstream{box.path("ran")}.good());
}

// The command ends with 3 and leaves a process behind, whose id is in the file `inner`.
std::vector<std::string> leaving_one_behind(sandbox& box, std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"run", "a"});
  for (const auto& word : {std::string{"--"}, std::string{"sh"}, std::string{"-c"},
                           "(" + box.until_let_go() +
                               "; echo late > log) & "
                               "echo $! > inner; echo $$ > pid; exit 3"})
    flags.push_back(word);
  return flags;
}

// A holder whose command has ended, and what that has left behind.
struct left_behind {
  explicit left_behind(sandbox& box, std::vector<std::string> flags = {"--wait-group"})
      : holder(box.start(leaving_one_behind(box, std::move(flags)))), inner(box.pid_in("inner")) {
    const auto child = box.pid_in("pid");
    EXPECT_TRUE(eventually([&] { return !alive(child); }));
  }
  std::unique_ptr<e2e::program> holder;
  pid_t inner;
};

TEST(wait_group, without_it_the_lock_is_given_back_when_the_command_itself_has_ended) {
  sandbox box;
  EXPECT_EQ(box.run(leaving_one_behind(box, {})).code, 3);
  EXPECT_TRUE(alive(box.pid_in("inner")));
  EXPECT_EQ(box.holders_and_waiters("a"), (counts{0, 0}));
  EXPECT_TRUE(box.let_go());
  EXPECT_TRUE(eventually([&] { return box.read("log") == "late\n"; })) << "it was left alone";
}

TEST(wait_group, the_lock_is_held_and_renewed_until_the_last_process_has_ended) {
  sandbox box;
  const left_behind left{box, {"--wait-group", "--ttl", "500ms"}};
  // Longer than the ttl.
  EXPECT_EQ(box.run({"run", "a", "--wait", "1500ms", "--", "true"}).code, 75);
  EXPECT_TRUE(box.let_go());
  EXPECT_EQ(left.holder->wait().code, 3) << "the command's own";
  EXPECT_EQ(box.read("log"), "late\n");
  EXPECT_EQ(box.holders_and_waiters("a"), (counts{0, 0}));
}

TEST(wait_group, a_loss_ends_what_is_left_of_the_group) {
  sandbox box;
  const left_behind left{box};
  EXPECT_TRUE(alive(left.inner));
  EXPECT_EQ(box.run({"break", "a", "--yes"}).code, 0);
  EXPECT_EQ(left.holder->wait().code, 76);
  EXPECT_FALSE(alive(left.inner));
}

TEST(wait_group, signals_reach_what_is_left_of_the_group) {
  sandbox box;
  const left_behind left{box};
  left.holder->send(SIGTERM);
  EXPECT_EQ(left.holder->wait().code, 3);
  EXPECT_FALSE(alive(left.inner));
}

}  // namespace

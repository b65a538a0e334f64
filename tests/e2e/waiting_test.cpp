// What `run` says while it waits, and when it gives up: which holder is in the way, and when that is ourselves.
#include "e2e/shell.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using e2e::eventually;
using e2e::has;
using e2e::sandbox;

constexpr auto around_us = "the holdfast around this very command";

std::unique_ptr<e2e::program> hold_until_go(sandbox& box, const std::string& name) {
  auto holder = box.start({"run", name, "--label", "nightly", "--", "sh", "-c",
                           "echo $$ > pid; " + box.until_let_go()});
  box.pid_in("pid");
  return holder;
}

void finish(sandbox& box, e2e::program& holder) {
  EXPECT_TRUE(box.let_go());
  EXPECT_EQ(holder.wait().code, 0);
}

// "vm:1234 (nightly) for "
std::string named(const e2e::program& holder) {
  return ':' + std::to_string(holder.pid()) + " (nightly) for ";
}

TEST(waiting, a_terminal_is_told_once_which_holder_has_the_lock) {
  sandbox box;
  const auto holder = hold_until_go(box, "a");
  e2e::terminal screen{box, {"run", "a", "--", "true"}};
  EXPECT_TRUE(screen.shows("holdfast: Waiting for \"a\": held by ")) << screen.seen();
  EXPECT_TRUE(screen.shows(named(*holder))) << screen.seen();
  finish(box, *holder);
  EXPECT_EQ(screen.wait(), 0);
  EXPECT_EQ(screen.seen().find("Waiting"), screen.seen().rfind("Waiting")) << screen.seen();
}

TEST(waiting, is_silent_without_a_terminal) {
  sandbox box;
  const auto holder = hold_until_go(box, "a");
  const auto waiter = box.start({"run", "a", "--", "true"});
  ASSERT_TRUE(eventually([&] {
    const auto lock = nlohmann::json::parse(box.run({"show", "a", "--json"}).out);
    return lock["waiters"].size() == 1 && lock["waiters"][0]["waiting_seconds"] > 1.5;
  }));
  finish(box, *holder);
  const auto ended = waiter->wait();
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

TEST(waiting, a_wait_that_fails_names_the_holder) {
  sandbox box;
  const auto holder = hold_until_go(box, "a");
  const auto busy = box.run({"run", "a", "--no-wait", "--", "true"});
  EXPECT_EQ(busy.code, 75);
  EXPECT_TRUE(busy.err.starts_with("holdfast: The lock \"a\" is held by ")) << busy.err;
  EXPECT_TRUE(has(busy.err, named(*holder))) << busy.err;
  EXPECT_FALSE(has(busy.err, around_us)) << busy.err;
  const auto late = box.run({"run", "a", "--wait", "50ms", "--", "true"});
  EXPECT_EQ(late.code, 75);
  EXPECT_TRUE(has(late.err, "did not become free in 50ms: held by ")) << late.err;
  EXPECT_TRUE(has(late.err, named(*holder))) << late.err;
  finish(box, *holder);
}

TEST(waiting, counts_the_other_holders) {
  sandbox box;
  const auto reader = [&](const std::string& file) {
    auto started = box.start({"run", "a", "-s", "--", "sh", "-c",
                              "echo $$ > " + file + "; " + box.until_let_go("go-" + file)});
    box.pid_in(file);
    return started;
  };
  const auto one = reader("one");
  const auto two = reader("two");
  EXPECT_TRUE(has(box.run({"run", "a", "-n", "--", "true"}).err, " and one other."));
  const auto three = reader("three");
  EXPECT_TRUE(has(box.run({"run", "a", "-n", "--", "true"}).err, " and 2 others."));
  for (const auto* file : {"one", "two", "three"})
    EXPECT_TRUE(box.let_go(std::string{"go-"} + file));
  for (const auto* each : {&one, &two, &three}) EXPECT_EQ((*each)->wait().code, 0);
}

TEST(waiting, one_that_waits_for_itself_is_told_so) {
  sandbox box;
  const auto busy = box.run({"run", "a", "--", "holdfast", "run", "a", "--no-wait", "--", "true"});
  EXPECT_EQ(busy.code, 75);
  EXPECT_TRUE(has(busy.err, around_us)) << busy.err;
  // Long enough for the warning; it waits for nothing else, so the time is no race.
  const auto late =
      box.run({"run", "a", "--", "holdfast", "run", "a", "--wait", "3s", "--", "true"});
  EXPECT_EQ(late.code, 75);
  EXPECT_TRUE(late.err.starts_with("holdfast: warning: Waiting for \"a\": held by ")) << late.err;
  EXPECT_TRUE(has(late.err, "waits for itself")) << late.err;
}

TEST(waiting, the_same_store_is_recognised_by_another_address_of_it) {
  sandbox box;
  const auto busy = box.run({"run", "a", "--", "holdfast", "--store",
                             "file:" + box.folder() + "/%73tore", "run", "a", "-n", "--", "true"});
  EXPECT_EQ(busy.code, 75);
  EXPECT_TRUE(has(busy.err, around_us)) << busy.err;
}

TEST(waiting, nested_locks_that_do_not_meet_are_no_deadlock) {
  sandbox box;
  const auto other = "file:" + box.path("other");
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"run", "a", "--", "holdfast", "run", "b", "-n", "--", "true"},
           {"run", "a", "--", "holdfast", "run", "a", "-n", "--store", other, "--", "true"},
           {"run", "a", "-s", "--", "holdfast", "run", "a", "-s", "-n", "--", "true"},
           {"run", "s", "--permits", "1/2", "--", "holdfast", "run", "s", "--permits", "1/2", "-n",
            "--", "true"}}) {
    const auto ran = box.run(words);
    EXPECT_EQ(ran.code, 0) << testing::PrintToString(words) << ran.err;
    EXPECT_EQ(ran.err, "");
  }
}

TEST(waiting, permits_are_in_their_own_way_only_when_they_cannot_fit) {
  sandbox box;
  const auto ask = [&](const std::string& permits) {
    return box.run({"run", "s", "--permits", "2/3", "--", "holdfast", "run", "s", "--permits",
                    permits, "-n", "--", "true"});
  };
  EXPECT_EQ(ask("1/3").code, 0);
  const auto too_many = ask("2/3");
  EXPECT_EQ(too_many.code, 75);
  EXPECT_TRUE(has(too_many.err, around_us)) << too_many.err;
}

TEST(waiting, an_environment_that_is_left_over_from_an_earlier_grant_proves_nothing) {
  sandbox box;
  const auto before = box.run({"run", "a", "--", "sh", "-c", "echo $HOLDFAST_TOKEN"}).out;
  const auto holder = hold_until_go(box, "a");
  box.set("HOLDFAST_LOCK", "a");
  box.set("HOLDFAST_TOKEN", before.substr(0, before.find('\n')));
  const auto busy = box.run({"run", "a", "-n", "--", "true"});
  EXPECT_EQ(busy.code, 75);
  EXPECT_TRUE(has(busy.err, named(*holder))) << busy.err;
  EXPECT_FALSE(has(busy.err, around_us)) << busy.err;
  finish(box, *holder);
}

// ---- the habits of flock(1)

TEST(flock_habits, letters_mean_what_they_mean_there) {
  sandbox box;
  const auto holder = hold_until_go(box, "a");
  EXPECT_EQ(box.run({"run", "-n", "a", "--", "true"}).code, 75);
  EXPECT_EQ(box.run({"run", "-w", "0.05", "a", "--", "true"}).code, 75);
  EXPECT_EQ(box.run({"run", "-w", "50ms", "a", "--", "true"}).code, 75);
  EXPECT_EQ(box.run({"run", "-sn", "a", "--", "true"}).code, 75);
  EXPECT_EQ(box.run({"run", "-n", "-w", "1", "a", "--", "true"}).code, 64);
  finish(box, *holder);
  EXPECT_EQ(box.run({"run", "-n", "a", "--", "sh", "-c", "exit 6"}).code, 6);
}

TEST(flock_habits, the_exit_code_of_a_conflict_can_be_chosen) {
  sandbox box;
  const auto holder = hold_until_go(box, "a");
  EXPECT_EQ(box.run({"run", "-n", "-E", "9", "a", "--", "true"}).code, 9);
  EXPECT_EQ(box.run({"run", "-n", "-E", "0", "a", "--", "true"}).code, 0);
  EXPECT_EQ(box.run({"run", "-w", "0.05", "--conflict-exit-code", "9", "a", "--", "true"}).code, 9);
  // Of nothing else but a conflict.
  EXPECT_EQ(box.run({"run", "-n", "-E", "9", "a//b", "--", "true"}).code, 78);
  EXPECT_EQ(box.run({"run", "-n", "-E", "9", "b", "--", "sh", "-c", "exit 3"}).code, 3);
  EXPECT_EQ(box.run({"run", "-n", "-E", "256", "a", "--", "true"}).code, 64);
  EXPECT_EQ(box.run({"run", "-n", "-E", "-1", "a", "--", "true"}).code, 64);
  finish(box, *holder);
}

TEST(flock_habits, letters_are_in_help_manual_and_completions) {
  sandbox box;
  const auto help = box.run({"run", "--help"}).out;
  for (const char* both :
       {"-n, --no-wait", "-w, --wait DURATION", "-s, --shared", "-E, --conflict-exit-code CODE"})
    EXPECT_TRUE(has(help, both)) << both << '\n' << help;
  EXPECT_TRUE(has(box.run({"man"}).out, "\\fB\\-n\\fR, \\fB\\-\\-no\\-wait\\fR"));
  EXPECT_TRUE(has(box.run({"completion", "bash"}).out, " -n --no-wait "));
  EXPECT_TRUE(has(box.run({"completion", "zsh"}).out, " '-n["));
  EXPECT_TRUE(has(box.run({"completion", "fish"}).out, " -l no-wait "));
  EXPECT_TRUE(has(box.run({"completion", "fish"}).out, " -s n"));
}

// ---- a store that excludes nobody

TEST(private_store, is_warned_of_where_other_processes_are_meant) {
  sandbox box;
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"run", "a", "--", "true"}, {"elect", "a", "--", "true"}, {"latch", "set", "l", "1"}}) {
    auto flagged = words;
    flagged.insert(flagged.begin(), {"--store", "memory:"});
    const auto warned = box.run(flagged);
    EXPECT_EQ(warned.code, 0);
    EXPECT_TRUE(warned.err.starts_with("holdfast: warning: The store memory: lives in this one"))
        << warned.err;
    EXPECT_EQ(box.run(words).err, "");
  }
  EXPECT_EQ(box.run({"explain", "--store", "memory:"}).err, "") << "it locks nothing";
}

}  // namespace

// `holdfast elect` and `holdfast latch`.
#include "e2e/shell.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

namespace {

using e2e::alive;
using e2e::eventually;
using e2e::sandbox;

std::vector<std::string> leading(const std::string& who) {
  return {"elect",
          "boss",
          "--value",
          who,
          "--",
          "sh",
          "-c",
          "echo " + who + " $HOLDFAST_TOKEN >> terms; echo $$ > pid." + who + "; exec sleep 60"};
}

TEST(elect, keeps_the_exit_code_of_its_command) {
  sandbox box;
  EXPECT_EQ(box.run({"elect", "boss", "--", "sh", "-c", "exit 9"}).code, 9);
  EXPECT_EQ(box.run({"elect", "boss", "--", "no-such-command-here"}).code, 127);
}

TEST(elect, the_next_candidate_takes_over_when_the_leader_is_killed) {
  sandbox box;
  const auto first = box.start(leading("one"));
  const auto child = box.pid_in("pid.one");
  const auto second = box.start(leading("two"));
  ASSERT_TRUE(eventually([&] {
    return box.run({"ls", "--json"}).out.find("\"waiting_seconds\"") != std::string::npos;
  }));
  EXPECT_EQ(box.read("pid.two"), "");
  first->send(SIGKILL);
  const auto heir = box.pid_in("pid.two");
  EXPECT_TRUE(alive(heir));
  EXPECT_TRUE(eventually([&] { return !alive(child); }));
  second->send(SIGTERM);
  EXPECT_EQ(second->wait().code, 128 + SIGTERM);
  EXPECT_FALSE(alive(heir));
}

TEST(elect, stands_again_after_losing_its_term) {
  sandbox box;
  const auto boss = box.start(
      {"elect", "boss", "--", "sh", "-c", "echo $HOLDFAST_TOKEN >> terms; exec sleep 60"});
  const auto terms = [&] { return box.read("terms"); };
  ASSERT_TRUE(eventually([&] { return terms().ends_with('\n'); }));
  const auto listed = nlohmann::json::parse(box.run({"ls", "--json"}).out);
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(box.run({"break", listed[0]["name"], "--yes"}).code, 0);
  ASSERT_TRUE(eventually([&] {
    const auto text = terms();
    return text.ends_with('\n') && std::count(text.begin(), text.end(), '\n') == 2;
  }));
  const auto text = terms();
  EXPECT_LT(std::stoull(text), std::stoull(text.substr(text.find('\n') + 1)));
  boss->send(SIGINT);
  EXPECT_EQ(boss->wait().code, 128 + SIGINT);
}

TEST(elect, ends_with_76_when_the_term_was_over_before_its_command_had_ended) {
  sandbox box;
  const auto boss = box.start(
      {"elect", "boss", "--", "sh", "-c", "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done"});
  const auto child = box.pid_in("pid");
  const auto listed = nlohmann::json::parse(box.run({"ls", "--json"}).out);
  ASSERT_EQ(listed.size(), 1U);
  boss->send(SIGSTOP);
  EXPECT_EQ(box.run({"break", listed[0]["name"], "--yes"}).code, 0);
  std::ofstream{box.path("go")};
  ASSERT_TRUE(eventually([&] { return !alive(child); }));
  boss->send(SIGCONT);
  EXPECT_EQ(boss->wait().code, 76);
}

TEST(elect, a_candidate_that_is_interrupted_leaves_the_queue) {
  sandbox box;
  const auto first = box.start(leading("one"));
  box.pid_in("pid.one");
  const auto second = box.start(leading("two"));
  ASSERT_TRUE(eventually([&] {
    return box.run({"ls", "--json"}).out.find("\"waiting_seconds\"") != std::string::npos;
  }));
  second->send(SIGINT);
  EXPECT_EQ(second->wait().code, 128 + SIGINT);
  EXPECT_EQ(box.run({"ls", "--json"}).out.find("\"waiting_seconds\""), std::string::npos);
  first->send(SIGTERM);
  first->wait();
}

TEST(latch, opens_after_its_count) {
  sandbox box;
  EXPECT_EQ(box.run({"latch", "set", "tiles", "3"}).code, 0);
  EXPECT_EQ(box.run({"latch", "down", "tiles"}).out, "2\n");
  EXPECT_EQ(box.run({"latch", "wait", "tiles", "--wait", "50ms"}).code, 75);
  const auto waiter = box.start({"latch", "wait", "tiles", "--json"});
  EXPECT_EQ(box.run({"latch", "down", "tiles", "2"}).out, "0\n");
  const auto opened = waiter->wait();
  EXPECT_EQ(opened.code, 0);
  EXPECT_EQ(nlohmann::json::parse(opened.out),
            (nlohmann::json{{"name", "tiles"}, {"left", 0}, {"open", true}}));
  EXPECT_EQ(box.run({"latch", "wait", "tiles"}).code, 0);
  EXPECT_EQ(box.run({"latch", "set", "tiles", "1"}).code, 0);
  EXPECT_EQ(box.run({"latch", "wait", "tiles", "--wait", "0"}).code, 75);
}

TEST(latch, cannot_be_counted_down_before_it_exists) {
  sandbox box;
  const auto missing = box.run({"latch", "down", "nowhere"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_TRUE(missing.err.starts_with("holdfast: ")) << missing.err;
}

TEST(latch, show_says_what_is_left_and_rm_forgets_it) {
  using nlohmann::json;
  sandbox box;
  ASSERT_EQ(box.run({"latch", "set", "tiles", "3"}).code, 0);
  EXPECT_EQ(box.run({"latch", "show", "tiles"}).out, "3\n");
  EXPECT_EQ(json::parse(box.run({"latch", "show", "tiles", "--json"}).out),
            (json{{"name", "tiles"}, {"left", 3}, {"open", false}}));
  EXPECT_EQ(box.run({"latch", "show", "tiles"}).out, "3\n") << "a look changes nothing";
  const auto removed = box.run({"latch", "rm", "tiles", "--json"});
  EXPECT_EQ(removed.code, 0);
  EXPECT_EQ(json::parse(removed.out), (json{{"name", "tiles"}, {"removed", true}}));
  for (const char* verb : {"show", "rm", "down"}) {
    const auto missing = box.run({"latch", verb, "tiles"});
    EXPECT_EQ(missing.code, 1) << verb;
    EXPECT_TRUE(missing.err.starts_with("holdfast: ")) << missing.err;
  }
}

TEST(latch, ls_shows_each_with_what_is_left_of_it) {
  using nlohmann::json;
  sandbox box;
  EXPECT_EQ(box.run({"latch", "ls"}).out, "There is no latch.\n");
  EXPECT_EQ(json::parse(box.run({"latch", "ls", "--json"}).out), json::array());
  for (const char* name : {"tiles", "render/b", "render/a"})
    ASSERT_EQ(box.run({"latch", "set", name, "2"}).code, 0);
  ASSERT_EQ(box.run({"latch", "down", "render/b", "2"}).code, 0);

  const auto table = box.run({"latch", "ls"});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_TRUE(table.out.starts_with("NAME      LEFT  FORGOTTEN IN\n")) << table.out;
  EXPECT_LT(table.out.find("\nrender/a     2        "), table.out.find("\nrender/b     0        "));
  EXPECT_NE(table.out.find("\ntiles        2        "), std::string::npos) << table.out;

  const auto listed = json::parse(box.run({"latch", "ls", "render/", "--json"}).out);
  ASSERT_EQ(listed.size(), 2U);
  EXPECT_EQ(listed[0]["name"], "render/a");
  EXPECT_EQ(listed[0]["left"], 2);
  EXPECT_EQ(listed[0]["open"], false);
  EXPECT_EQ(listed[1]["name"], "render/b");
  EXPECT_EQ(listed[1]["open"], true);
  for (const auto& each : listed) {
    EXPECT_LE(each["forgotten_in_seconds"], 24 * 3600.0);
    EXPECT_GT(each["forgotten_in_seconds"], 23 * 3600.0);
  }
  ASSERT_EQ(box.run({"latch", "rm", "tiles"}).code, 0);
  EXPECT_EQ(box.run({"latch", "ls", "tiles"}).out, "There is no latch.\n");
}

TEST(latch, an_interrupted_wait_ends) {
  sandbox box;
  ASSERT_EQ(box.run({"latch", "set", "tiles", "3"}).code, 0);
  const auto waiter = box.start_shell("holdfast latch wait tiles & echo $! > pid; wait $!");
  const auto pid = box.pid_in("pid");
  // Blocked signals: from here on it cancels instead of dying.
  ASSERT_TRUE(eventually([&] {
    std::ifstream status{"/proc/" + std::to_string(pid) + "/status"};
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("SigBlk:"))
        return line.find_first_not_of("SigBlk:\t0") != std::string::npos;
    return false;
  }));
  ::kill(pid, SIGTERM);
  EXPECT_EQ(waiter->wait().code, 128 + SIGTERM);
}

}  // namespace

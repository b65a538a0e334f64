// `holdfast run`: exit codes, signals, loss, and what is left behind.
#include "e2e/shell.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace {

using namespace std::chrono_literals;
using e2e::alive;
using e2e::eventually;
using e2e::sandbox;

// Holds `name` until it is ended; its pid is in the file `pid`.
std::vector<std::string> holding(const std::string& name) {
  return {"run", name, "--", "sh", "-c", "echo $$ > pid; exec sleep 60"};
}

TEST(run, keeps_the_exit_code_of_its_command) {
  sandbox box;
  EXPECT_EQ(box.run({"run", "a", "--", "true"}).code, 0);
  EXPECT_EQ(box.run({"run", "a", "--", "sh", "-c", "exit 7"}).code, 7);
  EXPECT_EQ(box.run({"run", "a", "--", "sh", "-c", "kill -KILL $$"}).code, 128 + SIGKILL);
}

TEST(run, passes_input_output_and_dashes_through) {
  sandbox box;
  const auto echoed =
      box.shell("echo hello | holdfast run a -- cat; holdfast run a -- echo -n -- --store x");
  EXPECT_EQ(echoed.out, "hello\n-- --store x");
  EXPECT_EQ(echoed.err, "");
}

TEST(run, is_busy_at_once_with_no_wait) {
  sandbox box;
  const auto holder = box.start(holding("a"));
  box.pid_in("pid");
  const auto second = box.shell("holdfast run a --no-wait -- touch ran; echo $?");
  EXPECT_EQ(second.out, "75\n");
  EXPECT_NE(second.err.find("holdfast: "), std::string::npos);
  EXPECT_FALSE(std::ifstream{box.path("ran")}.good());
  holder->send(SIGTERM);
  EXPECT_EQ(holder->wait().code, 128 + SIGTERM);
}

TEST(run, gives_up_when_the_wait_is_over) {
  sandbox box;
  const auto holder = box.start(holding("a"));
  box.pid_in("pid");
  EXPECT_EQ(box.run({"run", "a", "--wait", "100ms", "--", "true"}).code, 75);
  EXPECT_EQ(box.holders_and_waiters("a"), (std::pair<std::size_t, std::size_t>{1, 0}));
  holder->send(SIGTERM);
  holder->wait();
}

TEST(run, waits_its_turn) {
  sandbox box;
  const auto first =
      box.start({"run", "a", "--", "sh", "-c",
                 "echo one >> log; while [ ! -e go ]; do sleep 0.02; done; echo two >> log"});
  ASSERT_TRUE(eventually([&] { return box.read("log") == "one\n"; }));
  const auto second = box.start({"run", "a", "--", "sh", "-c", "echo three >> log"});
  ASSERT_TRUE(eventually([&] { return box.holders_and_waiters("a").second == 1; }));
  std::ofstream{box.path("go")};
  EXPECT_EQ(first->wait().code, 0);
  EXPECT_EQ(second->wait().code, 0);
  EXPECT_EQ(box.read("log"), "one\ntwo\nthree\n");
}

TEST(run, exports_a_rising_token_the_name_and_the_store) {
  sandbox box;
  const auto ask = [&] {
    return box
        .run({"run", "a/b", "--", "sh", "-c",
              "echo $HOLDFAST_TOKEN; echo $HOLDFAST_LOCK $HOLDFAST_STORE"})
        .out;
  };
  const auto first = ask();
  const auto second = ask();
  EXPECT_LT(std::stoull(first), std::stoull(second));
  EXPECT_NE(first.find("\na/b " + box.store() + '\n'), std::string::npos) << first;
}

TEST(run, refuses_wrong_usage_with_64) {
  sandbox box;
  const std::vector<std::vector<std::string>> wrong{
      {},
      {"run"},
      {"run", "a"},
      {"run", "a", "--"},
      {"run", "a", "true"},
      {"run", "a", "b", "--", "true"},
      {"run", "a", "--wiat", "1s", "--", "true"},
      {"run", "a", "--wait", "soon", "--", "true"},
      {"run", "a", "--wait", "-1s", "--", "true"},
      {"run", "a", "--wait", "1s", "--no-wait", "--", "true"},
      {"run", "a", "--permits", "3/2", "--", "true"},
      {"run", "a", "--permits", "x", "--", "true"},
      {"run", "a", "--shared", "--permits", "1/2", "--", "true"},
      {"run", "a", "--on-lost", "panic", "--", "true"},
      {"run", "a", "--priority", "high", "--", "true"},
      {"rnu", "a", "--", "true"},
      {"latch"},
      {"latch", "set", "x"},
      {"latch", "set", "x", "minus one"},
  };
  for (const auto& words : wrong) {
    const auto refused = box.run(words);
    EXPECT_EQ(refused.code, 64) << testing::PrintToString(words) << refused.err;
    EXPECT_TRUE(refused.err.starts_with("holdfast: ")) << refused.err;
    EXPECT_EQ(refused.out, "");
  }
  EXPECT_NE(box.run({"rnu"}).err.find("Did you mean \"run\"?"), std::string::npos);
  EXPECT_NE(box.run({"run", "a", "--wiat", "1s", "--", "true"}).err.find("--wait"),
            std::string::npos);
}

TEST(run, calls_bad_names_and_stores_misconfigured) {
  sandbox box;
  EXPECT_EQ(box.run({"run", "a//b", "--", "true"}).code, 78);
  EXPECT_EQ(box.run({"run", "../b", "--", "true"}).code, 78);
  EXPECT_EQ(box.run({"run", std::string(256, 'x'), "--", "true"}).code, 78);
  EXPECT_EQ(box.run({"run", "a", "--label", std::string(65, 'x'), "--", "true"}).code, 78);
  EXPECT_EQ(box.run({"run", "a", "--store", "nosuchstore:", "--", "true"}).code, 78);
  EXPECT_EQ(box.run({"--store", "not a url", "run", "a", "--", "true"}).code, 78);
  EXPECT_EQ(box.run({"run", "a", "--store", box.store() + "?nosuchkey=1", "--", "true"}).code, 78);
}

TEST(run, tells_a_missing_command_from_one_that_cannot_run) {
  sandbox box;
  EXPECT_EQ(box.run({"run", "a", "--", "no-such-command-here"}).code, 127);
  EXPECT_EQ(box.run({"run", "a", "--", "./no-such-file"}).code, 127);
  EXPECT_EQ(box.run({"run", "a", "--", "/etc/passwd"}).code, 126);
  EXPECT_EQ(box.run({"run", "a", "--", "/tmp"}).code, 126);
}

TEST(run, runs_a_script_without_a_first_line) {
  sandbox box;
  std::ofstream{box.path("script")} << "echo script $1\n";
  ::chmod(box.path("script").c_str(), 0700);
  EXPECT_EQ(box.run({"run", "a", "--", "./script", "it"}).out, "script it\n");
}

TEST(run, starts_its_command_with_the_usual_signals) {
  sandbox box;
  EXPECT_EQ(box.run({"run", "a", "--", "sh", "-c", "kill -PIPE $$"}).code, 128 + SIGPIPE);
  // What was ignored before us stays so, and we add nothing. The signals from 32 on are the C library's own.
  const auto standard_signals = [](const std::string& status, const char* which) {
    const auto at = status.find(which);
    if (at == std::string::npos) return ~0ULL;
    return std::stoull(status.substr(at + std::strlen(which)), nullptr, 16) & 0x7fffffffULL;
  };
  std::ifstream own{"/proc/self/status"};
  const std::string before{std::istreambuf_iterator<char>{own}, {}};
  const auto during = box.run({"run", "a", "--", "cat", "/proc/self/status"}).out;
  EXPECT_EQ(standard_signals(during, "SigIgn:"), standard_signals(before, "SigIgn:"));
  EXPECT_EQ(standard_signals(during, "SigBlk:"), 0U);
}

TEST(run, leaves_no_lock_and_no_child_after_ctrl_c) {
  sandbox box;
  const auto holder = box.start(holding("a"));
  const auto child = box.pid_in("pid");
  EXPECT_TRUE(alive(child));
  holder->send(SIGINT);
  EXPECT_EQ(holder->wait().code, 128 + SIGINT);
  EXPECT_FALSE(alive(child));
  EXPECT_EQ(box.run({"ls", "--json"}).out, "[]\n");
}

TEST(run, leaves_the_queue_when_interrupted_while_waiting) {
  sandbox box;
  const auto holder = box.start(holding("a"));
  box.pid_in("pid");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto waiter = box.start({"run", "a", "--", "touch", "ran"});
    ASSERT_TRUE(eventually([&] { return box.holders_and_waiters("a").second == 1; }));
    waiter->send(signal);
    EXPECT_EQ(waiter->wait().code, 128 + signal);
    EXPECT_EQ(box.holders_and_waiters("a"), (std::pair<std::size_t, std::size_t>{1, 0}));
  }
  EXPECT_FALSE(std::ifstream{box.path("ran")}.good());
  holder->send(SIGTERM);
  holder->wait();
}

TEST(run, forwards_signals_to_the_whole_group) {
  sandbox box;
  const auto holder = box.start(
      {"run", "a", "--", "sh", "-c",
       "(trap 'echo inner >> log; exit' USR1; echo ready > inner; while :; do sleep 0.02; done) & "
       "trap 'echo outer >> log; wait; exit 3' USR1; echo $$ > pid; while :; do sleep 0.02; done"});
  box.pid_in("pid");
  ASSERT_TRUE(eventually([&] { return box.read("inner") == "ready\n"; }));
  holder->send(SIGUSR1);
  EXPECT_EQ(holder->wait().code, 3);
  EXPECT_NE(box.read("log").find("inner\n"), std::string::npos);
  EXPECT_NE(box.read("log").find("outer\n"), std::string::npos);
}

TEST(run, lets_a_command_outlive_a_signal_that_it_handles) {
  sandbox box;
  const auto holder = box.start({"run", "a", "--", "sh", "-c",
                                 "trap 'echo got it >> log' TERM; echo $$ > pid; "
                                 "while [ ! -e go ]; do sleep 0.02; done; exit 5"});
  box.pid_in("pid");
  holder->send(SIGTERM);
  ASSERT_TRUE(eventually([&] { return box.read("log") == "got it\n"; }));
  EXPECT_EQ(box.holders_and_waiters("a").first, 1U);
  std::ofstream{box.path("go")};
  EXPECT_EQ(holder->wait().code, 5);
}

TEST(run, a_killed_holdfast_frees_the_lock_at_once_and_takes_its_group_along) {
  sandbox box;
  const auto holder = box.start({"run", "a", "--ttl", "60s", "--", "sh", "-c",
                                 "sleep 60 & echo $! > inner; echo $$ > pid; wait"});
  const auto child = box.pid_in("pid");
  const auto grandchild = box.pid_in("inner");
  const auto third = box.start({"run", "a", "--", "true"});
  ASSERT_TRUE(eventually([&] { return box.holders_and_waiters("a").second == 1; }));
  const auto killed = std::chrono::steady_clock::now();
  holder->send(SIGKILL);
  EXPECT_EQ(third->wait().code, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, 5s) << "not by the ttl of 60 s";
  EXPECT_TRUE(eventually([&] { return !alive(child) && !alive(grandchild); }));
}

TEST(run, ends_its_command_with_76_when_the_lock_is_lost) {
  sandbox box;
  const auto holder =
      box.start({"run", "a", "--", "sh", "-c", "sleep 60 & echo $! > inner; echo $$ > pid; wait"});
  const auto child = box.pid_in("pid");
  const auto grandchild = box.pid_in("inner");
  EXPECT_EQ(box.run({"break", "a", "--yes"}).code, 0);
  const auto lost = holder->wait();
  EXPECT_EQ(lost.code, 76);
  EXPECT_NE(lost.err.find("is lost (it was revoked"), std::string::npos) << lost.err;
  EXPECT_FALSE(alive(child));
  EXPECT_TRUE(eventually([&] { return !alive(grandchild); }));
}

TEST(run, kills_what_ignores_sigterm_after_the_grace) {
  sandbox box;
  const auto holder = box.start({"run", "a", "--grace", "200ms", "--", "sh", "-c",
                                 "trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done"});
  const auto child = box.pid_in("pid");
  box.run({"break", "a", "--yes"});
  EXPECT_EQ(holder->wait().code, 76);
  EXPECT_FALSE(alive(child));
}

// Stopped, so that it cannot notice, while the lock is taken away and the command ends.
TEST(run, ends_with_76_when_the_lock_was_gone_before_it_was_given_back) {
  sandbox box;
  const auto holder = box.start(
      {"run", "a", "--", "sh", "-c", "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done"});
  const auto child = box.pid_in("pid");
  holder->send(SIGSTOP);
  EXPECT_EQ(box.run({"break", "a", "--yes"}).code, 0);
  std::ofstream{box.path("go")};
  ASSERT_TRUE(eventually([&] { return !alive(child); }));
  holder->send(SIGCONT);
  const auto ended = holder->wait();
  EXPECT_EQ(ended.code, 76);
  EXPECT_NE(ended.err.find("lost"), std::string::npos) << ended.err;
}

TEST(run, a_grace_of_forever_leaves_the_command_all_the_time_it_needs) {
  for (const bool by_loss : {true, false}) {
    sandbox box;
    const auto holder = box.start({"run", "a", "--grace", "forever", "--", "sh", "-c",
                                   "trap 'sleep 0.3; echo done > end; exit' TERM; echo $$ > pid; "
                                   "while :; do sleep 0.02; done"});
    const auto child = box.pid_in("pid");
    if (by_loss) {
      box.run({"break", "a", "--yes"});
    } else {
      holder->send(SIGKILL);
    }
    EXPECT_EQ(holder->wait().code, by_loss ? 76 : 128 + SIGKILL);
    EXPECT_TRUE(eventually([&] { return !alive(child); }));
    EXPECT_EQ(box.read("end"), "done\n") << by_loss;
  }
}

TEST(run, only_warns_of_loss_when_asked_to) {
  sandbox box;
  const auto holder = box.start({"run", "a", "--on-lost", "warn", "--", "sh", "-c",
                                 "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; exit 4"});
  box.pid_in("pid");
  box.run({"break", "a", "--yes"});
  ASSERT_TRUE(eventually([&] { return holder->err().find("warning: ") != std::string::npos; }));
  std::ofstream{box.path("go")};
  const auto ended = holder->wait();
  EXPECT_EQ(ended.code, 4);
  EXPECT_NE(ended.err.find("lost"), std::string::npos);
}

TEST(run, warns_even_when_killed_and_leaves_the_command_alone) {
  sandbox box;
  const auto holder =
      box.start({"run", "a", "--on-lost", "warn", "--", "sh", "-c",
                 "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; echo done > end"});
  box.pid_in("pid");
  holder->send(SIGKILL);
  holder->wait();
  EXPECT_TRUE(eventually(
      [&] { return holder->err().find("goes on without the lock") != std::string::npos; }));
  std::ofstream{box.path("go")};
  EXPECT_TRUE(eventually([&] { return box.read("end") == "done\n"; }));
}

TEST(run, gives_up_the_lock_after_max_hold) {
  sandbox box;
  const auto held = box.run({"run", "a", "--max-hold", "300ms", "--", "sleep", "60"});
  EXPECT_EQ(held.code, 76) << held.err;
}

TEST(run, lets_readers_in_together_and_keeps_writers_out) {
  sandbox box;
  const auto reader =
      box.start({"run", "a", "--shared", "--", "sh", "-c", "echo $$ > pid; exec sleep 60"});
  box.pid_in("pid");
  EXPECT_EQ(box.run({"run", "a", "--shared", "--no-wait", "--", "true"}).code, 0);
  EXPECT_EQ(box.run({"run", "a", "--no-wait", "--", "true"}).code, 75);
  reader->send(SIGTERM);
  reader->wait();
}

TEST(run, counts_permits) {
  sandbox box;
  const auto first =
      box.start({"run", "s", "--permits", "2/3", "--", "sh", "-c", "echo $$ > pid; exec sleep 60"});
  box.pid_in("pid");
  EXPECT_EQ(box.run({"run", "s", "--permits", "1/3", "--no-wait", "--", "true"}).code, 0);
  EXPECT_EQ(box.run({"run", "s", "--permits", "2/3", "--no-wait", "--", "true"}).code, 75);
  EXPECT_EQ(box.run({"run", "s", "--permits", "1/4", "--no-wait", "--", "true"}).code, 78);
  first->send(SIGTERM);
  first->wait();
}

TEST(run, keeps_the_lock_for_a_command_that_is_stopped) {
  sandbox box;
  const auto holder = box.start({"run", "a", "--ttl", "1s", "--", "sh", "-c",
                                 "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done"});
  const auto child = box.pid_in("pid");
  ::kill(child, SIGSTOP);
  EXPECT_EQ(box.run({"run", "a", "--wait", "1500ms", "--", "true"}).code, 75);
  ::kill(child, SIGCONT);
  std::ofstream{box.path("go")};
  EXPECT_EQ(holder->wait().code, 0);
}

TEST(run, shares_the_terminal_with_its_command) {
  sandbox box;
  e2e::terminal screen{box, {"run", "a", "--", "cat"}};
  screen.type("hello\n");
  // Once as the echo of the terminal and once from cat, which can read only in the foreground.
  EXPECT_TRUE(screen.shows("hello\r\nhello"));
  screen.type("\x03");
  EXPECT_EQ(screen.wait(), 128 + SIGINT);
  EXPECT_EQ(box.run({"ls", "--json"}).out, "[]\n");
}

TEST(run, stops_and_goes_on_with_its_command_like_any_job) {
  if (::access("/bin/bash", X_OK) != 0) GTEST_SKIP() << "needs bash";
  sandbox box;
  e2e::terminal screen{box, {"--norc", "-i"}, "/bin/bash"};
  screen.type(std::string{HOLDFAST_CLI} + " run a --ttl 60s -- cat\n");
  ASSERT_TRUE(eventually([&] { return box.holders_and_waiters("a").first == 1; }));
  screen.type("one\n");
  EXPECT_TRUE(screen.shows("one\r\none"));
  screen.type("\x1a");
  ASSERT_TRUE(screen.shows("Stopped")) << screen.seen();
  screen.forget();
  screen.type("fg\n");
  // bash names the job again once the terminal is out of its editing mode; a line typed earlier would never end.
  ASSERT_TRUE(screen.shows("-- cat\r\n")) << screen.seen();
  screen.type("two\n");
  EXPECT_TRUE(screen.shows("two\r\ntwo")) << screen.seen();
  screen.type("\x03");
  EXPECT_TRUE(eventually([&] { return box.holders_and_waiters("a").first == 0; }));
  screen.type("echo code $?\n");
  EXPECT_TRUE(screen.shows("code 130")) << screen.seen();
  screen.type("exit\n");
  screen.wait();
}

}  // namespace

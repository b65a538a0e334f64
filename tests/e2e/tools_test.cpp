// Help, manual, completions, bench; and that a password never shows.
#include "e2e/shell.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

namespace {

using e2e::eventually;
using e2e::sandbox;
using nlohmann::json;

const std::vector<std::string> visible{
    "run",      "elect",    "latch set", "latch down", "latch wait", "latch show",
    "latch ls", "latch rm", "ls",        "show",       "top",        "break",
    "explain",  "doctor",   "schema",    "bench",      "completion"};

std::vector<std::string> split(const std::string& words) {
  const auto blank = words.find(' ');
  if (blank == std::string::npos) return {words};
  return {words.substr(0, blank), words.substr(blank + 1)};
}

TEST(help, explains_every_command) {
  sandbox box;
  const auto overview = box.run({"--help"});
  EXPECT_EQ(overview.code, 0);
  EXPECT_EQ(overview.out, box.run({"help"}).out);
  for (const auto& name : visible) {
    EXPECT_NE(overview.out.find("  " + name), std::string::npos) << name;
    auto words = split(name);
    words.emplace_back("--help");
    const auto text = box.run(words);
    EXPECT_EQ(text.code, 0) << text.err;
    EXPECT_TRUE(text.out.starts_with("holdfast " + name + ": ")) << text.out;
    EXPECT_NE(text.out.find("--store URL"), std::string::npos);
  }
  EXPECT_NE(overview.out.find("76"), std::string::npos) << "exit codes belong to the help";
  EXPECT_EQ(box.run({"latch", "--help"}).code, 0);
  EXPECT_TRUE(box.run({"--version"}).out.starts_with("holdfast "));
}

TEST(man, has_every_command_and_is_understood_by_man) {
  sandbox box;
  const auto page = box.run({"man"});
  EXPECT_EQ(page.code, 0);
  for (const auto& name : visible)
    EXPECT_NE(page.out.find(".SS holdfast " + name), std::string::npos) << name;
  const auto shown = box.shell(
      "command -v man >/dev/null || exit 0; holdfast man > holdfast.1; "
      "man --warnings -l holdfast.1 2>&1 >/dev/null | grep -v -e nroff -e locale");
  EXPECT_EQ(shown.out, "");
}

TEST(man, has_every_variable_of_the_environment) {
  sandbox box;
  const auto page = box.run({"man"}).out;
  for (const char* name : {"HOLDFAST_STORE\n", "HOLDFAST_PASSWORD\n", "HOLDFAST_STORE_PASSWORD\n",
                           "HOLDFAST_TOKEN,", "NO_COLOR\n"})
    EXPECT_NE(page.find(std::string{".TP\n.B "} + name), std::string::npos) << name;
}

TEST(completion, scripts_parse) {
  sandbox box;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = box.run({"completion", shell});
    EXPECT_EQ(script.code, 0);
    for (const char* word : {"latch", "permits", "explain"})
      EXPECT_NE(script.out.find(word), std::string::npos) << shell;
    const auto checked = box.shell(std::string{"command -v "} + shell +
                                   " >/dev/null || exit 0; holdfast completion " + shell +
                                   " > script; " + shell + " -n script");
    EXPECT_EQ(checked.code, 0) << checked.err;
  }
  EXPECT_EQ(box.run({"completion", "tcsh"}).code, 64);
}

TEST(completion, bash_completes_commands_flags_and_quotes_names_of_locks) {
  sandbox box;
  const auto holder =
      box.start({"run", "a$(touch pwned)b", "--", "sh", "-c", "echo $$ > pid; exec sleep 60"});
  box.pid_in("pid");
  const auto complete = [&](const std::string& words, int at) {
    return box
        .shell("bash -c 'source <(holdfast completion bash); COMP_WORDS=(" + words +
               "); COMP_CWORD=" + std::to_string(at) +
               "; _holdfast; printf \"%s\\n\" \"${COMPREPLY[@]}\"'")
        .out;
  };
  EXPECT_EQ(complete("holdfast exp", 1), "explain\n");
  EXPECT_EQ(complete("holdfast run a --on-l", 3), "--on-lost\n");
  EXPECT_EQ(complete("holdfast run a --on-lost k", 4), "kill\n");
  EXPECT_EQ(complete("holdfast latch d", 2), "down\n");
  EXPECT_EQ(complete("holdfast latch r", 2), "rm\n");
  EXPECT_EQ(complete("holdfast latch l", 2), "ls\n");
  EXPECT_EQ(complete("holdfast show a", 2), "a\\$\\(touch\\ pwned\\)b\n");
  EXPECT_EQ(box.shell("ls pwned 2>/dev/null").out, "");
  holder->send(SIGTERM);
  holder->wait();
}

// With programs that exist here in place of those in the examples, which must be there to be understood.
TEST(systemd, understands_the_examples) {
  sandbox box;
  if (box.shell("command -v systemd-analyze").code != 0) GTEST_SKIP() << "needs systemd-analyze";
  const auto checked = box.shell("cp '" HOLDFAST_SOURCE
                                 "'/examples/systemd/* . && "
                                 "sed -i -e 's#/usr/bin/holdfast#" HOLDFAST_CLI
                                 "#' "
                                 "-e 's#/usr/local/bin/[a-z-]*#/bin/true#' *.service && "
                                 "systemd-analyze verify --man=no ./*.service ./*.timer");
  EXPECT_EQ(checked.code, 0);
  EXPECT_EQ(checked.err, "");
}

TEST(output, a_broken_pipe_is_a_graceful_end) {
  sandbox box;
  // A pipe whose reader is gone before we write: the shell waits for it first.
  const auto piped =
      box.shell("exec 3>&1; { sleep 0.3; holdfast --help; echo $? >&3; } 2>&1 | true");
  EXPECT_EQ(piped.out, "0\n");
  EXPECT_EQ(piped.err, "");
  EXPECT_EQ(box.shell("holdfast --help > /dev/full").code, 70);
}

TEST(bench, measures_everything_and_prints_json) {
  sandbox box;
  const auto measured = box.run({"bench", "--seconds", "30ms", "--threads", "2", "--coroutines",
                                 "3", "--waiters", "2", "--held", "50", "--json"});
  ASSERT_EQ(measured.code, 0) << measured.err;
  const auto report = json::parse(measured.out);
  EXPECT_GE(report["rows"].size(), 8U);
  for (const auto& row : report["rows"]) {
    EXPECT_FALSE(row.contains("skipped")) << row;
    // On a busy machine two contenders may never meet within 30 ms, so no hand-off is no failure.
    if (!std::string{row["measurement"]}.starts_with("hand-off")) {
      EXPECT_GT(row["operations"], 0) << row;
    }
  }
  EXPECT_EQ(box.run({"ls", "--json"}).out, "[]\n");
}

TEST(bench, says_why_it_skips) {
  sandbox box;
  const auto measured = box.run({"bench", "--store", "memory:", "--seconds", "10ms", "--only",
                                 "processes", "--waiters", "2", "--json"});
  ASSERT_EQ(measured.code, 0) << measured.err;
  EXPECT_EQ(json::parse(measured.out)["rows"][0]["skipped"], "this store serves one process only");
}

TEST(bench, leaves_no_process_behind_when_interrupted) {
  sandbox box;
  const auto running =
      box.start({"bench", "--only", "processes", "--waiters", "8", "--seconds", "60"});
  ASSERT_TRUE(eventually([&] { return box.run({"ls", "--json"}).out != "[]\n"; }));
  running->send(SIGINT);
  EXPECT_EQ(running->wait().code, 128 + SIGINT);
  EXPECT_TRUE(eventually([&] { return box.run({"ls", "--json"}).out == "[]\n"; }));
}

TEST(bench, leaves_no_process_behind_when_killed) {
  sandbox box;
  const auto running =
      box.start({"bench", "--only", "processes", "--waiters", "4", "--seconds", "60"});
  ASSERT_TRUE(eventually([&] { return box.run({"ls", "--json"}).out != "[]\n"; }));
  running->send(SIGKILL);
  running->wait();
  EXPECT_TRUE(eventually([&] { return box.run({"ls", "--json"}).out == "[]\n"; }));
}

TEST(secrets, a_password_in_a_url_is_never_printed) {
  sandbox box;
  const std::string canary = "CANARY-xyz";
  for (const std::string& url :
       {"redis://user:" + canary + "@127.0.0.1:1/0",
        "file://user:" + canary + "@/" + box.folder() + "/store", "nosuch://:" + canary + "@host",
        "memory://u:" + canary + "@x", "redis://u:" + canary + "@[bad:1",
        "redis://u:" + canary + "@h:99999999"}) {
    for (const auto& words : std::vector<std::vector<std::string>>{
             {"ls"},
             {"ls", "--json"},
             {"show", "a"},
             {"top"},
             {"break", "a", "--yes"},
             {"explain"},
             {"explain", "--json"},
             {"latch", "set", "l", "1"},
             {"run", "a", "--", "env"},
             {"elect", "a", "--", "env"},
             {"bench", "--seconds", "1ms", "--only", "reentry"},
             {"bench", "--seconds", "1ms", "--only", "processes", "--waiters", "2", "--json"}}) {
      auto flagged = words;
      flagged.insert(flagged.begin(), {"--store", url});
      const auto by_flag = box.run(flagged);
      EXPECT_EQ((by_flag.out + by_flag.err).find(canary), std::string::npos)
          << words[0] << by_flag.err;
      box.set("HOLDFAST_STORE", url);
      const auto by_variable = box.run(words);
      EXPECT_EQ((by_variable.out + by_variable.err).find(canary), std::string::npos)
          << words[0] << by_variable.err;
      EXPECT_EQ(by_variable.err.find("list of processes"), std::string::npos);
      box.set("HOLDFAST_STORE", box.store());
    }
    // Misspelt and misplaced, too.
    for (const auto& words :
         std::vector<std::vector<std::string>>{{"ls", "--stor", url},
                                               {"ls", "--stor=" + url},
                                               {"ls", "a", url},
                                               {url},
                                               {"latch", "set", url},
                                               {"run", url},
                                               {"latch", "set", "x", url},
                                               {"bench", "--only", url},
                                               {"top", "--interval", url},
                                               {"bench", "--threads", url},
                                               {"completion", url},
                                               {"help", url},
                                               {"run", "a", "--permits", url, "--", "x"},
                                               {"run", "a", "--", url}}) {
      const auto wrong = box.run(words);
      EXPECT_NE(wrong.code, 0);
      EXPECT_EQ((wrong.out + wrong.err).find(canary), std::string::npos) << wrong.err;
    }
  }
}

TEST(secrets, a_password_in_a_flag_earns_a_warning) {
  sandbox box;
  const auto warned = box.run({"ls", "--store", "redis://user:CANARY-xyz@127.0.0.1:1/0"});
  EXPECT_NE(warned.err.find("holdfast: warning: Other users can see the password"),
            std::string::npos)
      << warned.err;
  EXPECT_NE(warned.code, 0);
}

}  // namespace

// What operators see and do: ls, show, top, break, explain, doctor; and what hostile names cannot do to them.
#include "e2e/shell.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

namespace {

using e2e::eventually;
using e2e::sandbox;
using nlohmann::json;

std::unique_ptr<e2e::program> hold(sandbox& box, const std::string& name,
                                   std::vector<std::string> flags = {}) {
  std::vector<std::string> words{"run", name};
  words.insert(words.end(), flags.begin(), flags.end());
  for (const char* word : {"--", "sh", "-c", "echo $$ > pid; exec sleep 60"})
    words.emplace_back(word);
  auto holder = box.start(words);
  EXPECT_TRUE(eventually([&] { return box.holders_and_waiters(name).first == 1; }))
      << holder->err();
  return holder;
}

void finish(e2e::program& holder) {
  holder.send(SIGTERM);
  EXPECT_EQ(holder.wait().code, 128 + SIGTERM);
}

// The folder of the default store was made for "file:" only, and not for the path that default_store() spells out.
TEST(default_store, works_the_first_time) {
  sandbox box;
  box.set("HOLDFAST_STORE", "");
  box.set("XDG_RUNTIME_DIR", box.folder());
  const auto first = box.run({"run", "a", "--", "true"});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(box.shell("stat -c '%a %n' holdfast holdfast/store").out,
            "700 holdfast\n600 holdfast/store\n");
}

TEST(ls, lists_holders_with_all_that_matters) {
  sandbox box;
  EXPECT_EQ(box.run({"ls"}).out, "No lock is held.\n");
  const auto holder = hold(box, "stock/sku-42", {"--label", "nightly report", "--ttl", "30s"});
  const auto table = box.run({"ls"}).out;
  for (const auto& part :
       {std::string{"NAME"}, std::string{"stock/sku-42"}, std::string{"exclusive"},
        std::string{"nightly report"}, ':' + std::to_string(holder->pid())})
    EXPECT_NE(table.find(part), std::string::npos) << part << '\n' << table;
  EXPECT_EQ(table.find('\x1b'), std::string::npos) << "no colour outside a terminal";

  const auto locks = json::parse(box.run({"ls", "stock/", "--json"}).out);
  ASSERT_EQ(locks.size(), 1U);
  const auto& who = locks[0]["holders"][0];
  EXPECT_EQ(locks[0]["name"], "stock/sku-42");
  EXPECT_EQ(who["pid"], holder->pid());
  EXPECT_EQ(who["label"], "nightly report");
  EXPECT_EQ(who["mode"], "exclusive");
  EXPECT_GT(who["token"], 0);
  EXPECT_GT(who["expires_in_seconds"], 0);
  EXPECT_LE(who["expires_in_seconds"], 30);
  EXPECT_EQ(box.run({"ls", "elsewhere/", "--json"}).out, "[]\n");
  EXPECT_EQ(box.run({"ls", "--names"}).out, "stock/sku-42\n");
  finish(*holder);
}

TEST(show, lists_waiters_in_the_order_of_service) {
  sandbox box;
  const auto holder = hold(box, "a");
  std::vector<std::unique_ptr<e2e::program>> waiters;
  for (const char* label : {"first", "second", "third"}) {
    waiters.push_back(box.start({"run", "a", "--label", label, "--", "true"}));
    ASSERT_TRUE(eventually([&] { return box.holders_and_waiters("a").second == waiters.size(); }));
  }
  const auto shown = json::parse(box.run({"show", "a", "--json"}).out);
  EXPECT_EQ(shown["waiters"][0]["label"], "first");
  EXPECT_EQ(shown["waiters"][2]["label"], "third");
  const auto text = box.run({"show", "a"}).out;
  EXPECT_TRUE(text.starts_with("a: 1 holder, 3 waiters\n")) << text;
  EXPECT_LT(text.find("first"), text.find("third"));
  finish(*holder);
  for (auto& waiter : waiters) EXPECT_EQ(waiter->wait().code, 0);
  EXPECT_TRUE(box.run({"show", "a"}).out.starts_with("a: 0 holders, 0 waiters\n"));
}

TEST(show, puts_higher_priorities_first) {
  sandbox box;
  const auto holder = hold(box, "a");
  const auto low = box.start({"run", "a", "--label", "low", "--", "sh", "-c", "echo low >> log"});
  ASSERT_TRUE(eventually([&] { return box.holders_and_waiters("a").second == 1; }));
  const auto high =
      box.start({"run", "a", "--priority", "5", "--", "sh", "-c", "echo high >> log"});
  ASSERT_TRUE(eventually([&] { return box.holders_and_waiters("a").second == 2; }));
  finish(*holder);
  EXPECT_EQ(low->wait().code, 0);
  EXPECT_EQ(high->wait().code, 0);
  EXPECT_EQ(box.read("log"), "high\nlow\n");
}

TEST(operators, hostile_names_and_labels_are_shown_harmless) {
  sandbox box;
  const std::string reversed = "safe\u202Egnp.exe";  // shown right to left from the override on
  const auto holder = hold(box, reversed, {"--label", "evil\u2066label"});
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"ls"}, {"show", reversed}, {"top"}, {"ls", "--json"}, {"show", reversed, "--json"}}) {
    const auto shown = box.run(words);
    EXPECT_EQ(shown.code, 0) << shown.err;
    EXPECT_EQ(shown.out.find("\u202E"), std::string::npos) << words[0];
    EXPECT_EQ(shown.out.find("\u2066"), std::string::npos) << words[0];
  }
  EXPECT_NE(box.run({"ls"}).out.find("safe\\xe2\\x80\\xaegnp.exe"), std::string::npos);
  EXPECT_EQ(json::parse(box.run({"ls", "--json"}).out)[0]["name"], reversed);
  const auto broken = box.run({"break", reversed, "--yes"});
  EXPECT_EQ(broken.out.find("\u202E"), std::string::npos);
  EXPECT_EQ(holder->wait().code, 76);
}

TEST(operators, escape_sequences_never_reach_the_terminal_through_errors) {
  sandbox box;
  const std::string evil = "a\x1b[2Jb\x07";
  for (const auto& words :
       std::vector<std::vector<std::string>>{{"run", evil, "--", "true"},
                                             {"run", "a", "--label", evil, "--", "true"},
                                             {"show", evil},
                                             {"break", evil, "--yes"},
                                             {"latch", "set", evil, "1"},
                                             {evil},
                                             {"ls", evil, evil},
                                             {"ls", "--" + evil},
                                             {"run", "a", "--wait", evil, "--", "true"},
                                             {"run", "a", "--", evil},
                                             {"ls", "--store", evil}}) {
    const auto refused = box.run(words);
    EXPECT_NE(refused.code, 0);
    EXPECT_EQ((refused.out + refused.err).find('\x1b'), std::string::npos) << refused.err;
    EXPECT_EQ((refused.out + refused.err).find('\x07'), std::string::npos) << refused.err;
  }
}

TEST(break_lock, asks_for_yes_without_a_terminal) {
  sandbox box;
  const auto holder = hold(box, "a");
  EXPECT_EQ(box.run({"break", "a"}).code, 64);
  EXPECT_EQ(box.holders_and_waiters("a").first, 1U);
  EXPECT_EQ(box.run({"break", "a", "--yes"}).out, "Taken away: 1 holder lost \"a\".\n");
  EXPECT_EQ(holder->wait().code, 76);
  EXPECT_EQ(json::parse(box.run({"break", "a", "--yes", "--json"}).out)["holders_ended"], 0);
}

TEST(break_lock, asks_on_a_terminal_and_takes_no_for_an_answer) {
  sandbox box;
  const auto holder = hold(box, "a");
  e2e::terminal no{box, {"break", "a"}};
  ASSERT_TRUE(no.shows("[y/N]"));
  no.type("n\n");
  EXPECT_EQ(no.wait(), 0);
  EXPECT_EQ(box.holders_and_waiters("a").first, 1U);
  e2e::terminal yes{box, {"break", "a"}};
  ASSERT_TRUE(yes.shows("[y/N]"));
  yes.type("y\n");
  EXPECT_EQ(yes.wait(), 0);
  EXPECT_EQ(holder->wait().code, 76);
}

TEST(top, prints_plain_snapshots_without_a_terminal) {
  sandbox box;
  const auto holder = hold(box, "busy");
  const auto twice = box.run({"top", "--count", "2", "--interval", "50ms"});
  EXPECT_EQ(twice.code, 0);
  EXPECT_EQ(twice.out.find('\x1b'), std::string::npos);
  const auto first = twice.out.find("1 locks, 1 holders, 0 waiters");
  EXPECT_NE(first, std::string::npos) << twice.out;
  EXPECT_NE(twice.out.find("1 locks", first + 1), std::string::npos);
  finish(*holder);
}

TEST(top, is_live_on_a_terminal_and_restores_it) {
  sandbox box;
  const auto holder = hold(box, "busy");
  e2e::terminal screen{box, {"top", "--interval", "50ms"}};
  EXPECT_TRUE(screen.shows("\x1b[?1049h"));
  EXPECT_TRUE(screen.shows("busy"));
  screen.type("q");
  EXPECT_EQ(screen.wait(), 0);
  EXPECT_TRUE(screen.seen().ends_with("\x1b[?25h\x1b[?1049l")) << screen.seen();
  e2e::terminal interrupted{box, {"top"}};
  EXPECT_TRUE(interrupted.shows("busy"));
  interrupted.type("\x03");
  EXPECT_EQ(interrupted.wait(), 0);
  EXPECT_TRUE(interrupted.seen().ends_with("\x1b[?25h\x1b[?1049l"));
  finish(*holder);
}

// 80 columns are too few for a host, a label and a token of 16 digits.
TEST(top, leaves_the_token_out_of_a_narrow_terminal_and_keeps_the_waiters) {
  sandbox box;
  const auto holder = box.start({"run", "a-rather-long-name-of-a-lock", "--label", "a label", "--",
                                 "sh", "-c", "echo $$ > pid; exec sleep 60"});
  box.pid_in("pid");
  e2e::terminal screen{box, {"top", "--interval", "50ms"}};
  EXPECT_TRUE(screen.shows("WAITERS")) << screen.seen();
  EXPECT_EQ(screen.seen().find("TOKEN"), std::string::npos) << screen.seen();
  EXPECT_NE(screen.seen().find("HELD FOR"), std::string::npos) << screen.seen();
  screen.type("q");
  EXPECT_EQ(screen.wait(), 0);
  EXPECT_NE(box.run({"ls"}).out.find("TOKEN"), std::string::npos) << "there is room in a file";
  finish(*holder);
}

TEST(explain, says_what_the_store_promises) {
  sandbox box;
  const auto caps = json::parse(box.run({"explain", "--json"}).out);
  EXPECT_EQ(caps["store"], box.store());
  EXPECT_EQ(caps["cross_process"], true);
  EXPECT_EQ(caps["fencing"], "strict");
  EXPECT_TRUE(caps["dead_holder_bound_seconds"].is_number());
  const auto text = box.run({"explain"}).out;
  for (const char* part :
       {"One at a time", "Fencing tokens", "When a holder dies", "Nowhere guaranteed"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_EQ(json::parse(box.run({"explain", "--json", "--store", "memory:"}).out)["cross_process"],
            false);
}

TEST(doctor, has_nothing_to_check_where_there_is_no_server) {
  sandbox box;
  const auto nothing = box.run({"doctor", "--store", box.store()});
  EXPECT_EQ(nothing.code, 0);
  EXPECT_NE(nothing.out.find("There is nothing to check"), std::string::npos) << nothing.out;
}

}  // namespace

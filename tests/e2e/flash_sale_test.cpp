// holdfast flash-sale without servers: the judge sees what is wrong, and nothing else; what the command prints.
#include "e2e/flash_sale.hpp"

#include "support/process.hpp"
#include "support/required.hpp"
#include "support/temp_dir.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace {

using e2e::eventually;
using nlohmann::json;

class flash_sale : public e2e::flash_sale_cli {
 protected:
  std::size_t folders_left() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator{box.folder()})
      if (entry.path().filename().string().starts_with("holdfast-sale-")) ++count;
    return count;
  }
};

std::size_t times(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// ---- what sells too much, and what does not

TEST_F(flash_sale, without_a_lock_oversells) { EXPECT_TRUE(fails_under_load("no-lock")); }

TEST_F(flash_sale, a_mutex_of_one_process_oversells_between_two) {
  EXPECT_TRUE(fails_under_load("process-mutex"));
}

// The same scheme, and so the same judge: what was wrong is the second process.
TEST_F(flash_sale, a_mutex_of_one_process_is_right_inside_it) {
  const auto said = box.run({"flash-sale", "--schemes", "process-mutex", "--processes", "1",
                             "--buyers", "4", "--stock", "60", "--json", "-"});
  ASSERT_EQ(said.code, 0) << said.err;
  expect_clean(json::parse(said.out), 60);
}

TEST_F(flash_sale, embedded_schemes_sell_what_is_there_in_a_long_sale) {
  const int stock = 1500;
  expect_clean(sell({.schemes = "embedded,embedded-fenced,embedded-re-entrant,embedded-read-write,"
                                "embedded-striped",
                     .stock = stock,
                     .buyers = 6}),
               stock);
}

TEST_F(flash_sale, embedded_schemes_go_on_at_once_after_a_death) {
  const auto report =
      sell({.schemes = "embedded,embedded-fenced,embedded-striped", .faults = "kill"});
  expect_clean(report, 60);
  for (const auto& one : report["schemes"]) {
    const auto run = one["runs"]["kill"];
    EXPECT_EQ(run["struck"], true);
    EXPECT_LT(run["stood_still_seconds"].get<double>(), 0.9) << "no ttl (1 s) was waited for";
  }
}

TEST_F(flash_sale, a_paused_holder_writes_over_others_unless_the_store_compares_tokens) {
  const auto without = run_of(sell({.schemes = "embedded", .faults = "pause"}), "pause");
  EXPECT_EQ(without["stale_writes_accepted"], 1) << without.dump();
  EXPECT_GT(without["oversold"], 0);
  EXPECT_GT(without["stood_still_seconds"].get<double>(), 0.5) << "it was paused for no longer";
  const auto report = sell({.schemes = "embedded-fenced", .faults = "pause"});
  expect_clean(report, 60);
  const auto fenced = run_of(report, "pause");
  EXPECT_EQ(fenced["stale_writes_accepted"], 0) << fenced.dump();
  EXPECT_EQ(fenced["stale_writes_refused"], 1);
}

// ---- what is printed

TEST_F(flash_sale, json_has_every_scheme_with_every_field) {
  const auto said = box.run({"flash-sale", "--stock", "60", "--buyers", "4", "--processes", "2",
                             "--faults", "none,kill", "--json", "-"});
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.err, "") << "a progress bar where there is no terminal";
  const auto report = json::parse(said.out);
  for (const char* field : {"machine", "stores", "buyers", "processes", "stock", "think_seconds",
                            "ttl_seconds", "faults", "broken_promises", "schemes"})
    EXPECT_TRUE(report.contains(field)) << field;
  EXPECT_GT(report["schemes"].size(), 30U);
  std::set<std::string> names;
  for (const auto& one : report["schemes"]) {
    names.insert(one["name"]);
    for (const char* field : {"family", "needs", "breaks_by", "why", "why_zh"})
      EXPECT_TRUE(one.contains(field)) << field;
    EXPECT_NE(one.contains("skipped"), one.contains("runs")) << one.dump();
    EXPECT_EQ(one.contains("runs"), one["needs"].empty()) << one.dump();
    if (!one.contains("runs")) continue;
    for (const char* field :
         {"sold", "oversold", "lost_updates", "unknown", "unexplained", "sold_out",
          "orders_per_second", "wait_p50_seconds", "wait_p99_seconds", "fewest_orders_of_a_buyer",
          "most_orders_of_a_buyer", "retries", "commands", "commands_per_order", "note"})
      EXPECT_TRUE(one["runs"]["none"].contains(field)) << field;
    for (const char* field : {"struck", "stood_still_seconds", "stood_for_good"})
      EXPECT_TRUE(one["runs"]["kill"].contains(field)) << field;
  }
  EXPECT_EQ(names.size(), report["schemes"].size());
}

TEST_F(flash_sale, list_says_why_in_both_languages) {
  const auto listed = box.run({"flash-sale", "--list"});
  EXPECT_EQ(listed.code, 0);
  for (const char* name : {"no-lock", "sql-for-update", "set-nx-px-del", "redis-fair-fenced",
                           "redlock", "zk-exclusive", "etcd", "consul"})
    EXPECT_NE(('\n' + listed.out).find(std::string{"\n"} + name + "  "), std::string::npos) << name;
  EXPECT_NE(box.run({"flash-sale", "--list", "--lang", "zh"}).out.find("同时"), std::string::npos);
}

TEST_F(flash_sale, the_table_has_a_row_per_scheme_that_was_run_and_says_which_were_not) {
  const auto said = sell_with({.schemes = "embedded,redis-fair"}, {});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_NE(said.out.find("\nembedded  file"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("Not run (no redis in --stores): redis-fair."), std::string::npos);
}

TEST_F(flash_sale, a_terminal_shows_how_far_it_is) {
  e2e::terminal screen{box, {"flash-sale", "--schemes", "embedded", "--stock", "3000"}};
  EXPECT_TRUE(screen.shows(" sold: embedded")) << screen.seen();
  EXPECT_TRUE(screen.shows("ORDERS/S")) << screen.seen();
  EXPECT_EQ(screen.wait(), 0);
}

TEST_F(flash_sale, what_cannot_work_is_refused_before_anything_is_sold) {
  const auto refused = [&](std::vector<std::string> words, const std::string& because) {
    words.insert(words.begin(), "flash-sale");
    const auto said = box.run(words);
    EXPECT_EQ(said.code, 64) << said.out;
    EXPECT_NE(said.err.find(because), std::string::npos) << said.err;
  };
  refused({"--schemes", "hope"}, "no scheme \"hope\"");
  refused({"--faults", "flood"}, "none, kill and pause");
  refused({"--faults", "kill", "--processes", "1"}, "two --processes");
  refused({"--buyers", "2", "--processes", "4"}, "--processes");
  refused({"--stores", "file:/tmp/x"}, "redis, redlock, mysql");
  refused({"--stores", "redis://a,redis://b"}, "redis twice");
  refused({"--json", "-", "--html", "-"}, "standard output");
  refused({"--json", box.path("nowhere/file")}, "cannot be written");
}

// Those of a Redlock are one address with commas.
TEST_F(flash_sale, a_comma_ends_an_address_only_where_the_next_begins) {
  const auto said =
      box.run({"flash-sale", "--schemes", "no-lock", "--stock", "1", "--json", "-", "--stores",
               "redlock://a:1,b:2,c:3,mysql://user:CANARY@d/e,etcd://f,g"});
  ASSERT_EQ(said.code, 0) << said.err;
  const auto stores = json::parse(said.out)["stores"];
  EXPECT_EQ(stores, json({{"redlock", "redlock://a:1,b:2,c:3"},
                          {"mysql", "mysql://user:***@d/e"},
                          {"etcd", "etcd://f,g"}}));
}

TEST_F(flash_sale, a_server_that_is_not_there_is_told_and_the_others_go_on) {
  const auto said =
      box.run({"flash-sale", "--schemes", "zk-sequential,embedded", "--stock", "30", "--buyers",
               "2", "--processes", "2", "--json", "-", "--stores", "zk://127.0.0.1:1"});
  const auto report = json::parse(said.out);
  EXPECT_EQ(report["schemes"][0]["runs"]["none"]["sold"], 30);
  EXPECT_FALSE(report["schemes"][1]["runs"]["none"]["failed"].get<std::string>().empty());
  EXPECT_EQ(said.code, 0) << said.err;
}

TEST_F(flash_sale, an_interrupted_sale_leaves_neither_processes_nor_its_folder) {
  const auto sale = box.start({"flash-sale", "--schemes", "embedded", "--stock", "100000"});
  ASSERT_TRUE(eventually([&] { return folders_left() == 1; }));
  sale->send(SIGINT);
  EXPECT_EQ(sale->wait().code, 128 + SIGINT);
  EXPECT_EQ(folders_left(), 0U);
}

// ---- the page

TEST_F(flash_sale, the_page_escapes_what_it_is_told_and_loads_nothing) {
  const auto said = sell_with(
      {.schemes = "no-lock,embedded", .stores = "zk://127.0.0.1:1/<q>'\"?layout=kazoo&session=5s"},
      {"--html", "-"});
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.out.find("<q>"), std::string::npos);
  EXPECT_NE(said.out.find("zk://127.0.0.1:1/"), std::string::npos);
  EXPECT_NE(said.out.find("layout=kazoo&amp;session=5s"), std::string::npos);
  for (const char* loads : {"src=", "http:", "https:", "@import", "url("})
    EXPECT_EQ(said.out.find(loads), std::string::npos) << loads;
  EXPECT_NE(said.out.find("prefers-color-scheme:dark"), std::string::npos);
}

class flash_sale_page : public flash_sale {
 protected:
  void SetUp() override {
    const auto found = holdfast::testing::find_program("chromium");
    holdfast::testing::need({found.has_value(), "There is no chromium."}, "chromium");
    browser_ = found.value_or("");
  }
  // The page as it is after its script has run, and before that what the browser had to say.
  std::string shown(const std::string& path) {
    const auto output = dir_.file("said" + std::to_string(runs_++));
    holdfast::testing::process browser{
        {browser_, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
         "--disable-dev-shm-usage", "--user-data-dir=" + dir_.file("profile"),
         "--enable-logging=stderr", "--window-size=390,800", "--virtual-time-budget=2000",
         "--dump-dom", "file://" + path},
        output};
    EXPECT_EQ(browser.wait(std::chrono::seconds{60}), 0);
    return holdfast::testing::text_of_file(output);
  }
  holdfast::testing::temp_dir dir_;

 private:
  std::string browser_;
  int runs_ = 0;
};

TEST_F(flash_sale_page, renders_with_one_row_per_scheme_and_without_an_error) {
  const auto page = box.path("sale.html");
  const auto report = box.path("sale.json");
  const auto said =
      box.run({"flash-sale", "--stock", "60", "--buyers", "4", "--processes", "2", "--ttl", "1s",
               "--faults", "none,kill,pause", "--html", page, "--json", report});
  ASSERT_EQ(said.code, 0) << said.err;
  // What only a browser can say: how wide it is, and what is seen. Asked by a script at the end of a copy.
  std::ofstream{box.path("asked.html")}
      << box.read("sale.html")
      << "<script>document.body.dataset.wide=document.documentElement.scrollWidth>innerWidth;"
         "document.body.dataset.bars=[...document.querySelectorAll('.plot rect')]"
         ".filter(r=>r.getBoundingClientRect().width>0).length;"
         "const zh=[...document.querySelectorAll('.zh')].some(e=>e.offsetParent);"
         "document.getElementById('language').click();"
         "document.body.dataset.turns=zh!==[...document.querySelectorAll('.zh')]"
         ".some(e=>e.offsetParent)</script>";
  const auto dom = shown(box.path("asked.html"));
  EXPECT_EQ(dom.find("CONSOLE"), std::string::npos) << dom.substr(0, 4000);
  const auto schemes = json::parse(box.read("sale.json"))["schemes"];
  EXPECT_EQ(times(dom, "<tr data-scheme="), schemes.size());
  for (const auto& one : schemes)
    EXPECT_NE(dom.find("<tr data-scheme=\"" + one["name"].get<std::string>() + '"'),
              std::string::npos);
  EXPECT_NE(dom.find("data-wide=\"false\""), std::string::npos) << "wider than a phone";
  EXPECT_NE(dom.find("data-turns=\"true\""), std::string::npos) << "the language does not change";
  const auto bars = dom.find("data-bars=\"");
  ASSERT_NE(bars, std::string::npos);
  EXPECT_GT(std::stoi(dom.substr(bars + 11)), 20);
}

// That an error would be seen.
TEST_F(flash_sale_page, errors_of_a_script_are_heard) {
  std::ofstream{box.path("broken.html")} << "<!doctype html><body><script>nope()</script>";
  EXPECT_NE(shown(box.path("broken.html")).find("CONSOLE"), std::string::npos);
}

}  // namespace

// `holdfast ls --prometheus`: the text exposition format.
#include "e2e/shell.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>

namespace {

using e2e::eventually;
using e2e::sandbox;

std::unique_ptr<e2e::program> hold_with(sandbox& box, std::vector<std::string> words) {
  words.insert(words.begin(), "run");
  for (const char* word : {"--", "sh", "-c", "echo $$ > pid; exec sleep 60"})
    words.emplace_back(word);
  auto holder = box.start(words);
  box.pid_in("pid");
  ::unlink(box.path("pid").c_str());
  return holder;
}

// Of the one line that begins so; -1 when there is none.
double value(const std::string& text, const std::string& series) {
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(series + ' ')) return std::stod(line.substr(series.size()));
  return -1;
}

TEST(prometheus, every_line_is_of_the_format) {
  sandbox box;
  const auto one = hold_with(box, {"plain"});
  const auto two = hold_with(box, {"stock/\xe9\x94\x81 sku", "--shared"});
  const auto three = hold_with(box, {"build", "--permits", "2/4"});
  const auto listed = box.run({"ls", "--prometheus"});
  EXPECT_EQ(listed.code, 0);
  const std::regex comment{"# (HELP|TYPE) holdfast_lock_[a-z_]+ .+"};
  const std::regex sample{
      R"re(holdfast_lock_[a-z_]+\{lock="([^"\\]|\\[\\"n])*",mode="[a-z]+"\} [0-9.e+-]+)re"};
  std::istringstream lines{listed.out};
  std::size_t samples = 0;
  for (std::string line; std::getline(lines, line);) {
    const bool is_sample = std::regex_match(line, sample);
    EXPECT_TRUE(is_sample || std::regex_match(line, comment)) << line;
    samples += is_sample ? 1 : 0;
  }
  EXPECT_EQ(samples, 12U) << listed.out;
  EXPECT_TRUE(listed.out.ends_with('\n'));
  for (const auto* each : {&one, &two, &three}) {
    (*each)->send(SIGTERM);
    (*each)->wait();
  }
}

TEST(prometheus, has_a_type_for_each_metric_before_its_samples_and_no_samples_without_locks) {
  sandbox box;
  const auto listed = box.run({"ls", "--prometheus"});
  EXPECT_EQ(listed.code, 0);
  for (const char* name : {"holders", "waiters", "held_seconds", "token"})
    EXPECT_NE(listed.out.find(std::string{"# TYPE holdfast_lock_"} + name + " gauge\n"),
              std::string::npos);
  EXPECT_EQ(listed.out.find("\nholdfast_lock"), std::string::npos) << listed.out;
}

TEST(prometheus, counts_holders_and_waiters_by_mode) {
  sandbox box;
  const auto first = hold_with(box, {"a", "-s"});
  const auto second = hold_with(box, {"a", "-s"});
  const auto writer = box.start({"run", "a", "--", "true"});
  ASSERT_TRUE(eventually([&] { return box.holders_and_waiters("a").second == 1; }));
  const auto text = box.run({"ls", "--prometheus"}).out;
  const std::string readers = R"({lock="a",mode="shared"})";
  const std::string writers = R"({lock="a",mode="exclusive"})";
  EXPECT_EQ(value(text, "holdfast_lock_holders" + readers), 2);
  EXPECT_EQ(value(text, "holdfast_lock_waiters" + readers), 0);
  EXPECT_EQ(value(text, "holdfast_lock_holders" + writers), 0);
  EXPECT_EQ(value(text, "holdfast_lock_waiters" + writers), 1);
  const auto lock = nlohmann::json::parse(box.run({"show", "a", "--json"}).out);
  const auto token = [&](std::size_t i) { return lock["holders"][i]["token"].get<double>(); };
  EXPECT_EQ(value(text, "holdfast_lock_token" + readers), std::max(token(0), token(1)));
  EXPECT_GT(value(text, "holdfast_lock_held_seconds" + readers), 0);
  EXPECT_EQ(value(text, "holdfast_lock_held_seconds" + writers), -1) << "no holder, no age";
  for (const auto* each : {&first, &second}) {
    (*each)->send(SIGTERM);
    (*each)->wait();
  }
  EXPECT_EQ(writer->wait().code, 0);
}

TEST(prometheus, a_hostile_name_stays_inside_its_quotes) {
  sandbox box;
  const auto holder = hold_with(box, {R"(a"} 1 \" evil\)"});
  const auto text = box.run({"ls", "--prometheus"}).out;
  EXPECT_EQ(value(text, R"(holdfast_lock_holders{lock="a\"} 1 \\\" evil\\",mode="exclusive"})"), 1)
      << text;
  holder->send(SIGTERM);
  holder->wait();
}

TEST(prometheus, is_one_way_to_list_and_not_two) {
  sandbox box;
  EXPECT_EQ(box.run({"ls", "--prometheus", "--json"}).code, 64);
  EXPECT_EQ(box.run({"ls", "--prometheus", "--names"}).code, 64);
}

}  // namespace

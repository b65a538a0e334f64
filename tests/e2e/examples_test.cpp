// The examples about observing, as docs/guides/observing.md shows them, on a store of their own.
#ifdef HOLDFAST_EXAMPLES

#include "e2e/shell.hpp"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <sstream>

namespace {

const std::string examples = HOLDFAST_EXAMPLES;

// Of Prometheus text: the samples by their name with labels, in the order of the text.
struct samples {
  explicit samples(const std::string& text) {
    std::istringstream in{text};
    static const std::regex sample{R"(([a-z_]+(\{le="[^"]+"\})?) ([0-9.e+-]+))"};
    for (std::string line; std::getline(in, line);) {
      std::smatch parts;
      if (line.starts_with("# "))
        comments += line + '\n';
      else if (std::regex_match(line, parts, sample))
        values[parts[1]] = std::stod(parts[3]), order.push_back(parts[1]);
      else
        ADD_FAILURE() << "no sample: " << line;
    }
  }
  std::string comments;
  std::map<std::string, double> values;
  std::vector<std::string> order;
};

}  // namespace

TEST(examples, observer_log_writes_a_line_when_a_lock_is_acquired_and_when_it_is_lost) {
  e2e::sandbox box;
  const auto said = box.shell(examples + "/observer_log " + box.store());
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_TRUE(std::regex_match(
      said.out, std::regex{"acquired lock=\"examples/report\" token=([0-9]+) waited_us=[0-9]+\n"
                           "lost lock=\"examples/report\" token=\\1 "
                           "why=\"it was revoked by an operator\"\n"}))
      << said.out;
}

TEST(examples, prometheus_counts_every_turn_of_every_thread) {
  e2e::sandbox box;
  const auto said = box.shell(examples + "/prometheus " + box.store());
  EXPECT_EQ(said.code, 0) << said.err;
  const samples got{said.out};
  const auto number = [&](const char* name) { return got.values.at(name); };
  EXPECT_EQ(number("holdfast_acquired_total") + number("holdfast_handed_off_total"), 400);
  EXPECT_EQ(number("holdfast_released_total"), number("holdfast_acquired_total"));
  EXPECT_EQ(number("holdfast_lost_total"), 0);
  EXPECT_EQ(number("holdfast_held"), 0);
}

TEST(examples, prometheus_says_of_each_number_what_it_is) {
  e2e::sandbox box;
  const samples got{box.shell(examples + "/prometheus " + box.store()).out};
  for (const auto& name : got.order) {
    const auto family = std::regex_replace(name, std::regex{"_(bucket.*|sum|count)$"}, "");
    EXPECT_NE(got.comments.find("# HELP " + family + ' '), std::string::npos) << name;
    EXPECT_NE(got.comments.find("# TYPE " + family + ' '), std::string::npos) << name;
  }
}

TEST(examples, prometheus_adds_the_buckets_up_to_the_count) {
  e2e::sandbox box;
  const samples got{box.shell(examples + "/prometheus " + box.store()).out};
  for (const std::string histogram : {"holdfast_wait", "holdfast_hold", "holdfast_renew"}) {
    double before = 0, bound = 0;
    std::size_t buckets = 0;
    for (const auto& name : got.order) {
      if (!name.starts_with(histogram + "_seconds_bucket")) continue;
      ++buckets;
      EXPECT_GE(got.values.at(name), before) << name;
      before = got.values.at(name);
      if (name.find("+Inf") != std::string::npos) continue;
      const auto le = std::stod(name.substr(name.find('"') + 1));
      EXPECT_GT(le, bound) << name;
      bound = le;
    }
    EXPECT_EQ(buckets, 15u) << histogram;
    EXPECT_EQ(before, got.values.at(histogram + "_seconds_count"));
  }
  EXPECT_GT(got.values.at("holdfast_wait_seconds_count"), 0);
}

#endif

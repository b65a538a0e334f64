#include "server/metrics.hpp"

#include "server/metrics_text.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>

namespace holdfast::server {
namespace {

using namespace std::chrono_literals;

TEST(serve_metrics, a_duration_is_counted_in_the_first_bucket_that_it_fits) {
  time_buckets of;
  EXPECT_EQ(of.quantile(0.5), 0);
  for (const auto each : {0ns, std::chrono::nanoseconds{100us}, std::chrono::nanoseconds{1s},
                          std::chrono::nanoseconds{24h}})
    of.add(each);
  EXPECT_EQ(of.counts.front(), 2U);
  EXPECT_EQ(of.counts.back(), 1U);
  EXPECT_EQ(of.count, 4U);
  EXPECT_EQ(of.quantile(0.5), 0.0001);
  EXPECT_EQ(of.quantile(0.75), 1);
  EXPECT_EQ(of.quantile(1), 3600);  // as far as the buckets go
}

TEST(serve_metrics, locks_count_by_their_first_segment) {
  numbers counts;
  counts.add("stock/1", outcome::granted);
  counts.add("stock/2/deep", outcome::granted);
  counts.add("alone", outcome::busy);
  counts.add_renewal("stock/1");
  const auto& all = counts.by_prefix();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all.at("stock/").events[static_cast<std::size_t>(outcome::granted)], 2U);
  EXPECT_EQ(all.at("stock/").renewed, 1U);
  EXPECT_EQ(all.at("").events[static_cast<std::size_t>(outcome::busy)], 1U);
  EXPECT_EQ(counts.total().events[static_cast<std::size_t>(outcome::granted)], 2U);
}

TEST(serve_metrics, made_up_names_do_not_grow_the_series) {
  numbers counts;
  counts.add("kept/a", outcome::granted);
  for (int i = 0; i < 10'000; ++i) counts.add(std::to_string(i) + "/x", outcome::granted);
  EXPECT_LE(counts.by_prefix().size(), numbers::most_prefixes + 1);
  EXPECT_EQ(counts.total().events[static_cast<std::size_t>(outcome::granted)], 10'001U);
  counts.add("kept/b", outcome::granted);
  EXPECT_EQ(counts.by_prefix().at("kept/").events[static_cast<std::size_t>(outcome::granted)], 2U);
  EXPECT_EQ(counts.prefix_of("new/x"), "/other");
}

TEST(serve_metrics, a_page_has_each_series_once_and_no_line_that_a_name_made) {
  numbers counts;
  const std::string hostile = "a\"} 1\nfake_total{x=\"\\/lock";
  counts.add(hostile, outcome::granted);
  counts.add("plain/x", outcome::granted);
  counts.add_wait("plain/x", 2ms);
  counts.add_hold("plain/x", 2s);
  gauges now;
  now.leases["plain/"] = 3;
  now.watchers = 2;
  now.connections = 5;
  const auto page = prometheus_text(counts, now, {});
  std::set<std::string> series;
  std::istringstream lines{page};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    EXPECT_TRUE(line.starts_with("holdfast_")) << line;
    EXPECT_TRUE(series.insert(line.substr(0, line.rfind(' '))).second) << line;
  }
  EXPECT_TRUE(series.contains(R"(holdfast_serve_events_total{prefix="plain/",event="granted"})"));
  EXPECT_TRUE(series.contains(R"(holdfast_serve_wait_seconds_bucket{prefix="plain/",le="+Inf"})"));
  EXPECT_NE(page.find("holdfast_serve_leases{prefix=\"plain/\"} 3\n"), std::string::npos);
  EXPECT_NE(page.find("holdfast_serve_watchers 2\n"), std::string::npos);
  EXPECT_NE(page.find("holdfast_serve_connections 5\n"), std::string::npos);
}

}  // namespace
}  // namespace holdfast::server

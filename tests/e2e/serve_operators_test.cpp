// `holdfast serve` for those who look after locks: what is held and waited for, who waits for whom, what happens, and
// taking a lock away.
#include "e2e/serve_cli.hpp"

#include "support/redis_server.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using e2e::header_in;
using e2e::json_in;
using serve_operators = e2e::serve_plain;
using nlohmann::json;
using namespace std::chrono_literals;

std::string labelled(const char* label, const char* more = "") {
  return fmt::format(R"({{"ttl":"60s","label":"{}"{}}})", label, more);
}

// ---- lists

TEST_F(serve_operators, locks_are_listed_by_prefix_up_to_a_limit) {
  for (const auto* name : {"team/a", "team/b", "other"}) acquire(name);
  const auto names = [&](const std::string& query) {
    std::set<std::string> out;
    const auto listed = json_in(ask("GET", "/v1/locks" + query));
    for (const auto& each : listed["locks"]) out.insert(each["name"]);
    return out;
  };
  EXPECT_EQ(names(""), (std::set<std::string>{"team/a", "team/b", "other"}));
  EXPECT_EQ(names("?prefix=team/"), (std::set<std::string>{"team/a", "team/b"}));
  EXPECT_EQ(names("?prefix=team%2Fb"), std::set<std::string>{"team/b"});
  EXPECT_EQ(names("?limit=1").size(), 1U);
  for (const auto* wrong : {"?limit=0", "?limit=10001", "?limit=x", "?prefx=a"})
    EXPECT_EQ(ask("GET", std::string{"/v1/locks"} + wrong).status, 400) << wrong;
}

TEST_F(serve_operators, a_lock_is_shown_as_the_command_shows_it) {
  acquire("a", labelled("first"));
  auto next = waiting("a", labelled("second", R"(,"wait":"10m")"));
  ASSERT_TRUE(has_waiters("a", 1));
  const auto shown = json_in(ask("GET", "/v1/locks/a"));
  EXPECT_EQ(shown["holders"][0]["label"], "first");
  EXPECT_EQ(shown["waiters"][0]["label"], "second");
  const auto said = json_in(box.run({"show", "a", "--json", "--store", running().store()}).out);
  EXPECT_EQ(said["holders"][0]["label"], "first");
  EXPECT_EQ(said["holders"][0]["token"], shown["holders"][0]["token"]);
  std::vector<std::string> events;
  for (const auto& each : shown["history"]) events.push_back(each["event"]);
  EXPECT_EQ(events, (std::vector<std::string>{"granted", "queued"}));
}

// ---- who waits for whom

TEST_F(serve_operators, a_deadlock_of_two_is_marked_until_one_gives_up) {
  const auto left = acquire("left", labelled("ann")), right = acquire("right", labelled("bob"));
  auto ann = waiting("right", labelled("ann", R"(,"wait":"10m")"));
  ASSERT_TRUE(has_waiters("right", 1));
  const auto graph = [&] { return json_in(ask("GET", "/v1/waits")); };
  EXPECT_TRUE(graph()["cycles"].empty());
  auto bob = waiting("left", labelled("bob", R"(,"wait":"10m")"));
  ASSERT_TRUE(has_waiters("left", 1));
  const auto seen = graph();
  ASSERT_EQ(seen["cycles"].size(), 1U) << seen;
  std::set<std::string> circle;
  for (const auto& place : seen["cycles"][0])
    circle.insert(seen["actors"][place.get<std::size_t>()]["label"]);
  EXPECT_EQ(circle, (std::set<std::string>{"ann", "bob"}));
  EXPECT_EQ(seen["waits"].size(), 2U);
  bob.drop();
  ASSERT_TRUE(has_waiters("left", 0));
  EXPECT_TRUE(graph()["cycles"].empty());
  release(right.text("lease"));
  EXPECT_EQ(ann.hear().status, 200);
  EXPECT_TRUE(graph()["waits"].empty());
}

// ---- events

TEST_F(serve_operators, events_tell_what_happens_to_locks) {
  auto stream = events("/v1/events");
  EXPECT_TRUE(stream.until("hello").is_object());
  const auto first = acquire("a", labelled("first"));
  const auto granted = stream.until("granted");
  EXPECT_EQ(granted["name"], "a");
  EXPECT_EQ(granted["label"], "first");
  EXPECT_EQ(granted["token"], first.number("token"));
  auto next = waiting("a", labelled("next", R"(,"wait":"10m")"));
  EXPECT_EQ(stream.until("queued")["label"], "next");
  release(first.text("lease"));
  EXPECT_EQ(stream.until("released")["label"], "first");
  EXPECT_EQ(stream.until("granted")["label"], "next");
  ask("DELETE", "/v1/locks/a", {}, e2e::break_on_purpose);
  EXPECT_EQ(stream.until("broken")["name"], "a");
  EXPECT_EQ(stream.until("lost")["label"], "next");
  EXPECT_EQ(next.hear().status, 200);
}

TEST_F(serve_operators, events_are_those_of_the_prefix_only) {
  auto stream = events("/v1/events?prefix=team/");
  stream.until("hello");
  acquire("other");
  acquire("team/a");
  EXPECT_EQ(stream.until("granted")["name"], "team/a");
  EXPECT_FALSE(e2e::has(stream.heard(), R"("name":"other")")) << stream.heard();
}

TEST_F(serve_operators, what_other_clients_of_the_store_do_is_told_too) {
  auto stream = events("/v1/events");
  stream.until("hello");
  const auto holder = box.start({"run", "theirs", "--store", running().store(), "--", "sh", "-c",
                                 "echo $$ > pid; " + box.until_let_go()});
  box.pid_in("pid");
  const auto granted = stream.until("granted");
  EXPECT_EQ(granted["name"], "theirs");
  EXPECT_EQ(granted["pid"], holder->pid());
  ASSERT_TRUE(box.let_go());
  EXPECT_EQ(holder->wait().code, 0);
  EXPECT_EQ(stream.until("released")["name"], "theirs");
}

// ---- breaking

TEST_F(serve_operators, break_takes_it_away_raises_the_fence_and_is_written_down) {
  const auto held = acquire("stock/42");
  const auto broken = ask("DELETE", "/v1/locks/stock/42", {}, e2e::break_on_purpose);
  EXPECT_EQ(broken.status, 200);
  EXPECT_EQ(json_in(broken), json::parse(R"({"name":"stock/42","holders_ended":1})"));
  EXPECT_TRUE(e2e::eventually([&] { return lease(held.text("lease")).status == 410; }));
  EXPECT_EQ(renew(held.text("lease")).status, 410);
  EXPECT_GT(acquire("stock/42").number("token"), held.number("token"));
  EXPECT_TRUE(e2e::eventually([&] {
    return e2e::has(running().log(),
                    "holdfast serve: audit: break lock=\"stock/42\" key=\"\" peer=127.0.0.1 "
                    "holders_ended=1\n");
  })) << running().log();
}

TEST_F(serve_operators, break_serves_the_next_in_the_queue) {
  acquire("a");
  auto next = waiting("a", R"({"ttl":"60s","wait":"10m"})");
  ASSERT_TRUE(has_waiters("a", 1));
  EXPECT_EQ(ask("DELETE", "/v1/locks/a", {}, e2e::break_on_purpose).status, 200);
  EXPECT_EQ(next.hear().status, 200);
}

// No form and no link of a page can send that header.
TEST_F(serve_operators, break_needs_to_be_meant) {
  const auto held = acquire("a").text("lease");
  for (const auto* headers : {"", "X-Holdfast-Intent: yes\r\n", "X-Holdfast-Intent:\r\n"}) {
    const auto refused = ask("DELETE", "/v1/locks/a", {}, headers);
    EXPECT_EQ(refused.status, 403) << headers;
    EXPECT_EQ(refused.text("code"), "denied");
  }
  EXPECT_EQ(lease(held).status, 200);
  EXPECT_EQ(running().log().find("audit"), std::string::npos);
}

// ---- numbers

TEST_F(serve_operators, metrics_have_a_bounded_number_of_series) {
  const auto series = [&] {
    std::set<std::string> prefixes;
    std::size_t lines = 0;
    const auto page = ask("GET", "/metrics");
    EXPECT_EQ(header_in(page, "Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
    std::istringstream in{page.body};
    for (std::string each; std::getline(in, each);) {
      if (each.starts_with('#')) continue;
      ++lines;
      const auto at = each.find("prefix=\"");
      if (at != std::string::npos)
        prefixes.insert(each.substr(at + 8, each.find('"', at + 8) - at - 8));
    }
    return std::pair{prefixes.size(), lines};
  };
  auto kept = line();
  const auto take = [&](int from, int to) {
    for (int i = from; i < to; ++i)
      EXPECT_EQ(kept.acquire(fmt::format("prefix-{}/x", i), 0s, 60s).status, 200);
  };
  take(0, 100);
  const auto before = series();
  EXPECT_LE(before.first, 66U);
  take(100, 300);
  EXPECT_EQ(series(), before);
}

TEST_F(serve_operators, metrics_count_what_happened) {
  const auto held = acquire("team/a");
  acquire("team/a");
  renew(held.text("lease"));
  auto next = waiting("team/a", R"({"ttl":"60s","wait":"10m"})");
  ASSERT_TRUE(has_waiters("team/a", 1));
  const auto page = ask("GET", "/metrics").body;
  for (const auto* each : {"holdfast_serve_events_total{prefix=\"team/\",event=\"granted\"} 1\n",
                           "holdfast_serve_events_total{prefix=\"team/\",event=\"busy\"} 1\n",
                           "holdfast_serve_renewals_total{prefix=\"team/\"} 1\n",
                           "holdfast_serve_leases{prefix=\"team/\"} 1\n",
                           "holdfast_serve_waiting{prefix=\"team/\"} 1\n",
                           "holdfast_serve_wait_seconds_count{prefix=\"team/\"} 1\n"})
    EXPECT_TRUE(e2e::has(page, each)) << each << page;
  release(held.text("lease"));
  release(next.hear().text("lease"));
  EXPECT_TRUE(e2e::has(ask("GET", "/metrics").body,
                       "holdfast_serve_hold_seconds_count{prefix=\"team/\"} 2\n"));
}

TEST_F(serve_operators, stats_store_and_doctor_are_shown) {
  acquire("a");
  const auto stats = json_in(ask("GET", "/v1/stats"));
  EXPECT_EQ(stats["engine"], "file");
  EXPECT_EQ(stats["pid"], running().pid());
  EXPECT_EQ(stats["leases"], 1);
  EXPECT_EQ(stats["waiting"], 0);
  EXPECT_EQ(stats["totals"]["granted"], 1);
  EXPECT_GE(stats["connections"], 1);
  EXPECT_EQ(json_in(ask("GET", "/v1/store"))["engine"], "file");
  EXPECT_TRUE(json_in(ask("GET", "/v1/doctor"))["findings"].is_array());
}

// ---- health

TEST_F(serve_operators, health_is_told_in_a_word) {
  const auto alive = ask("GET", "/healthz");
  EXPECT_EQ(alive.status, 200);
  EXPECT_EQ(alive.body, "alive\n");
  const auto ready = ask("GET", "/readyz");
  EXPECT_EQ(ready.status, 200);
  EXPECT_EQ(ready.body, "ready\n");
}

class serve_redis : public e2e::serve_cli {
 protected:
  void SetUp() override {
    serve_cli::SetUp();
    if (!IsSkipped() && !HasFatalFailure())
      need(holdfast::testing::redis_server::available(), "redis");
  }
};

TEST_F(serve_redis, is_alive_and_not_ready_while_its_store_is_gone) {
  holdfast::testing::redis_server redis;
  start({.store = redis.url()});
  EXPECT_EQ(ask("GET", "/readyz").status, 200);
  redis.kill();
  EXPECT_TRUE(e2e::eventually([&] { return ask("GET", "/readyz").status == 503; }));
  EXPECT_EQ(ask("GET", "/healthz").status, 200);
  const auto refused = acquire("a");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(header_in(refused, "Retry-After"), "");
  redis.restart();
  EXPECT_TRUE(e2e::eventually([&] { return ask("GET", "/readyz").status == 200; }));
  EXPECT_TRUE(e2e::eventually([&] { return acquire("a").status == 200; }));
}

// Over a store behind a network, too: both are clients of one service, and the store need not know of the second.
TEST_F(serve_redis, who_waits_behind_another_client_of_the_service_is_shown_and_told) {
  const holdfast::testing::redis_server redis;
  start({.store = redis.url()});
  auto stream = events("/v1/events");
  stream.until("hello");
  acquire("a", labelled("first"));
  stream.until("granted");
  auto next = waiting("a", labelled("next", R"(,"wait":"10m")"));
  EXPECT_TRUE(has_waiters("a", 1)) << ask("GET", "/v1/locks/a").body;
  EXPECT_EQ(json_in(ask("GET", "/v1/waits"))["waits"].size(), 1U);
  const auto queued = stream.until("queued");
  ASSERT_TRUE(queued.is_object()) << "was not told";
  EXPECT_EQ(queued["label"], "next");
}

}  // namespace

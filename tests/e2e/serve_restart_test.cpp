// `holdfast serve` that ends and begins: what waits hears of it, what clients renew outlives it, what a connection or a
// process keeps does not.
#include "e2e/serve_cli.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

using e2e::header_in;
using e2e::http_line;
using e2e::json_in;
using serve_restart = e2e::serve_plain;
using namespace std::chrono_literals;

// ---- its end

TEST_F(serve_restart, told_to_end_it_tells_all_who_wait_and_ends_well) {
  const auto held = acquire("a").text("lease");
  std::vector<http_line> calls;
  calls.push_back(waiting("a", e2e::patient_acquire));
  calls.push_back(line());
  calls.back().send(e2e::http_request("POST", "/lock?name=a&wait=10m"));
  calls.push_back(line());
  calls.back().send(e2e::http_request("POST", "/v1/locks:acquire",
                                      R"({"names":["a","b"],"ttl":"60s","wait":"10m"})"));
  ASSERT_EQ(ask("POST", "/v1/latches/gate", R"({"count":1})").status, 200);
  calls.push_back(line());
  calls.back().send(e2e::http_request("POST", "/v1/latches/gate:wait", R"({"wait":"10m"})"));
  ASSERT_TRUE(e2e::eventually([&] { return waiting_now() == calls.size(); }));
  auto stream = hold("held", R"({"ttl":"60s"})"), watcher = events("/v1/events");
  stream.until("granted");
  watcher.until("hello");
  running().terminate();
  for (auto& each : calls) {
    const auto answer = each.hear();
    EXPECT_EQ(answer.status, 503) << answer.body;
    EXPECT_NE(header_in(answer, "Retry-After"), "");
    EXPECT_TRUE(e2e::has(answer.body, "stopping")) << answer.body;
  }
  EXPECT_TRUE(stream.until("lost")["why"].is_string());
  EXPECT_TRUE(stream.ends());
  watcher.ends();
  EXPECT_EQ(running().wait(), 0);
  // What the client renews by itself stays; what the connection kept does not.
  const auto left = json_in(box.run({"ls", "--json", "--store", running().store()}).out);
  ASSERT_EQ(left.size(), 1U) << left;
  EXPECT_EQ(left[0]["name"], "a");
  EXPECT_TRUE(left[0]["waiters"].empty()) << left;
}

TEST_F(serve_restart, it_ends_on_an_interrupt_and_when_it_is_told_twice) {
  ::kill(running().pid(), SIGINT);
  running().terminate();
  EXPECT_EQ(running().wait(), 0);
}

TEST_F(serve_restart, an_idle_connection_does_not_keep_it) {
  auto kept = line();
  EXPECT_EQ(kept.ask("GET", "/healthz").status, 200);
  running().terminate();
  EXPECT_EQ(running().wait(), 0);
}

// ---- its next life

class serve_next_life : public serve_restart, public ::testing::WithParamInterface<bool> {
 protected:
  // A client that reads `open` goes when it hears the end.
  void begin_again(e2e::event_line* open = nullptr) {
    if (!GetParam()) {
      running().terminate();
      if (open != nullptr) {
        EXPECT_TRUE(open->until("lost")["why"].is_string());
        open->cut();
      }
      ASSERT_EQ(running().wait(), 0);
    }
    running().restart();  // kills it when it runs
  }
};

INSTANTIATE_TEST_SUITE_P(after, serve_next_life, ::testing::Bool(),
                         [](const auto& of) { return of.param ? "a_kill" : "its_end"; });

TEST_P(serve_next_life, leases_have_the_same_ids_and_tokens) {
  std::map<std::string, std::uint64_t> leases;
  for (int i = 0; i < 20; ++i) {
    const auto got = acquire(fmt::format("lock/{}", i), R"({"ttl":"60s","label":"mine"})");
    leases[got.text("lease")] = got.number("token");
  }
  const auto pool =
      ask("POST", "/v1/semaphores/pool:acquire", R"({"permits":2,"of":3,"ttl":"60s"})");
  const auto reader = acquire("shared", R"({"ttl":"60s","mode":"shared"})");
  begin_again();
  EXPECT_TRUE(e2e::has(running().log(), "with 22 leases taken over")) << running().log();
  for (const auto& [id, token] : leases) {
    const auto shown = lease(id);
    ASSERT_EQ(shown.status, 200) << shown.body;
    EXPECT_EQ(shown.number("token"), token);
    EXPECT_EQ(shown.text("label"), "mine");
    EXPECT_EQ(renew(id).status, 200);
  }
  EXPECT_EQ(acquire("lock/7").status, 409);
  EXPECT_EQ(lease(reader.text("lease")).text("mode"), "shared");
  EXPECT_EQ(ask("POST", "/v1/semaphores/pool:acquire", R"({"permits":2,"of":3})").status, 409);
  EXPECT_EQ(release(pool.text("lease")).status, 204);
  for (const auto& [id, token] : leases) EXPECT_EQ(release(id).status, 204);
  EXPECT_GT(acquire("lock/7").number("token"), 0U);
  EXPECT_TRUE(is_free("lock/8"));
}

TEST_P(serve_next_life, the_same_request_id_gives_the_same_grant) {
  const std::string body = R"({"ttl":"60s","request_id":"order-7"})";
  const auto first = acquire("a", body);
  begin_again();
  const auto again = acquire("a", body);
  EXPECT_EQ(again.status, 200);
  EXPECT_EQ(again.text("lease"), first.text("lease"));
  EXPECT_EQ(again.number("token"), first.number("token"));
  EXPECT_EQ(acquire("a", R"({"ttl":"61s","request_id":"order-7"})").text("code"), "conflict");
}

TEST_P(serve_next_life, what_a_connection_kept_is_free_at_once) {
  auto stream = hold("a", R"({"ttl":"60s"})");
  stream.until("granted");
  begin_again(&stream);
  EXPECT_EQ(acquire("a").status, 200);
}

// The next service does not know which process it was.
TEST_P(serve_next_life, what_a_process_kept_is_free_when_its_ttl_is_over_at_the_latest) {
  const auto process = box.start_shell("exec sleep 600");
  const auto got = acquire("a", fmt::format(R"({{"ttl":"2s","pid":{}}})", process->pid()));
  begin_again();
  const auto next = acquire("a", e2e::patient_acquire);
  EXPECT_EQ(next.status, 200);
  EXPECT_GT(next.number("token"), got.number("token"));
}

TEST_P(serve_next_life, tokens_go_on_rising) {
  const auto first = acquire("a");
  release(first.text("lease"));
  begin_again();
  EXPECT_GT(acquire("a").number("token"), first.number("token"));
}

TEST_P(serve_next_life, a_lease_that_nobody_claims_ends_with_its_ttl) {
  acquire("a", R"({"ttl":"2s"})");
  begin_again();
  EXPECT_TRUE(is_free("a"));
}

// ---- one state, one service

TEST_F(serve_restart, a_second_service_on_the_same_state_is_refused) {
  const auto second = box.run({"serve", "--listen", "127.0.0.1:0", "--store", running().store(),
                               "--state", running().state()});
  EXPECT_EQ(second.code, 78) << second.out;
  EXPECT_TRUE(e2e::has(second.err, "--state")) << second.err;
}

TEST_F(serve_restart, a_port_that_is_taken_is_told) {
  const auto second = box.run({"serve", "--listen", fmt::format("127.0.0.1:{}", running().port()),
                               "--store", "memory:", "--state", box.path("other-state")});
  EXPECT_EQ(second.code, 69) << second.out;
  EXPECT_TRUE(e2e::has(second.err, "cannot listen on 127.0.0.1")) << second.err;
}

// No grant outlives its client there.
TEST_F(serve_restart, leases_in_memory_end_with_the_service) {
  start({.store = "memory:"});
  const auto id = acquire("a").text("lease");
  running().restart();
  EXPECT_EQ(lease(id).status, 404);
  EXPECT_EQ(acquire("a").status, 200);
}

}  // namespace

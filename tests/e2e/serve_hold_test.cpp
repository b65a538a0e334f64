// `holdfast serve` as a sentinel: a lock that is held exactly as long as a connection, or a process of this machine,
// lives. Its ttl is a minute here, so whatever is free sooner is not free because of its ttl.
#include "e2e/serve_cli.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <utility>

namespace {

using e2e::json_in;
using serve_hold = e2e::serve_plain;
using namespace std::chrono_literals;

constexpr auto a_minute = R"({"ttl":"60s"})";

TEST_F(serve_hold, tells_the_grant_and_then_each_renewal) {
  const auto asked = std::chrono::steady_clock::now();
  auto stream = hold("a", R"({"ttl":"1s","label":"worker"})");
  const auto granted = stream.until("granted");
  EXPECT_EQ(stream.status(), 200);
  EXPECT_NE(stream.heard().find("Content-Type: text/event-stream\r\n"), std::string::npos);
  EXPECT_EQ(granted["name"], "a");
  EXPECT_GT(granted["token"], 0);
  int last = 0;
  for (int i = 0; i < 6; ++i) {  // for longer than its ttl
    const auto renewed = stream.until("renewed");
    // Counted from its request: no more than a ttl from now.
    const auto now = std::chrono::steady_clock::now() - asked;
    EXPECT_GT(renewed["valid_ms"], last) << renewed;
    EXPECT_LE(std::chrono::milliseconds{renewed["valid_ms"].get<int>()}, now + 1s) << renewed;
    last = renewed["valid_ms"];
  }
  EXPECT_EQ(counts("a"), std::pair(1UL, 0UL));
  EXPECT_EQ(acquire("a").status, 409);
}

TEST_F(serve_hold, is_free_at_once_when_the_connection_is_cut) {
  for (const bool by_reset : {false, true}) {
    auto stream = hold("a", a_minute);
    const auto token = stream.until("granted")["token"].get<std::uint64_t>();
    auto next = waiting("a", e2e::patient_acquire);
    ASSERT_TRUE(has_waiters("a", 1));
    if (by_reset)
      stream.reset();
    else
      stream.cut();
    const auto got = next.hear();
    ASSERT_EQ(got.status, 200);
    EXPECT_GT(got.number("token"), token);
    EXPECT_EQ(release(got.text("lease")).status, 204);
  }
}

TEST_F(serve_hold, is_free_at_once_when_its_client_is_killed) {
  const auto client = box.start_shell(
      fmt::format("exec curl -sSN -X POST -H 'Content-Type: application/json' -d '{}' "
                  "{}/v1/locks/a:hold > events",
                  a_minute, running().url()));
  ASSERT_TRUE(e2e::eventually([&] { return e2e::has(box.read("events"), "event: granted"); }));
  auto next = waiting("a", e2e::patient_acquire);
  ASSERT_TRUE(has_waiters("a", 1));
  client->send(SIGKILL);
  EXPECT_EQ(next.hear().status, 200);
  EXPECT_EQ(client->wait().code, 128 + SIGKILL);
}

TEST_F(serve_hold, waits_and_is_granted_when_the_lock_is_free) {
  const auto held = acquire("a").text("lease");
  auto stream = hold("a", R"({"ttl":"60s","wait":"forever"})");
  EXPECT_TRUE(stream.until("waiting").is_object());
  ASSERT_TRUE(has_waiters("a", 1));
  release(held);
  EXPECT_GT(stream.until("granted")["token"], 0);
}

TEST_F(serve_hold, that_is_cut_while_it_waits_leaves_no_trace) {
  const auto held = acquire("a").text("lease");
  auto stream = hold("a", R"({"ttl":"60s","wait":"forever"})");
  stream.until("waiting");
  ASSERT_TRUE(has_waiters("a", 1));
  stream.cut();
  EXPECT_TRUE(has_waiters("a", 0));
  EXPECT_TRUE(e2e::eventually([&] { return waiting_now() == 0; }));
  release(held);
  EXPECT_TRUE(is_free("a"));
}

TEST_F(serve_hold, that_is_not_served_in_time_says_so_and_ends) {
  acquire("a");
  auto stream = hold("a", R"({"ttl":"60s","wait":"100ms"})");
  stream.until("waiting");
  EXPECT_EQ(stream.until("failed")["code"], "timed_out");
  EXPECT_TRUE(stream.ends());
  EXPECT_EQ(counts("a"), std::pair(1UL, 0UL));
}

TEST_F(serve_hold, without_waiting_is_refused_as_an_acquire_is) {
  acquire("a");
  auto busy = hold("a", "{}");
  EXPECT_EQ(busy.status(), 409);
  auto wrong = hold("a", R"({"request_id":"x"})");
  EXPECT_EQ(wrong.status(), 400);
}

TEST_F(serve_hold, hears_that_it_was_broken_and_ends) {
  auto stream = hold("a", R"({"ttl":"3s"})");
  const auto token = stream.until("granted")["token"].get<std::uint64_t>();
  EXPECT_EQ(ask("DELETE", "/v1/locks/a", {}, "X-Holdfast-Intent: break\r\n").status, 200);
  EXPECT_TRUE(stream.until("lost")["why"].is_string());
  EXPECT_TRUE(stream.ends());
  EXPECT_GT(acquire("a").number("token"), token);
}

TEST_F(serve_hold, cannot_be_released_by_somebody_who_has_not_its_id) {
  auto stream = hold("a", a_minute);
  const auto id = stream.until("granted")["lease"].get<std::string>();
  EXPECT_EQ(release(std::string(32, 'f')).status, 404);
  // With it, it can: the id is a secret of who holds.
  EXPECT_EQ(release(id).status, 204);
  EXPECT_TRUE(is_free("a"));
}

// ---- processes

class serve_pid : public serve_hold {
 protected:
  static std::string with_pid(const e2e::program& of, const char* more = "") {
    return fmt::format(R"({{"ttl":"60s","pid":{}{}}})", of.pid(), more);
  }
};

TEST_F(serve_pid, a_lock_is_free_at_once_when_its_process_ends) {
  const auto holder = box.start_shell("exec sleep 600");
  const auto got = acquire("a", with_pid(*holder));
  ASSERT_EQ(got.status, 200);
  auto next = waiting("a", e2e::patient_acquire);
  ASSERT_TRUE(has_waiters("a", 1));
  holder->send(SIGKILL);
  const auto after = next.hear();
  EXPECT_EQ(after.status, 200);
  EXPECT_GT(after.number("token"), got.number("token"));
  const auto late = renew(got.text("lease"));
  EXPECT_EQ(late.status, 410);
  EXPECT_EQ(late.text("code"), "lost");
}

TEST_F(serve_pid, a_lock_of_a_process_needs_no_renewal) {
  const auto holder = box.start_shell("exec sleep 600");
  const auto id =
      acquire("a", fmt::format(R"({{"ttl":"1s","pid":{}}})", holder->pid())).text("lease");
  auto probe = line();
  const auto end = std::chrono::steady_clock::now() + 2500ms;
  while (std::chrono::steady_clock::now() < end)
    ASSERT_EQ(probe.ask("GET", "/v1/leases/" + id).status, 200);
  EXPECT_EQ(release(id).status, 204);
  EXPECT_TRUE(is_free("a"));
}

TEST_F(serve_pid, a_process_that_ends_while_it_waits_leaves_no_trace) {
  const auto held = acquire("a").text("lease");
  const auto waiter = box.start_shell("exec sleep 600");
  auto call = waiting("a", with_pid(*waiter, R"(,"wait":"10m")"));
  ASSERT_TRUE(has_waiters("a", 1));
  waiter->send(SIGKILL);
  const auto answer = call.hear();
  EXPECT_EQ(answer.status, 410);
  EXPECT_EQ(answer.text("code"), "cancelled");
  EXPECT_TRUE(has_waiters("a", 0));
  release(held);
  EXPECT_TRUE(is_free("a"));
}

TEST_F(serve_pid, a_process_that_is_not_there_is_refused) {
  const auto gone = box.start_shell("true");
  EXPECT_EQ(gone->wait().code, 0);
  EXPECT_EQ(acquire("a", with_pid(*gone)).status, 400);
  EXPECT_EQ(counts("a"), std::pair(0UL, 0UL));
}

}  // namespace

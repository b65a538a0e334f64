// The command on a store that is a `holdfast serve` of somebody else, and two services on one store.
#include "e2e/serve_cli.hpp"

#include "support/redis_server.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using e2e::http_line;
using e2e::json_in;
using e2e::said;
using e2e::serve_process;
using holdfast::testing::redis_server;
using serve_command = e2e::serve_plain;
using namespace std::chrono_literals;

// ---- the command

TEST_F(serve_command, run_excludes_gives_a_token_and_keeps_the_exit_code) {
  const auto one = box.run({"run", "job", "--", "sh", "-c", "echo $HOLDFAST_TOKEN; exit 7"});
  EXPECT_EQ(one.code, 7) << one.err;
  const auto holder = box.start({"run", "job", "--", "sh", "-c",
                                 "echo $HOLDFAST_TOKEN; echo $$ > pid; " + box.until_let_go()});
  box.pid_in("pid");
  EXPECT_GT(std::stoull(holder->out()), std::stoull(one.out));
  EXPECT_EQ(box.run({"run", "job", "--no-wait", "--", "true"}).code, 75);
  EXPECT_EQ(box.run({"run", "job", "--wait", "100ms", "--", "true"}).code, 75);
  EXPECT_EQ(acquire("job").status, 409);
  EXPECT_EQ(counts("job"), std::pair(1UL, 0UL));
  const auto next = box.start({"run", "job", "--wait", "1m", "--", "true"});
  EXPECT_TRUE(has_waiters("job", 1));
  ASSERT_TRUE(box.let_go());
  EXPECT_EQ(holder->wait().code, 0);
  EXPECT_EQ(next->wait().code, 0);
  EXPECT_TRUE(is_free("job"));
}

TEST_F(serve_command, readers_and_permits_are_those_of_the_service) {
  const auto hold_it = [&](std::vector<std::string> words, const std::string& file) {
    words.insert(words.end(), {"--", "sh", "-c", "echo $$ > " + file + "; exec sleep 600"});
    auto out = box.start(std::move(words));
    box.pid_in(file);
    return out;
  };
  const auto reader = hold_it({"run", "doc", "--shared"}, "reader");
  EXPECT_EQ(box.run({"run", "doc", "--shared", "--no-wait", "--", "true"}).code, 0);
  EXPECT_EQ(box.run({"run", "doc", "--no-wait", "--", "true"}).code, 75);
  EXPECT_EQ(acquire("doc", R"({"mode":"shared","ttl":"60s"})").status, 200);
  const auto permits = hold_it({"run", "pool", "--permits", "2/3"}, "permits");
  EXPECT_EQ(box.run({"run", "pool", "--permits", "2/3", "--no-wait", "--", "true"}).code, 75);
  EXPECT_EQ(box.run({"run", "pool", "--permits", "1/3", "--no-wait", "--", "true"}).code, 0);
  for (const auto* each : {&reader, &permits}) {
    (*each)->send(SIGTERM);
    EXPECT_EQ((*each)->wait().code, 128 + SIGTERM);
  }
}

TEST_F(serve_command, what_is_held_is_listed_and_shown) {
  const auto holder =
      box.start({"run", "team/job", "--", "sh", "-c", "echo $$ > pid; " + box.until_let_go()});
  box.pid_in("pid");
  acquire("team/other", R"({"ttl":"60s","label":"by curl"})");
  const auto listed = json_in(box.run({"ls", "--json"}).out);
  ASSERT_EQ(listed.size(), 2U) << listed;
  EXPECT_EQ(json_in(box.run({"ls", "team/o", "--json"}).out).size(), 1U);
  const auto shown = json_in(box.run({"show", "team/job", "--json"}).out);
  EXPECT_EQ(shown["holders"][0]["pid"], holder->pid());
  EXPECT_EQ(json_in(box.run({"show", "team/other", "--json"}).out)["holders"][0]["label"],
            "by curl");
  ASSERT_TRUE(box.let_go());
  EXPECT_EQ(holder->wait().code, 0);
}

TEST_F(serve_command, break_ends_the_command_that_holds) {
  const auto holder = box.start({"run", "job", "--", "sh", "-c", "echo $$ > pid; exec sleep 600"});
  const auto inside = box.pid_in("pid");
  const auto broken = box.run({"break", "job", "--yes"});
  EXPECT_EQ(broken.code, 0) << broken.err;
  EXPECT_EQ(holder->wait().code, 76) << holder->err();
  EXPECT_FALSE(e2e::alive(inside));
  EXPECT_TRUE(is_free("job"));
}

TEST_F(serve_command, a_killed_command_frees_its_lock_long_before_its_ttl) {
  const auto holder =
      box.start({"run", "job", "--ttl", "10m", "--", "sh", "-c", "echo $$ > pid; exec sleep 600"});
  const auto inside = box.pid_in("pid");
  auto next = waiting("job", e2e::patient_acquire);
  ASSERT_TRUE(has_waiters("job", 1));
  holder->send(SIGKILL);
  EXPECT_EQ(next.hear().status, 200);
  ::kill(inside, SIGKILL);
}

TEST_F(serve_command, latches_and_elections_work) {
  EXPECT_EQ(box.run({"latch", "set", "gate", "2"}).code, 0);
  const auto waiter = box.start({"latch", "wait", "gate"});
  EXPECT_EQ(box.run({"latch", "down", "gate"}).code, 0);
  EXPECT_EQ(json_in(ask("GET", "/v1/latches/gate"))["left"], 1);
  EXPECT_EQ(ask("POST", "/v1/latches/gate:down", "{}").status, 200);
  EXPECT_EQ(waiter->wait().code, 0) << waiter->err();
  const auto leader =
      box.start({"elect", "boss", "--", "sh", "-c", "echo $$ > pid; " + box.until_let_go()});
  box.pid_in("pid");
  EXPECT_EQ(json_in(ask("GET", "/v1/elections/boss"))["leader"]["pid"], leader->pid());
  ASSERT_TRUE(box.let_go());
  EXPECT_EQ(leader->wait().code, 0) << leader->err();
}

TEST_F(serve_command, explain_and_doctor_speak_of_the_service) {
  const auto said = json_in(box.run({"explain", "--json"}).out);
  EXPECT_EQ(said["engine"], "http (file)") << said;
  const auto found = findings(running().url());
  EXPECT_FALSE(found.empty());
  for (const auto& [about, finding] : found) EXPECT_NE(finding["level"], "bad") << about << finding;
}

TEST_F(serve_command, without_a_service_it_says_that_it_is_not_there) {
  running().kill();
  for (const auto& words :
       std::vector<std::vector<std::string>>{{"ls"}, {"run", "job", "--no-wait", "--", "true"}}) {
    const auto said = box.run(words);
    EXPECT_EQ(said.code, 69) << words.front() << said.out << said.err;
    EXPECT_TRUE(e2e::has(said.err, "127.0.0.1")) << said.err;
  }
}

TEST_F(serve_command, addresses_that_mean_nothing_are_refused) {
  const auto url = running().url();
  for (const auto& store :
       {url + "?nonsense=1", url + "?grace=10ms", "http://user@127.0.0.1:" + url.substr(17),
        url + "/a//b", std::string{"http://a,b"}, url + "?ca_file=/nonexistent.pem"}) {
    const auto said = box.run({"ls", "--store", store});
    EXPECT_EQ(said.code, 78) << store << said.out << said.err;
  }
}

// ---- two services, one store

class serve_two : public e2e::serve_cli, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    serve_cli::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    std::string store;
    if (GetParam() == std::string_view{"redis"}) {
      need(redis_server::available(), "redis");
      if (IsSkipped() || HasFatalFailure()) return;
      redis_ = std::make_unique<redis_server>();
      store = redis_->url();
    }
    const auto& one = start({.store = store});
    other_ = std::make_unique<serve_process>(serve_process::options{.store = one.store()});
  }
  void TearDown() override { other_.reset(); }

  http_line other() const { return http_line{other_->port(), 3 * holdfast::testing::patience}; }
  serve_process& second() { return *other_; }

 private:
  std::unique_ptr<redis_server> redis_;
  std::unique_ptr<serve_process> other_;
};

INSTANTIATE_TEST_SUITE_P(on, serve_two, ::testing::Values("file", "redis"),
                         [](const auto& of) { return of.param; });

TEST_P(serve_two, what_one_has_given_the_other_does_not) {
  const auto held = acquire("a");
  ASSERT_EQ(held.status, 200);
  EXPECT_EQ(other().acquire("a", 0s, 60s).status, 409);
  auto waiter = other();
  waiter.send(e2e::http_request("POST", "/v1/locks/a:acquire", e2e::patient_acquire));
  ASSERT_TRUE(has_waiters("a", 1));
  release(held.text("lease"));
  const auto got = waiter.hear();
  EXPECT_EQ(got.status, 200);
  EXPECT_GT(got.number("token"), held.number("token"));
}

TEST_P(serve_two, a_lease_is_of_the_service_that_gave_it) {
  const auto id = acquire("a").text("lease");
  EXPECT_EQ(other().renew(id).status, 404);
  EXPECT_EQ(other().release(id).status, 404);
  EXPECT_EQ(renew(id).status, 200);
}

TEST_P(serve_two, tokens_rise_whoever_gives_them) {
  std::uint64_t last = 0;
  for (int i = 0; i < 10; ++i) {
    auto through = i % 2 == 0 ? line() : other();
    const auto got = through.acquire("a", 5s, 60s);
    ASSERT_EQ(got.status, 200) << got.body;
    EXPECT_GT(got.number("token"), last);
    last = got.number("token");
    EXPECT_EQ(through.release(got.text("lease")).status, 204);
  }
}

TEST_P(serve_two, a_break_through_the_other_is_a_loss) {
  const auto id = acquire("a", R"({"ttl":"3s"})").text("lease");
  auto stream = hold("b", R"({"ttl":"3s"})");
  stream.until("granted");
  for (const auto* name : {"a", "b"}) {
    auto there = http_line{second().port(), 3 * holdfast::testing::patience, e2e::break_on_purpose};
    EXPECT_EQ(there.ask("DELETE", fmt::format("/v1/locks/{}", name)).status, 200);
  }
  EXPECT_TRUE(stream.until("lost")["why"].is_string());
  EXPECT_TRUE(e2e::eventually([&] { return renew(id).status == 410; }));
}

// The clients of the one go on with the other when it dies, and nobody keeps what its connections held.
TEST_P(serve_two, what_a_dead_service_held_for_connections_is_free_for_the_other) {
  e2e::event_line stream{second().port(), "POST", "/v1/locks/a:hold", R"({"ttl":"2s"})"};
  stream.until("granted");
  auto next = waiting("a", e2e::patient_acquire);
  ASSERT_TRUE(has_waiters("a", 1));
  second().kill();
  EXPECT_EQ(next.hear().status, 200);
}

TEST_P(serve_two, each_sees_what_clients_of_the_other_do) {
  auto stream = events("/v1/events");
  stream.until("hello");
  const auto got = other().acquire("a", 0s, 60s);
  const auto granted = stream.until("granted");
  EXPECT_EQ(granted["name"], "a");
  EXPECT_EQ(granted["token"], got.number("token"));
  other().release(got.text("lease"));
  EXPECT_EQ(stream.until("released")["name"], "a");
}

}  // namespace

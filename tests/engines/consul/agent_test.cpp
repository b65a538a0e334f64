// The transport alone, against a fake agent that says whatever a test wants it to: what is certain and what is in
// doubt, who is told what and when, and that nothing hangs.
#include "engines/consul/agent.hpp"

#include "faults/fake_server.hpp"
#include "support/expect.hpp"
#include "support/reserved_port.hpp"
#include "support/wait_until.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <future>
#include <thread>
#include <vector>

namespace holdfast::engines::consul::agent_tests {
namespace {

using namespace std::chrono_literals;
using testing::fails_with;
using testing::is_ok;
using testing::reserved_port;
using testing::wait_until;
using clock = std::chrono::steady_clock;

std::string http(int status, std::string_view body = {}, std::string_view headers = {}) {
  return fmt::format("HTTP/1.1 {} Said\r\nContent-Length: {}\r\n{}\r\n{}", status, body.size(),
                     headers, body);
}

// What comes after an answer. hold: nothing, until the client goes.
enum class then : std::uint8_t { keep, cut, hold };

struct fake_reply {
  std::string bytes{};
  then next = then::keep;
};

class fake_agent final : public testing::fake_server {
 public:
  using answerer = std::function<fake_reply(const std::string& request)>;

  explicit fake_agent(answerer how =
                          [](const std::string&) { return fake_reply{http(200, "fine")}; })
      : how_(std::move(how)) {
    begin();
  }
  ~fake_agent() override { end(); }

  std::vector<std::string> requests() const {
    const std::lock_guard lock{guard_};
    return requests_;
  }
  std::size_t asked() const { return requests().size(); }
  std::atomic<int> connections{0}, open{0};

 private:
  static std::size_t length_of(const std::string& all) {
    const auto head = all.find("\r\n\r\n");
    if (head == std::string::npos) return 0;
    const auto named = all.find("Content-Length: ");
    return head + 4 + (named < head ? std::stoul(all.substr(named + 16)) : 0);
  }
  void serve(int fd) override {
    ++connections;
    ++open;
    talk(fd);
    --open;
  }
  void talk(int fd) {
    std::string all;
    for (;;) {
      while (length_of(all) == 0 || all.size() < length_of(all))
        if (!receive(fd, all)) return;
      const auto request = all.substr(0, length_of(all));
      all.erase(0, request.size());
      {
        const std::lock_guard lock{guard_};
        requests_.push_back(request);
      }
      const auto said = how_(request);
      if (!said.bytes.empty() && !send(fd, said.bytes)) return;
      if (said.next == then::cut) return void(::shutdown(fd, SHUT_RDWR));
      while (said.next == then::hold)
        if (!receive(fd, all)) return;
    }
  }

  const answerer how_;
  std::vector<std::string> requests_;
};

settings settings_for(std::initializer_list<std::uint16_t> ports) {
  settings out;
  out.url = "consul://the-agents";
  for (const auto port : ports)
    out.where.push_back({"127.0.0.1", port, fmt::format("127.0.0.1:{}", port), {}});
  return out;
}

std::unique_ptr<agent> start(const settings& how) { return std::move(agent::start(how)).value(); }
std::unique_ptr<agent> start(const fake_agent& at) { return start(settings_for({at.port()})); }

question get(std::string path) { return {question::verb::get, std::move(path)}; }
question put(std::string path, std::string body, bool repeatable = true) {
  return {question::verb::put, std::move(path), std::move(body), repeatable};
}
call within(nanoseconds patience) { return {clock::now() + patience}; }

// A posted question and its answer.
class posted final : private agent::handler {
 public:
  posted(agent& on, question what, call limits)
      : what_(std::move(what)), limits_(std::move(limits)) {
    on.post(what_, limits_, *this);
  }
  answer get() { return told_.get_future().get(); }
  bool is_told() const { return is_told_; }
  std::thread::id thread{};

 private:
  void on_answer(answer what) noexcept override {
    thread = std::this_thread::get_id();
    is_told_ = true;
    told_.set_value(std::move(what));
  }
  const question what_;
  const call limits_;
  std::atomic<bool> is_told_{false};
  std::promise<answer> told_;
};

// Both ways to ask have the same outcome.
class consul_agent : public ::testing::TestWithParam<bool> {
 protected:
  answer ask(agent& on, const question& what, const call& limits) const {
    if (!GetParam()) return on.run(what, limits);
    return posted{on, what, limits}.get();
  }
};
INSTANTIATE_TEST_SUITE_P(ways, consul_agent, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "posted" : "blocking"; });

// ---- answers

TEST_P(consul_agent, answers_with_status_body_and_index) {
  fake_agent server{[](const std::string&) {
    return fake_reply{http(404, "no key", "X-Consul-Index: 12345678901234\r\n")};
  }};
  const auto on = start(server);
  const auto said = ask(*on, put("/v1/txn", "[1]"), within(10s));
  ASSERT_TRUE(is_ok(said.got));
  EXPECT_EQ(said.got->status, 404);
  EXPECT_EQ(said.got->body, "no key");
  EXPECT_EQ(said.got->index, 12345678901234U);
  EXPECT_FALSE(said.repeated);
  const auto sent = server.requests().at(0);
  EXPECT_TRUE(sent.starts_with("PUT /v1/txn HTTP/1.1\r\n")) << sent;
  EXPECT_TRUE(sent.ends_with("\r\n\r\n[1]")) << sent;
  EXPECT_EQ(sent.find("Expect"), std::string::npos) << sent;
}

TEST_P(consul_agent, keeps_its_connection) {
  fake_agent server;
  const auto on = start(server);
  for (int i = 0; i < 10; ++i) {
    const auto said = ask(*on, i % 2 == 0 ? get("/a") : put("/b", "x"), within(10s));
    ASSERT_TRUE(is_ok(said.got));
    EXPECT_FALSE(said.repeated);
  }
  EXPECT_EQ(server.connections, 1);
  EXPECT_TRUE(server.requests().at(8).starts_with("GET /a HTTP/1.1\r\n"));
  EXPECT_EQ(server.requests().at(8).find("Content"), std::string::npos);
}

TEST_P(consul_agent, takes_an_index_that_is_no_number_for_none) {
  for (const auto* const line : {"-1", "12x", "99999999999999999999999", "", " ", "0x10"}) {
    fake_agent server{[line](const std::string&) {
      return fake_reply{http(200, "", fmt::format("X-Consul-Index:{}\r\n", line))};
    }};
    const auto on = start(server);
    const auto said = ask(*on, get("/"), within(10s));
    ASSERT_TRUE(is_ok(said.got));
    EXPECT_EQ(said.got->index, 0U) << line;
  }
}

TEST_P(consul_agent, names_the_datacenter) {
  fake_agent server;
  auto how = settings_for({server.port()});
  how.datacenter = "east & west";
  const auto on = start(how);
  ASSERT_TRUE(is_ok(ask(*on, get("/v1/a"), within(10s)).got));
  ASSERT_TRUE(is_ok(ask(*on, get("/v1/a?raw"), within(10s)).got));
  EXPECT_TRUE(server.requests().at(0).starts_with("GET /v1/a?dc=east%20%26%20west HTTP"));
  EXPECT_TRUE(server.requests().at(1).starts_with("GET /v1/a?raw&dc=east%20%26%20west HTTP"));
}

TEST_P(consul_agent, sends_the_path_as_it_is) {
  fake_agent server;
  const auto on = start(server);
  ASSERT_TRUE(is_ok(ask(*on, get("/v1/kv/a/../b"), within(10s)).got));
  EXPECT_TRUE(server.requests().at(0).starts_with("GET /v1/kv/a/../b HTTP"));
}

TEST_P(consul_agent, sends_the_token_by_header_and_tells_nobody) {
  fake_agent server{[](const std::string&) { return fake_reply{{}, then::cut}; }};
  auto how = settings_for({server.port()});
  how.token = "c-a-n-a-r-y";
  const auto on = start(how);
  const auto said = ask(*on, put("/v1/txn", "[]", false), within(10s));
  ASSERT_TRUE(fails_with(said.got, errc::outcome_unknown));
  EXPECT_EQ(said.got.error().message().find("c-a-n-a-r-y"), std::string::npos);
  EXPECT_NE(server.requests().at(0).find("\r\nX-Consul-Token: c-a-n-a-r-y\r\n"), std::string::npos);
  EXPECT_EQ(server.requests().at(0).find("?"), std::string::npos);
}

TEST(consul_agent_start, refuses_a_token_that_would_be_more_than_one_line) {
  auto how = settings_for({1});
  how.token = "a\r\nb";
  const auto on = agent::start(how);
  ASSERT_TRUE(fails_with(on, errc::misconfigured));
  EXPECT_TRUE(on.error().is_not_done());
}

TEST_P(consul_agent, does_not_follow_a_redirect) {
  fake_agent server{
      [](const std::string&) { return fake_reply{http(301, "", "Location: /elsewhere\r\n")}; }};
  const auto on = start(server);
  const auto said = ask(*on, get("/here"), within(10s));
  ASSERT_TRUE(is_ok(said.got));
  EXPECT_EQ(said.got->status, 301);
  EXPECT_EQ(server.asked(), 1U);
}

// ---- limits

TEST_P(consul_agent, ends_at_its_deadline) {
  fake_agent server{[](const std::string&) { return fake_reply{{}, then::hold}; }};
  const auto on = start(server);
  const auto begin = clock::now();
  const auto said = ask(*on, get("/"), within(100ms));
  EXPECT_GE(clock::now() - begin, 100ms);
  EXPECT_LT(clock::now() - begin, 5s);
  EXPECT_TRUE(fails_with(said.got, errc::outcome_unknown));
  EXPECT_TRUE(wait_until([&] { return server.open == 0; }));  // and the server hears of it
}

TEST_P(consul_agent, ends_when_it_is_told_to_stop) {
  fake_agent server{[](const std::string&) { return fake_reply{{}, then::hold}; }};
  const auto on = start(server);
  std::stop_source stop;
  std::jthread later{[&] {
    wait_until([&] { return server.asked() == 1; });
    stop.request_stop();
  }};
  const auto said = ask(*on, get("/"), {clock::now() + 60s, stop.get_token()});
  EXPECT_TRUE(fails_with(said.got, errc::outcome_unknown));
  EXPECT_TRUE(wait_until([&] { return server.open == 0; }));
}

TEST_P(consul_agent, sends_nothing_when_there_is_no_time) {
  fake_agent server;
  const auto on = start(server);
  const auto late = ask(*on, get("/"), within(-1s));
  ASSERT_TRUE(fails_with(late.got, errc::unavailable));
  EXPECT_TRUE(late.got.error().is_not_done());
  std::stop_source stop;
  stop.request_stop();
  const auto stopped = ask(*on, get("/"), {clock::now() + 10s, stop.get_token()});
  ASSERT_TRUE(fails_with(stopped.got, errc::unavailable));
  EXPECT_TRUE(stopped.got.error().is_not_done());
  EXPECT_EQ(server.asked(), 0U);
}

TEST(consul_agent_posts, wait_for_their_turn_until_their_deadline_or_stop) {
  fake_agent server{[](const std::string&) { return fake_reply{{}, then::hold}; }};
  const auto on = start(server);
  std::vector<std::unique_ptr<posted>> first;
  for (int i = 0; i < 64; ++i)
    first.push_back(std::make_unique<posted>(*on, get("/first"), within(60s)));
  ASSERT_TRUE(wait_until([&] { return server.asked() == 64; }));
  std::stop_source stop;
  posted late{*on, get("/late"), within(50ms)};
  posted stopped{*on, get("/stopped"), {clock::now() + 60s, stop.get_token()}};
  const auto said = late.get();
  EXPECT_TRUE(fails_with(said.got, errc::unavailable));
  EXPECT_FALSE(stopped.is_told());
  stop.request_stop();
  EXPECT_TRUE(fails_with(stopped.get().got, errc::unavailable));
  EXPECT_EQ(server.asked(), 64U);
  on->stop();
  for (auto& one : first) EXPECT_TRUE(fails_with(one->get().got, errc::outcome_unknown));
}

// Nothing that is asked for work is answered.
TEST(consul_agent_posts, of_a_proof_have_room_when_all_others_hang) {
  fake_agent server{[](const std::string& request) {
    const bool is_proof = request.starts_with("PUT /proof");
    return fake_reply{is_proof ? http(200) : "", is_proof ? then::keep : then::hold};
  }};
  const auto on = start(server);
  std::deque<posted> work;
  for (int i = 0; i < 200; ++i) work.emplace_back(*on, get("/work"), within(1min));
  ASSERT_TRUE(wait_until([&] { return server.asked() >= 64; }));
  for (const auto rank : {question::rank::proof, question::rank::main_proof}) {
    auto proof = put("/proof", "");
    proof.before = rank;
    EXPECT_TRUE(is_ok(posted(*on, proof, within(5s)).get().got));
  }
  on->stop();
}

TEST(consul_agent_posts, are_all_answered_however_many) {
  fake_agent server;
  const auto on = start(server);
  std::vector<std::unique_ptr<posted>> all;
  for (int i = 0; i < 500; ++i)
    all.push_back(std::make_unique<posted>(*on, put("/v1/txn", "[]"), within(60s)));
  for (auto& one : all) EXPECT_TRUE(is_ok(one->get().got));
  EXPECT_EQ(server.asked(), 500U);
  EXPECT_LE(server.connections, 64);
}

TEST(consul_agent_posts, may_ask_for_more_in_their_answer) {
  fake_agent server;
  const auto on = start(server);
  std::promise<void> done;
  std::function<void(int)> chain = [&](int left) {
    on->ask_in_background(get("/"), 10s, [&, left](const answer& said) {
      EXPECT_TRUE(is_ok(said.got));
      if (left == 0) return done.set_value();
      chain(left - 1);
    });
  };
  chain(20);
  done.get_future().wait();
  EXPECT_EQ(server.connections, 1);
}

// ---- failures

TEST_P(consul_agent, is_certain_of_a_connection_that_was_refused) {
  const reserved_port nobody;
  const auto on = start(settings_for({nobody.number()}));
  const auto said = ask(*on, put("/", "x", false), within(10s));
  ASSERT_TRUE(fails_with(said.got, errc::unavailable));
  EXPECT_TRUE(said.got.error().is_not_done());
  EXPECT_TRUE(said.got.error().message().starts_with("consul://the-agents"))
      << said.got.error().message();
  EXPECT_FALSE(said.repeated);
}

TEST_P(consul_agent, does_not_know_about_a_request_that_was_cut_off) {
  fake_agent server{[](const std::string&) { return fake_reply{{}, then::cut}; }};
  const auto on = start(server);
  const auto said = ask(*on, put("/", "x", false), within(10s));
  ASSERT_TRUE(fails_with(said.got, errc::outcome_unknown));
  EXPECT_FALSE(said.got.error().is_not_done());
  EXPECT_EQ(server.asked(), 1U);
}

TEST_P(consul_agent, repeats_what_may_be_repeated_and_says_so) {
  std::atomic<int> count{0};
  fake_agent server{[&](const std::string&) {
    return ++count < 3 ? fake_reply{{}, then::cut} : fake_reply{http(200)};
  }};
  const auto on = start(server);
  const auto said = ask(*on, put("/", "x"), within(10s));
  EXPECT_TRUE(is_ok(said.got));
  EXPECT_TRUE(said.repeated);
}

TEST_P(consul_agent, says_repeated_when_a_kept_connection_dies_with_the_request) {
  std::atomic<int> count{0};
  fake_agent server{[&](const std::string&) {
    return ++count == 2 ? fake_reply{{}, then::cut} : fake_reply{http(200)};
  }};
  const auto on = start(server);
  ASSERT_FALSE(ask(*on, put("/", "1"), within(10s)).repeated);
  const auto said = ask(*on, put("/", "2"), within(10s));
  EXPECT_TRUE(is_ok(said.got));
  EXPECT_TRUE(said.repeated);
  EXPECT_EQ(server.asked(), 3U);
}

TEST_P(consul_agent, does_not_say_repeated_when_the_connection_was_closed_before) {
  std::atomic<int> count{0};
  fake_agent server{[&](const std::string&) {
    return fake_reply{http(200), ++count == 1 ? then::cut : then::keep};
  }};
  const auto on = start(server);
  ASSERT_TRUE(is_ok(ask(*on, put("/", "1"), within(10s)).got));
  ASSERT_TRUE(wait_until([&] { return server.open == 0; }));
  const auto said = ask(*on, put("/", "2"), within(10s));
  EXPECT_TRUE(is_ok(said.got));
  EXPECT_FALSE(said.repeated);
  EXPECT_EQ(server.asked(), 2U);
  EXPECT_EQ(server.connections, 2);
}

TEST_P(consul_agent, asks_the_next_agent) {
  const reserved_port nobody;
  fake_agent leaderless{
      [](const std::string&) { return fake_reply{http(500, "No cluster leader")}; }};
  fake_agent busy{[](const std::string&) { return fake_reply{http(429)}; }};
  fake_agent good;
  const auto on =
      start(settings_for({nobody.number(), leaderless.port(), busy.port(), good.port()}));
  const auto said = ask(*on, put("/", "x"), within(10s));
  ASSERT_TRUE(is_ok(said.got));
  EXPECT_EQ(said.got->body, "fine");
  EXPECT_EQ(on->current(), 3U);
  EXPECT_EQ(leaderless.asked(), 1U);
  EXPECT_EQ(busy.asked(), 1U);
}

TEST_P(consul_agent, leaves_a_mute_agent_for_the_next) {
  fake_agent mute{[](const std::string&) { return fake_reply{{}, then::hold}; }};
  fake_agent good;
  const auto on = start(settings_for({mute.port(), good.port()}));
  const auto said = ask(*on, put("/", "x"), within(10s));
  EXPECT_TRUE(is_ok(said.got));
  EXPECT_TRUE(said.repeated);
}

TEST_P(consul_agent, gives_the_last_answer_of_an_overloaded_server) {
  fake_agent server{[](const std::string&) { return fake_reply{http(503, "later")}; }};
  const auto on = start(server);
  const auto said = ask(*on, put("/", "x", false), within(180ms));
  ASSERT_TRUE(is_ok(said.got));
  EXPECT_EQ(said.got->status, 503);
  EXPECT_EQ(said.got->body, "later");
  EXPECT_FALSE(said.repeated);
  EXPECT_GE(server.asked(), 2U);
  EXPECT_LE(server.asked(), 4U);
}

TEST_P(consul_agent, refuses_an_answer_without_end) {
  struct endless final : testing::fake_server {
    explicit endless(std::string head) : head_(std::move(head)) { begin(); }
    ~endless() override { end(); }
    void serve(int fd) override {
      std::string ignored;
      if (!receive(fd, ignored) || !send(fd, head_)) return;
      const std::string more = head_.ends_with("\r\n\r\n")
                                   ? std::string(1 << 20, 'x')
                                   : "X-More: " + std::string(4000, 'x') + "\r\n";
      while (send(fd, more)) {
      }
    }
    const std::string head_;
  };
  for (const auto* const head :
       {"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9000000000000\r\n\r\n",
        "HTTP/1.1 200 OK\r\n"}) {
    const endless server{head};
    const auto on = start(settings_for({server.port()}));
    const auto said = ask(*on, get("/"), within(60s));
    ASSERT_TRUE(fails_with(said.got, errc::protocol)) << head;
    EXPECT_FALSE(said.got.error().is_not_done());
  }
}

TEST_P(consul_agent, takes_nonsense_for_no_answer) {
  fake_agent server{[](const std::string&) {
    return fake_reply{"\x01\x02 what do you want?\r\n\r\n", then::cut};
  }};
  const auto on = start(server);
  const auto said = ask(*on, get("/"), within(10s));
  ASSERT_TRUE(fails_with(said.got, errc::protocol));
  EXPECT_TRUE(std::ranges::none_of(said.got.error().message(), [](char c) { return c < ' '; }));
}

TEST(consul_agent_fates, are_as_the_policy_needs_them) {
  using fate = retry_policy::fate;
  const auto of = [](int status, std::string body = {}) {
    return fate_of(http_reply{status, 0, std::move(body)});
  };
  EXPECT_EQ(of(200), fate::answered);
  EXPECT_EQ(of(301), fate::answered);
  EXPECT_EQ(of(403), fate::answered);
  EXPECT_EQ(of(409), fate::answered);
  EXPECT_EQ(of(429), fate::overloaded);
  EXPECT_EQ(of(503), fate::overloaded);
  EXPECT_EQ(of(500, "rpc error: No cluster leader"), fate::no_leader);
  EXPECT_EQ(of(500, "leadership lost"), fate::unanswered);
  EXPECT_EQ(of(504), fate::unanswered);
  EXPECT_EQ(fate_of(error{errc::unavailable, ""}), fate::not_sent);
  EXPECT_EQ(fate_of(error{errc::outcome_unknown, ""}), fate::unanswered);
  EXPECT_EQ(fate_of(error{errc::misconfigured, ""}), fate::refused);
}

TEST(consul_agent_run_at, asks_that_agent_once) {
  fake_agent first;
  fake_agent second{[](const std::string&) { return fake_reply{http(503)}; }};
  const auto on = start(settings_for({first.port(), second.port()}));
  const auto got = on->run_at(1, get("/"), within(10s));
  ASSERT_TRUE(is_ok(got));
  EXPECT_EQ(got->status, 503);
  EXPECT_EQ(first.asked(), 0U);
  EXPECT_EQ(second.asked(), 1U);
  EXPECT_EQ(on->current(), 0U);
}

// ---- blocking queries

TEST(consul_agent_listening, is_told_when_the_server_answers) {
  std::promise<void> change;
  fake_agent server{[&](const std::string& request) {
    if (request.starts_with("GET /slow")) change.get_future().wait();
    return fake_reply{http(200, "news", "X-Consul-Index: 7\r\n")};
  }};
  const auto on = start(server);
  std::promise<result<http_reply>> told;
  on->listen("/slow?index=6", 60s, [&](auto got) { told.set_value(std::move(got)); });
  ASSERT_TRUE(wait_until([&] { return server.asked() == 1; }));
  EXPECT_EQ(on->listening(), 1U);
  // Others are not kept waiting by it.
  EXPECT_TRUE(is_ok(posted(*on, get("/quick"), within(10s)).get().got));
  change.set_value();
  const auto got = told.get_future().get();
  ASSERT_TRUE(is_ok(got));
  EXPECT_EQ(got->index, 7U);
  EXPECT_EQ(on->listening(), 0U);
}

TEST(consul_agent_listening, that_was_cancelled_is_not_told_and_the_server_hears_of_it) {
  fake_agent server{[](const std::string&) { return fake_reply{{}, then::hold}; }};
  const auto on = start(server);
  std::atomic<int> told{0};
  const auto first = on->listen("/", 60s, [&](const auto&) { ++told; });
  ASSERT_TRUE(wait_until([&] { return server.asked() == 1; }));
  on->cancel_listening(first);
  EXPECT_EQ(on->listening(), 0U);
  EXPECT_TRUE(wait_until([&] { return server.open == 0; }));
  on->cancel_listening(first);
  on->cancel_listening(on->listen("/", 60s, [&](const auto&) { ++told; }));
  on->stop();
  EXPECT_EQ(told, 0);
}

TEST(consul_agent_listening, ends_when_its_patience_does_or_the_connection) {
  fake_agent server{[](const std::string& request) {
    return fake_reply{{}, request.starts_with("GET /cut") ? then::cut : then::hold};
  }};
  const auto on = start(server);
  for (const auto* const path : {"/cut", "/hold"}) {
    std::promise<result<http_reply>> told;
    on->listen(path, 100ms, [&](auto got) { told.set_value(std::move(got)); });
    EXPECT_TRUE(fails_with(told.get_future().get(), errc::outcome_unknown)) << path;
  }
  const reserved_port nobody;
  const auto off = start(settings_for({nobody.number()}));
  std::promise<result<http_reply>> told;
  off->listen("/", 10s, [&](auto got) { told.set_value(std::move(got)); });
  EXPECT_TRUE(fails_with(told.get_future().get(), errc::unavailable));
}

TEST(consul_agent_listening, may_be_begun_and_cancelled_by_the_one_that_is_told) {
  fake_agent server{[](const std::string& request) {
    if (request.starts_with("GET /hold")) return fake_reply{{}, then::hold};
    return fake_reply{http(200)};
  }};
  const auto on = start(server);
  std::promise<void> done;
  std::atomic<int> told{0};
  const auto other = on->listen("/hold", 60s, [&](const auto&) { ++told; });
  ASSERT_TRUE(wait_until([&] { return server.asked() == 1; }));
  on->listen("/", 10s, [&](const auto&) {
    on->cancel_listening(other);
    on->listen("/", 10s, [&](const auto&) { done.set_value(); });
  });
  done.get_future().wait();
  EXPECT_TRUE(wait_until([&] { return server.open == 1; }));
  EXPECT_EQ(told, 0);
}

TEST(consul_agent_listening, does_not_cost_the_others_their_connections) {
  fake_agent server{[](const std::string& request) {
    if (request.starts_with("GET /hold")) return fake_reply{{}, then::hold};
    return fake_reply{http(200)};
  }};
  const auto on = start(server);
  for (int i = 0; i < 150; ++i) on->listen("/hold", 60s, [](const auto&) {});
  ASSERT_TRUE(wait_until([&] { return server.asked() == 150; }));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(is_ok(posted(*on, get("/"), within(10s)).get().got));
  EXPECT_EQ(server.connections, 151);
}

// ---- time

TEST(consul_agent_timers, run_in_order_on_one_thread) {
  const auto on = start(settings_for({1}));
  std::vector<int> order;  // touched by that thread only, until it is done
  std::promise<void> done;
  const auto now = clock::now();
  on->at(now + 60ms, [&] {
    order.push_back(3);
    done.set_value();
  });
  on->at(now + 40ms, [&] { order.push_back(2); });
  const auto unwanted = on->at(now + 50ms, [&] { order.push_back(9); });
  on->at(now - 1s, [&] { order.push_back(1); });
  on->cancel(unwanted);
  on->cancel(unwanted);
  done.get_future().wait();
  EXPECT_GE(clock::now() - now, 60ms);
  std::promise<void> soon;
  on->run_soon([&] { order.push_back(4); });
  on->run_soon([&] { soon.set_value(); });
  soon.get_future().wait();
  EXPECT_EQ(order, (std::vector{1, 2, 3, 4}));
}

TEST(consul_agent_timers, survive_work_that_throws) {
  const auto on = start(settings_for({1}));
  std::promise<void> done;
  on->run_soon([] { throw std::runtime_error("x"); });
  on->at(clock::now(), [] { throw std::runtime_error("x"); });
  on->at(clock::now() + 10ms, [&] { done.set_value(); });
  done.get_future().wait();
}

// ---- the end

TEST(consul_agent_stop, completes_everything) {
  fake_agent server{[](const std::string& request) {
    if (request.find("/busy") != std::string::npos) return fake_reply{http(503)};
    return fake_reply{{}, then::hold};
  }};
  const auto on = start(server);
  std::vector<std::unique_ptr<posted>> all;
  for (int i = 0; i < 100; ++i)
    all.push_back(std::make_unique<posted>(*on, put(i < 10 ? "/busy" : "/", "x"), call{}));
  std::atomic<int> told{0}, timers{0};
  for (int i = 0; i < 10; ++i)
    on->listen("/", 60s, [&](const auto& got) {
      EXPECT_FALSE(got);
      ++told;
    });
  on->at(clock::now() + 1h, [&] { ++timers; });
  ASSERT_TRUE(wait_until([&] { return server.asked() >= 70; }));
  const auto begin = clock::now();
  on->stop();
  EXPECT_LT(clock::now() - begin, 5s);
  for (auto& one : all) {
    EXPECT_TRUE(one->is_told());
    const auto said = one->get();
    if (said.got) {
      EXPECT_EQ(said.got->status, 503);
    }
  }
  EXPECT_EQ(told, 10);
  EXPECT_EQ(timers, 0);
  on->stop();
}

TEST(consul_agent_stop, refuses_what_comes_later) {
  fake_agent server;
  const auto on = start(server);
  on->stop();
  const auto expect_refusal = [](const result<http_reply>& got) {
    ASSERT_TRUE(fails_with(got, errc::unavailable));
    EXPECT_TRUE(got.error().is_not_done());
    EXPECT_EQ(got.error().message(), "consul://the-agents: the client is being closed.");
  };
  expect_refusal(on->run(get("/"), within(10s)).got);
  expect_refusal(on->run_at(0, get("/"), within(10s)));
  expect_refusal(posted(*on, get("/"), within(10s)).get().got);
  int told = 0;
  on->ask_in_background(get("/"), 10s, [&](const answer& said) {
    expect_refusal(said.got);
    ++told;
  });
  on->listen("/", 10s, [&](const auto& got) {
    expect_refusal(got);
    ++told;
  });
  EXPECT_EQ(told, 2);
  on->run_soon([&] { ++told; });
  on->cancel(on->at(clock::now(), [&] { ++told; }));
  EXPECT_EQ(told, 2);
  EXPECT_EQ(server.asked(), 0U);
}

TEST(consul_agent_stop, ends_blocking_callers) {
  fake_agent server{[](const std::string& request) {
    if (request.find("/busy") != std::string::npos) return fake_reply{http(429)};
    return fake_reply{{}, then::hold};
  }};
  const auto on = start(server);
  std::atomic<int> ended{0};
  std::vector<std::jthread> callers;
  for (int i = 0; i < 50; ++i)
    callers.emplace_back([&, i] {
      const auto said = on->run(get(i % 5 == 0 ? "/busy" : "/"), {});
      if (!said.got) {
        EXPECT_TRUE(fails_with(said.got, errc::outcome_unknown));
      }
      ++ended;
    });
  ASSERT_TRUE(wait_until([&] { return server.asked() >= 50; }));
  const auto begin = clock::now();
  on->stop();
  EXPECT_LT(clock::now() - begin, 5s);
  callers.clear();
  EXPECT_EQ(ended, 50);
}

TEST(consul_agent_stop, comes_at_any_moment) {
  fake_agent server;
  for (int round = 0; round < 20; ++round) {
    const auto on = start(server);
    std::atomic<bool> over{false};
    std::vector<std::jthread> callers;
    for (int i = 0; i < 4; ++i)
      callers.emplace_back([&, i] {
        while (!over) {
          std::stop_source stop;
          const call limits{clock::now() + 10s, stop.get_token()};
          if (i % 2 == 0) {
            static_cast<void>(on->run(put("/", "x"), limits));
          } else {
            posted one{*on, get("/"), limits};
            stop.request_stop();
            static_cast<void>(one.get());
            on->cancel_listening(on->listen("/", 1s, [](const auto&) {}));
            on->cancel(on->at(clock::now(), [] {}));
          }
        }
      });
    std::this_thread::sleep_for(std::chrono::milliseconds{round});
    on->stop();
    over = true;
  }
}

}  // namespace
}  // namespace holdfast::engines::consul::agent_tests

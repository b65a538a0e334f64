// What breaks here: the service that our own client speaks to. It talks nonsense, too much, too slowly, about other
// leases than were asked for, sends the client elsewhere, and lies about the time. What must hold: nobody has a lock
// without a grant that fits what was asked, no call takes longer than it may, memory is not the peer's to take, and
// with an honest service in the same place all is well again.
#include "faults/serve_faults.hpp"
#include "faults/serve_relay.hpp"

#include "support/process.hpp"

#include <limits>
#include <optional>
#include <utility>

namespace holdfast::testing {
namespace {

std::size_t memory_of_this_process() {
  std::istringstream lines{text_of_file("/proc/self/status")};
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("VmRSS:")) return std::stoull(line.substr(6)) * 1024;
  return 0;
}

class serve_hostile : public serve_faults {
 protected:
  void SetUp() override {
    serve_faults::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    service_.emplace();
    relay_.emplace(service_->port());
    client_.emplace(client::open(relay_->url("grace=20s"), {.call_timeout = call_timeout}));
  }
  static bool is_about_locks(const serve_relay::question& asked) {
    const auto verb = asked.verb();
    return verb == "enter" || verb == "settle" || verb == "leave" || verb == "release";
  }
  static serve_relay::answerer always(std::string answer) {
    return [answer = std::move(answer)](const auto& asked) {
      return is_about_locks(asked) ? std::optional{answer} : std::nullopt;
    };
  }
  static std::string ok(std::string_view body) { return serve_relay::reply(200, body); }
  std::string fresh_name() { return fmt::format("order/{}", ++names_); }

  // Whatever is said to it: no lock, in time; and none is left in the store.
  void expect_no_lock(const std::string& what) {
    mutex lock{*client_, fresh_name()};
    for (const nanoseconds wait : {nanoseconds{0}, nanoseconds{call_timeout}}) {
      const auto begin = std::chrono::steady_clock::now();
      const auto got = lock.acquire({.wait = wait, .ttl = 10s});
      const auto took = std::chrono::steady_clock::now() - begin;
      EXPECT_FALSE(got) << what;
      EXPECT_LT(took, wait + 2 * call_timeout + 1s) << what;
      if (got) continue;
      EXPECT_NE(got.error().message().find(lock.name()), std::string::npos)
          << got.error().message();
      EXPECT_LT(got.error().message().size(), 3000U) << what;
    }
    relay_->heal();
    // A connection that lacks the end of an answer is given up after 5 s of silence (net/channel.hpp).
    auto held = lock.acquire({.wait = 1s, .ttl = 10s});
    wait_until([&] { return held || (held = lock.acquire({.wait = 1s, .ttl = 10s})); });
    ASSERT_TRUE(is_ok(held)) << "after " << what;
    EXPECT_TRUE(is_proven(*service_, *held)) << "after " << what;
    EXPECT_TRUE(is_ok(held->release())) << "after " << what;
    EXPECT_TRUE(wait_until([&] { return !is_locked(*service_, lock.name()); })) << what;
  }
  void expect_no_lock_when_it_says(const std::vector<std::string>& answers) {
    for (const auto& one : answers) {
      relay_->answer_with(always(one));
      ASSERT_NO_FATAL_FAILURE(expect_no_lock(one.substr(0, 200)));
    }
  }

  static constexpr std::chrono::milliseconds call_timeout{300};
  std::optional<serve_process> service_;
  std::optional<serve_relay> relay_;
  std::optional<client> client_;
  int names_ = 0;
};

// ---- what is no answer

TEST_F(serve_hostile, what_is_no_http_is_no_lock) {
  expect_no_lock_when_it_says({
      "",
      "\r\n\r\n",
      "garbage\r\n\r\n",
      "SSH-2.0-OpenSSH_9.2\r\n\r\n",
      std::string(5000, '\xff') + "\r\n\r\n",
      std::string(64, '\0') + "\r\n\r\n",
      "HTTP/1.1 200 OK\r\n\r\n{}",
      "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}\r\n0\r\n\r\n",
      "HTTP/1.1 99 OK\r\nContent-Length: 2\r\n\r\n{}",
      "HTTP/1.1 100 Continue\r\n\r\n",
      "HTTP/1.1 101 Switching Protocols\r\n\r\n",
      "HTTP/1.1 204 No Content\r\n\r\n",
      "HTTP/1.1 200 OK\r\nX: a\x01z\r\nContent-Length: 2\r\n\r\n{}",
  });
}

TEST_F(serve_hostile, what_is_not_our_json_is_no_lock) {
  expect_no_lock_when_it_says({
      ok(""),
      ok("null"),
      ok("[]"),
      ok("7"),
      ok("\xff\xfe"),
      ok("{"),
      ok("{}"),
      ok(std::string(100'000, '[')),
      ok("{\"now_ns\":" + std::string(100'000, '{')),
      ok(R"({"now_ns":1})"),
      ok(R"({"now_ns":1,"what":"granted"})"),
      ok(R"({"now_ns":1,"what":"granted","grant":7})"),
      ok(R"({"now_ns":1,"what":"granted","grant":{}})"),
      ok(R"({"now_ns":-1,"what":"busy"})"),
      ok(R"({"now_ns":1e300,"what":"busy"})"),
      ok(R"({"now_ns":"now","what":"granted","grant":{}})"),
      serve_relay::reply(200, "<html>Please log in to the hotel network</html>", {}, "text/html"),
      serve_relay::reply(503, "<html>Bad gateway</html>", {}, "text/html"),
      serve_relay::reply(500, "", {}, "application/problem+json"),
      serve_relay::reply(409, R"({"code":"granted","done":true})", {}, "application/problem+json"),
      serve_relay::reply(409, R"({"code":7,"detail":[]})", {}, "application/problem+json"),
  });
}

// One stops in the middle, and is silent: no call waits for longer than it may.
TEST_F(serve_hostile, answers_that_do_not_end_take_no_longer_than_the_call_may) {
  const auto whole = ok(R"({"now_ns":1,"what":"busy"})");
  expect_no_lock_when_it_says({whole.substr(0, 10), whole.substr(0, whole.size() - 1)});
  relay_->drip();
  mutex lock{*client_, "slow"};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(lock.acquire({.wait = 1s}));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2500ms);
  relay_->drip(false);
  EXPECT_TRUE(wait_until([&] { return lock.acquire({.wait = 1s}).has_value(); }));
}

TEST_F(serve_hostile, answers_without_end_cost_no_memory) {
  const auto before = memory_of_this_process();
  constexpr std::size_t much = std::size_t{40} << 20U;
  std::string chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (std::size_t i = 0; i < much >> 16U; ++i)
    chunks += "10000\r\n" + std::string(std::size_t{1} << 16U, ' ') + "\r\n";
  for (const auto& one : {fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", much,
                                      std::string(much, ' ')),
                          "HTTP/1.1 200 OK\r\n" + std::string(much, 'X') + "\r\n\r\n", chunks}) {
    relay_->answer_with(always(one));
    ASSERT_NO_FATAL_FAILURE(expect_no_lock(one.substr(0, 60)));
  }
  // What the relay has of it, and what the client took before it had enough.
  EXPECT_LT(memory_of_this_process(), before + 8 * much);
}

// ---- redirections

TEST_F(serve_hostile, redirections_are_not_followed) {
  std::atomic<int> followed{0};
  for (const int status : {300, 301, 302, 303, 307, 308}) {
    relay_->answer_with([&followed, status](const auto& asked) -> std::optional<std::string> {
      if (asked.target.find("/elsewhere") != std::string::npos) {
        ++followed;
        return ok(R"({"now_ns":1,"what":"granted"})");
      }
      if (!is_about_locks(asked)) return std::nullopt;
      return serve_relay::reply(status, "", "Location: /elsewhere\r\n");
    });
    ASSERT_NO_FATAL_FAILURE(expect_no_lock(fmt::format("{}", status)));
  }
  EXPECT_EQ(followed, 0);
}

// ---- answers about something else

// Of a grant that is real, one field is changed.
TEST_F(serve_hostile, grants_that_do_not_fit_what_was_asked_are_none) {
  const auto change = [](std::string_view field, std::string_view to) {
    return
        [field = std::string{field}, to = std::string{to}](const auto& asked, std::string& answer) {
          if (asked.verb() != "enter" && asked.verb() != "settle") return;
          auto words = nlohmann::json::parse(serve_relay::body_of(answer), nullptr, false);
          if (!words.is_object() || !words.contains("grant")) return;
          words["grant"][field] = nlohmann::json::parse(to);
          serve_relay::set_body(answer, words.dump());
        };
  };
  for (const auto& [field, value] :
       std::vector<std::pair<std::string, std::string>>{{"owner", "4711"},
                                                        {"owner", "18446744073709551615"},
                                                        {"owner", "\"7\""},
                                                        {"token", "0"},
                                                        {"token", "-7"},
                                                        {"token", "1.5"},
                                                        {"token", "null"},
                                                        {"mode", "\"shared\""},
                                                        {"mode", "\"permits\""},
                                                        {"mode", "7"},
                                                        {"weight", "1"},
                                                        {"ttl_ns", "-1"},
                                                        {"ttl_ns", "0"},
                                                        {"age_ns", "-5000000000"},
                                                        {"age_ns", "3600000000000"}}) {
    relay_->edit_answers(change(field, value));
    ASSERT_NO_FATAL_FAILURE(expect_no_lock(field + " " + value));
  }
}

// ---- the time

// However far off its clock is said to be: a lease is never believed for longer than its ttl after it was asked for.
TEST_F(serve_hostile, lies_about_the_time_prolong_nothing) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t off : {std::int64_t{3'600'000'000'000}, most}) {
    relay_->edit_answers([off](const auto& asked, std::string& answer) {
      if (asked.verb().empty()) return;
      auto words = nlohmann::json::parse(serve_relay::body_of(answer), nullptr, false);
      if (!words.is_object() || !words.contains("now_ns")) return;
      const auto now = words["now_ns"].template get<std::int64_t>();
      words["now_ns"] = off == most ? most : now + off;
      serve_relay::set_body(answer, words.dump());
    });
    mutex lock{*client_, fresh_name()};
    auto held = lock.acquire({.wait = patience, .ttl = 2s});
    if (held) {
      EXPECT_LE(held->valid_until(), std::chrono::steady_clock::now() + 2s) << off;
      EXPECT_TRUE(is_proven(*service_, *held));
      static_cast<void>(held->release());
    }
    relay_->heal();
  }
  // And one that says it has granted for longer than it was asked to.
  relay_->edit_answers([](const auto& asked, std::string& answer) {
    auto words = nlohmann::json::parse(serve_relay::body_of(answer), nullptr, false);
    if (asked.verb() != "enter" || !words.is_object() || !words.contains("grant")) return;
    words["grant"]["ttl_ns"] = 3'600'000'000'000;
    serve_relay::set_body(answer, words.dump());
  });
  mutex lock{*client_, fresh_name()};
  const auto held = lock.acquire({.wait = patience, .ttl = 2s});
  ASSERT_TRUE(is_ok(held));
  EXPECT_LE(held->valid_until(), std::chrono::steady_clock::now() + 2s);
}

// Its clock is said to have been somewhere else for an instant, or ours was: it is looked at anew.
TEST_F(serve_hostile, clock_that_was_somewhere_else_does_not_stay_there) {
  for (const auto* now : {"1", "9000000000000000000"}) {
    relay_->answer_with(always(ok(fmt::format(R"({{"now_ns":{},"what":"busy"}})", now))));
    EXPECT_FALSE(mutex(*client_, fresh_name()).try_acquire());
    relay_->heal();
    mutex lock{*client_, fresh_name()};
    auto held = lock.acquire({.wait = patience, .ttl = 2s});
    ASSERT_TRUE(is_ok(held)) << now;
    EXPECT_TRUE(is_proven(*service_, *held)) << now;
    EXPECT_LE(held->valid_until(), std::chrono::steady_clock::now() + 2s) << now;
  }
}

// ---- renewals

// Whatever is said to a renewal that is no proof: the lease ends when its time is over, and says so.
TEST_F(serve_hostile, renewals_that_are_answered_with_nonsense_prove_nothing) {
  const auto a = client::open(relay_->url("grace=1s"), {.call_timeout = call_timeout});
  const auto proof_of = [](const std::string& leases) {
    return ok(R"({"now_ns":1,"leases":)" + leases + "}");
  };
  for (const auto& answer :
       {proof_of("[]"), proof_of("7"), proof_of("[{}]"), proof_of(R"([{"verdict":"perhaps"}])"),
        proof_of(R"([{"verdict":"held"}])"), proof_of(R"([{"verdict":"held","age_ns":-1}])"),
        ok("{}"), serve_relay::reply(301, "", "Location: /elsewhere\r\n")}) {
    mutex lock{a, fresh_name()};
    auto held = lock.acquire({.wait = patience, .ttl = 900ms});
    ASSERT_TRUE(is_ok(held)) << answer;
    const loss_recorder loss{*held};
    relay_->answer_with([answer](const auto& asked) {
      return asked.verb() == "renew" ? std::optional{answer} : std::nullopt;
    });
    const auto since = std::chrono::steady_clock::now();
    EXPECT_FALSE(held->renew()) << answer;
    expect_loss_on_time(*held, loss);
    EXPECT_LT(loss.when() - since, 2s) << answer;
    relay_->heal();
  }
}

// ---- events

// News that are none: of nobody, of somebody else, without an end, without sense. (That a session is over it may say:
// to end a lease is in its power, to make one up is not.)
TEST_F(serve_hostile, events_that_are_nonsense_are_no_grants_and_no_losses) {
  const auto other = client::open(service_->url());
  mutex theirs{other, "stock"}, ours{*client_, "stock"}, kept{*client_, "shelf"};
  auto holds = theirs.acquire({.ttl = 20s});
  ASSERT_TRUE(is_ok(holds));
  auto shelf = kept.acquire({.ttl = 20s});
  ASSERT_TRUE(is_ok(shelf));
  const loss_recorder loss{*shelf};
  std::atomic<std::uint64_t> owner{0};
  relay_->edit_answers([&owner](const auto& asked, const std::string&) {
    if (asked.verb() == "enter" && asked.bytes.find("\"stock\"") != std::string::npos)
      owner = number_in(asked.bytes, "owner");
  });
  auto waiting = acquire_later(ours, {.ttl = 20s});
  ASSERT_TRUE(one_waits(*service_, "stock"));
  ASSERT_TRUE(wait_until([&] { return owner > 0; }));
  const auto chunk = [](const std::string& text) {
    return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
  };
  const auto news = [&](const std::string& name, const std::string& data) {
    return chunk(fmt::format("event: {}\ndata: {}\n\n", name, data));
  };
  const auto grant = [](std::uint64_t of) {
    return fmt::format(
        R"({{"owner":{},"mode":"exclusive","weight":1,"token":9,"ttl_ns":9000000000,"age_ns":0}})",
        of);
  };
  const auto me = owner.load();
  for (const auto& one : std::vector<std::string>{
           news("progress", "{}"), news("progress", fmt::format(R"({{"owner":{}}})", me)),
           news("progress",
                fmt::format(R"({{"owner":{},"now_ns":1,"grant":{}}})", me, grant(me + 1))),
           news("progress", fmt::format(R"({{"owner":{},"grant":{}}})", me, grant(me))),
           news("progress", fmt::format(R"({{"owner":{},"now_ns":1,"grant":{{}}}})", me)),
           news("progress",
                fmt::format(R"({{"owner":{},"now_ns":1,"grant":{}}})", me + 77, grant(me + 77))),
           news("lost", R"({"owners":[123456789,"x",-1],"why":"because"})"),
           news("lost", R"({"owners":7})"), news("over", "{}"),
           news("changed", R"({"watch":4711})"), news("hello", "no json"),
           news("progress", std::string(100'000, '[')), chunk(std::string(3'000'000, 'x')),
           std::string{"zz\r\n"}, std::string(200'000, '\xff'), std::string{"0\r\n\r\n"}}) {
    const auto sent = std::make_shared<std::atomic<bool>>(false);
    relay_->edit_events([one, sent](const std::string& piece) {
      if (piece.find("HTTP/1.1") != std::string::npos || sent->exchange(true)) return piece;
      return piece + one;
    });
    // A renewal makes the service say something on the stream.
    ASSERT_TRUE(wait_until(
        [&] {
          static_cast<void>(shelf->renew());
          return sent->load() || is_ready(waiting);
        },
        2 * patience))
        << one.substr(0, 100);
    EXPECT_TRUE(stays_true([&] { return !is_ready(waiting) && shelf->valid(); }, 50ms))
        << one.substr(0, 100);
    ASSERT_FALSE(is_ready(waiting)) << one.substr(0, 100);
  }
  relay_->edit_events({});
  EXPECT_FALSE(loss.fired());
  EXPECT_TRUE(is_proven(*service_, *holds));
  EXPECT_TRUE(is_ok(holds->release()));
  const auto got = get(waiting);
  ASSERT_TRUE(is_ok(got));
  EXPECT_TRUE(is_proven(*service_, *got));
}

// ---- from the beginning

// There is no service there, or none that fits.
TEST_F(serve_hostile, what_is_no_service_cannot_be_opened_and_says_why) {
  const auto session = [](std::string_view grace, std::string_view more) {
    return ok(
        fmt::format(R"({{"session":"{0:032x}","client":"{0:032x}","grace_ms":{1},"now_ns":1{2}}})",
                    7, grace, more));
  };
  for (const auto& [answer, code] : std::vector<std::pair<std::string, errc>>{
           {"garbage\r\n\r\n", errc::protocol},
           {ok("{}"), errc::protocol},
           {ok(std::string(100'000, '[')), errc::protocol},
           {session("3000", ""), errc::protocol},
           {session("3000", ",\"capabilities\":{}"), errc::protocol},
           {session("0", ""), errc::protocol},
           {serve_relay::reply(301, "", "Location: http://127.0.0.1:1/\r\n"), errc::misconfigured},
           {serve_relay::reply(404, "not here", {}, "text/plain"), errc::misconfigured},
           {serve_relay::reply(401, "who are you", {}, "text/plain"), errc::denied},
           {serve_relay::reply(200, "<html></html>", {}, "text/html"), errc::protocol}}) {
    relay_->answer_with([answer = answer](const auto&) { return std::optional{answer}; });
    const auto begin = std::chrono::steady_clock::now();
    const auto opened = client::try_open(relay_->url());
    EXPECT_TRUE(refuses(opened, code, "", "127.0.0.1", "")) << answer.substr(0, 200);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 7s) << answer.substr(0, 200);
  }
}

// A proxy in between that keeps the stream of events to itself.
TEST_F(serve_hostile, service_whose_events_do_not_come_cannot_be_opened) {
  relay_->answer_with([](const auto& asked) -> std::optional<std::string> {
    if (!asked.is_stream()) return std::nullopt;
    return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: "
           "chunked\r\n\r\n";
  });
  const auto begin = std::chrono::steady_clock::now();
  const auto opened = client::try_open(relay_->url());
  EXPECT_TRUE(refuses(opened, errc::unavailable, "", "127.0.0.1", "events"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 7s);
}

}  // namespace
}  // namespace holdfast::testing

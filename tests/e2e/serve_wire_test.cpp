// `holdfast serve` and what is not, or not quite, a request; what browsers may do; and how much one client may have.
#include "e2e/serve_cli.hpp"

#include <holdfast/engine.hpp>

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace {

using e2e::header_in;
using e2e::http_line;
using e2e::http_request;
using e2e::json_in;
using e2e::said;
using nlohmann::json;
using serve_wire = e2e::serve_plain;
using namespace std::chrono_literals;
using namespace std::string_literals;

// ---- framing

class serve_bytes : public serve_wire {
 protected:
  // All of it at once, on a connection of its own.
  said told(std::string_view bytes) const {
    auto to = line();
    to.send(bytes);
    return to.hear();
  }
};

TEST_F(serve_bytes, a_request_may_come_byte_by_byte) {
  auto slow = line();
  for (const char c : http_request("POST", "/v1/locks/a:acquire", R"({"ttl":"60s"})"))
    ASSERT_TRUE(slow.send(std::string(1, c)));
  EXPECT_EQ(slow.hear().status, 200);
}

TEST_F(serve_bytes, a_body_may_come_in_chunks) {
  const auto answer = told(
      "POST /v1/locks/a:acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
      "\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"ttl\r\n8;x=y\r\n\":\"60s\"}\r\n0\r\n\r\n");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.number("ttl_ms"), 60'000U);
}

TEST_F(serve_bytes, several_requests_at_once_are_answered_in_their_order) {
  auto to = line();
  ASSERT_TRUE(to.send(http_request("GET", "/healthz") +
                      http_request("POST", "/v1/locks/a:acquire", "{}") +
                      http_request("GET", "/nothing") + http_request("GET", "/readyz")));
  std::string all;
  ASSERT_TRUE(to.hear_until(all, "ready\n"));
  std::vector<int> statuses;
  for (auto at = all.find("HTTP/1.1 "); at != std::string::npos; at = all.find("HTTP/1.1 ", at + 1))
    statuses.push_back(std::stoi(all.substr(at + 9, 3)));
  EXPECT_EQ(statuses, (std::vector<int>{200, 200, 404, 200}));
}

// More than the headers of one of them may be.
TEST_F(serve_bytes, many_requests_at_once_are_many_and_not_a_large_one) {
  constexpr int many = 200;
  std::string all, heard;
  for (int i = 0; i < many; ++i)
    all += http_request("POST", fmt::format("/v1/locks/{}:acquire", i), R"({"ttl":"60s"})");
  ASSERT_GT(all.size(), 16U * 1024);
  auto to = line();
  ASSERT_TRUE(to.send(all));
  ASSERT_TRUE(to.hear_until(heard, fmt::format(R"("name":"{}")", many - 1))) << heard;
  EXPECT_EQ(heard.find("HTTP/1.1 4"), std::string::npos) << heard;
}

TEST_F(serve_bytes, who_wants_to_be_told_to_go_on_is_told) {
  auto to = line();
  ASSERT_TRUE(
      to.send("POST /v1/locks/a:acquire HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue"
              "\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"));
  std::string all;
  ASSERT_TRUE(to.hear_until(all, "HTTP/1.1 100 Continue\r\n\r\n"));
  ASSERT_TRUE(to.send("{}"));
  EXPECT_EQ(to.hear().status, 200);
}

TEST_F(serve_bytes, an_older_client_is_answered_and_its_connection_ends) {
  const auto answer = told("GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(header_in(answer, "Connection"), "close");
}

// Whatever stands in front of the service may see the boundary elsewhere.
TEST_F(serve_bytes, what_could_be_read_in_two_ways_is_refused_and_the_connection_ends) {
  const auto post = "POST /v1/locks/a:acquire HTTP/1.1\r\nHost: localhost\r\n"s;
  for (const auto& bytes :
       {"hello\r\n\r\n"s, "GET\r\n\r\n"s, "GET / HTTP/3.0\r\nHost: localhost\r\n\r\n"s,
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"s,
        post + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        post + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
        post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        post + "Content-Length: -1\r\n\r\n", post + "Content-Length: 2x\r\n\r\n{}",
        post + "Content-Length : 2\r\n\r\n{}",
        post + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n",
        post + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx0\r\n\r\n",
        post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", post + "X: a\0b\r\n\r\n"s,
        post + "no colon\r\n\r\n", post + "Host: localhost\r\n\r\n",
        "GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"s,
        "GET * HTTP/1.1\r\nHost: localhost\r\n\r\n"s,
        "GET healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"s}) {
    const auto answer = told(bytes);
    EXPECT_EQ(answer.status, 400) << bytes << answer.body;
    EXPECT_EQ(header_in(answer, "Connection"), "close") << bytes;
    EXPECT_EQ(answer.text("code"), "bad_request") << bytes;
  }
  EXPECT_EQ(counts("a"), std::pair(0UL, 0UL));
}

TEST_F(serve_bytes, other_methods_are_405_without_a_body_where_there_must_be_none) {
  auto to = line();
  ASSERT_TRUE(to.send(http_request("HEAD", "/healthz")));
  const auto head = to.hear();
  EXPECT_EQ(head.status, 405);
  EXPECT_EQ(header_in(head, "Allow"), "GET");
  EXPECT_EQ(to.ask("GET", "/healthz").body, "alive\n");
  EXPECT_EQ(ask("OPTIONS", "/v1/locks").status, 405);
}

// ---- too much, too slow

TEST_F(serve_bytes, what_is_too_large_is_413_or_431) {
  const auto size = [](std::size_t body) {
    return http_request("POST", "/v1/locks/a:acquire", std::string(body, ' '));
  };
  EXPECT_EQ(told(size(64 * 1024)).status, 400);  // no JSON, but not too large
  const auto large = told(size(64 * 1024 + 1));
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(large.text("code"), "too_large");
  const auto said_only = told(
      "POST /v1/locks/a:acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
      "1073741824\r\n\r\n");
  EXPECT_EQ(said_only.status, 413);
  const std::string chunk = "4000\r\n" + std::string(0x4000, ' ') + "\r\n";
  EXPECT_EQ(told("POST /v1/locks/a:acquire HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
                 "chunked\r\n\r\n" +
                 chunk + chunk + chunk + chunk + chunk)
                .status,
            413);
  EXPECT_EQ(
      told(http_request("GET", "/healthz", {}, "X: " + std::string(15'000, 'x') + "\r\n")).status,
      200);
  EXPECT_EQ(
      told(http_request("GET", "/healthz", {}, "X: " + std::string(17'000, 'x') + "\r\n")).status,
      431);
  EXPECT_EQ(told(http_request("GET", "/" + std::string(17'000, 'x'))).status, 431);
  std::string many;
  for (int i = 0; i < 101; ++i) many += fmt::format("X-{}: 1\r\n", i);
  EXPECT_EQ(told(http_request("GET", "/healthz", {}, many)).status, 431);
  std::string behind;  // the body, and without an end
  for (int i = 0; i < 3'000; ++i) behind += fmt::format("X-{}: 1\r\n", i);
  EXPECT_EQ(told("POST /v1/locks/a:acquire HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
                 "chunked\r\n\r\n2\r\n{}\r\n0\r\n" +
                 behind)
                .status,
            431);
  EXPECT_EQ(ask("GET", "/healthz").status, 200);
}

class serve_limits : public e2e::serve_cli {};

TEST_F(serve_limits, a_request_that_takes_too_long_to_come_is_408) {
  start({.config = {"request-time = 300ms"}});
  for (const auto* part :
       {"G", "GET /healthz HTTP/1.1\r\nHost: local",
        "POST /lock HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{"}) {
    auto slow = line();
    ASSERT_TRUE(slow.send(part));
    const auto answer = slow.hear();
    EXPECT_EQ(answer.status, 408) << part;
    EXPECT_EQ(answer.text("code"), "slow_request");
    EXPECT_FALSE(slow.is_open());
  }
}

TEST_F(serve_limits, a_connection_without_a_request_ends) {
  start({.config = {"idle-time = 300ms"}});
  auto idle = line();
  EXPECT_EQ(idle.ask("GET", "/healthz").status, 200);
  std::string more;
  EXPECT_FALSE(idle.receive(more));
  EXPECT_EQ(more, "");
}

// A request that waits is not slow, and its connection not idle.
TEST_F(serve_limits, waiting_is_neither_slow_nor_idle) {
  start({.config = {"idle-time = 200ms", "request-time = 200ms"}});
  acquire("a");
  const auto late = acquire("a", R"({"wait":"2s"})");
  EXPECT_EQ(late.status, 408);
  EXPECT_EQ(late.text("code"), "timed_out");
}

TEST_F(serve_limits, one_lease_too_many_is_429_until_one_is_given_back) {
  start({.config = {"leases-per-key = 2"}});
  const auto first = acquire("a").text("lease");
  acquire("b");
  const auto refused = acquire("c");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.text("code"), "too_many");
  EXPECT_EQ(header_in(refused, "Retry-After"), "1");
  EXPECT_EQ(ask("POST", "/lock?name=c").status, 429);
  EXPECT_EQ(hold("c", "{}").status(), 429);
  EXPECT_EQ(counts("c"), std::pair(0UL, 0UL));
  release(first);
  EXPECT_EQ(ask("POST", "/v1/locks:acquire", R"({"names":["c","d"]})").status, 429);
  EXPECT_EQ(acquire("c").status, 200);
}

TEST_F(serve_limits, one_waiter_too_many_is_429_until_one_has_gone) {
  start({.config = {"waiters-per-key = 1"}});
  acquire("a");
  auto waiter = waiting("a", R"({"ttl":"60s","wait":"10m"})");
  ASSERT_TRUE(has_waiters("a", 1));
  EXPECT_EQ(acquire("a", R"({"wait":"1s"})").status, 429);
  EXPECT_EQ(acquire("a").status, 409);  // it does not wait
  waiter.drop();
  EXPECT_TRUE(e2e::eventually([&] { return acquire("a", R"({"wait":"10ms"})").status == 408; }));
}

TEST_F(serve_limits, one_reader_of_events_too_many_is_429_until_one_has_gone) {
  start({.config = {"watchers = 1"}});
  auto reader = events("/v1/events");
  reader.until("hello");
  EXPECT_EQ(ask("GET", "/v1/events").status, 429);
  reader.cut();
  EXPECT_TRUE(e2e::eventually([&] { return events("/v1/events").status() == 200; }));
}

TEST_F(serve_limits, one_connection_too_many_is_429_and_the_others_stay) {
  start({.config = {"connections-per-address = 2"}});
  auto one = line(), other = line();
  EXPECT_EQ(one.ask("GET", "/healthz").status, 200);
  EXPECT_EQ(other.ask("GET", "/healthz").status, 200);
  auto third = line();
  third.send("");
  const auto refused = third.hear();
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.text("code"), "too_many");
  EXPECT_EQ(one.ask("GET", "/healthz").status, 200);
  other.drop();
  EXPECT_TRUE(e2e::eventually([&] { return ask("GET", "/healthz").status == 200; }));
}

// ---- browsers

TEST_F(serve_bytes, a_name_that_somebody_made_to_lead_here_is_refused) {
  const auto with_host = [&](const std::string& host) {
    return told(fmt::format("GET /v1/locks HTTP/1.1\r\n{}\r\n", host));
  };
  for (const auto* host : {"Host: evil.example\r\n", "Host: evil.example:7420\r\n",
                           "Host: 127.0.0.1.evil.example\r\n", "Host:\r\n", ""}) {
    const auto refused = with_host(host);
    EXPECT_EQ(refused.status, 403) << host;
    EXPECT_EQ(refused.text("code"), "bad_host") << host;
  }
  for (const auto* host : {"localhost", "127.0.0.1:1", "[::1]"})
    EXPECT_EQ(with_host(fmt::format("Host: {}\r\n", host)).status, 200) << host;
}

TEST_F(serve_limits, a_host_that_was_named_is_answered) {
  start({.flags = {"--host", "locks.example,other.example"}});
  auto to = line();
  ASSERT_TRUE(to.send("GET /v1/locks HTTP/1.1\r\nHost: Locks.Example:8443\r\n\r\n"));
  EXPECT_EQ(to.hear().status, 200);
}

TEST_F(serve_bytes, a_page_of_somebody_else_takes_and_breaks_nothing) {
  for (const auto* headers :
       {"Origin: https://evil.example\r\n", "Origin: null\r\n", "Sec-Fetch-Site: cross-site\r\n",
        "Origin: http://localhost:1\r\nX-Holdfast-Intent: break\r\n"}) {
    for (const auto& [method, target] :
         std::vector<std::pair<const char*, const char*>>{{"POST", "/lock?name=a"},
                                                          {"POST", "/v1/locks/a:acquire"},
                                                          {"DELETE", "/v1/locks/a"},
                                                          {"PUT", "/v1/latches/a"}}) {
      const auto refused = ask(method, target, {}, headers);
      EXPECT_EQ(refused.status, 403) << method << target << headers;
      EXPECT_TRUE(e2e::has(refused.body, "bad_origin")) << refused.body;
    }
  }
  EXPECT_EQ(counts("a"), std::pair(0UL, 0UL));
}

TEST_F(serve_bytes, nothing_is_given_to_pages_of_others) {
  const auto answer = ask("GET", "/v1/locks", {}, "Origin: https://evil.example\r\n");
  EXPECT_EQ(answer.head.find("Access-Control-"), std::string::npos) << answer.head;
}

TEST_F(serve_bytes, every_answer_says_what_it_is_and_is_not_kept) {
  for (const auto* target : {"/", "/app.js", "/healthz", "/v1/locks", "/nothing", "/metrics"}) {
    const auto answer = ask("GET", target);
    EXPECT_EQ(header_in(answer, "X-Content-Type-Options"), "nosniff") << target;
    EXPECT_EQ(header_in(answer, "Cache-Control"), "no-store") << target;
    EXPECT_EQ(answer.head.find("Server:"), std::string::npos) << target;
  }
}

TEST_F(serve_bytes, the_page_runs_nothing_but_its_own_scripts) {
  const auto page = ask("GET", "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(header_in(page, "Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(page.body.find("<script>"), std::string::npos);
  EXPECT_EQ(page.body.find("style="), std::string::npos);
  EXPECT_EQ(page.body.find("//cdn"), std::string::npos);
  for (const auto* target : {"/", "/app.js", "/app.css"}) {
    const auto policy = header_in(ask("GET", target), "Content-Security-Policy");
    for (const auto* rule :
         {"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'",
          "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"})
      EXPECT_TRUE(e2e::has(policy, rule)) << target << ": " << policy;
    EXPECT_FALSE(e2e::has(policy, "unsafe")) << policy;
  }
}

TEST_F(serve_bytes, hostile_names_and_labels_come_back_as_text) {
  const auto got = ask("POST", "/v1/locks/%3Cimg%20src=x%20onerror=alert(1)%3E:acquire",
                       R"({"ttl":"60s","label":"</script>\u202e"})");
  EXPECT_EQ(got.status, 200) << got.body;
  for (const auto* target : {"/v1/locks", "/v1/waits", "/metrics"}) {
    const auto shown = ask("GET", target);
    for (const char c : shown.body)
      ASSERT_TRUE(c == '\n' || (c >= ' ' && c < 0x7f)) << target << shown.body;
    EXPECT_FALSE(header_in(shown, "Content-Type").starts_with("text/html")) << target;
  }
}

// ---- sessions, of which somebody may ask who is none of our clients

class serve_session : public serve_bytes {
 protected:
  said begin(const std::string& host) const {
    return ask("POST", "/v1/sessions",
               json{{"client", std::string(32, 'a')}, {"host", host}, {"grace_ms", 60'000}}.dump());
  }
  // A verb, in time.
  said act(const said& session, std::string_view verb, json words) const {
    words["by_ns"] = session.number("now_ns") + 3'600'000'000'000;
    return ask("POST", fmt::format("/v1/sessions/{}:{}", session.text("session"), verb),
               words.dump());
  }
  static json weights(std::string_view name, int owner, std::string_view mode, std::uint64_t weight,
                      std::uint64_t capacity) {
    return {{"name", name},     {"owner", owner},       {"mode", mode},
            {"weight", weight}, {"capacity", capacity}, {"ttl_ns", 60'000'000'000}};
  }
};

TEST_F(serve_session, its_host_is_one_that_can_be_shown) {
  for (const auto& host : {std::string(65, 'h'), std::string{"a\nb"}, std::string{"\x1b[2J"},
                           std::string{"\xc2\x9b"}, std::string{"a\0b", 3}})
    EXPECT_EQ(begin(host).status, 400) << host;
  EXPECT_EQ(begin(std::string(64, 'h')).status, 200);
  EXPECT_EQ(begin("caf\xc3\xa9").status, 200);
}

TEST_F(serve_session, what_is_held_can_only_shrink) {
  using holdfast::rw_capacity;
  const auto session = begin("here");
  ASSERT_EQ(session.status, 200) << session.body;
  const auto refuses = [&](std::string_view name, int owner, const char* to) {
    const auto answer = act(session, "downgrade", {{"name", name}, {"owner", owner}, {"to", to}});
    return answer.status == 400 && answer.text("code") == "misconfigured";
  };
  ASSERT_EQ(act(session, "enter", weights("read", 1, "shared", 1, rw_capacity)).status, 200);
  EXPECT_TRUE(refuses("read", 1, "upgradeable"));
  ASSERT_EQ(act(session, "enter", weights("pool", 2, "permits", 2, 3)).status, 200);
  EXPECT_TRUE(refuses("pool", 2, "shared"));
  EXPECT_TRUE(refuses("pool", 2, "upgradeable"));
  const auto pool = json_in(ask("GET", "/v1/locks/pool"));
  EXPECT_EQ(pool["holders"][0]["mode"], "permits") << pool;
  ASSERT_EQ(
      act(session, "enter", weights("stock", 3, "exclusive", rw_capacity, rw_capacity)).status,
      200);
  for (const auto* to : {"upgradeable", "upgradeable", "shared", "shared"})
    EXPECT_EQ(act(session, "downgrade", {{"name", "stock"}, {"owner", 3}, {"to", to}}).status, 200)
        << to;
  EXPECT_TRUE(refuses("stock", 3, "upgradeable"));
}

}  // namespace

#include "server/router.hpp"

#include "unit/serve/fakes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace holdfast::server {
namespace {

using testing::fake_exchange;
using header_list = fake_exchange::header_list;

// "test", as in keys_test.cpp; it may do everything. "narrow" may only acquire, below team/.
constexpr std::string_view two_keys =
    "all acquire,inspect,break * "
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n"
    "narrow acquire team/* "
    "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9\n";  // "hello world"

class serve_router : public ::testing::Test {
 protected:
  serve_router() {
    add("GET", "/v1/locks", scope::inspect, true);
    add("GET", "/v1/locks/{name}", scope::inspect);
    add("DELETE", "/v1/locks/{name}", scope::break_locks);
    add("POST", "/v1/locks/{name}:acquire", scope::acquire);
    add("POST", "/v1/locks:acquire", scope::acquire);
    add("GET", "/v1/leases/{lease}", scope::acquire);
    add("GET", "/v1/sessions/{session}/events", scope::any_key);
    add("GET", "/healthz", scope::open);
    routes.add({"POST", "/lock", scope::acquire,
                [this](visit from) { take("/lock", std::move(from)); }, true, true});
  }

  void add(std::string_view method, std::string_view pattern, scope needs, bool has_query = false) {
    routes.add({method, pattern, needs,
                [this, pattern](visit from) { take(std::string{pattern}, std::move(from)); },
                has_query});
  }
  void take(std::string pattern, visit from) {
    taken = std::move(pattern);
    parameter = from.parameter;
    from.answer("{}");
  }

  // The answer; what was called is in `taken`, empty when nothing was.
  response ask(std::string method, std::string target, header_list headers = {},
               std::string body = {}) {
    taken.clear();
    parameter.clear();
    if (std::ranges::none_of(headers, [](const auto& each) { return each.first == "Host"; }))
      headers.emplace_back("Host", "localhost:7420");
    const auto to = std::make_shared<fake_exchange>(std::move(method), std::move(target),
                                                    std::move(headers), std::move(body));
    routes.serve(to);
    EXPECT_TRUE(to->answered);
    return to->answered.value_or(response{0, "", {}, {}});
  }
  int status(std::string method, std::string target, header_list headers = {},
             std::string body = {}) {
    return ask(std::move(method), std::move(target), std::move(headers), std::move(body)).status;
  }

  key_ring keys;
  router routes{keys, {{"locks.example"}}};
  std::string taken, parameter;
};

class serve_router_keys : public serve_router {
 protected:
  serve_router_keys() { keys = key_ring::parse(two_keys, "keys").value(); }
  static header_list with(const std::string& shown) { return {{"Authorization", shown}}; }
};

// ---- where it leads

TEST_F(serve_router, names_may_have_slashes_colons_and_escapes) {
  struct row {
    const char *method, *target, *pattern, *parameter;
  };
  for (const auto& each :
       std::vector<row>{{"GET", "/v1/locks", "/v1/locks", ""},
                        {"GET", "/v1/locks/a", "/v1/locks/{name}", "a"},
                        {"GET", "/v1/locks/a/b", "/v1/locks/{name}", "a/b"},
                        {"GET", "/v1/locks/a%2Fb", "/v1/locks/{name}", "a/b"},
                        {"GET", "/v1/locks/a%3Aacquire", "/v1/locks/{name}", "a:acquire"},
                        {"GET", "/v1/locks/%2500", "/v1/locks/{name}", "%00"},
                        {"GET", "/v1/locks/%7Bname%7D", "/v1/locks/{name}", "{name}"},
                        {"GET", "/v1/locks/{}", "/v1/locks/{name}", "{}"},
                        {"POST", "/v1/locks/a:acquire", "/v1/locks/{name}:acquire", "a"},
                        {"POST", "/v1/locks/a:b:acquire", "/v1/locks/{name}:acquire", "a:b"},
                        {"POST", "/v1/locks/a/b:acquire", "/v1/locks/{name}:acquire", "a/b"},
                        {"POST", "/v1/locks/{}:acquire", "/v1/locks/{name}:acquire", "{}"},
                        {"POST", "/v1/locks:acquire", "/v1/locks:acquire", ""},
                        {"GET", "/v1/sessions/abc/events", "/v1/sessions/{session}/events", "abc"},
                        {"GET", "/v1/leases/abc", "/v1/leases/{lease}", "abc"}}) {
    EXPECT_EQ(status(each.method, each.target), 200) << each.target;
    EXPECT_EQ(taken, each.pattern) << each.target;
    EXPECT_EQ(parameter, each.parameter) << each.target;
  }
}

TEST_F(serve_router, what_is_nowhere_is_404) {
  for (const auto* target :
       {"/", "/v1", "/v1/", "/v1/locks/", "/v1/locks/a:nonsense", "/v1/locks/{name}:nonsense",
        "/V1/locks", "//v1/locks", "/v1//locks", "/v1/sessions/a/other", "/v1/sessions/a",
        "/healthz/", "/healthz/x", "/lock/", "/v1/locks%2Fa", ""}) {
    EXPECT_EQ(status("GET", target), 404) << target;
    EXPECT_EQ(taken, "") << target;
  }
}

TEST_F(serve_router, a_name_that_is_none_is_400) {
  for (const auto* name : {"a//b", "../a", "a/../b", "a/.", "%2e%2e", "a%2F..%2Fb", "%00", "a%0Ab",
                           "%ff", "a/", "%20a", "%c0%af", "%", "%4", "a%zz"})
    EXPECT_EQ(status("GET", std::string{"/v1/locks/"} + name), 400) << name;
  EXPECT_EQ(status("GET", "/v1/locks/" + std::string(256, 'a')), 400);
  EXPECT_EQ(status("GET", "/v1/locks/" + std::string(255, 'a')), 200);
}

TEST_F(serve_router, another_method_is_405_and_hears_which_there_are) {
  const auto answer = ask("PUT", "/v1/locks/a");
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.headers,
            (std::vector<std::pair<std::string_view, std::string>>{{"Allow", "GET, DELETE"}}));
  for (const auto* method : {"HEAD", "OPTIONS", "get", "PATCH", ""})
    EXPECT_EQ(status(method, "/v1/locks/a"), 405) << method;
}

// ---- what comes with it

TEST_F(serve_router, a_body_must_say_that_it_is_json) {
  const auto told = [&](const char* kind) {
    return status("POST", "/v1/locks/a:acquire", {{"Content-Type", kind}}, "{}");
  };
  for (const auto* kind : {"application/json", "Application/JSON",
                           "application/json; charset=utf-8", "application/json ;x"})
    EXPECT_EQ(told(kind), 200) << kind;
  // A page can send the first three without being asked for permission.
  for (const auto* kind : {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
                           "application/jsonp", "text/json", ""})
    EXPECT_EQ(told(kind), 415) << kind;
  EXPECT_EQ(status("POST", "/v1/locks/a:acquire", {}, "{}"), 415);
  EXPECT_EQ(status("POST", "/v1/locks/a:acquire"), 200);
  EXPECT_EQ(status("POST", "/lock?name=a", {{"Content-Type", "application/json"}}, "{}"), 415);
}

TEST_F(serve_router, a_query_stands_only_where_it_means_something) {
  EXPECT_EQ(status("GET", "/v1/locks?prefix=a"), 200);
  EXPECT_EQ(status("GET", "/v1/locks/a?prefix=a"), 400);
  EXPECT_EQ(status("POST", "/v1/locks/a:acquire?ttl=1s"), 400);
  EXPECT_EQ(status("GET", "/v1/locks?a=1&a=2"), 400);
  EXPECT_EQ(status("GET", "/v1/locks?a=%"), 400);
  EXPECT_EQ(status("GET", "/v1/locks/a?"), 200);
}

TEST_F(serve_router, the_plain_calls_are_refused_in_text) {
  EXPECT_EQ(ask("POST", "/lock?name=a", {}, "x").content_type, "text/plain; charset=utf-8");
  EXPECT_EQ(ask("POST", "/v1/locks/a:acquire", {}, "x").content_type, "application/problem+json");
}

// ---- browsers

TEST_F(serve_router, only_hosts_that_are_ours_are_answered) {
  const auto told = [&](const char* host) { return status("GET", "/healthz", {{"Host", host}}); };
  for (const auto* host : {"localhost", "LocalHost:7420", "127.0.0.1", "127.0.0.1:80", "[::1]:7420",
                           "10.1.2.3", "locks.example", "LOCKS.example:443", "a.localhost"})
    EXPECT_EQ(told(host), 200) << host;
  for (const auto* host :
       {"evil.example", "evil.example:7420", "locks.example.evil", "xlocks.example",
        "127.0.0.1.evil.example", "localhost.evil", "notlocalhost", "", ":7420"})
    EXPECT_EQ(told(host), 403) << host;
}

TEST_F(serve_router, a_page_of_somebody_else_changes_nothing) {
  const auto told = [&](header_list headers) {
    headers.emplace_back("Host", "localhost:7420");
    return status("POST", "/v1/locks/a:acquire", std::move(headers));
  };
  EXPECT_EQ(told({}), 200);
  EXPECT_EQ(told({{"Origin", "http://localhost:7420"}}), 200);
  EXPECT_EQ(told({{"Origin", "https://LOCALHOST:7420"}}), 200);
  EXPECT_EQ(told({{"Sec-Fetch-Site", "same-origin"}}), 200);
  for (const auto* origin :
       {"null", "http://evil.example", "http://localhost", "http://localhost:7421",
        "http://localhost:7420.evil", "localhost:7420", "http://localhost:7420/", "://"})
    EXPECT_EQ(told({{"Origin", origin}}), 403) << origin;
  for (const auto* site : {"cross-site", "same-site"}) {
    EXPECT_EQ(told({{"Sec-Fetch-Site", site}}), 403) << site;
    EXPECT_EQ(told({{"Sec-Fetch-Site", site}, {"Origin", "http://localhost:7420"}}), 403) << site;
  }
}

// ---- keys

TEST_F(serve_router_keys, without_a_key_that_is_known_it_is_401) {
  for (const auto* shown : {"", "Bearer", "Bearer ", "Bearer wrong", "Basic dGVzdA==", "test",
                            "Bearer  test", "Bearer test ", "Bearertest"}) {
    const auto answer = ask("GET", "/v1/locks/a", with(shown));
    EXPECT_EQ(answer.status, 401) << shown;
    EXPECT_EQ(taken, "") << shown;
  }
  EXPECT_EQ(status("GET", "/v1/locks/a", with("Bearer test")), 200);
  EXPECT_EQ(status("GET", "/v1/locks/a", with("bearer test")), 200);
  EXPECT_EQ(status("GET", "/healthz"), 200);
}

TEST_F(serve_router_keys, a_key_does_what_its_scopes_and_its_prefix_allow) {
  const auto narrow = with("Bearer hello world");
  EXPECT_EQ(status("POST", "/v1/locks/team/a:acquire", narrow), 200);
  EXPECT_EQ(status("POST", "/v1/locks/team%2Fa:acquire", narrow), 200);
  EXPECT_EQ(status("POST", "/v1/locks/other:acquire", narrow), 403);
  EXPECT_EQ(status("POST", "/v1/locks/teams/a:acquire", narrow), 403);
  EXPECT_EQ(status("GET", "/v1/locks/team/a", narrow), 403);
  EXPECT_EQ(status("DELETE", "/v1/locks/team/a", narrow), 403);
  EXPECT_EQ(status("GET", "/v1/sessions/a/events", narrow), 200);
}

TEST_F(serve_router_keys, listing_is_narrowed_to_the_names_of_the_key) {
  const auto& team = keys.all().at(1);
  const auto told = [&](const std::string& text) {
    const auto to = std::make_shared<fake_exchange>("GET", "/v1/locks");
    return narrowed(visit{to, &team, {}, query{text}, false, {}});
  };
  EXPECT_EQ(told(""), "team/");
  EXPECT_EQ(told("prefix=te"), "team/");
  EXPECT_EQ(told("prefix=team/x"), "team/x");
  for (const auto* text : {"prefix=other", "prefix=teams", "prefix=TEAM/"})
    EXPECT_EQ(testing::status_of([&] { told(text); }), 403) << text;
}

// ---- what a handler throws

TEST_F(serve_router, what_a_handler_refuses_is_told) {
  routes.add({"GET", "/throws", scope::open, [](const visit&) { throw refused(too_many("x")); }});
  routes.add({"GET", "/fails", scope::open, [](const visit&) {
                throw lock_error{{errc::unavailable, "the store is away"}};
              }});
  EXPECT_EQ(status("GET", "/throws"), 429);
  EXPECT_EQ(status("GET", "/fails"), 503);
}

}  // namespace
}  // namespace holdfast::server

// What breaks here: certificates, keys and rights; and everything at once under a canary. What must hold: over TLS
// nobody but the right service is talked to; whoever is not allowed is told so (denied), and it is not tried again;
// keys and lease ids, which are what a lock hangs on, come out nowhere: not in logs, events, metrics, errors, views
// of others, nor in what the service keeps.
#include "faults/canary.hpp"
#include "faults/serve_faults.hpp"

#include "support/process.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace holdfast::testing {
namespace {

class serve_secrets : public serve_faults {};

std::string url_with_key(const serve_process& service, std::string_view key,
                         std::string_view rest = {}) {
  return fmt::format("http://:{}@127.0.0.1:{}{}", key, service.port(), rest);
}

// ---- TLS

void expect_distrust_of_serve(const std::string& url, std::string_view because) {
  const auto opened = client::try_open(url, {.call_timeout = 2s});
  EXPECT_TRUE(refuses(opened, errc::misconfigured, "", "https://", because));
}

TEST_F(serve_secrets, right_service_over_tls_and_no_other) {
  serve_process service{{.tls = true}};
  const auto url = service.url() + "?ca_file=" + service.ca_file();
  const auto a = client::open(url), b = client::open(url);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 2s});
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(one_waits(service, "stock"));
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 2500ms)) << "renewed";
  service.restart();
  EXPECT_TRUE(wait_until([&] { return held->renew().has_value(); }));
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(get(waiting)));
  expect_distrust_of_serve(service.url(), "certificate");
  expect_distrust_of_serve(url + "&server_name=other.example", "certificate");
  expect_distrust_of_serve(service.url() + "?ca_file=/nonexistent.pem", "/nonexistent.pem");
  const temp_dir dir;
  const certificate_authority stranger{dir.path()};
  expect_distrust_of_serve(service.url() + "?ca_file=" + stranger.file(), "certificate");
  EXPECT_FALSE(
      client::try_open(fmt::format("http://127.0.0.1:{}", service.port()), {.call_timeout = 2s}));
  const serve_process plain;
  EXPECT_FALSE(
      client::try_open(fmt::format("https://127.0.0.1:{}", plain.port()), {.call_timeout = 2s}));
}

TEST_F(serve_secrets, service_that_asks_for_our_certificate_gets_it) {
  const serve_process service{{.tls = true, .client_certificates = true}};
  const auto ours = service.authority().issue("client", "DNS:client");
  const auto url = service.url() + "?ca_file=" + service.ca_file();
  const auto opened = client::try_open(url + "&cert_file=" + ours.file + "&key_file=" + ours.key);
  ASSERT_TRUE(is_ok(opened));
  EXPECT_TRUE(is_ok(mutex(*opened, "stock").acquire({.wait = patience})));
  EXPECT_FALSE(client::try_open(url, {.call_timeout = 2s}));
}

// ---- keys and rights

TEST_F(serve_secrets, key_that_is_missing_wrong_or_too_weak_is_denied_and_not_tried_again) {
  const serve_process service{{.keys = {key_line("ours", "acquire", "ours/*", "key-of-ours"),
                                        key_line("looks", "inspect", "*", "key-that-looks")}}};
  EXPECT_TRUE(fails_with(client::try_open(service.url()), errc::denied));
  EXPECT_TRUE(fails_with(client::try_open(url_with_key(service, "wrong")), errc::denied));
  for (const auto* key : {"key-of-ours", "key-that-looks"}) {
    const auto a = client::open(url_with_key(service, key));
    mutex lock{a, "others/stock"};
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(fails_with(lock.acquire({.wait = patience}), errc::denied)) << key;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s) << "that does not change by waiting";
    EXPECT_TRUE(fails_with(a.revoke("others/stock"), errc::denied)) << key;
  }
  const auto ours = client::open(url_with_key(service, "key-of-ours"));
  EXPECT_TRUE(is_ok(mutex(ours, "ours/stock").acquire({.wait = patience})));
  EXPECT_TRUE(fails_with(ours.list(), errc::denied));
}

// A lease id is worth nothing with another key, whatever that key may do; nor is the id of a session.
TEST_F(serve_secrets, ids_of_one_key_are_nothing_with_another) {
  const serve_process service{{.keys = {key_line("one", "acquire,inspect,break", "*", "key-one"),
                                        key_line("two", "acquire,inspect,break", "*", "key-two")}}};
  http_line one{service.port(), patience, bearer("key-one")},
      two{service.port(), patience, bearer("key-two")}, none{service.port()};
  const auto held = one.acquire("stock", 0s, 20s, "job");
  ASSERT_EQ(held.status, 200) << held.body;
  const auto id = held.text("lease");
  EXPECT_EQ(two.renew(id).status, 404);
  EXPECT_EQ(two.release(id).status, 404);
  EXPECT_EQ(two.ask("GET", "/v1/leases/" + id).status, 404);
  EXPECT_EQ(two.acquire("stock", 0s, 20s, "job").status, 409) << "its request_id is another's";
  EXPECT_EQ(none.release(id).status, 401);
  const auto begun = one.ask("POST", "/v1/sessions",
                             R"({"client":"0123456789abcdef0123456789abcdef","grace_ms":5000})");
  ASSERT_EQ(begun.status, 200) << begun.body;
  const auto path = "/v1/sessions/" + begun.text("session");
  EXPECT_EQ(two.ask("DELETE", path).status, 404);
  EXPECT_EQ(two.ask("POST", path + ":renew", R"({"leases":[],"by_ns":1})").status, 404);
  EXPECT_EQ(two.ask("GET", path + "/events").status, 404);
  const auto same = two.ask("POST", "/v1/sessions",
                            R"({"client":"0123456789abcdef0123456789abcdef","grace_ms":5000})");
  EXPECT_NE(same.text("client"), begun.text("client")) << "the same secret with another key";
  EXPECT_TRUE(is_proven(service, "stock", held.number("token")));
  EXPECT_EQ(one.release(id).status, 204);
}

// ---- the canary

class serve_canary : public serve_secrets, protected canary_listener {
 protected:
  void TearDown() override { expect_silence(); }
  void hear_files(const std::filesystem::path& folder) {
    for (const auto& one : std::filesystem::recursive_directory_iterator{folder})
      if (one.is_regular_file()) hear(text_of_file(one.path().string()));
  }
  void hear_all_of(const said& answer) { hear(answer.head), hear(answer.body); }
};

TEST_F(serve_canary, key_of_every_origin_is_used_and_not_shown) {
  serve_process service{{.keys = {key_line("app", "acquire,inspect,break", "*", canary)}}};
  const temp_dir dir;
  std::ofstream{dir.file("key")} << canary << '\n';
  ::setenv("HF_TEST_CANARY", canary.c_str(), 1);
  for (const auto& url : {url_with_key(service, canary, "?grace=1s"),
                          service.url() + "?grace=1s&password_file=" + dir.file("key"),
                          service.url() + "?grace=1s&password_env=HF_TEST_CANARY"}) {
    const auto told = std::make_shared<listening_observer>();
    auto opened = client::try_open(url, {.call_timeout = 1s, .observer = told});
    ASSERT_TRUE(is_ok(opened));
    hear(opened->url());
    ASSERT_NO_FATAL_FAILURE(hear_outage(service, url, *opened, 2s));
    hear(told->heard());
    EXPECT_NE(told->heard().find("stock"), std::string::npos);
  }
  ::unsetenv("HF_TEST_CANARY");
  for (const auto& wrong : {canary + "-wrong", "wrong-" + canary})
    hear(client::try_open(url_with_key(service, wrong)));
  for (const auto* address :
       {"http://:{}@127.0.0.1:99999", "http://:{}@127.0.0.1:1?graze=1s",
        "http://:{}@127.0.0.1:1?ca_file=/x", "http://:{}@127.0.0.1:1?grace=1ms",
        "http://:{}@127.0.0.1:1?password_env=NONE", "http://app:{}@127.0.0.1:1", "http://:{}@",
        "http://:{}%zz@127.0.0.1:1", "htttp://:{}@127.0.0.1:1",
        "http://:{}@127.0.0.1:1,127.0.0.1:2", "http://:{}@nowhere.invalid",
        "http://:{}@127.0.0.1:1/a//b", "http://:{}\n@127.0.0.1:1"}) {
    const auto opened =
        client::try_open(fmt::format(fmt::runtime(address), canary), {.call_timeout = 1s});
    EXPECT_FALSE(opened) << address;
    hear(opened);
  }
  hear(service.log());
  hear_files(service.state());
  hear(text_of_file(service.file("keys")));
}

// Shown in every wrong place where a client might put it, and in the right one.
TEST_F(serve_canary, key_is_in_nothing_that_the_service_says_or_keeps) {
  serve_process service{{.keys = {key_line("app", "acquire,inspect,break", "*", canary)}}};
  http_line line{service.port(), patience, bearer(canary)},
      events{service.port(), patience, bearer(canary)};
  std::string heard;
  ASSERT_TRUE(events.send(http_request("GET", "/v1/events", {}, bearer(canary))));
  ASSERT_TRUE(events.hear_until(heard, "event: hello"));
  const auto held = line.acquire("stock", 0s, 20s, "job");
  ASSERT_EQ(held.status, 200) << held.body;
  hear_all_of(held);
  for (const auto* path : {"/metrics", "/v1/locks", "/v1/locks/stock", "/v1/waits", "/v1/store",
                           "/v1/doctor", "/v1/stats", "/v1/nothing", "/openapi.json"})
    hear_all_of(line.ask("GET", path));
  for (const auto& headers : {fmt::format("Authorization: Basic {}\r\n", canary),
                              fmt::format("Authorization: {}\r\n", canary), bearer(canary + "x"),
                              fmt::format("X-Key: {}\r\n", canary), bearer("\"" + canary)}) {
    http_line wrong{service.port(), patience, headers};
    const auto said = wrong.acquire("stock", 0s, 20s);
    EXPECT_EQ(said.status, 401) << headers;
    hear_all_of(said);
  }
  const auto broken =
      http_line{service.port(), patience, bearer(canary) + "X-Holdfast-Intent: break\r\n"}.ask(
          "DELETE", "/v1/locks/stock");
  EXPECT_EQ(broken.status, 200) << broken.body;
  hear_all_of(broken);
  ASSERT_TRUE(events.hear_until(heard, "event: broken"));
  hear(heard);
  EXPECT_NE(service.log().find("audit: break"), std::string::npos) << service.log();
  events.drop();
  service.terminate();
  EXPECT_EQ(service.wait(2 * patience), 0);
  service.restart();
  hear(service.log());
  hear(text_of_file(fmt::format("/proc/{}/cmdline", service.pid())));
  hear(text_of_file(fmt::format("/proc/{}/environ", service.pid())));
  hear_files(service.state());
}

// Whoever knows one can give the lock of another back. So it is told to its client, and to nobody else.
TEST_F(serve_secrets, lease_and_session_ids_are_told_to_their_clients_only) {
  serve_process service{{.keys = {key_line("one", "acquire", "*", "key-one"),
                                  key_line("two", "acquire,inspect,break", "*", "key-two")}}};
  http_line one{service.port(), patience, bearer("key-one")},
      two{service.port(), patience, bearer("key-two")};
  http_line events{service.port(), patience}, keeps{service.port(), patience};
  std::string heard, kept, everything;
  ASSERT_TRUE(events.send(http_request("GET", "/v1/events", {}, bearer("key-two"))));
  ASSERT_TRUE(events.hear_until(heard, "event: hello"));
  std::vector<std::string> ids;
  for (const auto* name : {"stock", "shelf", "third"}) {
    const auto held =
        one.acquire(name, 0s, name == std::string_view{"third"} ? 300ms : nanoseconds{20s},
                    fmt::format("request-of-{}", name));
    ASSERT_EQ(held.status, 200) << held.body;
    ids.push_back(held.text("lease"));
  }
  ASSERT_TRUE(keeps.send(
      http_request("POST", "/v1/locks/fourth:hold", acquire_body(0s, 20s), bearer("key-one"))));
  ASSERT_TRUE(keeps.hear_until(kept, "\"lease\":\""));
  ASSERT_TRUE(keeps.hear_until(kept, "valid_ms"));
  ids.push_back(text_in(kept, "lease"));
  const auto begun = one.ask("POST", "/v1/sessions",
                             R"({"client":"0123456789abcdef0123456789abcdef","grace_ms":5000})");
  ASSERT_EQ(begun.status, 200) << begun.body;
  ids.push_back(begun.text("session"));
  ids.push_back("0123456789abcdef0123456789abcdef");
  const auto listen = [&](const said& answer) { everything += answer.head + answer.body; };
  listen(two.acquire("stock", 0s, 20s));
  for (const auto* path : {"/metrics", "/v1/locks", "/v1/locks/stock", "/v1/locks/fourth",
                           "/v1/waits", "/v1/stats", "/v1/store", "/v1/doctor"})
    listen(two.ask("GET", path));
  for (const auto& id : ids) {
    // What was asked for may be in nothing that is said about it, either.
    const auto refused = two.ask("GET", "/v1/leases/" + id);
    EXPECT_EQ(refused.status, 404);
    listen(refused);
    listen(two.ask("POST", "/unlock?lease=" + id));
    listen(two.ask("POST", "/v1/sessions/" + id + ":renew", "{}"));
  }
  ASSERT_TRUE(events.hear_until(heard, "not renewed it within its ttl")) << "one ends by its ttl";
  listen(
      http_line{service.port(), patience, bearer("key-two") + "X-Holdfast-Intent: break\r\n"}.ask(
          "DELETE", "/v1/locks/shelf"));
  ASSERT_TRUE(events.hear_until(heard, "event: broken"));
  keeps.reset();
  ASSERT_TRUE(events.hear_until(heard, "its connection has ended"));
  service.restart();
  everything += heard + service.log();
  for (const auto& from : std::filesystem::recursive_directory_iterator{service.state()})
    if (from.is_regular_file()) everything += text_of_file(from.path().string());
  everything += text_of_file(service.file("store"));
  for (const auto& one_id : ids) {
    ASSERT_EQ(one_id.size(), 32U);
    EXPECT_EQ(everything.find(one_id), std::string::npos) << one_id;
  }
  for (const auto* request : {"request-of-stock", "request-of-shelf"})
    EXPECT_EQ(everything.find(request), std::string::npos) << request;
}

}  // namespace
}  // namespace holdfast::testing

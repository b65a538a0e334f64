// What breaks here: certificates, tokens and rights. What must hold: over TLS nobody but the right server is talked to;
// whoever is not allowed is told so (denied) with a sentence that names the lock and the store, and retrying is not
// tried; the token comes out nowhere.
#include "faults/canary.hpp"
#include "faults/consul_faults.hpp"
#include "unit/net/certificates.hpp"

#include "support/temp_dir.hpp"

#include <cstdlib>
#include <fstream>

namespace holdfast::testing {
namespace {

class consul_secrets : public consul_faults {};

// ---- TLS

TEST_F(consul_secrets, right_cluster_over_tls) {
  const consul_server cluster{{.nodes = 3, .tls = true}};
  const auto url = cluster.url() + "?ca_file=" + cluster.ca_file();
  const auto a = client::open(url), b = client::open(url);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 2s});
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_until([&] { return a.inspect("stock").value().waiters.size() == 1; }));
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 2500ms)) << "renewed";
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(get(waiting)));
}

// What the sentence says, for whoever has to set this up.
void expect_distrust_of_consul(const std::string& url, std::string_view because) {
  const auto opened = client::try_open(url, {.call_timeout = 2s});
  EXPECT_TRUE(refuses(opened, errc::misconfigured, "", "consuls://", because));
}

TEST_F(consul_secrets, server_with_anothers_certificate_is_refused) {
  const consul_server server{{.tls = true, .certified = "DNS:db.example"}};
  const auto url = server.url() + "?ca_file=" + server.ca_file();
  expect_distrust_of_consul(url, "certificate");
  expect_distrust_of_consul(url + "&server_name=other.example", "certificate");
  EXPECT_TRUE(is_ok(client::try_open(url + "&server_name=db.example")));
}

TEST_F(consul_secrets, server_of_an_unknown_authority_is_refused) {
  const consul_server server{{.tls = true}};
  expect_distrust_of_consul(server.url(), "certificate");
  const temp_dir dir;
  const certificate_authority stranger{dir.path()};
  expect_distrust_of_consul(server.url() + "?ca_file=" + stranger.file(), "certificate");
}

TEST_F(consul_secrets, expired_certificate_is_refused) {
  const temp_dir dir;
  const identity ca{{.subject = "ca", .is_ca = true}};
  const identity old{{.subject = "db",
                      .names = "IP:127.0.0.1",
                      .issuer = &ca,
                      .valid_from = -7200,
                      .valid_until = -3600}};
  const auto ca_file = ca.write_certificate(dir.file("ca.crt"));
  const consul_server server{{.tls = true,
                              .certificate = certificate{old.write_certificate(dir.file("old.crt")),
                                                         old.write_key(dir.file("old.key"))},
                              .ca_file = ca_file}};
  expect_distrust_of_consul(server.url() + "?ca_file=" + ca_file, "expired");
}

TEST_F(consul_secrets, missing_or_unusable_tls_files_are_named) {
  const consul_server server{{.tls = true}};
  const auto url = server.url() + "?ca_file=";
  expect_distrust_of_consul(url + "/nonexistent.pem", "/nonexistent.pem");
  expect_distrust_of_consul(url + server.ca_file() + "&cert_file=/nonexistent.crt",
                            "/nonexistent.crt");
}

TEST_F(consul_secrets, server_that_asks_for_our_certificate_gets_it) {
  const consul_server server{{.tls = true, .client_certificates = true}};
  const auto ours = server.authority().issue("client", "DNS:client");
  const auto url = server.url() + "?ca_file=" + server.ca_file();
  const auto opened = client::try_open(url + "&cert_file=" + ours.file + "&key_file=" + ours.key);
  ASSERT_TRUE(is_ok(opened));
  EXPECT_TRUE(is_ok(mutex(*opened, "stock").acquire({.wait = patience})));
  EXPECT_FALSE(client::try_open(url, {.call_timeout = 2s}));
}

// Either side speaks what the other does not.
TEST_F(consul_secrets, tls_where_there_is_none_and_the_other_way_round) {
  const consul_server plain, secure{{.tls = true}};
  const auto at = [](const consul_server& of) { return "127.0.0.1:" + std::to_string(of.port()); };
  EXPECT_FALSE(client::try_open("consuls://" + at(plain), {.call_timeout = 2s}));
  EXPECT_FALSE(client::try_open("consul://" + at(secure), {.call_timeout = 2s}));
}

// ---- tokens and rights

constexpr auto full_rights =
    R"(key_prefix "locks/" { policy = "write" } session_prefix "" { policy = "write" })";
constexpr auto master = "01234567-89ab-cdef-0123-456789abcdef";

std::string with_token(const consul_server& server, const std::string& token,
                       const std::string& rest = "/locks") {
  return fmt::format("consul://{}{}127.0.0.1:{}{}", token.empty() ? "" : ":" + token,
                     token.empty() ? "" : "@", server.port(), rest);
}

// Opening may look at the server or not; the first lock certainly does.
void expect_denied(const consul_server& server, const std::string& token) {
  const auto at = "127.0.0.1:" + std::to_string(server.port());
  const auto opened = client::try_open(with_token(server, token));
  if (!opened) {
    EXPECT_TRUE(refuses(opened, errc::denied, "", at, ""));
    return;
  }
  mutex lock{*opened, "stock"};
  EXPECT_TRUE(refuses(lock.try_acquire(), errc::denied, "stock", at, ""));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(refuses(lock.acquire({.wait = patience}), errc::denied, "stock", at, ""));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s) << "that does not change by waiting";
}

TEST_F(consul_secrets, token_that_is_missing_wrong_or_too_weak) {
  const consul_server server{{.master_token = master}};
  expect_denied(server, "");
  expect_denied(server, "ffffffff-89ab-cdef-0123-456789abcdef");
  expect_denied(server, server.make_token(R"(key_prefix "locks/" { policy = "read" }
                                             session_prefix "" { policy = "write" })"));
  expect_denied(server, server.make_token(R"(key_prefix "others/" { policy = "write" }
                                             session_prefix "" { policy = "write" })"));
  expect_denied(server, server.make_token(R"(key_prefix "locks/" { policy = "write" })"));
  EXPECT_TRUE(server.keys("locks/").empty()) << "nobody has left anything";
}

// Everything that the layout can do, once, with the rights to one prefix and to sessions.
TEST_F(consul_secrets, rights_to_one_prefix_and_to_sessions_are_enough) {
  const consul_server server{{.master_token = master}};
  const auto url = with_token(server, server.make_token(full_rights));
  const auto a = client::open(url), b = client::open(url);
  mutex ours{a, "stock/sku-42"}, theirs{b, "stock/sku-42"};
  auto held = ours.acquire();
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_until([&] { return a.inspect("stock/sku-42").value().waiters.size() == 1; }));
  EXPECT_TRUE(is_ok(held->renew()));
  EXPECT_TRUE(is_ok(held->release()));
  auto other = get(waiting);
  ASSERT_TRUE(is_ok(other));
  EXPECT_EQ(a.list().value().size(), 1U);
  EXPECT_EQ(a.revoke("stock/sku-42").value(), 1U);
  EXPECT_TRUE(wait_until([&] { return !other->valid(); }));
  shared_mutex table{a, "table"};
  EXPECT_TRUE(is_ok(table.acquire_shared({})));
  counting_semaphore seats{a, "seats", 2};
  EXPECT_TRUE(is_ok(seats.acquire_permits(2, {})));
  latch ready{a, "ready", 1};
  EXPECT_TRUE(is_ok(ready.count_down()));
  for (const auto& key : server.keys("")) EXPECT_TRUE(key.starts_with("locks/")) << key;
}

// A deleted token counts until the servers look again: 30 s, unless they are told otherwise.
TEST_F(consul_secrets, token_that_is_deleted_is_denied_and_the_lease_ends_with_words) {
  const consul_server server{
      {.master_token = master, .config = {R"({"acl": {"token_ttl": "0s"}})"}}};
  const auto token = server.make_token(full_rights);
  const auto told = std::make_shared<listening_observer>();
  const auto a = client::open(with_token(server, token), {.observer = told});
  mutex lock{a, "stock"}, other{a, "shelf"};
  auto held = lock.acquire({.ttl = 4s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  server.erase_token(token);
  EXPECT_TRUE(fails_with(other.acquire({.wait = patience}), errc::denied));
  EXPECT_TRUE(wait_until([&] { return loss.fired(); }, 2 * patience));
  EXPECT_FALSE(held->valid());
  EXPECT_EQ(told->heard().find(token), std::string::npos) << told->heard();
}

// ---- the canary

class consul_canary : public consul_secrets, protected canary_listener {
  void TearDown() override { expect_silence(); }
};

TEST_F(consul_canary, token_of_every_origin_is_used_and_not_shown) {
  consul_server server{{.master_token = canary}};
  const temp_dir dir;
  std::ofstream{dir.file("token")} << canary << '\n';
  ::setenv("HF_TEST_CANARY", canary.c_str(), 1);
  for (const auto& url : {with_token(server, canary),
                          with_token(server, "", "/locks?password_file=" + dir.file("token")),
                          with_token(server, "", "/locks?password_env=HF_TEST_CANARY")}) {
    const auto told = std::make_shared<listening_observer>();
    auto opened = client::try_open(url, {.call_timeout = 1s, .observer = told});
    ASSERT_TRUE(is_ok(opened));
    hear(opened->url());
    ASSERT_NO_FATAL_FAILURE(hear_outage(server, url, *opened, 2s));
    hear(told->heard());
    EXPECT_NE(told->heard().find("stock"), std::string::npos);
  }
  ::unsetenv("HF_TEST_CANARY");
  for (const auto& wrong : {canary + "-wrong", "wrong-" + canary}) {
    const auto opened = client::try_open(with_token(server, wrong));
    hear(opened);
    if (!opened) continue;
    hear(mutex(*opened, "stock").try_acquire());
    hear(opened->inspect("stock"));
    hear(opened->list());
  }
}

TEST_F(consul_canary, addresses_that_make_no_sense_are_not_quoted_with_their_token) {
  for (const auto& url :
       {fmt::format("consul://:{}@127.0.0.1:99999", canary),
        fmt::format("consul://:{}@127.0.0.1:1?graze=1s", canary),
        fmt::format("consul://:{}@127.0.0.1:1?ca_file=/x", canary),
        fmt::format("consul://:{}@127.0.0.1:1?session=1s", canary),
        fmt::format("consul://:{}@127.0.0.1:1?password_env=NONE", canary),
        fmt::format("consul://app:{}@127.0.0.1:1", canary), fmt::format("consul://:{}@", canary),
        fmt::format("consul://:{}%zz@127.0.0.1:1", canary),
        fmt::format("consull://:{}@127.0.0.1:1", canary),
        fmt::format("consul://:{}@127.0.0.1:1,,127.0.0.1:2", canary),
        fmt::format("consul://:{}@nowhere.invalid", canary),
        fmt::format("consul://:{}@127.0.0.1:1/a//b", canary),
        fmt::format("consul://:{}\n@127.0.0.1:1", canary)}) {
    const auto opened = client::try_open(url, {.call_timeout = 1s});
    EXPECT_FALSE(opened) << url;
    hear(opened);
  }
}

}  // namespace
}  // namespace holdfast::testing

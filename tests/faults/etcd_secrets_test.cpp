// What breaks here: certificates, logins and rights. What must hold: over TLS nobody but the right server is talked to;
// whoever is not allowed is told so (denied) with a sentence that names the lock and the store, and retrying is not
// tried; tokens that end are fetched anew without anybody noticing; the password comes out nowhere.
#include "faults/canary.hpp"
#include "faults/etcd_faults.hpp"
#include "unit/net/certificates.hpp"

#include "support/temp_dir.hpp"

#include <fstream>

namespace holdfast::testing {
namespace {

class etcd_secrets : public etcd_faults {};

// ---- TLS

TEST_F(etcd_secrets, right_cluster_over_tls) {
  const etcd_server cluster{{.nodes = 3, .tls = true}};
  const auto url = cluster.url() + "?session=2s&ca_file=" + cluster.ca_file();
  const auto a = client::open(url), b = client::open(url);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 2s});
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_entries(cluster, "stock", 2));
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 2500ms)) << "renewed";
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(get(waiting)));
}

// What the sentence says, for whoever has to set this up.
void expect_distrust(const std::string& url, std::string_view because) {
  const auto opened = client::try_open(url);
  EXPECT_TRUE(refuses(opened, errc::misconfigured, "", "etcds://", because));
}

TEST_F(etcd_secrets, server_with_anothers_certificate_is_refused) {
  const etcd_server server{{.tls = true, .certified = "DNS:db.example"}};
  const auto url = server.url() + "?ca_file=" + server.ca_file();
  expect_distrust(url, "certificate was refused: IP address mismatch");
  expect_distrust(url + "&server_name=other.example", "hostname mismatch");
  EXPECT_TRUE(is_ok(client::try_open(url + "&server_name=db.example")));
}

TEST_F(etcd_secrets, server_of_an_unknown_authority_is_refused) {
  const etcd_server server{{.tls = true}};
  expect_distrust(server.url(), "certificate was refused");
  const temp_dir dir;
  const certificate_authority stranger{dir.path()};
  expect_distrust(server.url() + "?ca_file=" + stranger.file(), "certificate was refused");
}

TEST_F(etcd_secrets, expired_certificate_is_refused) {
  const temp_dir dir;
  const identity ca{{.subject = "ca", .is_ca = true}};
  const identity old{{.subject = "db",
                      .names = "IP:127.0.0.1",
                      .issuer = &ca,
                      .valid_from = -7200,
                      .valid_until = -3600}};
  const auto ca_file = ca.write_certificate(dir.file("ca.crt"));
  const etcd_server server{{.tls = true,
                            .certificate = certificate{old.write_certificate(dir.file("old.crt")),
                                                       old.write_key(dir.file("old.key"))},
                            .ca_file = ca_file}};
  expect_distrust(server.url() + "?ca_file=" + ca_file, "expired");
}

TEST_F(etcd_secrets, missing_or_unusable_tls_files_are_named) {
  const etcd_server server{{.tls = true}};
  const auto url = server.url() + "?ca_file=";
  expect_distrust(url + "/nonexistent.pem", "/nonexistent.pem");
  expect_distrust(url + server.ca_file() + "&cert_file=/nonexistent.crt", "/nonexistent.crt");
}

TEST_F(etcd_secrets, server_that_asks_for_our_certificate_gets_it) {
  const etcd_server server{{.tls = true, .client_certificates = true}};
  const auto ours = server.authority().issue("client", "DNS:client");
  const auto url = server.url() + "?ca_file=" + server.ca_file();
  const auto opened = client::try_open(url + "&cert_file=" + ours.file + "&key_file=" + ours.key);
  ASSERT_TRUE(is_ok(opened));
  mutex lock{*opened, "stock"};
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
  EXPECT_FALSE(client::try_open(url, {.call_timeout = 2s}));
}

// Either side speaks what the other does not.
TEST_F(etcd_secrets, tls_where_there_is_none_and_the_other_way_round) {
  const etcd_server plain, secure{{.tls = true}};
  const auto at = [](const etcd_server& of) { return "127.0.0.1:" + std::to_string(of.port()); };
  EXPECT_TRUE(fails_with(client::try_open("etcds://" + at(plain), {.call_timeout = 2s}),
                         errc::unavailable));
  EXPECT_TRUE(fails_with(client::try_open("etcd://" + at(secure), {.call_timeout = 2s}),
                         errc::unavailable));
}

// ---- logins and rights

std::string as(const etcd_server& server, const std::string& login,
               const std::string& rest = "/locks") {
  return fmt::format("etcd://{}@127.0.0.1:{}{}", login, server.port(), rest);
}

TEST_F(etcd_secrets, login_that_is_missing_or_wrong) {
  etcd_server server;
  server.enable_auth("app", "word", "locks/");
  const auto at = "127.0.0.1:" + std::to_string(server.port());
  EXPECT_TRUE(refuses(client::try_open(as(server, "app:wrong")), errc::denied, "", at, ""));
  EXPECT_TRUE(refuses(client::try_open(as(server, "nobody:word")), errc::denied, "", at, ""));
  const auto none = client::try_open("etcd://" + at + "/locks");
  if (none) {
    mutex lock{*none, "stock"};
    EXPECT_TRUE(refuses(lock.try_acquire(), errc::denied, "stock", at, ""));
  } else {
    EXPECT_TRUE(refuses(none, errc::denied, "", at, ""));
  }
  const auto right = client::try_open(as(server, "app:word"));
  ASSERT_TRUE(is_ok(right));
  mutex lock{*right, "stock"};
  EXPECT_TRUE(is_ok(lock.acquire()));
  EXPECT_TRUE(is_ok(right->list()));
}

// Everything that the layout can do, once, with the rights to one prefix and no others.
TEST_F(etcd_secrets, rights_to_one_prefix_are_enough) {
  etcd_server server;
  server.enable_auth("app", "word", "locks/");
  const auto a = client::open(as(server, "app:word")), b = client::open(as(server, "app:word"));
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

TEST_F(etcd_secrets, foreign_prefix_is_denied) {
  etcd_server server;
  server.enable_auth("app", "word", "locks/");
  const auto opened = client::try_open(as(server, "app:word", "/others"));
  if (!opened) {
    EXPECT_TRUE(fails_with(opened, errc::denied));
    return;
  }
  mutex lock{*opened, "stock"};
  const auto at = "127.0.0.1:" + std::to_string(server.port());
  EXPECT_TRUE(refuses(lock.try_acquire(), errc::denied, "stock", at, ""));
  EXPECT_TRUE(refuses(lock.acquire({.wait = patience}), errc::denied, "stock", at, ""));
}

TEST_F(etcd_secrets, rights_that_are_taken_away_and_given_back) {
  etcd_server server;
  server.enable_auth("app", "word", "locks/");
  const auto a = client::open(as(server, "app:word"));
  mutex lock{a, "stock"}, other{a, "shelf"};
  auto held = lock.acquire({.ttl = 20s});
  ASSERT_TRUE(is_ok(held));
  server.etcdctl({"role", "revoke-permission", "--prefix=true", "app", "locks/"});
  EXPECT_TRUE(fails_with(other.try_acquire(), errc::denied));
  EXPECT_TRUE(fails_with(a.inspect("shelf"), errc::denied));
  server.etcdctl({"role", "grant-permission", "--prefix=true", "app", "readwrite", "locks/"});
  EXPECT_TRUE(is_ok(other.acquire({.wait = patience})));
  EXPECT_TRUE(held->valid()) << "nobody has touched it";
  EXPECT_TRUE(is_ok(held->release()));
}

TEST_F(etcd_secrets, user_that_is_deleted_is_denied) {
  etcd_server server;
  server.enable_auth("app", "word", "locks/");
  const auto a = client::open(as(server, "app:word"));
  mutex lock{a, "stock"};
  ASSERT_TRUE(is_ok(lock.acquire()));
  server.etcdctl({"user", "delete", "app"});
  EXPECT_TRUE(fails_with(lock.acquire({.wait = patience}), errc::denied));
  server.etcdctl({"user", "add", "app:other"});
  server.etcdctl({"user", "grant-role", "app", "app"});
  EXPECT_TRUE(fails_with(lock.acquire({.wait = patience}), errc::denied)) << "another password";
}

// The server forgets tokens: when they were not used for a while, when it restarts, when anything about rights changes.
TEST_F(etcd_secrets, tokens_that_end_are_fetched_anew) {
  etcd_server server{{.flags = {"--auth-token-ttl=1"}}};
  server.enable_auth("app", "word", "locks/");
  const auto a = client::open(as(server, "app:word")), b = client::open(as(server, "app:word"));
  mutex lock{a, "stock"}, theirs{b, "stock"}, more{a, "shelf"};
  auto held = lock.acquire({.ttl = 20s});
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs, {.ttl = 20s});
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 3s)) << "and the token ends";
  // A login costs the server a bcrypt: on a busy machine more than the half second that a try has.
  EXPECT_TRUE(is_ok(more.acquire({.wait = patience})));
  server.restart();
  EXPECT_TRUE(is_ok(more.acquire({.wait = patience})));
  server.etcdctl({"role", "add", "somebody"});
  EXPECT_TRUE(is_ok(more.acquire({.wait = patience}))) << "the revision of the rights is another";
  EXPECT_TRUE(held->valid());
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(get(waiting)));
}

TEST_F(etcd_secrets, cluster_that_begins_to_ask_for_logins) {
  etcd_server server;
  const auto a = client::open(server.url() + "/locks");
  mutex lock{a, "stock"}, other{a, "shelf"};
  auto held = lock.acquire({.ttl = 10s});
  ASSERT_TRUE(is_ok(held));
  server.enable_auth("app", "word", "locks/");
  EXPECT_TRUE(fails_with(other.acquire({.wait = patience}), errc::denied));
}

// ---- the canary

class etcd_canary : public etcd_secrets, protected canary_listener {
  void TearDown() override { expect_silence(); }
};

TEST_F(etcd_canary, password_of_every_origin_logs_in_and_is_not_shown) {
  etcd_server server;
  server.enable_auth("app", canary, "locks/");
  const temp_dir dir;
  std::ofstream{dir.file("password")} << canary << '\n';
  ::setenv("HF_TEST_CANARY", canary.c_str(), 1);
  for (const auto& url :
       {as(server, "app:" + canary, "/locks?session=2s"),
        as(server, "app", "/locks?session=2s&password_file=" + dir.file("password")),
        as(server, "app", "/locks?session=2s&password_env=HF_TEST_CANARY")}) {
    const auto told = std::make_shared<listening_observer>();
    auto opened = client::try_open(url, {.call_timeout = 1s, .observer = told});
    ASSERT_TRUE(is_ok(opened));
    hear(opened->url());
    ASSERT_NO_FATAL_FAILURE(hear_outage(server, url, *opened, 2s));
    hear(told->heard());
    EXPECT_NE(told->heard().find("stock"), std::string::npos);
  }
  ::unsetenv("HF_TEST_CANARY");
  hear(client::try_open(as(server, "app:" + canary + "-wrong")));
  hear(client::try_open(as(server, "nobody:" + canary)));
}

TEST_F(etcd_canary, addresses_that_make_no_sense_are_not_quoted_with_their_password) {
  for (const auto& url :
       {fmt::format("etcd://app:{}@127.0.0.1:99999", canary),
        fmt::format("etcd://app:{}@127.0.0.1:1?graze=1s", canary),
        fmt::format("etcd://app:{}@127.0.0.1:1?ca_file=/x", canary),
        fmt::format("etcd://app:{}@127.0.0.1:1?password_env=NONE", canary),
        fmt::format("etcd://app:{}@", canary), fmt::format("etcd://app:{}%zz@127.0.0.1:1", canary),
        fmt::format("etcdd://app:{}@127.0.0.1:1", canary),
        fmt::format("etcd://app:{}@127.0.0.1:1,,127.0.0.1:2", canary),
        fmt::format("etcd://app:{}@nowhere.invalid", canary),
        fmt::format("etcd://app:{}\n@127.0.0.1:1", canary)}) {
    const auto opened = client::try_open(url, {.call_timeout = 1s});
    EXPECT_FALSE(opened) << url;
    hear(opened);
  }
}

}  // namespace
}  // namespace holdfast::testing

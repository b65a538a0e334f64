// What breaks here: certificates, sockets and logins. What must hold: over TLS no server but the right one is talked
// to, and the password, wherever it was given, comes out nowhere: in no error, no address, nothing that an observer
// is told.
#include "faults/canary.hpp"
#include "faults/fake_redis.hpp"
#include "faults/faults.hpp"
#include "unit/net/certificates.hpp"

#include "support/redis_cluster.hpp"
#include "support/redlock_servers.hpp"
#include "support/replicated_redis.hpp"
#include "support/temp_dir.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <fstream>

namespace holdfast::testing {
namespace {

class redis_secrets : public redis_faults {};

// ---- TLS

using transport = redis_server::transport;

TEST_F(redis_secrets, right_server_over_tls) {
  const redis_server server{{.over = transport::tls}};
  const auto url = redis_url(server, "ca_file=" + server.ca_file());
  const auto a = client::open(url), b = client::open(url);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 600ms});
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_queue(server, "stock", 1));
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 700ms)) << "renewed";
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(get(waiting)));
}

// What the sentence says, for the operator that has to set this up.
void expect_distrust(const std::string& url, std::string_view because) {
  const auto opened = client::try_open(url);
  EXPECT_TRUE(fails_with(opened, errc::misconfigured)) << "retrying cannot help";
  if (opened) return;
  EXPECT_NE(opened.error().message().find(because), std::string::npos) << opened.error().message();
  EXPECT_NE(opened.error().message().find("rediss://"), std::string::npos)
      << opened.error().message();
}

TEST_F(redis_secrets, server_with_anothers_certificate_is_refused) {
  const redis_server server{{.over = transport::tls, .certified = "DNS:db.example"}};
  const auto ca = "ca_file=" + server.ca_file();
  expect_distrust(redis_url(server, ca), "certificate was refused: IP address mismatch");
  expect_distrust(redis_url(server, ca + "&server_name=other.example"), "hostname mismatch");
  EXPECT_TRUE(is_ok(client::try_open(redis_url(server, ca + "&server_name=db.example"))));
}

TEST_F(redis_secrets, server_of_an_unknown_authority_is_refused) {
  const redis_server server{{.over = transport::tls}};
  expect_distrust(server.url(), "certificate was refused");
  const temp_dir dir;
  const certificate_authority other{dir.path()};
  expect_distrust(redis_url(server, "ca_file=" + other.file()), "certificate was refused");
}

TEST_F(redis_secrets, expired_certificate_is_refused) {
  const temp_dir dir;
  const identity ca{{.subject = "ca", .is_ca = true}};
  const identity old{{.subject = "db",
                      .names = "IP:127.0.0.1",
                      .issuer = &ca,
                      .valid_from = -7200,
                      .valid_until = -3600}};
  const redis_server server{
      {.over = transport::tls,
       .config = {"tls-cert-file " + old.write_certificate(dir.file("old.crt")),
                  "tls-key-file " + old.write_key(dir.file("old.key"))}}};
  expect_distrust(redis_url(server, "ca_file=" + ca.write_certificate(dir.file("ca.crt"))),
                  "expired");
}

TEST_F(redis_secrets, missing_or_unusable_tls_files_are_named) {
  const redis_server server{{.over = transport::tls}};
  expect_distrust(redis_url(server, "ca_file=/nonexistent.pem"), "/nonexistent.pem");
  expect_distrust(redis_url(server, "ca_file=" + server.ca_file() + "&cert_file=/nonexistent.crt"),
                  "/nonexistent.crt");
}

TEST_F(redis_secrets, server_that_asks_for_our_certificate_gets_it) {
  const redis_server server{{.over = transport::tls, .config = {"tls-auth-clients yes"}}};
  const auto ours = server.authority().issue("client", "DNS:client");
  const auto ca = "ca_file=" + server.ca_file();
  EXPECT_TRUE(is_ok(client::try_open(
      redis_url(server, ca + "&cert_file=" + ours.file + "&key_file=" + ours.key))));
  EXPECT_FALSE(client::try_open(redis_url(server, ca)));
}

// Either side speaks what the other does not.
TEST_F(redis_secrets, tls_where_there_is_none_and_the_other_way_round) {
  const redis_server plain, secure{{.over = transport::tls}};
  const auto port = [](const redis_server& of) { return "127.0.0.1:" + std::to_string(of.port()); };
  const auto a = client::try_open("rediss://" + port(plain));
  ASSERT_FALSE(a);
  EXPECT_EQ(a.error().code(), errc::unavailable);
  EXPECT_TRUE(fails_with(client::try_open("redis://" + port(secure)), errc::unavailable));
}

// ---- sockets and passwords

TEST_F(redis_secrets, unix_socket) {
  redis_server server{{.over = transport::unix_socket}};
  const auto a = client::open(server.url()), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire();
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_queue(server, "stock", 1));
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(get(waiting)));
  server.kill();
  const auto gone = client::try_open(server.url());
  EXPECT_TRUE(fails_with(gone, errc::unavailable));
  if (!gone) {
    EXPECT_NE(gone.error().message().find(server.socket_path()), std::string::npos);
  }
}

class canary_test : public redis_secrets, protected canary_listener {
  void TearDown() override { expect_silence(); }
};

TEST_F(canary_test, password_of_every_origin_logs_in_and_is_not_shown) {
  redis_server server{{.config = {"requirepass " + canary}, .password = canary}};
  const temp_dir dir;
  std::ofstream{dir.file("password")} << canary << '\n';
  ::chmod(dir.file("password").c_str(), 0600);
  ::setenv("HF_TEST_CANARY", canary.c_str(), 1);
  const auto at = fmt::format("127.0.0.1:{}", server.port());
  for (const auto& url : {fmt::format("redis://:{}@{}", canary, at),
                          fmt::format("redis://{}?password_file={}", at, dir.file("password")),
                          fmt::format("redis://{}?password_env=HF_TEST_CANARY", at)}) {
    const auto told = std::make_shared<listening_observer>();
    auto opened = client::try_open(url, {.call_timeout = 200ms, .observer = told});
    ASSERT_TRUE(is_ok(opened));
    hear(opened->url());
    ASSERT_NO_FATAL_FAILURE(hear_outage(server, url, *opened, 300ms));
    hear(told->heard());
    EXPECT_NE(told->heard().find("stock"), std::string::npos);
    // The password has changed.
    mutex lock{*opened, "stock"};
    ASSERT_EQ(redis_command(server, {"CONFIG", "SET", "requirepass", "another"}), "OK");
    hear(client::try_open(url));
    ASSERT_TRUE(wait_until([&] { return !lock.try_acquire(); }));
    hear(lock.try_acquire());
    server.restart();
  }
  ::unsetenv("HF_TEST_CANARY");
}

// A password goes to every server that the address leads to.
TEST_F(canary_test, password_of_several_servers_is_not_shown) {
  const auto open_and_ask = [&](const std::string& url) {
    const auto told = std::make_shared<listening_observer>();
    auto opened = client::try_open(url, {.call_timeout = 200ms, .observer = told});
    hear(opened);
    if (!opened) return false;
    hear(opened->url());
    hear(fmt::format("{} {} {}", opened->capabilities().engine, opened->capabilities().exclusion,
                     opened->capabilities().limits));
    mutex lock{*opened, "stock"};
    hear(lock.acquire({.wait = patience}));
    hear(lock.acquire({.wait = 1s})), hear(opened->inspect("stock"));
    const auto found = opened->diagnose();
    hear(found);
    if (found)
      for (const auto& one : *found) hear(one.about + one.sentence);
    hear(told->heard());
    return true;
  };
  const auto with = [&](std::string url, const std::string& password) {
    return url.insert(url.find("//") + 2, ":" + password + "@");
  };
  const redis_server::options locked{.config = {"requirepass " + canary}, .password = canary};
  const auto try_all = [&](const std::string& url) {
    EXPECT_TRUE(open_and_ask(with(url, canary))) << everything;
    EXPECT_FALSE(open_and_ask(with(url, canary + "-wrong")));
    hear(client::try_open(url));
  };
  {
    const redlock_servers store{{.nodes = 3, .each = locked}};
    try_all(store.url());
  }
  {
    const replicated_redis store{{.replicas = 1, .each = locked}};
    try_all(store.url());
  }
  const redis_cluster store{{.each = locked}};
  try_all(store.url());
}

// Redis before 6.0 answers an unknown HELLO with all that came after it.
TEST_F(canary_test, server_that_repeats_the_login_is_not_quoted) {
  for (const auto& words :
       {fmt::format("ERR unknown command `HELLO`, with args beginning with: `3`, "
                    "`AUTH`, `default`, `{}`, ",
                    canary),
        fmt::format("ERR unknown command 'HELLO', with args beginning with: '3' "
                    "'AUTH' 'default' '{}' 'SETNAME' 'holdfast' ",
                    canary),
        "WRONGPASS " + canary, "NOAUTH " + canary, canary, std::string(140, 'x') + canary}) {
    fake_redis server;
    server.answer("HELLO", "-" + words + "\r\n");
    const auto opened = client::try_open(server.url(":" + canary + "@"));
    EXPECT_FALSE(opened);
    hear(opened);
  }
}

TEST_F(redis_secrets, what_is_said_of_a_refused_login_does_not_depend_on_the_password) {
  const auto sentence = [](const std::string& password) {
    fake_redis server;
    server.answer("HELLO",
                  fmt::format("-ERR unknown command `HELLO`, with args beginning with: `3`, "
                              "`AUTH`, `default`, `{}`, \r\n",
                              password));
    const auto opened = client::try_open(server.url(":" + password + "@"));
    auto said = opened ? std::string{"no error"} : opened.error().message();
    const auto port = said.find("127.0.0.1:");
    return port == std::string::npos
               ? said
               : said.erase(port, said.find_first_of(" :/?", port + 10) - port);
  };
  const auto usual = sentence("a-long-password");
  EXPECT_NE(usual.find("unknown command"), std::string::npos) << usual;
  for (const char* part : {"e", "o", "ERR", "unknown", "HELLO", "3"})
    EXPECT_EQ(sentence(part), usual);
}

TEST_F(canary_test, addresses_that_make_no_sense_are_not_quoted_with_their_password) {
  const redis_server server;
  const auto at = fmt::format("127.0.0.1:{}", server.port());
  for (const auto& url :
       {fmt::format("redis://:{}@{}/nonsense", canary, at),
        fmt::format("redis://:{}@{}?graze=1s", canary, at),
        fmt::format("redis://:{}@{}?grace=-1s", canary, at),
        fmt::format("redis://:{}@127.0.0.1:99999", canary),
        fmt::format("redis://:{}@{}?ca_file=/x", canary, at),
        fmt::format("redis://app:{}@a,b,c", canary),
        fmt::format("redis://:{}@{}?layout=odd", canary, at),
        fmt::format("rediss://:{}@{}", canary, at),
        fmt::format("redis://:{}@{}?password_env=NONE", canary, at),
        fmt::format("redis://:{}@", canary),
        fmt::format("redis://:{}%zz@{}", canary, at),
        fmt::format("redus://:{}@{}", canary, at),
        fmt::format("redis+sentinel://:{}@{}", canary, at),  // it names no master
        fmt::format("redis+sentinel://:{}@{}/a/b", canary, at),
        fmt::format("redis+sentinel://:{}@{}/m?sentinel_tls=odd", canary, at),
        fmt::format("redis+sentinel://:{}@{}/m", canary, at),  // it is no sentinel
        fmt::format("redis+cluster://:{}@{}", canary, at),     // it is no node
        fmt::format("redis+cluster://:{}@{}/1", canary, at),
        fmt::format("redis+cluster://:{}@{},:1", canary, at),
        fmt::format("redlock://:{}@{}", canary, at),
        fmt::format("redlock://:{}@{},{}", canary, at, at),
        fmt::format("redlock://app:{}@a,b,c?longest_ttl=odd", canary),
        fmt::format("redlocks://:{}@a,b,c?ca_file=/none", canary),
        fmt::format("redis://:{}@{}?prefix=%0a", canary, at),
        fmt::format("redis://:{}@nowhere.invalid", canary),
        fmt::format("redis://:{}\n@{}", canary, at)}) {
    const auto opened = client::try_open(url);
    EXPECT_FALSE(opened) << url;
    hear(opened);
  }
}

TEST_F(canary_test, password_file_that_cannot_be_used_is_named_and_not_quoted) {
  const redis_server server;
  const temp_dir dir;
  std::ofstream{dir.file("long")} << canary << std::string(100'000, 'x');
  hear(client::try_open(redis_url(server, "password_file=" + dir.file("long"))));
  hear(client::try_open(redis_url(server, "password_file=" + dir.file("none"))));
  EXPECT_NE(everything.find("long"), std::string::npos) << everything;
  EXPECT_NE(everything.find("none"), std::string::npos) << everything;
}

}  // namespace
}  // namespace holdfast::testing

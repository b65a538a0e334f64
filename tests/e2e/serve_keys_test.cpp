// `holdfast serve` with keys and TLS: who may do what, and what it refuses to be started with.
#include "e2e/serve_cli.hpp"

#include "support/certificates.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using e2e::header_in;
using e2e::json_in;
using e2e::said;
using holdfast::testing::certificate_authority;
using namespace std::chrono_literals;

struct made_key {
  std::string secret, line;
  std::string header() const { return fmt::format("Authorization: Bearer {}\r\n", secret); }
};

class serve_keys : public e2e::serve_cli {
 protected:
  // As an operator makes one.
  made_key make_key(const std::string& name, const std::string& scopes, const std::string& names) {
    const auto made = box.run({"serve", "--new-key", name, "--scopes", scopes, "--names", names});
    EXPECT_EQ(made.code, 0) << made.err;
    made_key out;
    std::istringstream lines{made.out};
    for (std::string each; std::getline(lines, each);) {
      if (each.starts_with("#   ")) out.secret = each.substr(4);
      if (!each.starts_with('#')) out.line = each;
    }
    EXPECT_EQ(out.secret.size(), 64U) << made.out;
    EXPECT_TRUE(out.line.starts_with(name + ' ')) << made.out;
    EXPECT_EQ(out.line.find(out.secret), std::string::npos);
    return out;
  }
  // A service with three keys.
  void start_with_keys() { start({.keys = {all.line, team.line, viewer.line}}); }

  // The store's address for the command.
  std::string url_with(const made_key& of) {
    std::ofstream{box.path("key")} << of.secret << '\n';
    ::chmod(box.path("key").c_str(), 0600);
    return running().url() + "?password_file=" + box.path("key");
  }

  made_key all = make_key("admin", "acquire,inspect,break", "*");
  made_key team = make_key("team", "acquire", "team/*");
  made_key viewer = make_key("viewer", "inspect", "team/*");
};

TEST_F(serve_keys, without_a_key_nothing_but_health_and_the_page_is_shown) {
  start_with_keys();
  for (const auto& headers : {std::string{}, std::string{"Authorization: Bearer wrong\r\n"},
                              fmt::format("Authorization: Basic {}\r\n", all.secret),
                              fmt::format("Authorization: Bearer {}x\r\n", all.secret),
                              fmt::format("Authorization: Bearer {}\r\n", all.secret.substr(1))}) {
    for (const auto& [method, target] : std::vector<std::pair<const char*, const char*>>{
             {"GET", "/v1/locks"},
             {"GET", "/v1/events"},
             {"GET", "/metrics"},
             {"POST", "/v1/locks/a:acquire"},
             {"POST", "/v1/locks/a:hold"},
             {"POST", "/v1/sessions"},
             {"DELETE", "/v1/locks/a"},
             {"GET", "/v1/leases/00000000000000000000000000000000"}}) {
      const auto refused = ask(method, target, {}, headers);
      EXPECT_EQ(refused.status, 401) << method << target << headers;
      EXPECT_EQ(refused.text("code"), "no_key");
      EXPECT_EQ(header_in(refused, "WWW-Authenticate"), "Bearer");
    }
    EXPECT_EQ(ask("POST", "/lock?name=a", {}, headers).status, 401);
  }
  // A key in the address would be in every log on the way.
  EXPECT_EQ(ask("GET", "/v1/locks?key=" + all.secret).status, 401);
  for (const auto* target : {"/", "/app.js", "/app.css", "/openapi.json", "/healthz", "/readyz"})
    EXPECT_EQ(ask("GET", target).status, 200) << target;
}

TEST_F(serve_keys, a_key_does_what_its_scopes_say_with_its_names) {
  start_with_keys();
  const auto mine = acquire("team/a", R"({"ttl":"60s"})", team.header());
  EXPECT_EQ(mine.status, 200);
  struct row {
    const made_key& who;
    const char *method, *target, *body;
    int status;
  };
  for (const auto& each :
       std::vector<row>{{team, "POST", "/v1/locks/other:acquire", "", 403},
                        {team, "POST", "/v1/locks/teams/a:acquire", "", 403},
                        {team, "POST", "/v1/locks/other:hold", "", 403},
                        {team, "POST", "/lock?name=other", "", 403},
                        {team, "POST", "/v1/locks:acquire", R"({"names":["team/b","other"]})", 403},
                        {team, "POST", "/v1/latches/other", R"({"count":1})", 403},
                        {team, "GET", "/v1/locks", "", 403},
                        {team, "GET", "/v1/locks/team/a", "", 403},
                        {team, "GET", "/v1/events", "", 403},
                        {team, "GET", "/v1/waits", "", 403},
                        {team, "GET", "/metrics", "", 403},
                        {team, "DELETE", "/v1/locks/team/a", "", 403},
                        {viewer, "GET", "/v1/locks/team/a", "", 200},
                        {viewer, "GET", "/v1/locks/other", "", 403},
                        {viewer, "GET", "/v1/locks?prefix=other", "", 403},
                        {viewer, "GET", "/v1/waits", "", 200},
                        {viewer, "POST", "/v1/locks/team/b:acquire", "", 403},
                        {viewer, "DELETE", "/v1/locks/team/a", "", 403},
                        {all, "GET", "/v1/locks/team/a", "", 200},
                        {all, "POST", "/v1/locks/other:acquire", "", 200}}) {
    const auto answer =
        ask(each.method, each.target, each.body, each.who.header() + e2e::break_on_purpose);
    EXPECT_EQ(answer.status, each.status) << each.method << each.target << answer.body;
  }
  EXPECT_EQ(lease(mine.text("lease"), team.header()).status, 200);
}

TEST_F(serve_keys, lists_and_events_show_the_names_of_the_key_only) {
  start_with_keys();
  auto stream = events("/v1/events", viewer.header());
  stream.until("hello");
  const auto take = [&](const char* name) {
    EXPECT_EQ(acquire(name, R"({"ttl":"60s"})", all.header()).status, 200);
  };
  take("other");
  take("team/a");
  EXPECT_EQ(stream.until("granted")["name"], "team/a");
  const auto listed = json_in(ask("GET", "/v1/locks", {}, viewer.header()));
  ASSERT_EQ(listed["locks"].size(), 1U) << listed;
  EXPECT_EQ(listed["locks"][0]["name"], "team/a");
  EXPECT_EQ(json_in(ask("GET", "/v1/locks", {}, all.header()))["locks"].size(), 2U);
}

TEST_F(serve_keys, a_lease_belongs_to_the_key_that_took_it) {
  start_with_keys();
  const auto id = acquire("team/a", R"({"ttl":"60s"})", team.header()).text("lease");
  EXPECT_EQ(lease(id, all.header()).status, 404);
  EXPECT_EQ(renew(id, all.header()).status, 404);
  EXPECT_EQ(release(id, all.header()).status, 404);
  EXPECT_EQ(ask("POST", "/unlock?lease=" + id, {}, all.header()).status, 404);
  EXPECT_EQ(ask("POST", "/v1/leases/" + id + ":downgrade", "{}", all.header()).status, 404);
  EXPECT_EQ(renew(id, team.header()).status, 200);
  running().restart();
  EXPECT_EQ(renew(id, all.header()).status, 404);
  EXPECT_EQ(renew(id, team.header()).status, 200);
  EXPECT_EQ(release(id, team.header()).status, 204);
  EXPECT_EQ(release(id, all.header()).status, 404);
}

TEST_F(serve_keys, a_request_id_is_of_one_key) {
  start_with_keys();
  const std::string body = R"({"ttl":"60s","request_id":"x"})";
  const auto first = acquire("team/a", body, team.header());
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(acquire("team/a", body, all.header()).status, 409);
  EXPECT_EQ(acquire("team/a", body, team.header()).text("lease"), first.text("lease"));
}

TEST_F(serve_keys, a_break_is_written_down_with_the_key_that_did_it) {
  start_with_keys();
  acquire("team/a", R"({"ttl":"60s"})", team.header());
  EXPECT_EQ(ask("DELETE", "/v1/locks/team/a", {}, all.header() + e2e::break_on_purpose).status,
            200);
  EXPECT_TRUE(e2e::eventually([&] {
    return e2e::has(running().log(),
                    "audit: break lock=\"team/a\" key=\"admin\" peer=127.0.0.1 holders_ended=1");
  })) << running().log();
  for (const auto& each : {all, team, viewer})
    EXPECT_EQ(running().log().find(each.secret), std::string::npos);
}

TEST_F(serve_keys, one_key_does_not_use_up_what_another_may_have) {
  start({.config = {"leases-per-key = 1"}, .keys = {all.line, team.line}});
  EXPECT_EQ(acquire("team/a", "{}", team.header()).status, 200);
  EXPECT_EQ(acquire("team/b", "{}", team.header()).status, 429);
  EXPECT_EQ(acquire("team/b", "{}", all.header()).status, 200);
}

TEST_F(serve_keys, a_break_by_the_command_is_written_down_told_and_counted_as_well) {
  start_with_keys();
  const auto header = all.header();
  auto stream = events("/v1/events", header);
  stream.until("hello");
  acquire("team/a", R"({"ttl":"60s"})", team.header());
  const auto broken = box.run({"break", "team/a", "--yes", "--store", url_with(all)});
  EXPECT_EQ(broken.code, 0) << broken.err;
  const auto told = stream.until("broken");
  ASSERT_TRUE(told.is_object()) << stream.heard();
  EXPECT_EQ(told["name"], "team/a");
  EXPECT_EQ(told["label"], "admin");
  EXPECT_TRUE(e2e::eventually([&] {
    return e2e::has(running().log(),
                    "audit: break lock=\"team/a\" key=\"admin\" peer=127.0.0.1 holders_ended=1");
  })) << running().log();
  EXPECT_TRUE(e2e::has(ask("GET", "/metrics", {}, header).body,
                       "holdfast_serve_events_total{prefix=\"team/\",event=\"broken\"} 1\n"));
}

TEST_F(serve_keys, the_command_uses_a_key_and_is_denied_without_one) {
  start_with_keys();
  const auto ran = box.run({"run", "job", "--store", url_with(all), "--", "true"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const auto denied = box.run({"run", "job", "--no-wait", "--", "true"});
  EXPECT_EQ(denied.code, 77) << denied.err;
  EXPECT_EQ(denied.err.find(all.secret), std::string::npos);
}

// ---- TLS

class serve_tls : public serve_keys {
 protected:
  // curl's exit code, the status behind it.
  e2e::outcome curl(const std::string& words) {
    return box.shell(fmt::format("curl -sS -m 20 -o /dev/null -w '%{{http_code}}' {}", words));
  }
};

TEST_F(serve_tls, a_client_that_trusts_its_certificate_is_answered) {
  start({.keys = {all.line}, .tls = true});
  const auto url = running().url();
  const auto good = curl(fmt::format("--cacert {} {}/healthz", running().ca_file(), url));
  EXPECT_EQ(good.out, "200") << good.err;
  EXPECT_NE(curl(url + "/healthz").code, 0);
  const auto plain = curl(fmt::format("http://127.0.0.1:{}/healthz", running().port()));
  EXPECT_NE(plain.out, "200");
  const auto old =
      curl(fmt::format("--tls-max 1.1 --cacert {} {}/healthz", running().ca_file(), url));
  EXPECT_NE(old.code, 0);
}

// A handshake that has begun costs far more memory than a connection that waits in the system's line.
TEST_F(serve_tls, clients_that_greet_for_ever_are_a_thousand_at_most) {
  start({.keys = {all.line}, .tls = true});
  std::vector<int> silent;
  for (int i = 0; i < 1'300; ++i) silent.push_back(holdfast::testing::connect_to(running().port()));
  const auto stats =
      box.shell(fmt::format("curl -sS -m 20 --cacert {} -H 'Authorization: Bearer {}' {}/v1/stats",
                            running().ca_file(), all.secret, running().url()));
  for (const auto one : silent) ::close(one);
  ASSERT_EQ(stats.code, 0) << stats.err;
  EXPECT_LE(json_in(stats.out)["connections"].get<int>(), 1'001) << stats.out;
}

TEST_F(serve_tls, streams_and_waits_go_over_it) {
  start({.keys = {all.line}, .tls = true});
  const auto ask_with_curl = [&](const std::string& more) {
    return fmt::format(
        "curl -sSN -m 60 --cacert {} -H 'Authorization: Bearer {}' -H 'Content-Type: "
        "application/json' {}",
        running().ca_file(), all.secret, more);
  };
  const auto holder = box.start_shell(
      "exec " + ask_with_curl(fmt::format("-d '{{\"ttl\":\"60s\"}}' {}/v1/locks/a:hold > events",
                                          running().url())));
  ASSERT_TRUE(e2e::eventually([&] { return e2e::has(box.read("events"), "event: granted"); }));
  EXPECT_FALSE(e2e::has(box.read("events"), "\"valid_ms\":0")) << box.read("events");
  const auto waiter = box.start_shell(
      "exec " +
      ask_with_curl(fmt::format("-d '{{\"ttl\":\"60s\",\"wait\":\"10m\"}}' {}/v1/locks/a:acquire",
                                running().url())));
  ASSERT_TRUE(e2e::eventually([&] {
    return e2e::has(box.shell(ask_with_curl(running().url() + "/v1/stats")).out, "\"waiting\":1");
  }));
  holder->send(SIGKILL);
  const auto got = waiter->wait();
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(json_in(got.out)["name"], "a");
}

TEST_F(serve_tls, a_client_without_a_certificate_is_sent_away_where_one_is_needed) {
  start({.tls = true, .client_certificates = true});
  const auto with = [&](const std::string& more) {
    return curl(
        fmt::format("--cacert {} {} {}/healthz", running().ca_file(), more, running().url()));
  };
  const auto none = with("");
  EXPECT_NE(none.code, 0);
  EXPECT_NE(none.out, "200");
  const auto own = running().authority().issue("client", "DNS:client");
  const auto good = with(fmt::format("--cert {} --key {}", own.file, own.key));
  EXPECT_EQ(good.out, "200") << good.err;
  const auto stranger = certificate_authority{box.folder()}.issue("stranger", "DNS:client");
  EXPECT_NE(with(fmt::format("--cert {} --key {}", stranger.file, stranger.key)).out, "200");
}

TEST_F(serve_tls, the_command_speaks_it) {
  start({.keys = {all.line}, .tls = true});
  box.set("KEY", all.secret);
  const auto url = running().url() + "?password_env=KEY&ca_file=" + running().ca_file();
  const auto ran =
      box.run({"run", "job", "--store", url, "--", "sh", "-c", "echo $HOLDFAST_TOKEN"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_GT(std::stoull(ran.out), 0U);
  const auto untrusted = box.run({"run", "job", "--store", running().url() + "?password_env=KEY",
                                  "--wait", "1s", "--", "true"});
  EXPECT_NE(untrusted.code, 0);
}

// ---- what it refuses to start with

class serve_start : public serve_keys {
 protected:
  std::string keys_file(const std::string& text, mode_t mode = 0600) {
    const auto path = box.path("keys");
    std::ofstream{path} << text << '\n';
    ::chmod(path.c_str(), mode);
    return path;
  }
  // It must not start; its words, and a part of what it says.
  void expect_refused(std::vector<std::string> words, const std::string& part) {
    words.insert(words.begin(), {"serve", "--state", box.path("state")});
    const auto said = box.run(words);
    EXPECT_EQ(said.code, 78) << fmt::format("{}", fmt::join(words, " ")) << said.out << said.err;
    EXPECT_TRUE(e2e::has(said.err, part)) << said.err;
  }
};

TEST_F(serve_start, open_to_other_machines_it_needs_keys_and_tls) {
  const certificate_authority authority{box.folder()};
  const auto own = authority.issue("server", "DNS:localhost,IP:127.0.0.1");
  const auto keys = keys_file(all.line);
  const std::vector<std::string> tls{"--tls-cert", own.file, "--tls-key", own.key};
  for (const auto* address : {"0.0.0.0:0", "[::]:0", "192.0.2.1:0"}) {
    expect_refused({"--listen", address}, "--keys");
    expect_refused({"--listen", address, "--keys", keys}, "--tls-cert");
    auto without_keys = tls;
    without_keys.insert(without_keys.end(), {"--listen", address});
    expect_refused(without_keys, "--keys");
  }
  auto whole = tls;
  whole.insert(whole.begin(),
               {"serve", "--state", box.path("state"), "--listen", "0.0.0.0:0", "--keys", keys});
  const auto service = box.start(whole);
  EXPECT_TRUE(e2e::eventually(
      [&] { return e2e::has(service->out(), " on https://0.0.0.0:") || service->ended(); }));
  service->send(SIGTERM);
  const auto ended = service->wait();
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
}

TEST_F(serve_start, keys_that_others_can_read_are_none) {
  for (const mode_t mode : {0640U, 0604U, 0666U})
    expect_refused({"--listen", "127.0.0.1:0", "--keys", keys_file(all.line, mode)}, "chmod 600");
  expect_refused({"--listen", "127.0.0.1:0", "--keys", keys_file("# none")}, "--new-key");
  expect_refused({"--listen", "127.0.0.1:0", "--keys", keys_file("admin all * x")}, "line 1");
  expect_refused({"--listen", "127.0.0.1:0", "--keys", box.path("nothing")}, "cannot be found");
}

TEST_F(serve_start, settings_that_are_none_are_named) {
  const certificate_authority authority{box.folder()};
  const auto own = authority.issue("server", "DNS:localhost");
  expect_refused({"--listen", "127.0.0.1:99999"}, "listen");
  expect_refused({"--tls-cert", own.file}, "go together");
  expect_refused({"--client-ca", authority.file()}, "--tls-cert");
  expect_refused(
      {"--tls-cert", own.file, "--tls-key", box.path("nothing"), "--listen", "127.0.0.1:0"},
      "private key");
  std::ofstream{box.path("config")} << "watchers = 1\nwatchrs = 1\n";
  expect_refused({"--config", box.path("config")}, "line 2");
}

}  // namespace

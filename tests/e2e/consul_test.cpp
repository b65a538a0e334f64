// The command against a real Consul: what it does on this store only, see stores_test.cpp.
#include "e2e/consul_cli.hpp"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace {

using e2e::consul_cli;
using e2e::consul_server;
using e2e::eventually;
using nlohmann::json;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

bool consul_says(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// ---- losses

TEST_F(consul_cli, destroyed_session_ends_the_command) {
  const auto& server = start();
  const auto holder = box.start(staying({"run", "job"}));
  const pid_t inside = box.pid_in("pid");
  server.destroy_session(server.find(lock_key("job")).value().session);
  const auto destroyed = steady_clock::now();
  const auto ended = holder->wait();
  EXPECT_EQ(ended.code, 76) << ended.err;
  EXPECT_LT(steady_clock::now() - destroyed, 3s);
  EXPECT_FALSE(e2e::alive(inside));
}

TEST_F(consul_cli, deleted_key_ends_the_command) {
  const auto& server = start();
  const auto holder = box.start(staying({"run", "job"}));
  box.pid_in("pid");
  server.erase(lock_key("job"));
  const auto erased = steady_clock::now();
  const auto ended = holder->wait();
  EXPECT_EQ(ended.code, 76) << ended.err;
  EXPECT_LT(steady_clock::now() - erased, 3s);
}

// ---- what lies in the store

TEST_F(consul_cli, lock_lies_where_others_look_for_it) {
  const auto& server = start();
  const auto holder = box.start(staying({"run", "job"}));
  box.pid_in("pid");
  const auto key = server.find("locks/job/.lock");
  ASSERT_TRUE(key);
  EXPECT_EQ(key->flags, consul_server::lock_flags);
  EXPECT_NE(key->session, "");
  const auto seen = json::parse(box.run({"show", "job", "--json"}).out);
  EXPECT_EQ(seen["holders"].size(), 1U) << seen;
  holder->send(SIGTERM);
  EXPECT_EQ(holder->wait().code, 128 + SIGTERM);
  EXPECT_FALSE(is_locked("job"));
}

// A client that ends tidily takes its sessions along, so nobody waits for their end.
TEST_F(consul_cli, sessions_are_destroyed_with_the_command) {
  const auto& server = start();
  for (const auto& line : std::vector<words>{{"run", "job", "--", "true"},
                                             {"run", "pool", "--permits", "2/3", "--", "true"},
                                             {"elect", "boss", "--", "true"},
                                             {"ls"}}) {
    const auto said = box.run(line);
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(server.sessions().size(), 0U) << line.at(0) << ' ' << line.back();
  }
}

// Consul would answer these with a redirect to another key.
TEST_F(consul_cli, prefixes_that_consul_would_rewrite_are_refused) {
  const auto& server = start();
  for (const auto* prefix : {"/a//b", "/a/../b", "/./a"}) {
    const auto said = box.run({"ls", "--store", server.url() + prefix});
    EXPECT_EQ(said.code, 78) << prefix << said.err;
  }
  EXPECT_TRUE(server.keys("").empty());
}

// ---- what is said

TEST_F(consul_cli, explain_prints_both_sessions_and_the_worst_case) {
  const auto url = start().url();
  const auto said = box.run({"explain", "--store", url + "/locks?session=12s&lock_delay=3s"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_TRUE(consul_says(said.out, "12s")) << said.out;
  EXPECT_TRUE(consul_says(said.out, "2 x"))
      << "Consul ends a session after twice its time: " << said.out;
  EXPECT_TRUE(consul_says(said.out, "lock-delay") || consul_says(said.out, "lock_delay"))
      << said.out;
  const auto data = json::parse(
      box.run({"explain", "--json", "--store", url + "/locks?session=12s&lock_delay=0s"}).out);
  EXPECT_EQ(data["engine"], "consul");
  EXPECT_GE(data["dead_holder_bound_seconds"].get<double>(), 24);
  const auto delayed = json::parse(
      box.run({"explain", "--json", "--store", url + "/locks?session=12s&lock_delay=3s"}).out);
  EXPECT_GE(delayed["dead_holder_bound_seconds"].get<double>(),
            data["dead_holder_bound_seconds"].get<double>() + 3);
}

TEST_F(consul_cli, options_that_consul_has_not_are_refused) {
  const auto url = start().url() + "/locks";
  for (const auto* options : {"?nonsense=1", "?session=9s", "?session=25h", "?session=10500ms",
                              "?lock_delay=61s", "?behavior=keep", "?ca_file=/nonexistent.pem"}) {
    const auto said = box.run({"ls", "--store", url + options});
    EXPECT_EQ(said.code, 78) << options << ": " << said.out << said.err;
    EXPECT_NE(said.err, "") << options;
  }
  const auto user = box.run({"ls", "--store", "consul://app@" + url.substr(9)});
  EXPECT_EQ(user.code, 78) << user.err;
}

TEST_F(consul_cli, doctor_looks_at_the_real_cluster) {
  auto& cluster = start({.nodes = 3});
  for (const auto& [about, finding] : findings(cluster.url() + "/locks"))
    EXPECT_NE(finding["level"], "bad") << about << ": " << finding;
  // One of three is gone: it works, and somebody should look at it.
  cluster.kill((cluster.leader() + 1) % 3);
  const auto hurt = box.run({"doctor"});
  EXPECT_TRUE(consul_says(hurt.out, "\nwarning ")) << hurt.out << hurt.err;
}

// Nobody can have a lock there with a shorter session; with a longer one all is well.
TEST_F(consul_cli, session_that_the_agent_finds_too_short_is_named) {
  const auto url = start({.config = {R"({"session_ttl_min": "20s"})"}}).url() + "/locks";
  for (const auto& refused : {box.run({"run", "job", "--store", url, "--", "true"}),
                              box.run({"doctor", "--store", url})}) {
    EXPECT_EQ(refused.code, 78) << refused.out << refused.err;
    EXPECT_TRUE(consul_says(refused.err, "session_ttl_min is longer")) << refused.err;
  }
  EXPECT_EQ(box.run({"run", "job", "--store", url + "?session=20s", "--", "true"}).code, 0);
  EXPECT_EQ(findings(url + "?session=20s")["session"]["level"], "good");
}

TEST_F(consul_cli, bench_measures) {
  start();
  const auto said = box.run({"bench", "--seconds", "0.05", "--threads", "1,4", "--coroutines", "8",
                             "--waiters", "2", "--held", "50", "--json"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_FALSE(json::parse(said.out).empty());
  EXPECT_FALSE(consul_says(said.out, "\"skipped\": \"")) << said.out;
}

// ---- rights

TEST_F(consul_cli, exit_code_says_who_may_not) {
  const std::string canary = "CANARY-4711";
  const auto& server = start({.master_token = canary});
  const auto right = server.make_token(
      R"(key_prefix "locks/" { policy = "write" } session_prefix "" { policy = "write" })");
  const auto reader = server.make_token(R"(key_prefix "locks/" { policy = "read" })");
  const auto store = server.url() + "/locks?password_file=" + box.path("token");
  const auto with = [&](const std::string& token) {
    std::ofstream{box.path("token")} << token << '\n';
    auto said = box.run({"run", "job", "--store", store, "--", "true"});
    EXPECT_FALSE(consul_says(said.out + said.err, token)) << said.out << said.err;
    return said;
  };
  const auto served = with(right);
  EXPECT_EQ(served.code, 0) << served.err;
  for (const auto& token : {reader, std::string{"00000000-0000-0000-0000-00000000abcd"}}) {
    const auto refused = with(token);
    EXPECT_EQ(refused.code, 77) << refused.err;
  }
  server.erase_token(right);
  const auto gone = with(right);
  EXPECT_EQ(gone.code, 77) << gone.err;
  EXPECT_EQ(with(canary).code, 0);
}

// ---- strangers

// A stranger's key is printed as what it is, and does nothing to the terminal.
TEST_F(consul_cli, hostile_keys_are_printed_harmlessly) {
  const auto& server = start();
  const auto session = server.make_session();
  ASSERT_TRUE(server.lock(lock_key("job"), session, "\x1b[2J\x07 evil \n line"));
  // The path of a request may not have such characters; the body of a transaction may.
  const json bell{
      {{"KV", {{"Verb", "set"}, {"Key", "locks/\x1b]52;c;aGk=\x07/.lock"}, {"Value", "eA=="}}}}};
  server.ask("PUT", "/v1/txn", bell.dump());
  server.put("locks/bad\xff/.lock", "\xff");
  for (const auto& line : std::vector<words>{{"ls"},
                                             {"ls", "--json"},
                                             {"ls", "--names"},
                                             {"show", "job"},
                                             {"show", "job", "--json"}}) {
    const auto said = box.run(line);
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_FALSE(consul_says(said.out, "\x1b")) << said.out;
    EXPECT_FALSE(consul_says(said.out, "\x07")) << said.out;
  }
  EXPECT_TRUE(json::accept(box.run({"ls", "--json"}).out));
  EXPECT_EQ(box.run({"break", "job", "--yes"}).code, 0);
  EXPECT_EQ(box.run({"run", "job", "--no-wait", "--", "true"}).code, 0);
}

// Keys of other programs that happen to lie there are neither locks nor ours to change.
TEST_F(consul_cli, keys_of_others_are_left_alone) {
  const auto& server = start();
  server.put("locks/job/config", "theirs");
  server.put("locks/job", "theirs, too");
  EXPECT_EQ(box.run({"run", "job", "--", "true"}).code, 0);
  EXPECT_EQ(box.run({"break", "job", "--yes"}).code, 0);
  EXPECT_EQ(server.find("locks/job/config").value().value, "theirs");
  EXPECT_EQ(server.find("locks/job").value().value, "theirs, too");
}

}  // namespace

// The command against a real etcd.
#include "e2e/etcd_cli.hpp"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

namespace {

using e2e::etcd_cli;
using e2e::eventually;
using nlohmann::json;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

TEST_F(etcd_cli, run_holds_ls_and_show_tell_and_break_takes_away) {
  start();
  const auto holder = box.start(
      {"run", "job", "--label", "nightly", "--", "sh", "-c", "echo $$ > pid; exec sleep 60"});
  box.pid_in("pid");
  const auto listed = json::parse(box.run({"ls", "--json"}).out);
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0]["name"], "job");
  EXPECT_EQ(listed[0]["holders"][0]["label"], "nightly");
  EXPECT_GT(listed[0]["holders"][0]["token"].get<std::uint64_t>(), 0U);
  EXPECT_EQ(box.run({"run", "job", "--no-wait", "--", "true"}).code, 75);

  const auto waiter = box.start({"run", "job", "--", "sh", "-c", "echo $HOLDFAST_TOKEN"});
  ASSERT_TRUE(eventually([&] {
    return box.holders_and_waiters("job") == std::pair<std::size_t, std::size_t>{1, 1};
  }));
  EXPECT_EQ(box.run({"break", "job", "--yes"}).code, 0);
  EXPECT_EQ(holder->wait().code, 76);
  const auto done = waiter->wait();
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_GT(std::stoull(done.out), listed[0]["holders"][0]["token"].get<std::uint64_t>());
  EXPECT_EQ(box.run({"ls", "--json"}).out, "[]\n");
}

TEST_F(etcd_cli, readers_permits_latches_and_elections_work) {
  start({.nodes = 3});
  const auto reader =
      box.start({"run", "table", "--shared", "--", "sh", "-c", "echo $$ > reader; exec sleep 60"});
  box.pid_in("reader");
  EXPECT_EQ(box.run({"run", "table", "--shared", "--no-wait", "--", "true"}).code, 0);
  EXPECT_EQ(box.run({"run", "table", "--no-wait", "--", "true"}).code, 75);
  reader->send(SIGTERM);
  EXPECT_EQ(reader->wait().code, 128 + SIGTERM);

  EXPECT_EQ(box.run({"run", "pool", "--permits", "2/2", "--", "holdfast", "run", "pool",
                     "--permits", "1/2", "--no-wait", "--", "true"})
                .code,
            75);

  EXPECT_EQ(box.run({"latch", "set", "tiles", "2"}).code, 0);
  const auto waiting = box.start({"latch", "wait", "tiles"});
  EXPECT_EQ(box.run({"latch", "down", "tiles"}).out, "1\n");
  EXPECT_EQ(box.run({"latch", "down", "tiles"}).out, "0\n");
  EXPECT_EQ(waiting->wait().code, 0);

  const auto led = box.run({"elect", "boss", "--value", "here", "--", "holdfast", "show", "boss"});
  EXPECT_EQ(led.code, 0) << led.err;
  EXPECT_NE(led.out.find("here"), std::string::npos) << led.out;
}

TEST_F(etcd_cli, lost_lease_ends_the_command) {
  const auto& server = start();
  const auto holder = box.start({"run", "job", "--", "sh", "-c", "echo $$ > pid; exec sleep 60"});
  const pid_t inside = box.pid_in("pid");
  server.revoke(server.all("job/").at(0).lease);
  const auto revoked = steady_clock::now();
  const auto ended = holder->wait();
  EXPECT_EQ(ended.code, 76) << ended.err;
  EXPECT_LT(steady_clock::now() - revoked, 3s);
  EXPECT_FALSE(e2e::alive(inside));
}

TEST_F(etcd_cli, explain_prints_the_bounds_of_the_session) {
  const auto url = start().url();
  const auto said = box.run({"explain", "--store", url + "?session=4s"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_NE(said.out.find("4s"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("leader"), std::string::npos)
      << "a new leader starts every ttl again, and the reader must know: " << said.out;
  const auto data = json::parse(box.run({"explain", "--json", "--store", url}).out);
  EXPECT_EQ(data["engine"], "etcd");
}

TEST_F(etcd_cli, doctor_looks_at_the_real_cluster) {
  auto& cluster = start({.nodes = 3});
  const auto findings = [&] {
    std::map<std::string, json> out;
    const auto said = box.run({"doctor", "--json"});
    EXPECT_TRUE(said.code == 0 || said.code == 78) << said.err;
    const auto all = json::parse(said.out);
    for (const auto& one : all["findings"]) out[one["about"]] = one;
    return out;
  };
  const auto healthy = box.run({"doctor"});
  EXPECT_EQ(healthy.code, 0) << healthy.out << healthy.err;
  EXPECT_EQ(healthy.out.find("\nbad "), std::string::npos) << healthy.out;
  EXPECT_EQ(findings()["version"]["level"], "good");
  // One of three is gone: it works, and somebody should look at it.
  cluster.kill((cluster.leader() + 1) % 3);
  const auto hurt = box.run({"doctor"});
  EXPECT_NE(hurt.out.find("\nwarning "), std::string::npos) << hurt.out;
}

TEST_F(etcd_cli, doctor_sees_the_alarm) {
  const auto& server = start({.flags = {"--quota-backend-bytes=65536"}});
  const std::string big(20'000, 'x');
  ASSERT_TRUE(eventually([&] { return server.try_etcdctl({"put", "fill", big}).code != 0; }));
  const auto said = box.run({"doctor"});
  EXPECT_TRUE(said.code == 78 || said.code == 69) << said.out << said.err;
  EXPECT_NE((said.out + said.err).find("NOSPACE"), std::string::npos) << said.out << said.err;
}

TEST_F(etcd_cli, bench_measures) {
  start();
  const auto said = box.run({"bench", "--seconds", "0.05", "--threads", "1,4", "--coroutines", "8",
                             "--waiters", "2", "--held", "50", "--json"});
  EXPECT_EQ(said.code, 0) << said.err;
  const auto rows = json::parse(said.out);
  EXPECT_FALSE(rows.empty());
  EXPECT_EQ(said.out.find("\"skipped\": \""), std::string::npos) << said.out;
}

TEST_F(etcd_cli, waiter_has_the_lock_of_a_killed_holder_when_its_session_ends) {
  const auto url = start().url() + "?session=2s";
  box.set("HOLDFAST_STORE", url);
  const auto holder = box.start({"run", "job", "--", "sh", "-c", "echo $$ > pid; exec sleep 60"});
  const pid_t worker = box.pid_in("pid");
  const auto waiter = box.start({"run", "job", "--", "true"});
  ASSERT_TRUE(queued("job", 2));
  const auto killed = steady_clock::now();
  holder->send(SIGKILL);
  EXPECT_EQ(waiter->wait().code, 0);
  EXPECT_LT(steady_clock::now() - killed, 5s);
  EXPECT_TRUE(eventually([&] { return !e2e::alive(worker); }))
      << "the command ends with its holder";
  holder->wait();
}

// ---- refusals and secrets

TEST_F(etcd_cli, exit_codes_say_what_is_wrong) {
  auto& server = start();
  EXPECT_EQ(box.run({"ls", "--store", server.url() + "?nonsense=1"}).code, 78);
  EXPECT_EQ(box.run({"ls", "--store", "etcd://127.0.0.1:1"}).code, 69);
  server.enable_auth("app", "word", "locks/");
  const auto at = fmt::format("127.0.0.1:{}/locks", server.port());
  box.set("HOLDFAST_PASSWORD", "wrong");
  const auto wrong = box.run({"run", "job", "--store", "etcd://app@" + at, "--", "true"});
  EXPECT_EQ(wrong.code, 77) << wrong.err;
  box.set("HOLDFAST_PASSWORD", "");
  EXPECT_EQ(box.run({"run", "job", "--store", "etcd://" + at, "--", "true"}).code, 77);
  box.set("HOLDFAST_PASSWORD", "word");
  const auto right = box.run({"run", "job", "--store", "etcd://app@" + at, "--", "true"});
  EXPECT_EQ(right.code, 0) << right.err;
  server.etcdctl({"user", "revoke-role", "app", "app"});
  const auto denied = box.run({"run", "job", "--store", "etcd://app@" + at, "--", "true"});
  EXPECT_EQ(denied.code, 77) << denied.err;
}

TEST_F(etcd_cli, a_password_is_redacted_everywhere) {
  const std::string canary = "CANARY-4711";
  auto& server = start();
  server.enable_auth("app", canary, "locks/");
  const auto at = fmt::format("127.0.0.1:{}/locks", server.port());
  const auto shows_no_secret = [&](const e2e::outcome& said) {
    EXPECT_EQ((said.out + said.err).find(canary), std::string::npos) << said.out << said.err;
  };
  box.set("HOLDFAST_STORE", fmt::format("etcd://app:{}@{}", canary, at));
  for (const auto& words : std::vector<std::vector<std::string>>{{"doctor"},
                                                                 {"doctor", "--json"},
                                                                 {"explain"},
                                                                 {"explain", "--json"},
                                                                 {"ls"},
                                                                 {"show", "job", "--json"},
                                                                 {"top", "--count", "1"},
                                                                 {"run", "job", "--", "env"},
                                                                 {"break", "job", "--yes"}}) {
    const auto said = box.run(words);
    EXPECT_EQ(said.code, 0) << words.front() << ": " << said.err;
    shows_no_secret(said);
  }
  box.set("HOLDFAST_STORE", fmt::format("etcd://app:{}-wrong@{}", canary, at));
  const auto wrong = box.run({"ls"});
  EXPECT_EQ(wrong.code, 77) << wrong.err;
  shows_no_secret(wrong);
}

// A stranger's key is printed as what it is, and does nothing to the terminal.
TEST_F(etcd_cli, hostile_keys_are_printed_harmlessly) {
  const auto& server = start();
  server.put("job/694d7f32a1b2c3d4", "\x1b[2J\x07 evil \n line");
  server.put("\x1b]52;c;aGk=\x07/694d7f32a1b2c3d4", "x");
  server.put("bad\xff/694d7f32a1b2c3d4", "\xff");
  for (const auto& words : std::vector<std::vector<std::string>>{{"ls"},
                                                                 {"ls", "--json"},
                                                                 {"ls", "--names"},
                                                                 {"show", "job"},
                                                                 {"show", "job", "--json"}}) {
    const auto said = box.run(words);
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(said.out.find('\x1b'), std::string::npos) << said.out;
    EXPECT_EQ(said.out.find('\x07'), std::string::npos) << said.out;
  }
  EXPECT_TRUE(json::accept(box.run({"ls", "--json"}).out));
  EXPECT_EQ(box.run({"break", "job", "--yes"}).code, 0);
  EXPECT_EQ(box.run({"run", "job", "--no-wait", "--", "true"}).code, 0);
}

}  // namespace

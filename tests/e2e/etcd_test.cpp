// The command against a real etcd: what it does on this store only, see stores_test.cpp.
#include "e2e/etcd_cli.hpp"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

namespace {

using e2e::etcd_cli;
using e2e::eventually;
using nlohmann::json;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

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
  EXPECT_EQ(findings(cluster.url())["version"]["level"], "good");
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

// ---- refusals and strangers

TEST_F(etcd_cli, exit_code_says_who_may_not) {
  auto& server = start();
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

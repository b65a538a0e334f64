// The command on keys that other programs have written: what it shows of them, and what it does not know.
#include "e2e/store_cli.hpp"
#include "support/redis_server.hpp"

#include <gtest/gtest.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace {

using holdfast::testing::redis_server;
using nlohmann::json;

constexpr auto java = "6a1f2d3c-0000-4000-8000-00000000cafe:42";

class redis_interop : public e2e::store_cli<redis_server> {
 protected:
  void SetUp() override { need(redis_server::available(), "redis"); }
  const redis_server& start_with(const std::string& layout) {
    const auto& server = start();
    box.set("HOLDFAST_STORE", server.url() + "?layout=" + layout);
    return server;
  }
  // One column after the other, of the last line.
  std::vector<std::string> last_row(const std::vector<std::string>& words) {
    auto text = box.run(words).out;
    if (text.ends_with('\n')) text.pop_back();
    std::istringstream line{text.substr(text.rfind('\n') + 1)};
    return {std::istream_iterator<std::string>{line}, {}};
  }
};

TEST_F(redis_interop, show_and_break_need_no_prefix) {
  for (const std::string layout : {"setnx", "redisson"}) {
    start_with(layout);
    const auto inside = box.run({"run", "job", "--", "holdfast", "show", "job", "--json"});
    ASSERT_EQ(inside.code, 0) << inside.err;
    EXPECT_GT(json::parse(inside.out)["holders"][0]["token"], 0) << layout;
    const auto broken =
        box.run({"run", "job", "--", "sh", "-c", "holdfast break job --yes --json > said"});
    EXPECT_EQ(json::parse(box.read("said"))["holders_ended"], 1) << layout << broken.err;
    const auto listed = box.run({"ls"});
    EXPECT_NE(listed.code, 0);
    EXPECT_NE(listed.err.find("?prefix="), std::string::npos) << listed.err;
    EXPECT_EQ(box.run({"show", "job"}).out, "job: 0 holders, 0 waiters\n");
  }
}

TEST_F(redis_interop, a_key_without_ttl_expires_never) {
  const auto& server = start_with("setnx");
  ASSERT_EQ(server.command({"SET", "job", "stranger"}), "OK");
  EXPECT_EQ(last_row({"show", "job"}),
            (std::vector<std::string>{"stranger", "exclusive", "-", "never", "-", "stranger"}));
  const auto seen = json::parse(box.run({"show", "job", "--json"}).out)["holders"][0];
  EXPECT_TRUE(seen["held_seconds"].is_null()) << seen;
  EXPECT_TRUE(seen["expires_in_seconds"].is_null()) << seen;
  EXPECT_EQ(seen["owner"], "stranger");
}

TEST_F(redis_interop, java_owners_are_shown_as_java_prints_them) {
  const auto& server = start_with("redisson&prefix=app:");
  ASSERT_EQ(server.command({"HSET", "app:job", java, "1"}), "1");
  ASSERT_EQ(server.command({"SET", "app:seats", "1"}), "OK");
  ASSERT_EQ(server.command({"ZADD", "{app:seats}:timeout", "922337203685477", "0123456789abcdef"}),
            "1");
  EXPECT_EQ(last_row({"ls", "job"}),
            (std::vector<std::string>{"job", "exclusive", java, "-", "never", "-", "0"}));
  EXPECT_EQ(last_row({"ls", "seats"}),
            (std::vector<std::string>{"seats", "1", "of", "2", "30313233343536373839616263646566",
                                      "-", "never", "-", "0"}));
}

TEST_F(redis_interop, free_permits_are_shown_where_no_holders_are_known) {
  const auto& server = start_with("redisson&semaphore=plain&prefix=app:");
  ASSERT_EQ(server.command({"SET", "app:seats", "1"}), "OK");
  EXPECT_EQ(box.run({"show", "seats"}).out,
            "seats: 0 holders, 0 waiters, 1 permit free of an unknown number\n");
  ASSERT_EQ(server.command({"SET", "{app:seats}:holdfast_permits", "3"}), "OK");
  EXPECT_EQ(box.run({"show", "seats"}).out, "seats: 0 holders, 0 waiters, 3 permits, 1 free\n");
  EXPECT_EQ(last_row({"ls"}), (std::vector<std::string>{"seats", "1", "free", "-", "0"}));
  const auto seen = json::parse(box.run({"show", "seats", "--json"}).out);
  EXPECT_EQ(seen["permits"], 3);
  EXPECT_EQ(seen["free_permits"], 1);
}

}  // namespace

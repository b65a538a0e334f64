#include "engines/consul/kv.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>

namespace holdfast::engines::consul {
namespace {

using nlohmann::json;

TEST(consul_kv, base64_goes_both_ways) {
  for (const std::string bytes : {"", "a", "ab", "abc", "abcd", "\xff\x00\x7f?"}) {
    const auto back = from_base64(base64(bytes));
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, bytes);
  }
  EXPECT_EQ(base64("holdfast"), "aG9sZGZhc3Q=");
  for (const auto* wrong : {"a", "abc", "ab=c", "****"}) EXPECT_FALSE(from_base64(wrong)) << wrong;
}

TEST(consul_kv, paths_keep_slashes_and_escape_the_rest) {
  EXPECT_EQ(escaped_path("a/b c?d#e%f"), "a/b%20c%3Fd%23e%25f");
}

TEST(consul_kv, transaction_is_what_consul_reads) {
  transaction out;
  out.check_absent("p/a");
  out.check_index("p/b", 7);
  out.lock("p/\"c\"", "session-1", "value", lock_flags);
  out.erase_if("p/d", 9);
  out.get_tree("p/");
  const auto in = json::parse(out.body());
  ASSERT_EQ(in.size(), 5U);
  EXPECT_EQ(in[0]["KV"]["Verb"], "check-not-exists");
  EXPECT_EQ(in[1]["KV"]["Index"], 7);
  EXPECT_EQ(in[2]["KV"]["Key"], "p/\"c\"");
  EXPECT_EQ(in[2]["KV"]["Session"], "session-1");
  EXPECT_EQ(in[2]["KV"]["Flags"], lock_flags);
  EXPECT_EQ(in[2]["KV"]["Value"], base64("value"));
  EXPECT_EQ(in[3]["KV"]["Verb"], "delete-cas");
  EXPECT_EQ(in[4]["KV"]["Verb"], "get-tree");
  EXPECT_EQ(out.size(), 5U);
}

TEST(consul_kv, answers_to_transactions_are_read) {
  const auto done = read_txn(
      R"({"Results":[{"KV":{"LockIndex":1,"Key":"p/a","Flags":0,"Value":null,"Session":"s",
          "CreateIndex":4,"ModifyIndex":5}},
          {"KV":{"Key":"p/b","Flags":3,"Value":"YQ==","CreateIndex":1,"ModifyIndex":2}}],"Errors":null})",
      1);
  ASSERT_TRUE(done);
  EXPECT_TRUE(done->done());
  EXPECT_EQ(done->index_of("p/a"), 5U);
  EXPECT_EQ(done->index_of("p/none"), 0U);
  ASSERT_EQ(done->tree.size(), 1U);
  EXPECT_EQ(done->tree[0].value, "a");

  const auto failed = read_txn(
      R"({"Results":null,"Errors":[{"OpIndex":2,"What":"failed to check index"},{"OpIndex":3,"What":"lock delay"}]})",
      0);
  ASSERT_TRUE(failed);
  EXPECT_FALSE(failed->done());
  EXPECT_TRUE(failed->failed_at(2));
  EXPECT_FALSE(failed->failed_at(0));
}

TEST(consul_kv, nonsense_is_no_answer) {
  for (const auto* text : {"", "null", "7", "[", "{", "true", "{\"Results\":7}", "\xff\xfe",
                           R"({"Results":[{"KV":null}],"Errors":null})",
                           R"({"Results":[{"KV":{"Key":7}}],"Errors":null})",
                           R"({"Results":[{"KV":{"Key":"a","ModifyIndex":-1}}],"Errors":null})"})
    EXPECT_FALSE(read_txn(text, 1)) << text;
  for (const auto* text : {"", "{}", "[1]", "[{\"Key\":7}]", "[{\"Key\":\"a\",\"Value\":\"*\"}]"})
    EXPECT_FALSE(read_pairs(text)) << text;
  for (const auto* text : {"", "{}", "{\"ID\":7}", "{\"ID\":\"a/../b\"}", "[]"})
    EXPECT_FALSE(read_session_id(text)) << text;
}

TEST(consul_kv, semaphore_records_go_both_ways) {
  const semaphore_record what{3, {"s1", "s2"}};
  const auto back = read_semaphore(semaphore_text(what));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->limit, 3U);
  EXPECT_EQ(back->holders, what.holders);
  EXPECT_TRUE(read_semaphore(R"({"Limit":2,"Holders":{}})"));
  EXPECT_TRUE(read_semaphore(R"({"Limit":2,"Holders":null})")) << "as Go writes it";
  for (const auto* text : {"", "[]", "{\"Limit\":\"2\"}", "{\"Limit\":-1,\"Holders\":{}}"})
    EXPECT_FALSE(read_semaphore(text)) << text;
}

}  // namespace
}  // namespace holdfast::engines::consul

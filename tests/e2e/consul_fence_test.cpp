// consul_fence on a real Consul, with a client of the user's own: plain HTTP.
#include <holdfast/fence.hpp>
#include <holdfast/holdfast.hpp>

#include "support/consul_server.hpp"
#include "support/expect.hpp"
#include "support/required.hpp"
#include "support/wait_until.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace holdfast::testing {
namespace {

using nlohmann::json;

std::string base64_text(std::string_view bytes) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned part = 0;
    for (std::size_t k = 0; k < 3; ++k)
      part = part << 8U | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      out += i + k > bytes.size() ? '=' : digits[part >> (6 * (3 - k)) & 0x3fU];
  }
  return out;
}

std::string written(const std::string& key, const std::string& value) {
  return json{{"KV", {{"Verb", "set"}, {"Key", key}, {"Value", base64_text(value)}}}}.dump();
}

// PUT /v1/txn.
consul_server::reply transact(const consul_server& with, const std::string& operations) {
  const auto said = with.try_ask(0, "PUT", "/v1/txn", "[" + operations + "]");
  return said.value_or(consul_server::reply{});
}

// The two calls of a fence.
consul_fence::calls calls_of(const consul_server& with) {
  consul_fence::calls out;
  out.get = [&](const std::string& key) -> result<std::optional<consul_fence::key>> {
    const auto found = with.find(key);
    if (!found) return std::optional<consul_fence::key>{};
    return std::optional{consul_fence::key{found->value, found->modify_index}};
  };
  out.cas = [&](const std::string& key, const std::string& value,
                std::uint64_t index) -> result<std::optional<std::uint64_t>> {
    const json operation{
        {"KV", {{"Verb", "cas"}, {"Key", key}, {"Value", base64_text(value)}, {"Index", index}}}};
    const auto said = transact(with, operation.dump());
    if (said.status == 409) return std::optional<std::uint64_t>{};
    if (said.status != 200) return error{errc::unavailable, said.body};
    return std::optional{
        json::parse(said.body)["Results"][0]["KV"]["ModifyIndex"].get<std::uint64_t>()};
  };
  return out;
}

struct consul_fence_test : ::testing::Test {
  void SetUp() override {
    need(consul_server::available(), "consul");
    if (!IsSkipped() && !HasFatalFailure()) shared_consul();  // on this thread, with which it ends
  }
};

TEST_F(consul_fence_test, older_tokens_are_refused_once_a_newer_was_seen) {
  const auto& consul = shared_consul();
  const consul_fence fence{"fences/refusals"};
  const auto calls = calls_of(consul);
  const auto first = fence.admit({7}, calls);
  ASSERT_TRUE(is_ok(first));
  const auto again = fence.admit({7}, calls);
  ASSERT_TRUE(is_ok(again)) << "the same holder comes again";
  EXPECT_EQ(*again, *first) << "and what it had begun stays guarded";
  EXPECT_TRUE(is_ok(fence.admit({10}, calls))) << "as a number, not as text";
  EXPECT_TRUE(fails_with(fence.admit({9}, calls), errc::lost));
  EXPECT_TRUE(fails_with(fence.admit({0}, calls), errc::misconfigured));
  consul.put("fences/refusals", "rubbish");
  EXPECT_TRUE(fails_with(fence.admit({11}, calls), errc::protocol));
}

TEST_F(consul_fence_test, changes_of_an_older_holder_do_nothing) {
  const auto& consul = shared_consul();
  const consul_fence fence{"fences/stock \"42\""};
  consul.put("data/stock", "10");
  const auto calls = calls_of(consul);
  const auto sell = [&](std::uint64_t pass, const std::string& left) {
    return transact(consul, fence.guard(pass) + "," + written("data/stock", left)).status;
  };
  const auto before = fence.admit({100}, calls);
  ASSERT_TRUE(is_ok(before));
  EXPECT_EQ(sell(*before, "9"), 200);
  const auto after = fence.admit({101}, calls);
  ASSERT_TRUE(is_ok(after));
  EXPECT_EQ(sell(*before, "8"), 409) << "it has read 9, and so has the next";
  EXPECT_EQ(consul.find("data/stock")->value, "9");
  EXPECT_EQ(sell(*after, "8"), 200);
  EXPECT_TRUE(fails_with(fence.admit({100}, calls), errc::lost));
}

TEST_F(consul_fence_test, guard_without_an_admission_is_refused) {
  const auto& consul = shared_consul();
  const consul_fence fence{"fences/never"};
  EXPECT_EQ(transact(consul, fence.guard(0) + "," + written("data/never", "1")).status, 409);
  EXPECT_FALSE(consul.find("data/never"));
}

TEST_F(consul_fence_test, admits_the_tokens_of_our_own_locks_in_their_order) {
  const consul_fence fence{"fences/ours"};
  std::vector<std::uint64_t> passes;
  for (int i = 0; i < 3; ++i) {
    const auto store = client::open(shared_consul().url() + "/locks");
    mutex lock{store, "fenced"};
    auto held = lock.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held));
    auto pass = fence.admit(held->token(), calls_of(shared_consul()));
    ASSERT_TRUE(is_ok(pass));
    passes.push_back(*pass);
  }
  EXPECT_TRUE(passes[0] < passes[1] && passes[1] < passes[2]);
}

// Many holders at once: each is admitted, or told that a newer one was; and the newest is what stays.
TEST_F(consul_fence_test, newest_wins_however_they_meet) {
  const consul_fence fence{"fences/crowd"};
  std::atomic<int> admitted{0}, refused{0};
  {
    std::vector<std::jthread> all;
    for (std::uint64_t token = 1; token <= 8; ++token)
      all.emplace_back([&, token] {
        const auto got = fence.admit({token}, calls_of(shared_consul()));
        if (got) {
          ++admitted;
        } else if (got.error().code() == errc::lost) {
          ++refused;
        }
      });
  }
  EXPECT_EQ(admitted + refused, 8);
  EXPECT_GE(admitted, 1);
  EXPECT_EQ(shared_consul().find("fences/crowd")->value, "8");
}

TEST_F(consul_fence_test, keys_that_consul_would_rewrite_are_refused) {
  for (const auto* key : {"", "/a", "a/", "a//b", "a/../b", ".", "a\nb"})
    EXPECT_THROW(consul_fence{key}, lock_error) << key;
}

}  // namespace
}  // namespace holdfast::testing

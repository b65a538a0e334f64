// etcd_fence on a real etcd: by messages through a client of its own, and by hand with etcdctl.
#include <holdfast/fence.hpp>

#include "e2e/etcd_cli.hpp"
#include "grpc/channel.hpp"
#include "net/reactor.hpp"
#include "support/expect.hpp"
#include "support/wait_until.hpp"

#include <etcd/rpc.pb.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace {

namespace rpc = holdfast::engines::etcd::rpc;  // stands for what protoc makes of etcd's own files
using holdfast::errc;
using holdfast::etcd_fence;
using holdfast::fencing_token;
using holdfast::result;
using holdfast::testing::fails_with;
using holdfast::testing::is_ok;

// The client that a user has anyway.
class user_client {
 public:
  explicit user_client(std::uint16_t port) : to_(*reactor_, options(port)) {}

  std::string txn(const std::string& request) { return call("/etcdserverpb.KV/Txn", request); }
  rpc::TxnResponse txn(const rpc::TxnRequest& request) {
    rpc::TxnResponse answer;
    EXPECT_TRUE(answer.ParseFromString(txn(request.SerializeAsString())));
    return answer;
  }
  std::string get(const std::string& key) {
    rpc::RangeRequest request;
    request.set_key(key);
    rpc::RangeResponse answer;
    EXPECT_TRUE(
        answer.ParseFromString(call("/etcdserverpb.KV/Range", request.SerializeAsString())));
    return answer.kvs_size() == 0 ? "" : answer.kvs(0).value();
  }

 private:
  static holdfast::grpc::channel_options options(std::uint16_t port) {
    holdfast::grpc::channel_options out;
    out.where.host = "127.0.0.1";
    out.where.port = port;
    return out;
  }
  std::string call(const char* method, const std::string& request) {
    const auto deadline = std::chrono::steady_clock::now() + holdfast::testing::patience;
    const auto reply = to_.call(method, request, {}, {.deadline = deadline}).value();
    EXPECT_TRUE(reply.ok()) << reply.message;
    return reply.body;
  }

  std::unique_ptr<holdfast::net::reactor> reactor_ = holdfast::net::reactor::start().value();
  holdfast::grpc::channel to_;
};

rpc::TxnRequest putting(const std::string& key, const std::string& value) {
  rpc::TxnRequest out;
  auto& put = *out.add_success()->mutable_request_put();
  put.set_key(key);
  put.set_value(value);
  return out;
}

result<void> admit(user_client& etcd, const etcd_fence& fence, std::uint64_t token) {
  return fence.judge({token}, etcd.txn(fence.admission({token})));
}

result<void> write(user_client& etcd, const etcd_fence& fence, std::uint64_t token,
                   rpc::TxnRequest work) {
  work.MergeFromString(fence.guard({token}));
  return fence.judge({token}, etcd.txn(work.SerializeAsString()));
}

// This is in the guide.
result<void> sell_one(user_client& etcd, const etcd_fence& fence, fencing_token token) {
  const auto admitted = fence.judge(token, etcd.txn(fence.admission(token)));
  if (!admitted) return admitted;
  const int left = std::stoi(etcd.get("stock/sku-42"));
  auto work = putting("stock/sku-42", std::to_string(left - 1));
  work.MergeFromString(fence.guard(token));
  return fence.judge(token, etcd.txn(work.SerializeAsString()));
}

class etcd_fencing : public e2e::etcd_cli {
 protected:
  void SetUp() override {
    etcd_cli::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    server = &start();
    etcd = std::make_unique<user_client>(server->port());
    server->put("stock/sku-42", "10");
  }
  std::string held(const std::string& key = "stock/sku-42") { return etcd->get(key); }

  e2e::etcd_server* server = nullptr;
  std::unique_ptr<user_client> etcd;
  const etcd_fence fence{"stock/sku-42.fence"};
};

TEST_F(etcd_fencing, refuses_older_tokens_and_lets_equal_and_newer_ones_in) {
  EXPECT_TRUE(is_ok(sell_one(*etcd, fence, {33}))) << "nobody has made the key before";
  EXPECT_TRUE(is_ok(sell_one(*etcd, fence, {33}))) << "the same holder comes again";
  EXPECT_TRUE(is_ok(sell_one(*etcd, fence, {34})));
  const auto refused = sell_one(*etcd, fence, {33});
  EXPECT_TRUE(fails_with(refused, errc::lost));
  EXPECT_NE(refused.error().message().find("\"stock/sku-42.fence\" has seen token 34"),
            std::string::npos)
      << refused.error().message();
  EXPECT_EQ(held(), "7");
  EXPECT_EQ(held(fence.key()), "00000000000000000034");
}

TEST_F(etcd_fencing, keeps_all_64_bits_and_compares_them_as_numbers) {
  for (const std::uint64_t token : {9ULL, 10ULL, 99ULL, 100ULL, (1ULL << 63U) + 5, ~0ULL}) {
    EXPECT_TRUE(is_ok(admit(*etcd, fence, token))) << token;
    EXPECT_TRUE(fails_with(admit(*etcd, fence, token - 1), errc::lost)) << token;
  }
}

TEST_F(etcd_fencing, an_old_holder_is_refused_once_the_new_one_has_only_read) {
  ASSERT_TRUE(is_ok(admit(*etcd, fence, 33)));
  const auto old_sees = std::stoi(held());
  ASSERT_TRUE(is_ok(admit(*etcd, fence, 34)));
  const auto new_sees = std::stoi(held());
  const auto late = putting("stock/sku-42", std::to_string(old_sees - 1));
  EXPECT_TRUE(fails_with(write(*etcd, fence, 33, late), errc::lost));
  EXPECT_EQ(held(), "10");
  const auto rightful = putting("stock/sku-42", std::to_string(new_sees - 1));
  EXPECT_TRUE(is_ok(write(*etcd, fence, 34, rightful)));
  EXPECT_EQ(held(), "9");
}

// The same steps without it: two are told that they have sold one, and one is missing.
TEST_F(etcd_fencing, without_it_the_late_write_is_taken) {
  const auto old_sees = std::stoi(held()), new_sees = std::stoi(held());
  EXPECT_TRUE(etcd->txn(putting("stock/sku-42", std::to_string(old_sees - 1))).succeeded());
  EXPECT_TRUE(etcd->txn(putting("stock/sku-42", std::to_string(new_sees - 1))).succeeded());
  EXPECT_EQ(held(), "9");
}

TEST_F(etcd_fencing, a_forgotten_admission_is_found_out) {
  const auto work = putting("stock/sku-42", "0");
  EXPECT_TRUE(fails_with(write(*etcd, fence, 33, work), errc::misconfigured));
  ASSERT_TRUE(is_ok(admit(*etcd, fence, 33)));
  EXPECT_TRUE(fails_with(write(*etcd, fence, 34, work), errc::misconfigured));
  server->erase(fence.key());
  EXPECT_TRUE(fails_with(write(*etcd, fence, 33, work), errc::misconfigured));
  EXPECT_EQ(held(), "10");
}

TEST_F(etcd_fencing, stands_beside_compares_of_the_users) {
  auto work = putting("stock/sku-42", "9");
  auto& own = *work.add_compare();
  own.set_key("stock/sku-42");
  own.set_target(rpc::Compare::VALUE);
  own.set_value("11");
  ASSERT_TRUE(is_ok(admit(*etcd, fence, 33)));
  EXPECT_TRUE(is_ok(write(*etcd, fence, 33, work))) << "it was not the fence that objected";
  EXPECT_EQ(held(), "10");
  EXPECT_TRUE(fails_with(write(*etcd, fence, 32, work), errc::lost));
  work.mutable_compare(0)->set_value("10");
  EXPECT_TRUE(fails_with(write(*etcd, fence, 32, work), errc::lost));
  EXPECT_TRUE(is_ok(write(*etcd, fence, 33, work)));
  EXPECT_EQ(held(), "9");
}

TEST_F(etcd_fencing, the_work_can_go_along_with_the_admission) {
  const auto sell = [&](std::uint64_t token, const std::string& value) {
    rpc::TxnRequest request;
    EXPECT_TRUE(request.ParseFromString(fence.admission({token})));
    *request.add_failure() = putting("stock/sku-42", value).success(0);
    return fence.judge({token}, etcd->txn(request.SerializeAsString()));
  };
  EXPECT_TRUE(is_ok(sell(34, "9")));
  EXPECT_TRUE(is_ok(sell(34, "8")));
  EXPECT_TRUE(fails_with(sell(33, "7"), errc::lost));
  EXPECT_EQ(held(), "8");
}

TEST_F(etcd_fencing, a_damaged_fence_is_told_from_a_newer_holder) {
  server->put(fence.key(), "33");  // a user's own idea; larger than all tokens of 20 digits to come
  EXPECT_TRUE(fails_with(admit(*etcd, fence, 34), errc::protocol));
}

// Three of four keep to the lock; the others are those whose lease has ended: they come with their token whenever they
// do, and dawdle. Whoever is let in adds to the history: there the tokens must rise, and the count that everybody reads
// and writes must miss nothing.
class crowd_of_writers {
 public:
  crowd_of_writers(std::uint16_t port, const etcd_fence& fence) : fence_(fence) {
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i <= 8; ++i)
      threads.emplace_back([this, port, i] {
        user_client etcd{port};
        std::minstd_rand chance{i};
        for (int k = 0; k < 40; ++k) take_turn(etcd, chance);
      });
  }
  std::atomic<int> written{0}, late_at_first_touch{0}, late_at_writing{0};

 private:
  void take_turn(user_client& etcd, std::minstd_rand& chance) {
    std::unique_lock turn{lock_, std::defer_lock};
    const bool keeps_to_it = chance() % 4 != 0;
    if (keeps_to_it) turn.lock();
    const auto dawdle = [&] {
      for (auto n = keeps_to_it ? 0 : chance() % 4; n > 0; --n) etcd.get("count");
    };
    const std::uint64_t token = ++last_token_;
    dawdle();
    if (!passes(admit(etcd, fence_, token), late_at_first_touch)) return;
    const auto count = std::stoi(etcd.get("count")) + 1;
    dawdle();
    auto work = putting("count", std::to_string(count));
    work.MergeFrom(putting("history/" + std::to_string(count), std::to_string(token)));
    if (passes(write(etcd, fence_, token, work), late_at_writing)) ++written;
  }
  static bool passes(const result<void>& outcome, std::atomic<int>& late) {
    if (outcome) return true;
    EXPECT_EQ(outcome.error().code(), errc::lost) << outcome.error().message();
    ++late;
    return false;
  }

  const etcd_fence& fence_;
  std::mutex lock_;
  std::atomic<std::uint64_t> last_token_{100};
};

TEST_F(etcd_fencing, tokens_of_concurrent_writers_never_fall) {
  server->put("count", "0");
  const crowd_of_writers crowd{server->port(), fence};
  RecordProperty("written", crowd.written);
  RecordProperty("late_at_first_touch", crowd.late_at_first_touch);
  RecordProperty("late_at_writing", crowd.late_at_writing);
  EXPECT_GT(crowd.written, 0);
  EXPECT_GT(crowd.late_at_first_touch + crowd.late_at_writing, 0);
  EXPECT_EQ(held("count"), std::to_string(crowd.written));
  std::vector<int> tokens;
  for (const auto& one : server->all("history/")) tokens.push_back(std::stoi(one.value));
  EXPECT_EQ(tokens.size(), static_cast<std::size_t>(crowd.written));
  EXPECT_TRUE(std::ranges::is_sorted(tokens, std::ranges::less_equal{})) << "each wrote once";
}

// ---- by hand, as in the guide

class etcd_fencing_script : public e2e::etcd_cli {
 protected:
  void SetUp() override {
    etcd_cli::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    server = &start();
    server->put("stock/sku-42", "10");
    std::ofstream{box.path("sell")} << R"(#!/bin/sh
# Run it as: holdfast run stock/sku-42 -- sh sell
set -eu
fence=stock/sku-42.fence
token=$(printf %020d "$HOLDFAST_TOKEN")

# The first touch: remember our token, unless a newer one is there.
etcdctl txn >/dev/null <<.
value("$fence") > "$token"


put $fence $token

.
left=$(etcdctl get --print-value-only stock/sku-42)

# The work, if ours is still the newest.
etcdctl txn <<. | grep -x SUCCESS || { echo "a newer holder was here" >&2; exit 76; }
value("$fence") = "$token"

put stock/sku-42 $((left - 1))


.
)";
  }
  int sell_with(const std::string& token) {
    return box.shell("HOLDFAST_TOKEN=" + token + " sh sell").code;
  }
  std::string held(const std::string& key) {
    return server->etcdctl({"get", key, "--print-value-only"});
  }

  e2e::etcd_server* server = nullptr;
};

TEST_F(etcd_fencing_script, refuses_older_tokens_and_lets_equal_and_newer_ones_in) {
  EXPECT_EQ(sell_with("33"), 0);
  EXPECT_EQ(sell_with("33"), 0);
  EXPECT_EQ(sell_with("134"), 0);
  EXPECT_EQ(sell_with("99"), 76);
  EXPECT_EQ(held("stock/sku-42"), "7");
  EXPECT_EQ(held("stock/sku-42.fence"), etcd_fence::value({134}));
}

TEST_F(etcd_fencing_script, has_the_tokens_of_run) {
  box.set("HOLDFAST_STORE", server->url() + "/locks");
  for (const auto* left : {"9", "8"}) {
    const auto sold = box.run({"run", "stock/sku-42", "--", "sh", "sell"});
    EXPECT_EQ(sold.code, 0) << sold.err;
    EXPECT_EQ(held("stock/sku-42"), left);
  }
  EXPECT_EQ(sell_with("2"), 76);
}

TEST_F(etcd_fencing_script, is_refused_by_what_a_program_has_admitted) {
  user_client etcd{server->port()};
  const etcd_fence fence{"stock/sku-42.fence"};
  ASSERT_TRUE(is_ok(admit(etcd, fence, 34)));
  EXPECT_EQ(sell_with("33"), 76);
  EXPECT_EQ(sell_with("35"), 0);
  EXPECT_TRUE(fails_with(admit(etcd, fence, 34), errc::lost));
}

TEST_F(etcd_fencing_script, needs_no_more_than_rights_on_the_keys) {
  server->enable_auth("clerk", "secret", "stock/");
  box.set("ETCDCTL_USER", "clerk:secret");
  EXPECT_EQ(sell_with("34"), 0);
  EXPECT_EQ(sell_with("33"), 76);
}

}  // namespace

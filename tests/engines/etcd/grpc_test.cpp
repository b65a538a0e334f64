// The transport against a real server: etcd, plain and over TLS. Messages are put together by hand, so that this needs
// no generated code.
#include "grpc/channel.hpp"
#include "net/reactor.hpp"

#include "support/etcd_server.hpp"
#include "support/expect.hpp"
#include "unit/grpc/server.hpp"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using grpc::channel;
using testing::etcd_server;
using testing::fails_with;
using testing::is_ok;
using testing::stream_ear;
using testing::wait_until;
using testing::within;

// A field of protobuf's wire format that is bytes or a message.
std::string field(unsigned number, std::string_view bytes) {
  std::string out{static_cast<char>(number << 3U | 2U)};
  auto length = bytes.size();
  for (; length >= 0x80; length >>= 7U) out.push_back(static_cast<char>(length | 0x80U));
  out.push_back(static_cast<char>(length));
  return out.append(bytes);
}

result<grpc::reply> put(channel& on, const std::string& key, std::string_view value) {
  return on.call("/etcdserverpb.KV/Put", field(1, key) + field(2, value), {}, within(10s));
}

result<grpc::reply> range(channel& on, const std::string& key, const std::string& end = {}) {
  return on.call("/etcdserverpb.KV/Range", field(1, key) + (end.empty() ? "" : field(2, end)), {},
                 within(10s));
}

struct grpc_etcd : ::testing::Test {
  void SetUp() override { need(etcd_server::available(), "etcd"); }
  std::unique_ptr<net::reactor> reactor = std::move(net::reactor::start()).value();
};

TEST_F(grpc_etcd, calls_of_all_kinds_are_answered) {
  etcd_server etcd;
  channel on{*reactor, testing::grpc_to(etcd.port())};
  const auto written = put(on, "key", "value");
  ASSERT_TRUE(is_ok(written));
  EXPECT_TRUE(written->ok()) << written->message;
  const auto read = range(on, "key");
  ASSERT_TRUE(is_ok(read));
  EXPECT_NE(read->body.find(field(1, "key")), std::string::npos);
  EXPECT_NE(read->body.find(field(5, "value")), std::string::npos);

  testing::grpc_reply sent, sent_now;
  on.send("/etcdserverpb.KV/Range", field(1, "key"), {}, within(10s), sent);
  on.send_now("/etcdserverpb.KV/Range", field(1, "key"), {}, within(10s), sent_now);
  ASSERT_TRUE(is_ok(sent.get()));
  ASSERT_TRUE(is_ok(sent_now.get()));
  EXPECT_EQ(sent.get()->body, read->body);
  EXPECT_EQ(sent_now.get()->body, read->body);

  const auto unknown = on.call("/etcdserverpb.KV/Nothing", "", {}, within(10s));
  ASSERT_TRUE(is_ok(unknown));
  EXPECT_EQ(unknown->status, grpc::status::unimplemented);
  EXPECT_NE(unknown->message.find("Nothing"), std::string::npos);
  EXPECT_EQ(on.generation(), 1U);
}

TEST_F(grpc_etcd, a_watch_tells_of_changes_until_it_is_cancelled) {
  etcd_server etcd;
  stream_ear ear;
  channel on{*reactor, testing::grpc_to(etcd.port())};
  const auto id = on.open_stream("/etcdserverpb.Watch/Watch", {}, ear);
  ASSERT_TRUE(on.write(id, field(1, field(1, "key"))));
  ASSERT_TRUE(ear.hears(1));  // "created"
  for (int i = 1; i <= 5; ++i) {
    ASSERT_TRUE(is_ok(put(on, "key", "value " + std::to_string(i))));
    ASSERT_TRUE(ear.hears(static_cast<std::size_t>(i) + 1));
    EXPECT_NE(ear.heard().back().find("value " + std::to_string(i)), std::string::npos);
  }
  on.cancel(id);
  EXPECT_TRUE(fails_with(ear.end(), errc::cancelled));
  EXPECT_TRUE(is_ok(put(on, "key", "unheard")));
  EXPECT_EQ(ear.heard().size(), 6U);
}

TEST_F(grpc_etcd, large_values_go_both_ways) {
  etcd_server etcd;
  channel on{*reactor, testing::grpc_to(etcd.port())};
  const std::string value(1'000'000, 'v');
  for (int i = 0; i < 6; ++i) {
    const auto written = put(on, "large/" + std::to_string(i), value);
    ASSERT_TRUE(is_ok(written));
    ASSERT_TRUE(written->ok()) << written->message;
  }
  const auto all = range(on, "large/", "large0");
  ASSERT_TRUE(is_ok(all));
  EXPECT_GT(all->body.size(), 6'000'000U);
}

TEST_F(grpc_etcd, a_killed_server_leaves_no_call_hanging_and_is_found_again) {
  etcd_server etcd;
  stream_ear ear;
  channel on{*reactor, testing::grpc_to(etcd.port())};
  const auto id = on.open_stream("/etcdserverpb.Watch/Watch", {}, ear);
  ASSERT_TRUE(on.write(id, field(1, field(1, "key"))));
  ASSERT_TRUE(ear.hears(1));
  etcd.kill();
  EXPECT_TRUE(fails_with(ear.end(), errc::unavailable));
  const auto nobody = put(on, "key", "a");
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().code(), errc::unavailable) << nobody.error().message();
  etcd.restart();
  EXPECT_TRUE(wait_until([&] { return put(on, "key", "b").has_value(); }));
}

TEST_F(grpc_etcd, tls_is_spoken_and_the_certificate_verified) {
  etcd_server etcd{{.tls = true}};
  auto options = testing::grpc_to(etcd.port());
  options.where.use_tls = true;
  options.where.tls.ca_file = etcd.ca_file();
  channel on{*reactor, options};
  const auto written = put(on, "key", "value");
  ASSERT_TRUE(is_ok(written));
  EXPECT_TRUE(written->ok());
  const std::string value(1'000'000, 'v');
  ASSERT_TRUE(is_ok(put(on, "large", value)));
  EXPECT_GT(range(on, "large").value().body.size(), value.size());

  options.where.tls.server_name = "somebody.else";
  channel wrong{*reactor, options};
  EXPECT_TRUE(fails_with(put(wrong, "key", "value"), errc::misconfigured));
}

}  // namespace
}  // namespace holdfast

// The operator's hand that other tests use on ZooKeeper servers does what its header says.
#include "support/zookeeper_hand.hpp"

#include "support/wait_until.hpp"
#include "support/zookeeper_server.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::testing {
namespace {

using jute::code;
using jute::create_mode;

template <class Action>
std::optional<code> refusal_of(Action&& action) {
  try {
    action();
  } catch (const zookeeper_error& refused) {
    return refused.code();
  }
  return std::nullopt;
}

class zookeeper_hand_test : public ::testing::Test {
 protected:
  void SetUp() override { need(zookeeper_server::available(), "zk"); }
};

TEST_F(zookeeper_hand_test, node_is_made_read_changed_and_erased) {
  const zookeeper_server server;
  zookeeper_hand hand{server};
  EXPECT_EQ(hand.create({.path = "/a", .data = "one"}), "/a");
  EXPECT_EQ(hand.get("/a").data, "one");
  EXPECT_EQ(hand.set("/a", "two").version, 1);
  EXPECT_EQ(hand.get("/a").data, "two");
  EXPECT_EQ(hand.stat("/a")->data_length, 3);
  EXPECT_EQ(hand.get("/a").stat, hand.stat("/a"));
  hand.erase("/a");
  EXPECT_EQ(hand.stat("/a"), std::nullopt);
}

TEST_F(zookeeper_hand_test, modes_are_the_servers) {
  const zookeeper_server server;
  zookeeper_hand hand{server};
  hand.create({.path = "/a", .mode = create_mode::container});
  EXPECT_EQ(hand.create({.path = "/a/n-", .mode = create_mode::persistent_sequential}),
            "/a/n-0000000000");
  EXPECT_EQ(hand.create({.path = "/a/n-", .mode = create_mode::ephemeral_sequential}),
            "/a/n-0000000001");
  hand.create({.path = "/a/e", .mode = create_mode::ephemeral});
  EXPECT_EQ(hand.children("/a"), (std::vector<std::string>{"e", "n-0000000000", "n-0000000001"}));
  EXPECT_EQ(hand.stat("/a/e")->ephemeral_owner, hand.session());
  EXPECT_EQ(hand.stat("/a/n-0000000000")->ephemeral_owner, 0);
}

TEST_F(zookeeper_hand_test, refusals_have_the_names_of_zookeeper) {
  const zookeeper_server server;
  zookeeper_hand hand{server};
  hand.create({.path = "/a"});
  hand.create({.path = "/a/b"});
  EXPECT_EQ(refusal_of([&] { hand.create({.path = "/a"}); }), code::node_exists);
  EXPECT_EQ(refusal_of([&] { hand.erase("/a"); }), code::not_empty);
  EXPECT_EQ(refusal_of([&] { hand.erase("/a/b", 7); }), code::bad_version);
  EXPECT_EQ(refusal_of([&] { hand.set("/a/b", "x", 7); }), code::bad_version);
  EXPECT_EQ(refusal_of([&] { hand.get("/c"); }), code::no_node);
  EXPECT_EQ(refusal_of([&] { hand.children("/c"); }), code::no_node);
  try {
    hand.erase("/c");
    FAIL() << "there was such a node";
  } catch (const zookeeper_error& refused) {
    EXPECT_STREQ(refused.what(), "NoNode (-101): delete /c");
  }
}

TEST_F(zookeeper_hand_test, nodes_are_counted_at_any_depth) {
  const zookeeper_server server;
  zookeeper_hand hand{server};
  for (const auto* path : {"/a", "/a/b", "/a/b/c", "/a/d", "/e"}) hand.create({.path = path});
  EXPECT_EQ(hand.count_below("/a"), 3U);
  EXPECT_EQ(hand.count_below("/"), 5U) << "without those of ZooKeeper";
  EXPECT_EQ(hand.count_below("/e"), 0U);
  EXPECT_EQ(hand.count_below("/none"), 0U);
}

TEST_F(zookeeper_hand_test, only_the_user_that_made_a_node_may_read_it) {
  const zookeeper_server server;
  zookeeper_hand hand{server};
  EXPECT_EQ(refusal_of([&] { hand.create({.path = "/a", .rights = jute::creator_only()}); }),
            code::invalid_acl);
  hand.log_in("anna:secret");
  hand.create({.path = "/a", .data = "x", .rights = jute::creator_only()});
  zookeeper_hand other{server};
  EXPECT_EQ(refusal_of([&] { other.get("/a"); }), code::no_auth);
  other.log_in("anna:secret");
  EXPECT_EQ(other.get("/a").data, "x");
}

TEST_F(zookeeper_hand_test, timeout_is_the_one_that_was_granted) {
  const zookeeper_server server;
  EXPECT_EQ((zookeeper_hand{server, {.timeout = std::chrono::milliseconds{3000}}}.timeout()),
            std::chrono::milliseconds{3000});
  EXPECT_EQ((zookeeper_hand{server, {.timeout = std::chrono::milliseconds{1}}}.timeout()),
            std::chrono::milliseconds{500});
}

TEST_F(zookeeper_hand_test, session_ends_with_the_hand) {
  const zookeeper_server server;
  zookeeper_hand hand{server};
  {
    zookeeper_hand other{server};
    other.create({.path = "/a", .mode = create_mode::ephemeral});
    EXPECT_TRUE(hand.stat("/a"));
  }
  EXPECT_FALSE(hand.stat("/a"));
}

TEST_F(zookeeper_hand_test, session_outlives_its_connection_and_goes_on) {
  const zookeeper_server server;
  zookeeper_hand hand{server};
  hand.create({.path = "/a", .mode = create_mode::ephemeral});
  hand.hang_up();
  EXPECT_EQ(refusal_of([&] { hand.get("/a"); }), code::connection_loss);
  zookeeper_hand again{server, {.session = hand.session(), .password = hand.password()}};
  EXPECT_EQ(again.stat("/a")->ephemeral_owner, hand.session());
  again.close();
  EXPECT_FALSE(zookeeper_hand{server}.stat("/a"));
}

TEST_F(zookeeper_hand_test, session_that_was_left_expires) {
  const zookeeper_server server;
  zookeeper_hand hand{server};
  zookeeper_hand other{server, {.timeout = std::chrono::milliseconds{500}}};
  other.create({.path = "/a", .mode = create_mode::ephemeral});
  other.hang_up();
  EXPECT_TRUE(hand.stat("/a"));
  EXPECT_TRUE(wait_until([&] { return !hand.stat("/a"); }));
  EXPECT_EQ(refusal_of([&] {
              const zookeeper_hand late{server,
                                        {.session = other.session(), .password = other.password()}};
            }),
            code::session_expired);
}

TEST_F(zookeeper_hand_test, password_is_known_from_the_session) {
  const zookeeper_server server;
  for (int i = 0; i < 3; ++i) {
    const zookeeper_hand hand{server};
    EXPECT_EQ(hand.password().size(), 16U);
    EXPECT_EQ(zookeeper_hand::password_of(hand.session()), hand.password());
  }
}

TEST_F(zookeeper_hand_test, session_of_another_client_can_be_expired) {
  const zookeeper_server server;
  zookeeper_hand hand{server};
  zookeeper_hand other{server};
  other.create({.path = "/a", .mode = create_mode::ephemeral});
  EXPECT_FALSE(hand.end(other.session(), "not the password"));
  EXPECT_TRUE(hand.expire(hand.stat("/a")->ephemeral_owner));
  EXPECT_FALSE(hand.stat("/a"));
  EXPECT_EQ(refusal_of([&] { other.get("/"); }), code::connection_loss);
  EXPECT_FALSE(hand.expire(other.session())) << "it is over";
}

TEST_F(zookeeper_hand_test, session_can_be_expired_through_any_node) {
  const zookeeper_server ensemble{{.nodes = 3}};
  for (std::size_t n = 0; n < ensemble.nodes(); ++n) {
    zookeeper_hand hand{ensemble, {.node = n}};
    zookeeper_hand other{ensemble, {.node = (n + 1) % 3}};
    EXPECT_EQ(zookeeper_hand::password_of(other.session()), other.password());
    other.create({.path = "/a", .mode = create_mode::ephemeral});
    EXPECT_TRUE(hand.stat("/a")) << "its node has caught up";
    EXPECT_TRUE(hand.expire(other.session()));
    EXPECT_EQ(hand.count_below("/"), 0U);
    EXPECT_TRUE(wait_until([&] {
      return refusal_of([&] { other.get("/"); }) == code::connection_loss;
    })) << "its own node may learn of it later";
  }
}

TEST_F(zookeeper_hand_test, node_that_clients_are_cut_off_from_is_reached) {
  if (const auto can = network_lab::available(); !can) GTEST_SKIP() << can.why;
  network_lab lab{1};
  const zookeeper_server server{{.network = &lab}};
  lab.cut(0);
  zookeeper_hand hand{server};
  hand.create({.path = "/a"});
  EXPECT_EQ(hand.count_below("/"), 1U);
}

TEST_F(zookeeper_hand_test, plain_port_is_used_when_clients_need_tls) {
  const zookeeper_server server{{.tls = true}};
  zookeeper_hand hand{server};
  hand.create({.path = "/a"});
  EXPECT_TRUE(hand.stat("/a"));
}

}  // namespace
}  // namespace holdfast::testing

// What breaks here: nothing; another program uses the nodes of our locks for something else, too. What must hold: what
// it wrote stays as it is, and what it made stays where it is.
#include "faults/zk_faults.hpp"

#include "engines/zk/engine.hpp"
#include "support/engine_fixture.hpp"
#include "support/zookeeper_peers.hpp"

namespace holdfast::testing {
namespace {

class zk_others : public zk_faults {
 protected:
  static request reader(raw_client& as, queue_order order) {
    auto out = as.ask("stock");
    out.mode = lock_mode::shared;
    out.weight = 1;
    out.order = order;
    return out;
  }
  // Locks and unlocks `name`; returns when that client has swept it, and so all that was used before.
  static void use_until_swept(const client& as, const zookeeper_server& server,
                              const std::string& name) {
    ASSERT_TRUE(is_ok(mutex{as, name}.acquire({.wait = patience})));
    zookeeper_hand hand{server};
    ASSERT_TRUE(wait_until([&] { return !hand.stat("/" + name); }, 3 * patience));
    ASSERT_TRUE(is_ok(as.inspect(name)));  // what was asked together with that is carried out
  }
};

// Each write to the node of a lock looked like our mark that a waiter was overtaken.
TEST_F(zk_others, content_of_a_locks_node_is_not_overwritten) {
  const zookeeper_server server;
  zookeeper_hand hand{server};
  for (const auto mode : {jute::create_mode::persistent, jute::create_mode::container}) {
    SCOPED_TRACE(static_cast<int>(mode));
    hand.create({.path = "/stock", .data = "precious", .mode = mode});
    hand.set("/stock", "precious 1");
    auto other = std::make_unique<zookeeper_hand>(server);
    other->create({.path = "/stock/_c_00000000-0000-0000-0000-000000000001-lock-",
                   .mode = jute::create_mode::ephemeral_sequential});
    const auto a = client::open(server.url());
    mutex lock{a, "stock"};
    auto waiting = acquire_later(lock);
    ASSERT_TRUE(one_waits(server, "stock"));
    hand.set("/stock", "precious 2");
    other->close();
    auto held = get(waiting);
    ASSERT_TRUE(is_ok(held));
    EXPECT_EQ(hand.get("/stock").data, "precious 2");
    ASSERT_TRUE(is_ok(held->release()));
    hand.erase("/stock");
  }
}

// A reader that would barge in, where its mark would overwrite what is there, waits.
TEST_F(zk_others, content_is_not_overwritten_by_a_reader_that_barges) {
  const zookeeper_server server;
  zookeeper_hand hand{server};
  hand.create({.path = "/stock", .data = "precious", .mode = jute::create_mode::container});
  raw_client a{engines::zk::make_engine, server.url(), system_clock(), 1};
  const auto first = a.verbs->enter(reader(a, queue_order::fifo), call_within(patience));
  ASSERT_TRUE(first && first->what == entered::kind::granted);
  auto writer = a.ask("stock");
  writer.has_readers = true;
  const auto second = a.verbs->enter(writer, call_within(patience));
  ASSERT_TRUE(second && second->what == entered::kind::waiting);
  const auto third = a.verbs->enter(reader(a, queue_order::barging), call_within(patience));
  ASSERT_TRUE(is_ok(third));
  EXPECT_EQ(third->what, entered::kind::waiting);
  EXPECT_EQ(hand.get("/stock").data, "precious");
}

TEST_F(zk_others, nodes_that_others_made_outlive_our_use) {
  const zookeeper_server server;
  zookeeper_hand hand{server};
  hand.create({.path = "/empty"});
  hand.create({.path = "/full", .data = "precious", .mode = jute::create_mode::container});
  hand.create({.path = "/seats"});
  hand.create({.path = "/seats/leases", .data = "precious", .mode = jute::create_mode::container});
  const auto a = client::open(server.url());
  for (const auto* name : {"empty", "full"})
    ASSERT_TRUE(is_ok(mutex{a, name}.acquire({.wait = patience})));
  ASSERT_TRUE(is_ok(counting_semaphore{a, "seats", 2}.acquire_permits(1, {.wait = patience})));
  EXPECT_EQ(hand.get("/seats/leases").data, "precious");
  use_until_swept(a, server, "used");
  for (const auto* path : {"/empty", "/full", "/seats", "/seats/leases"})
    EXPECT_TRUE(hand.stat(path)) << path;
}

// kazoo's locks look for their node once, and never make it again.
TEST_F(zk_others, locks_of_kazoo_outlive_our_use) {
  need(kazoo_available(), "zk");
  if (IsSkipped() || HasFatalFailure()) return;
  const zookeeper_server server;
  kazoo_peer kazoo{server.url()};
  const auto a = client::open(server.url() + "?layout=kazoo"), b = client::open(server.url());
  const auto we_use = [&](const char* name) {
    EXPECT_TRUE(is_ok(mutex{a, name}.acquire({.wait = patience})));
  };
  we_use("ours");  // the first makes the node
  for (const auto* name : {"ours", "theirs"}) {
    EXPECT_EQ(kazoo.ask(fmt::format("take {0} lock /{0}", name)), fmt::format("taken {}", name));
    EXPECT_EQ(kazoo.ask(fmt::format("give {}", name)), fmt::format("given {}", name));
    we_use(name);
  }
  use_until_swept(b, server, "used");  // later than what `a` would have swept
  for (const auto* name : {"ours", "theirs"})
    EXPECT_EQ(kazoo.ask(fmt::format("again {}", name)), fmt::format("taken {}", name));
}

}  // namespace
}  // namespace holdfast::testing

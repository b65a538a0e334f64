// What breaks here: what others do to our keys. Leases are revoked, keys deleted, history is compacted, strangers write
// under our names. What must hold: nobody is told "held" without a live key of its own, loss is announced within a
// second of the deletion (S5), everybody is served (L2), and a stranger's key costs no more than a wait.
#include "faults/etcd_faults.hpp"

#include "support/names.hpp"

#include <set>
#include <thread>

namespace holdfast::testing {
namespace {

class etcd_operators : public etcd_faults {};

TEST_F(etcd_operators, revoked_lease_is_announced_within_a_second) {
  const etcd_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  token_log tokens;
  for (int round = 0; round < 3; ++round) {
    auto held = ours.acquire({.wait = patience, .ttl = 30s});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    auto waiting = acquire_later(theirs);
    ASSERT_TRUE(wait_for_entries(server, "stock", 2));
    const auto lease = lease_of(server, *held);
    expect_told_within_a_second(*held, [&] { server.revoke(lease); });
    auto other = get(waiting);
    ASSERT_TRUE(is_ok(other));
    tokens.add(other->token());
    EXPECT_TRUE(is_proven(server, *other));
    EXPECT_TRUE(fails_with(held->renew(), errc::lost));
    EXPECT_TRUE(fails_with(held->release(), errc::lost));
    EXPECT_TRUE(other->valid());
    EXPECT_TRUE(is_ok(other->release()));
  }
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

TEST_F(etcd_operators, deleted_key_is_announced_within_a_second) {
  const etcd_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"}, else_where{a, "shelf"};
  auto kept = else_where.acquire({.ttl = 30s});
  ASSERT_TRUE(is_ok(kept));
  for (int round = 0; round < 3; ++round) {
    auto held = ours.acquire({.wait = patience, .ttl = 30s});
    ASSERT_TRUE(is_ok(held));
    expect_told_within_a_second(*held, [&] { server.erase(entries(server, "stock").at(0).key); });
    EXPECT_TRUE(fails_with(held->renew(), errc::lost)) << "never revived";
    EXPECT_TRUE(is_ok(theirs.try_acquire()));
    EXPECT_TRUE(kept->valid()) << "only that one";
  }
}

// The value of a key says who it is; without it, it is still a key of its owner's.
TEST_F(etcd_operators, overwritten_key_is_noticed_or_costs_nothing) {
  const etcd_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 30s});
  ASSERT_TRUE(is_ok(held));
  server.put(entries(server, "stock").at(0).key, "\xff\xfe garbage \x01");  // without a lease, too
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_entries(server, "stock", 2));
  EXPECT_TRUE(is_ok(b.inspect("stock")));
  EXPECT_FALSE(is_ready(waiting));
  if (held->valid()) {
    EXPECT_TRUE(is_ok(held->release()));
  } else {
    server.erase(entries(server, "stock").at(0).key);
  }
  EXPECT_TRUE(is_ok(get(waiting)));
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

// F12. The server's own Lock RPC says "locked" here.
TEST_F(etcd_operators, waiter_whose_lease_died_is_not_told_granted) {
  const etcd_server server;
  const auto a = client::open(server.url());
  mutex ours{a, "stock"};
  token_log tokens;
  for (int round = 0; round < 6; ++round) {
    const auto b = client::open(server.url());
    mutex theirs{b, "stock"};
    auto held = ours.acquire({.wait = patience, .ttl = 30s});
    ASSERT_TRUE(is_ok(held));
    tokens.add(held->token());
    auto waiting = acquire_later(theirs);
    ASSERT_TRUE(wait_for_entries(server, "stock", 2));
    const auto queued = entries(server, "stock").at(1);
    if (round % 2 == 0) {
      server.revoke(queued.lease);
    } else {
      server.erase(queued.key);
    }
    // Not silently left out: it queues up again by itself, or gives up with an error. Sometimes the lock is let go
    // before it can have noticed.
    if (round < 4) {
      EXPECT_TRUE(
          wait_until([&] { return is_ready(waiting) || entries(server, "stock").size() == 2; }));
      EXPECT_TRUE(held->valid());
    }
    const bool gave_up = is_ready(waiting);
    ASSERT_TRUE(is_ok(held->release()));
    auto other = get(waiting);
    if (!other) {
      EXPECT_TRUE(other.error().code() == errc::lost || other.error().code() == errc::unavailable)
          << other.error().message();
      continue;
    }
    EXPECT_FALSE(gave_up) << "two holders";
    EXPECT_TRUE(is_proven(server, *other));
    tokens.add(other->token());
    EXPECT_TRUE(is_ok(other->release()));
  }
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

TEST_F(etcd_operators, waiter_is_served_over_a_compaction) {
  const etcd_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"}, other{a, "shelf"};
  for (int round = 0; round < 3; ++round) {
    auto held = ours.acquire({.wait = patience, .ttl = 30s});
    ASSERT_TRUE(is_ok(held));
    auto waiting = acquire_later(theirs);
    ASSERT_TRUE(wait_for_entries(server, "stock", 2));
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(is_ok(other.acquire({.own_token = true})));
    server.compact();
    EXPECT_TRUE(is_ok(held->release()));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(is_ok(get(waiting)));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
  }
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

// While it is cut off everything happens: its predecessor goes, history is forgotten. Nothing tells it afterwards.
TEST_F(etcd_operators, waiter_whose_watch_is_older_than_history_is_served) {
  const etcd_server server;
  fault_proxy net{server.port()};
  const auto a = client::open(server.url()), b = client::open(etcd_url(net));
  mutex ours{a, "stock"}, theirs{b, "stock"}, other{a, "shelf"};
  for (int round = 0; round < 3; ++round) {
    auto held = ours.acquire({.wait = patience, .ttl = 30s});
    ASSERT_TRUE(is_ok(held));
    auto waiting = acquire_later(theirs, {.ttl = 30s});
    ASSERT_TRUE(wait_for_entries(server, "stock", 2));
    net.refuse(), net.cut();
    EXPECT_TRUE(is_ok(held->release()));
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(is_ok(other.acquire({.own_token = true})));
    server.compact();
    net.heal();
    auto served = get(waiting);
    ASSERT_TRUE(is_ok(served));
    EXPECT_TRUE(is_proven(server, *served));
    EXPECT_TRUE(is_ok(served->release()));
  }
}

// The same for a holder: when it can ask again, its key is gone, and no event will ever say so.
TEST_F(etcd_operators, holder_whose_watch_is_older_than_history_learns_of_its_loss) {
  const etcd_server server;
  fault_proxy net{server.port()};
  const auto a = client::open(etcd_url(net)), b = client::open(server.url());
  mutex ours{a, "stock"}, other{b, "shelf"};
  auto held = ours.acquire({.ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  net.refuse(), net.cut();
  server.erase(entries(server, "stock").at(0).key);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(is_ok(other.acquire({.own_token = true})));
  server.compact();
  net.heal();
  const auto healed = std::chrono::steady_clock::now();
  ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
  EXPECT_LE(loss.when() - healed, 3s) << "the time to connect again, and a second";
  EXPECT_FALSE(held->valid());
}

TEST_F(etcd_operators, full_server_refuses_new_locks_and_takes_old_ones_back) {
  const etcd_server server{{.flags = {"--quota-backend-bytes=262144"}}};
  const auto a = client::open(server.url());
  mutex kept{a, "kept"}, lock{a, "stock"};
  auto held = kept.acquire({.ttl = 3s});
  ASSERT_TRUE(is_ok(held));
  const std::string big(60'000, 'x');
  ASSERT_TRUE(wait_until([&] { return server.try_etcdctl({"put", "fill", big}).code != 0; }));
  ASSERT_NE(server.etcdctl({"alarm", "list"}).find("NOSPACE"), std::string::npos);
  EXPECT_TRUE(refuses(lock.try_acquire(), errc::unavailable, "stock", server.url(), "space"));
  EXPECT_FALSE(is_locked(server, "stock"));
  const auto then = held->valid_until();
  EXPECT_TRUE(wait_until([&] { return !held->valid() || held->valid_until() > then + 1s; }));
  EXPECT_TRUE(held->valid()) << "renewing needs no space";
  EXPECT_TRUE(is_ok(held->release())) << "neither does giving back";
  EXPECT_FALSE(is_locked(server, "kept"));
  const auto opened = client::try_open(server.url());
  if (!opened) {
    EXPECT_TRUE(refuses(opened, errc::unavailable, "", server.url(), "space"));
  }
  server.erase("fill");
  server.compact();
  server.etcdctl({"defrag"});
  server.etcdctl({"alarm", "disarm"});
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
}

// ---- names and strangers

// etcd keeps every key that ever was in its index, until its history is compacted, and looks through all of a name's
// for each question: so a client has few of them, and none is two owners' at a time.
TEST_F(etcd_operators, history_has_few_keys_however_often_a_lock_was_taken) {
  const etcd_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  std::set<std::string> seen;
  const auto look = [&] {
    std::set<std::string> now;
    for (const auto& one : entries(server, "stock")) now.insert(one.key);
    seen.insert(now.begin(), now.end());
    return now.size();
  };
  for (int round = 0; round < 20; ++round) {
    auto held = ours.acquire();
    ASSERT_TRUE(is_ok(held));
    auto waiting = acquire_later(theirs);
    ASSERT_TRUE(wait_for_entries(server, "stock", 2));
    EXPECT_EQ(look(), 2U);
    EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::busy));
    held.value() = lease{};  // sent, not waited for
    EXPECT_TRUE(is_ok(get(waiting)));
  }
  EXPECT_LE(seen.size(), 4U) << "two of each: one goes while the next comes";
  // After a key was lost it is not certain what may yet happen to it: another one is taken.
  auto held = ours.acquire({.ttl = 30s});
  ASSERT_TRUE(is_ok(held));
  const auto lost = entries(server, "stock").at(0).key;
  expect_told_within_a_second(*held, [&] { server.erase(lost); });
  auto again = ours.acquire();
  ASSERT_TRUE(is_ok(again));
  EXPECT_NE(entries(server, "stock").at(0).key, lost);
}

TEST_F(etcd_operators, owners_of_one_client_never_share_a_key) {
  const etcd_server server;
  const auto a = client::open(server.url());
  shared_mutex lock{a, "stock"};
  std::vector<lease> readers;
  for (int i = 0; i < 5; ++i) {
    auto one = lock.acquire_shared({.own_token = true});
    ASSERT_TRUE(is_ok(one));
    readers.push_back(std::move(*one));
  }
  EXPECT_EQ(entries(server, "stock").size(), 5U);
  ASSERT_TRUE(is_ok(readers[2].release()));
  auto next = lock.acquire_shared({.own_token = true});
  ASSERT_TRUE(is_ok(next));
  EXPECT_EQ(entries(server, "stock").size(), 5U) << "in the place that became free";
  for (auto& one : readers) EXPECT_EQ(one.valid(), &one != &readers[2]);
}

TEST_F(etcd_operators, names_that_begin_alike_are_apart) {
  const etcd_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  for (const auto& [first, second] : std::vector<std::pair<std::string, std::string>>{
           {"a", "a/b"}, {"a/b", "a"}, {"x", "x/y/z"}, {"x/y", "x/y/z"}, {"k", "kk"}}) {
    SCOPED_TRACE(first + " and " + second);
    mutex one{a, first}, two{b, second}, one_again{b, first};
    auto held = one.acquire();
    ASSERT_TRUE(is_ok(held));
    EXPECT_TRUE(is_ok(two.try_acquire()));
    EXPECT_TRUE(fails_with(one_again.try_acquire(), errc::busy));
    EXPECT_EQ(b.inspect(second).value().holders.size(), 0U);
    EXPECT_EQ(b.revoke(second).value(), 0U);
    EXPECT_TRUE(held->valid());
    auto also = two.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(also));
    EXPECT_EQ(b.list().value().size(), 2U);
    EXPECT_EQ(b.revoke(second).value(), 1U);
    EXPECT_TRUE(wait_until([&] { return !also->valid(); }));
    EXPECT_TRUE(is_ok(held->renew()));
    EXPECT_TRUE(is_ok(held->release()));
  }
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

// The key of a Go client that holds the lock: nothing tells us who it is, and nothing is needed to wait for it.
TEST_F(etcd_operators, strangers_key_of_the_usual_shape_is_a_holder) {
  const etcd_server server;
  const auto a = client::open(server.url());
  mutex lock{a, "stock"};
  server.put("stock/694d7f32a1b2c3d4", "");
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::busy));
  const auto info = a.inspect("stock");
  ASSERT_TRUE(is_ok(info));
  EXPECT_EQ(info->holders.size(), 1U);
  auto waiting = acquire_later(lock);
  ASSERT_TRUE(wait_for_entries(server, "stock", 2));
  server.put("stock/694d7f32a1b2c3d5", "candidate");  // queues up behind us
  ASSERT_TRUE(wait_for_entries(server, "stock", 3));
  EXPECT_FALSE(is_ready(waiting));
  server.erase("stock/694d7f32a1b2c3d4");
  auto held = get(waiting);
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(is_proven(server, *held));
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_EQ(server.keys(""), std::vector<std::string>{"stock/694d7f32a1b2c3d5"});
  EXPECT_EQ(a.revoke("stock").value(), 1U) << "an operator can end it";
  EXPECT_TRUE(is_ok(lock.acquire({.wait = patience})));
}

TEST_F(etcd_operators, garbage_under_our_names_costs_no_more_than_a_wait) {
  const etcd_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  const std::vector<std::pair<std::string, std::string>> garbage{
      {"stock/zzz", "not hex"},
      {"stock/", "no lease at all"},
      {"stock/\xff\xfe\x80", std::string(100, '\xff')},
      {"stock/1", std::string(100'000, 'x')},
      {"stock/ffffffffffffffffffffffffffffffff", "{\"owner\": 17"},
      {"stock/2", "\x1b[2J\x07\n\r"},
      {"stock/-1", "\x08\x96\x01\x12\xff\xff\xff\xff\x0f"}};
  for (const auto& [key, value] : garbage) {
    SCOPED_TRACE(key);
    mutex ours{a, "stock"}, theirs{b, "stock"};
    auto held = ours.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held));
    server.put(key, value);  // behind us
    EXPECT_TRUE(held->valid());
    EXPECT_TRUE(is_ok(b.inspect("stock")));
    EXPECT_TRUE(is_ok(b.list()));
    auto waiting = acquire_later(theirs);
    ASSERT_TRUE(wait_for_entries(server, "stock", 3));
    EXPECT_TRUE(is_ok(held->release()));
    EXPECT_TRUE(is_ok(b.inspect("stock")));
    // Either it is nobody's, then the waiter has it now, or it is a stranger's, then when that has gone.
    server.erase(key);
    auto other = get(waiting);
    ASSERT_TRUE(is_ok(other));
    EXPECT_TRUE(is_proven(server, *other));
  }
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

// What has nothing to do with us, or looks as if it had: names that no client of ours could have written.
TEST_F(etcd_operators, strangers_names_do_not_break_the_list) {
  const etcd_server server;
  const auto a = client::open(server.url());
  mutex lock{a, "stock"};
  auto held = lock.acquire();
  ASSERT_TRUE(is_ok(held));
  for (const std::string key :
       {"plain", "/", "//", "/694d7f32a1b2c3d4", "a//694d7f32a1b2c3d4", "../694d7f32a1b2c3d4",
        "\x1b[2J/694d7f32a1b2c3d4", "\xff\xff/694d7f32a1b2c3d4", "line\nbreak/694d7f32a1b2c3d4"})
    server.put(key, "x");
  server.put(std::string(4000, 'n') + "/694d7f32a1b2c3d4", "x");
  const auto listed = a.list();
  ASSERT_TRUE(is_ok(listed));
  EXPECT_TRUE(std::ranges::any_of(*listed, [](const auto& one) { return one.name == "stock"; }));
  for (const auto& one : *listed)
    EXPECT_TRUE(is_ok(a.inspect(one.name))) << "what is listed can be asked for";
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_EQ(server.keys("stock").size(), 0U);
}

TEST_F(etcd_operators, hostile_names_are_names) {
  const etcd_server server;
  const auto a = client::open(server.url()), b = client::open(server.url());
  std::vector<lease> leases;
  const auto names = good_names();
  for (const auto& name : names) {
    mutex lock{a, name}, again{b, name};
    auto held = lock.try_acquire();
    ASSERT_TRUE(is_ok(held)) << name << " meets another name";
    EXPECT_TRUE(fails_with(again.try_acquire(), errc::busy)) << name;
    leases.push_back(std::move(*held));
  }
  EXPECT_EQ(b.list().value().size(), names.size());
  for (auto& one : leases) EXPECT_TRUE(is_ok(one.release()));
  EXPECT_TRUE(leaves_nothing(server)) << left_behind(server);
}

}  // namespace
}  // namespace holdfast::testing

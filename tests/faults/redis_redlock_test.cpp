// What breaks here: nodes of a Redlock, killed, stopped, restarted empty, behind a bad network. What must hold: with a
// majority it goes on, without one the answer is a clean error and nothing is left behind; a node that may have
// forgotten its votes has none.
#include "faults/partition.hpp"
#include "faults/redlock_faults.hpp"

#include "support/network_lab.hpp"

namespace holdfast::testing {
namespace {

class redlock_nodes_lost : public redlock_faults {};

TEST_F(redlock_nodes_lost, two_of_five_dead_cost_nothing_but_themselves) {
  redlock_servers nodes{{.nodes = 5}};
  const auto store = client::open(nodes.url());
  mutex lock{store, "stock"};
  auto before = lock.acquire({.ttl = 2s});
  ASSERT_TRUE(is_ok(before));
  nodes[1].kill(), nodes[4].kill();
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(wait_until([&] { return std::chrono::steady_clock::now() - begin > 3s; }));
  EXPECT_TRUE(before->valid()) << "it was renewed on the other three";
  EXPECT_TRUE(is_ok(before->release()));
  for (int i = 0; i < 20; ++i) {
    auto again = lock.try_acquire();
    ASSERT_TRUE(is_ok(again));
    EXPECT_GT(again->token(), before->token());
    ASSERT_TRUE(is_ok(again->release()));
  }
  EXPECT_TRUE(wait_until([&] { return votes_for(nodes, "stock", {1, 4}) == 0; }));
}

TEST_F(redlock_nodes_lost, stopped_nodes_are_not_waited_for) {
  redlock_servers nodes{{.nodes = 5}};
  // Had it to wait for a stopped node once, the test would be over.
  const auto store = client::open(nodes.url("?quarantine=0&node_timeout=1m"));
  mutex lock{store, "stock"};
  nodes[0].stop(), nodes[3].stop();
  for (int i = 0; i < 20; ++i) {
    auto held = lock.acquire({.wait = 5s});
    ASSERT_TRUE(is_ok(held));
    ASSERT_TRUE(is_ok(held->renew()));
    ASSERT_TRUE(is_ok(held->release()));
  }
  nodes[0].resume(), nodes[3].resume();
  EXPECT_TRUE(wait_until([&] { return votes_for(nodes, "stock") == 0; }));
}

TEST_F(redlock_nodes_lost, without_a_majority_the_answer_is_clean_and_nothing_stays) {
  redlock_servers nodes{{.nodes = 5}};
  const auto store = client::open(nodes.url());
  mutex lock{store, "stock"};
  ASSERT_TRUE(is_ok(lock.acquire()));
  for (const std::size_t dead : {0U, 1U, 2U}) nodes[dead].kill();
  // Votes that were asked for as the nodes died are in doubt; later ones are not.
  auto refused = lock.acquire({.wait = 300ms});
  ASSERT_FALSE(refused);
  ASSERT_TRUE(wait_until([&] {
    refused = lock.acquire({.wait = 300ms});
    return !refused && refused.error().code() == errc::unavailable;
  }));
  EXPECT_TRUE(refuses(refused, errc::unavailable, "stock", "redlock://", "of 5 nodes"));
  EXPECT_TRUE(wait_until([&] { return votes_for(nodes, "stock", {0, 1, 2}) == 0; }));
  nodes[1].restart();
  EXPECT_TRUE(wait_until([&] { return lock.acquire({.wait = 1s}).has_value(); }));
}

TEST_F(redlock_nodes_lost, a_holder_without_a_majority_is_told_in_time) {
  redlock_servers nodes{{.nodes = 5}};
  const auto store = client::open(nodes.url());
  mutex lock{store, "stock"};
  auto held = lock.acquire({.ttl = 2s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  for (const std::size_t dead : {0U, 1U, 2U}) nodes[dead].stop();
  expect_loss_on_time(*held, loss);
  for (const std::size_t dead : {0U, 1U, 2U}) nodes[dead].resume();
}

// Three nodes have forgotten the lock: its holder has no majority any more, and is told at the next renewal.
TEST_F(redlock_nodes_lost, a_majority_that_forgot_is_a_loss) {
  redlock_servers nodes{{.nodes = 5}};
  const auto store = client::open(nodes.url());
  mutex lock{store, "stock"};
  auto held = lock.acquire({.ttl = 3s});
  ASSERT_TRUE(is_ok(held));
  for (const std::size_t one : {0U, 1U}) redis_command(nodes[one], {"FLUSHALL"});
  ASSERT_TRUE(is_ok(held->renew())) << "three of five still have it";
  redis_command(nodes[2], {"FLUSHALL"});
  EXPECT_TRUE(fails_with(held->renew(), errc::lost));
  EXPECT_FALSE(held->valid());
}

class redlock_quarantine : public redlock_faults {};

TEST_F(redlock_quarantine, a_node_that_was_restarted_has_no_vote_until_the_longest_ttl_is_over) {
  redlock_servers nodes{{.nodes = 3}};
  const std::string options = "?longest_ttl=4s";
  const client_options short_lived{.ttl = 4s};
  const auto a = client::open(nodes.url(options), short_lived);
  const auto b = client::open(nodes.url(options), short_lived);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  EXPECT_TRUE(refuses(ours.try_acquire(), errc::unavailable, "stock", "redlock://", "no vote"))
      << "nodes that have just been started";
  nodes[2].kill();
  auto held = ours.acquire({.wait = 10s, .ttl = 4s});
  ASSERT_TRUE(is_ok(held)) << "after their time";
  ASSERT_EQ(votes_for(nodes, "stock", {2}), 2U);
  nodes[1].kill(), nodes[1].restart();  // forgets
  nodes[2].restart();
  ASSERT_FALSE(has_key(nodes[1], "stock"));
  const auto second = theirs.acquire({.wait = 1s, .ttl = 4s});
  EXPECT_TRUE(fails_with(second, errc::unavailable)) << "two of three nodes are free";
  EXPECT_EQ(votes_for(nodes, "stock"), 1U) << "what has no vote is not asked";
  EXPECT_TRUE(is_ok(theirs.acquire({.wait = 15s, .ttl = 4s})));
}

// One that says no makes a majority impossible where a node has no vote, or where their number is even; but who holds
// it is known from a majority only.
TEST_F(redlock_quarantine, held_lock_is_busy_and_waited_for_whatever_the_number_of_votes) {
  const auto expect_busy_and_served = [](const std::string& url) {
    const auto a = client::open(url), b = client::open(url, {.call_timeout = 500ms});
    mutex ours{a, "stock"}, theirs{b, "stock"};
    auto held = ours.acquire({.wait = 15s, .ttl = 4s});
    ASSERT_TRUE(is_ok(held));
    EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::busy));
    auto waiting = acquire_later(theirs, {.wait = patience, .ttl = 4s});
    EXPECT_TRUE(stays_true([&] { return !is_ready(waiting); }, 2s)) << "it gave up";
    EXPECT_TRUE(is_ok(held->release()));
    EXPECT_TRUE(is_ok(get(waiting)));
  };
  redlock_servers four{{.nodes = 4}};
  expect_busy_and_served(four.url());
  redlock_servers three{{.nodes = 3}};
  const auto url = three.url("?longest_ttl=10s");
  const auto early = client::open(url, {.call_timeout = 20s});
  ASSERT_TRUE(is_ok(mutex(early, "warm").acquire({.wait = 20s, .ttl = 4s}))) << "old enough";
  three[1].kill(), three[1].restart();
  expect_busy_and_served(url);
}

// What the quarantine is for: this is the double grant that it prevents.
TEST_F(redlock_quarantine, without_it_a_node_that_forgot_lets_a_second_holder_in) {
  redlock_servers nodes{{.nodes = 3}};
  const auto a = client::open(nodes.url()), b = client::open(nodes.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  nodes[2].kill();
  auto held = ours.acquire({.ttl = 20s});
  ASSERT_TRUE(is_ok(held));
  nodes[1].kill(), nodes[1].restart();
  nodes[2].restart();
  auto second = theirs.acquire({.wait = 3s});
  ASSERT_TRUE(is_ok(second));
  EXPECT_TRUE(held->valid());
  EXPECT_GT(second->token(), held->token()) << "whoever checks tokens is safe all the same";
}

// ---- the network

class redlock_network : public redlock_faults {};

TEST_F(redlock_network, a_vote_that_is_delivered_after_it_was_given_up_has_no_effect) {
  redlock_servers nodes{{.nodes = 3}};
  proxied_nodes network{nodes};
  const auto store = client::open(network.url("?quarantine=0&node_timeout=200ms"));
  mutex lock{store, "stock"};
  ASSERT_TRUE(is_ok(lock.acquire({.ttl = 1min}))) << "all connections are up";
  network[0].strand(), network[1].strand();  // requests lie on the way
  const auto refused = lock.acquire({.wait = 400ms, .ttl = 1min});
  EXPECT_FALSE(refused);
  // New connections work: what gives the votes back overtakes them.
  mutex other{client::open(nodes.url()), "stock"};
  auto next = other.acquire({.wait = 5s, .ttl = 1min});
  ASSERT_TRUE(is_ok(next));
  ASSERT_TRUE(is_ok(next->release()));
  network[0].heal(), network[1].heal();  // now they are delivered
  const auto later = client::open(nodes.url());
  EXPECT_TRUE(wait_until([&] { return votes_for(nodes, "stock") == 0; }));
  EXPECT_TRUE(is_ok(other.try_acquire()));
}

TEST_F(redlock_network, what_could_not_be_given_back_is_given_back_when_the_node_is_reached) {
  redlock_servers nodes{{.nodes = 3}};
  proxied_nodes network{nodes};
  const auto store = client::open(network.url("?quarantine=0&node_timeout=200ms"));
  mutex lock{store, "stock"};
  auto held = lock.acquire({.ttl = 1min});
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(wait_until([&] { return votes_for(nodes, "stock") == 3; }));
  network[1].refuse(), network[1].cut();
  ASSERT_TRUE(is_ok(held->release())) << "two of three are enough";
  EXPECT_TRUE(wait_until([&] { return votes_for(nodes, "stock") == 1; }));
  network[1].heal();
  EXPECT_TRUE(wait_until([&] { return votes_for(nodes, "stock") == 0; })) << "long before its ttl";
}

// Executed everywhere, heard of nowhere.
TEST_F(redlock_network, votes_without_an_answer_leave_no_holder) {
  redlock_servers nodes{{.nodes = 3}};
  proxied_nodes network{nodes};
  const auto store =
      client::open(network.url("?quarantine=0&node_timeout=200ms"), {.call_timeout = 2s});
  mutex lock{store, "stock"};
  ASSERT_TRUE(is_ok(lock.acquire()));
  for (std::size_t i = 0; i < 3; ++i) network[i].drop(fault_proxy::replies);
  EXPECT_FALSE(lock.acquire({.wait = 500ms, .ttl = 1min}));
  for (std::size_t i = 0; i < 3; ++i) network[i].heal();
  EXPECT_TRUE(wait_until([&] { return votes_for(nodes, "stock") == 0; }, 2 * patience));
  EXPECT_TRUE(is_ok(lock.acquire({.wait = 10s})));
}

// ---- clients of other makes

class redlock_partition : public redlock_faults {
 protected:
  void SetUp() override {
    redlock_faults::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (const auto lab = network_lab::available(); !lab) GTEST_SKIP() << lab.why;
  }
};

// Packets vanish, nothing is closed.
TEST_F(redlock_partition, holder_with_a_minority_is_told_and_the_majority_goes_on) {
  network_lab lab{3};
  redlock_servers nodes{{.nodes = 3, .network = &lab}};
  const auto a = lab.at(0, [&] { return client::open(nodes.url()); });
  const auto b = lab.at(1, [&] { return client::open(nodes.url()); });
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.wait = patience, .ttl = 2s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  successor next{theirs, *held, 2s};
  lab.cut(0);
  expect_loss_on_time(*held, loss);
  auto second = next.get();
  ASSERT_TRUE(is_ok(second));
  EXPECT_GT(second->token(), held->token());
  EXPECT_FALSE(ours.acquire({.wait = 500ms, .ttl = 2s}).has_value());
  lab.join(0);
  EXPECT_FALSE(held->release().has_value());
  EXPECT_TRUE(stays_true([&] { return second->valid(); }, 3s));
  EXPECT_TRUE(is_ok(second->release()));
  EXPECT_TRUE(is_ok(acquire_at_last(ours)));
}

// Renewals of many leases take a node longer than a vote.
TEST_F(redlock_partition, thousands_of_leases_are_kept) {
  redlock_servers nodes{{.nodes = 3}};
  const auto store = client::open(nodes.url());
  std::vector<std::unique_ptr<mutex>> locks;
  std::vector<lease> held;
  for (int i = 0; i < 3000; ++i) {
    locks.push_back(std::make_unique<mutex>(store, "stock-" + std::to_string(i)));
    auto got = locks.back()->acquire({.wait = patience, .ttl = 3s});
    ASSERT_TRUE(is_ok(got));
    held.push_back(std::move(*got));
  }
  EXPECT_TRUE(stays_true(
      [&] { return std::ranges::all_of(held, [](const lease& one) { return one.valid(); }); }, 5s));
}

// A vote that was answered cannot be delivered again, so giving it back needs no mark.
TEST_F(redlock_partition, votes_that_were_split_leave_no_marks) {
  redlock_servers nodes{{.nodes = 5}};
  const auto a = client::open(nodes.url()), b = client::open(nodes.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  // Two nodes would vote for the other: it has no majority, however often it asks.
  redis_command(nodes[0], {"DEL", "stock"}), redis_command(nodes[1], {"DEL", "stock"});
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(fails_with(theirs.try_acquire(), errc::busy));
  EXPECT_TRUE(wait_until([&] {
    for (const std::size_t i : {0U, 1U})
      if (redis_command(nodes[i], {"KEYS", "*"}) != "[stock:holdfast-token]") return false;
    return true;
  })) << redis_command(nodes[0], {"KEYS", "*"});
}

// What a slow node leaves in doubt is nothing to the others.
TEST_F(redlock_network, slow_node_leaves_marks_on_no_other) {
  redlock_servers nodes{{.nodes = 5}};
  proxied_nodes network{nodes};
  const auto store = client::open(network.url("?quarantine=0"));
  mutex lock{store, "stock"};
  network[4].delay(fault_proxy::replies, 150ms);  // a ttl of 2 s gives it 50
  for (int i = 0; i < 10; ++i) {
    auto held = lock.acquire({.wait = patience, .ttl = 2s});
    ASSERT_TRUE(is_ok(held));
    ASSERT_TRUE(stays_true([&] { return held->valid(); }, 70ms)) << "its vote has timed out";
    ASSERT_TRUE(is_ok(held->release()));
  }
  for (const std::size_t i : {0U, 1U, 2U, 3U})
    EXPECT_TRUE(wait_until([&] {
      return redis_command(nodes[i], {"KEYS", "*"}) == "[stock:holdfast-token]";
    })) << redis_command(nodes[i], {"KEYS", "*"});
}

// ---- many at the same time

class redlock_crowd : public redlock_faults {
 protected:
  static std::size_t scripts_of(redlock_servers& nodes) {
    std::size_t out = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const auto info = redis_command(nodes[i], {"INFO", "commandstats"});
      const std::string field = "cmdstat_evalsha:calls=";
      if (const auto at = info.find(field); at != std::string::npos)
        out += std::stoul(info.substr(at + field.size()));
    }
    return out;
  }
};

// A grant costs 10 scripts: five votes, and five that give them back. What comes on top is votes in vain.
TEST_F(redlock_crowd, forty_clients_waste_few_votes_and_all_are_served) {
  constexpr std::size_t many = 40;
  redlock_servers nodes{{.nodes = 5}};
  std::atomic<std::size_t> grants{0}, failures{0};
  std::atomic<bool> over{false};
  std::vector<std::size_t> each(many, 0);
  const auto before = scripts_of(nodes);
  {
    std::vector<std::jthread> pool;
    for (std::size_t i = 0; i < many; ++i)
      pool.emplace_back([&, i] {
        const auto store = client::open(nodes.url());
        mutex lock{store, "stock"};
        while (!over) {
          auto held = lock.acquire({.wait = 2 * patience});
          if (!held) ++failures;
          if (!held) continue;
          ++each[i], ++grants;
          EXPECT_TRUE(stays_true([&] { return held->valid(); }, 1ms)) << "the work";
        }
      });
    EXPECT_TRUE(wait_until([&] { return grants >= 500; }, 6 * patience)) << grants << " grants";
    over = true;
  }
  const auto wasted = (scripts_of(nodes) - before) / std::max<std::size_t>(1, grants);
  EXPECT_EQ(failures, 0U);
  EXPECT_LT(wasted, 150) << "scripts for each of " << grants << " grants";
  EXPECT_EQ(std::ranges::count(each, 0U), 0) << "clients that were never served";
  RecordProperty("scripts_per_grant", std::to_string(wasted));
}

// Who has just released gives way to those who wait; but not to those who only look on, and not in its last moments.
TEST_F(redlock_crowd, short_waits_for_a_free_lock_succeed_whoever_looks_on) {
  redlock_servers nodes{{.nodes = 3}};
  const auto url = nodes.url();
  const auto a = client::open(url), b = client::open(url);
  mutex ours{a, "stock"}, theirs{b, "stock"};
  std::jthread looking{[&](const std::stop_token& stop) {
    const election seat{b, "stock"};
    for (fencing_token seen; !stop.stop_requested();) {
      const auto term = seat.observe(seen, 5s, stop);
      seen = term && *term ? (*term)->term : fencing_token{};
    }
  }};
  auto held = ours.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(held));
  auto waiting = acquire_later(theirs);  // so that it is known that others want it
  ASSERT_TRUE(stays_true([&] { return !is_ready(waiting); }, 100ms));
  EXPECT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(get(waiting)));
  for (int i = 0; i < 30; ++i) {
    auto again = ours.acquire({.wait = 20ms});
    ASSERT_TRUE(is_ok(again)) << i;
    EXPECT_TRUE(is_ok(again->release()));
  }
}

// After many split votes clients ask at different times; one with little time asks all the same.
TEST_F(redlock_crowd, wait_of_a_moment_for_a_free_lock_succeeds_after_split_votes) {
  redlock_servers nodes{{.nodes = 3}};
  const auto url = nodes.url();
  const std::vector clients{client::open(url), client::open(url), client::open(url)};
  {
    std::vector<std::jthread> crowd;
    for (const auto& one : clients)
      crowd.emplace_back([&one] {
        mutex lock{one, "stock"};
        for (int i = 0; i < 40; ++i)
          if (auto held = lock.acquire({.wait = patience})) static_cast<void>(held->release());
      });
  }
  mutex ours{clients.front(), "stock"};
  for (int i = 0; i < 60; ++i) {
    auto held = ours.acquire({.wait = 2ms});
    ASSERT_TRUE(is_ok(held)) << i;
    EXPECT_TRUE(is_ok(held->release()));
  }
}

TEST_F(redlock_crowd, one_that_watches_asks_the_nodes_a_few_times_a_second) {
  redlock_servers nodes{{.nodes = 3}};
  const auto store = client::open(nodes.url());
  election post{store, "chief"};
  auto chief = post.campaign({.wait = patience});
  ASSERT_TRUE(is_ok(chief));
  const auto before = scripts_of(nodes);
  EXPECT_TRUE(fails_with(post.observe(chief->token(), 3s), errc::timed_out));
  const auto asked = scripts_of(nodes) - before;
  EXPECT_LE(asked, 3U * (3 * 5 + 10)) << "three nodes for three seconds";
}

// An address moves to another machine while the lock is held: one server must not be two of three.
TEST_F(redlock_faults, server_that_answers_under_two_addresses_counts_once) {
  redlock_servers nodes{{.nodes = 3}};
  proxied_nodes network{nodes};
  const auto a = client::open(network.url("?quarantine=0")), b = client::open(nodes.url());
  auto ours = mutex{a, "stock"}.acquire({.wait = patience, .ttl = 2s});
  ASSERT_TRUE(is_ok(ours));
  network[1].lead_to(nodes[0].port());
  network[1].cut();
  network[2].refuse();
  network[2].cut();
  auto theirs = mutex{b, "stock"}.acquire({.wait = patience});
  const bool is_believed = ours->valid();
  ASSERT_TRUE(is_ok(theirs)) << "two of three have it for nobody";
  EXPECT_FALSE(is_believed) << "the one server that answers was two of three";
  EXPECT_TRUE(wait_until([&] { return ours->lost().stop_requested(); }));
}

class redlock_others : public redlock_faults {};

// As redsync, node-redlock and redis-plus-plus do it: SET NX PX on every node, without a message at the end.
TEST_F(redlock_others, share_the_lock) {
  redlock_servers nodes{{.nodes = 5}};
  const auto store = client::open(nodes.url());
  mutex lock{store, "stock"};
  const auto take = [&](std::size_t i) {
    return redis_command(nodes[i], {"SET", "stock", "theirs", "NX", "PX", "60000"}) == "OK";
  };
  for (const std::size_t i : {0U, 1U, 2U}) ASSERT_TRUE(take(i));
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::busy));
  EXPECT_TRUE(wait_until([&] { return votes_for(nodes, "stock") == 3; })) << "ours are given back";
  const auto seen = store.inspect("stock").value();
  ASSERT_EQ(seen.holders.size(), 1U);
  EXPECT_EQ(seen.holders[0].owner_text, "theirs");
  auto waiting = acquire_later(lock);
  for (const std::size_t i : {0U, 1U, 2U}) redis_command(nodes[i], {"DEL", "stock"});
  auto held = get(waiting);
  ASSERT_TRUE(is_ok(held));
  std::size_t theirs = 0;
  for (std::size_t i = 0; i < 5; ++i) theirs += take(i) ? 1U : 0U;
  EXPECT_LT(theirs, 3U) << "ours has a majority";
  EXPECT_TRUE(is_ok(held->release()));
}

TEST_F(redlock_others, something_else_under_the_name_of_a_lock_has_no_vote_for_us) {
  redlock_servers nodes{{.nodes = 3}};
  const auto store = client::open(nodes.url());
  for (const std::size_t i : {0U, 1U}) redis_command(nodes[i], {"HSET", "stock", "a", "b"});
  mutex lock{store, "stock"};
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::busy));
  EXPECT_EQ(redis_command(nodes[0], {"TYPE", "stock"}), "hash");
}

// ---- refusals

class redlock_refusals : public redlock_faults {};

TEST_F(redlock_refusals, one_password_must_open_a_majority) {
  redlock_servers nodes{
      {.nodes = 3, .each = {.config = {"requirepass right"}, .password = "right"}}};
  auto url = nodes.url();
  url.insert(url.find("//") + 2, ":wrong@");
  const auto refused = client::try_open(url);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), errc::denied);
  EXPECT_EQ(refused.error().message().find("wrong@"), std::string::npos);
  redis_command(nodes[0], {"CONFIG", "SET", "requirepass", "right"});
  url.replace(url.find("wrong"), 5, "right");
  EXPECT_TRUE(is_ok(mutex{client::open(url), "stock"}.try_acquire()));
}

TEST_F(redlock_refusals, addresses_are_checked) {
  for (const auto* bad :
       {"redlock://a:1,b:2", "redlock://a:1,a:1,b:2", "redlock://a,b,c/2",
        "redlock://a,b,c?grace=1s", "redlock://a,b,c?longest_ttl=10s&quarantine=5s",
        "redlock://a,b,c?ca_file=/x"})
    EXPECT_TRUE(fails_with(client::try_open(bad), errc::misconfigured)) << bad;
}

TEST_F(redlock_refusals, modes_that_do_not_compose_are_unsupported) {
  redlock_servers nodes{{.nodes = 3}};
  const auto store = client::open(nodes.url());
  EXPECT_THROW((shared_mutex{store, "stock"}), lock_error);
  EXPECT_THROW((counting_semaphore{store, "stock", 3}), lock_error);
}

TEST_F(redlock_refusals, a_full_node_has_no_vote_and_does_no_harm) {
  redlock_servers nodes{{.nodes = 3}};
  const auto store = client::open(nodes.url());
  redis_command(nodes[0], {"CONFIG", "SET", "maxmemory", "1"});
  mutex lock{store, "stock"};
  for (int i = 0; i < 5; ++i) {
    auto held = lock.try_acquire();
    ASSERT_TRUE(is_ok(held));
    ASSERT_TRUE(is_ok(held->release()));
  }
  redis_command(nodes[1], {"CONFIG", "SET", "maxmemory", "1"});
  EXPECT_TRUE(fails_with(lock.try_acquire(), errc::unavailable));
  EXPECT_EQ(votes_for(nodes, "stock"), 0U);
}

}  // namespace
}  // namespace holdfast::testing

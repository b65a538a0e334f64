// What breaks here: the chain in which each holder hands over to the next one, who looks at nothing but its own key.
// Keys vanish from it, waiters give up, holders are broken or shrink. What must hold: everybody is served in order
// (L2), with rising tokens (S1), and whoever lost its place knows at once. Where it is possible the store is looked at,
// too: nobody shall be saved by the look at the key before its own, which passive waiters take after a while.
#include "faults/etcd_faults.hpp"

#include <atomic>
#include <deque>
#include <random>
#include <thread>

namespace holdfast::testing {
namespace {

class etcd_successors : public etcd_faults {
 protected:
  struct contender {
    explicit contender(const etcd_server& server)
        : own(client::open(server.url())), lock(own, "stock") {}
    client own;
    shared_mutex lock;
    std::future<result<lease>> waiting{};
  };

  // Another one at the end of the line.
  void line_up(acquire_options options = {}) {
    if (options.wait > 3 * patience) options.wait = 3 * patience;
    auto& one = all_.emplace_back(server_);
    one.waiting =
        std::async(std::launch::async, [&one, options] { return one.lock.acquire(options); });
    ASSERT_TRUE(wait_for_entries(server_, "stock", ++length_));
  }
  result<lease> hold() {
    ++length_;
    return all_.emplace_back(server_).lock.acquire({.ttl = 30s});
  }
  // A queue of so many, the first of which holds, and had to wait for that: it hands over.
  result<lease> first_of(std::size_t count) {
    auto held = hold();
    EXPECT_TRUE(is_ok(held));
    for (std::size_t i = 0; i < count; ++i) line_up();
    EXPECT_TRUE(is_ok(held->release()));
    return served(1);
  }
  // The n-th one of the line has got it.
  result<lease> served(std::size_t n) {
    auto out = get(all_.at(n).waiting);
    if (out) {
      tokens_.add(out->token());
      EXPECT_TRUE(is_proven(server_, *out)) << n;
    }
    return out;
  }
  void expect_served(std::size_t n) {
    auto held = served(n);
    ASSERT_TRUE(is_ok(held)) << n;
    EXPECT_TRUE(is_ok(held->release())) << n;
  }
  // By a message, not by the look that every waiter takes once in ten seconds.
  template <class Act, class Condition>
  static void expect_soon(const Act& act, const Condition& holds) {
    act();
    EXPECT_TRUE(wait_until(holds, 5s));
  }
  etcd_server::key_value entry(std::size_t n) const { return entries(server_, "stock").at(n); }
  bool is_touched(std::size_t n) const { return entry(n).mod_revision > entry(n).create_revision; }
  bool is_marked(std::size_t n) const { return entry(n).value.find("t=") != std::string::npos; }

  const etcd_server server_;
  std::size_t length_ = 0;
  token_log tokens_;
  std::deque<contender> all_;
};

TEST_F(etcd_successors, are_handed_the_lock_in_order) {
  auto held = hold();
  ASSERT_TRUE(is_ok(held));
  tokens_.add(held->token());
  for (int i = 0; i < 12; ++i) line_up();  // more than one holder knows of
  ASSERT_TRUE(is_ok(held->release()));
  auto first = served(1);
  ASSERT_TRUE(is_ok(first));
  EXPECT_FALSE(is_marked(0)) << "it saw the holder, and looked at the line itself";
  ASSERT_TRUE(is_ok(first->release()));
  for (std::size_t i = 2; i <= 12; ++i) {
    auto next = served(i);
    ASSERT_TRUE(is_ok(next));
    EXPECT_TRUE(is_marked(0)) << i;
    ASSERT_TRUE(is_ok(next->release()));
  }
  EXPECT_TRUE(leaves_nothing(server_)) << left_behind(server_);
}

TEST_F(etcd_successors, whose_key_is_deleted_come_again_at_once) {
  auto held = hold();
  ASSERT_TRUE(is_ok(held));
  for (int i = 0; i < 4; ++i) line_up();
  const auto lost = entry(3);
  expect_soon([&] { server_.erase(lost.key); },
              [&] { return entries(server_, "stock").size() == 5; });
  EXPECT_GT(entry(4).create_revision, lost.create_revision);
  EXPECT_TRUE(held->valid());
  ASSERT_TRUE(is_ok(held->release()));
  for (const std::size_t n : {1U, 2U, 4U, 3U}) expect_served(n);
  EXPECT_TRUE(leaves_nothing(server_)) << left_behind(server_);
}

TEST_F(etcd_successors, whose_lease_is_revoked_come_again) {
  auto held = hold();
  ASSERT_TRUE(is_ok(held));
  for (int i = 0; i < 4; ++i) line_up();
  const auto lost = entry(2);
  expect_soon([&] { server_.revoke(lost.lease); },
              [&] { return entries(server_, "stock").size() == 5; });
  ASSERT_TRUE(is_ok(held->release()));
  for (const std::size_t n : {1U, 3U, 4U, 2U}) expect_served(n);
}

// Nobody hands over any more: the first one had not to wait itself, and the second is gone.
TEST_F(etcd_successors, are_called_by_a_waiter_that_gives_up) {
  auto held = hold();
  ASSERT_TRUE(is_ok(held));
  std::stop_source stop;
  line_up({.stop = stop.get_token()});
  line_up();
  line_up();
  EXPECT_FALSE(is_touched(2));
  stop.request_stop();
  EXPECT_TRUE(fails_with(get(all_.at(1).waiting), errc::cancelled));
  EXPECT_TRUE(wait_until([&] { return is_touched(1); })) << "look at the line from now on";
  EXPECT_FALSE(is_touched(2)) << "that one has still somebody before it";
  ASSERT_TRUE(is_ok(held->release()));
  expect_served(2);
  expect_served(3);
}

// The holder knows the one that leaves as its successor.
TEST_F(etcd_successors, that_have_left_are_passed_over) {
  auto held = hold();
  ASSERT_TRUE(is_ok(held));
  std::stop_source stop;
  line_up();
  line_up({.stop = stop.get_token()});
  line_up();
  line_up();
  ASSERT_TRUE(is_ok(held->release()));
  auto first = served(1);
  ASSERT_TRUE(is_ok(first));
  stop.request_stop();
  EXPECT_TRUE(fails_with(get(all_.at(2).waiting), errc::cancelled));
  ASSERT_TRUE(is_ok(first->release()));
  expect_served(3);
  expect_served(4);
  EXPECT_TRUE(leaves_nothing(server_)) << left_behind(server_);
}

TEST_F(etcd_successors, of_a_broken_holder_are_called) {
  auto first = first_of(3);
  ASSERT_TRUE(is_ok(first));
  const auto broken = all_.front().own.revoke("stock");
  ASSERT_TRUE(is_ok(broken));
  EXPECT_EQ(*broken, 1U);
  auto second = served(2);
  ASSERT_TRUE(is_ok(second));
  EXPECT_TRUE(is_marked(0));
  EXPECT_TRUE(wait_until([&] { return !first->valid(); }));
  ASSERT_TRUE(is_ok(second->release()));
  expect_served(3);
}

TEST_F(etcd_successors, of_a_holder_that_becomes_a_reader_look_at_the_line) {
  auto first = first_of(3);
  ASSERT_TRUE(is_ok(first));
  ASSERT_TRUE(is_ok(all_.at(1).lock.downgrade(*first)));
  EXPECT_TRUE(wait_until([&] { return is_touched(1); }));
  EXPECT_FALSE(is_ready(all_.at(2).waiting));
  ASSERT_TRUE(is_ok(first->release()));
  expect_served(2);
  expect_served(3);
}

// Nobody says anything: a holder and those behind it vanish all at once. The one behind them looks after a while.
TEST_F(etcd_successors, notice_by_themselves_when_everybody_before_them_has_died) {
  auto first = first_of(4);
  ASSERT_TRUE(is_ok(first));
  std::vector<std::int64_t> dead;
  for (const std::size_t n : {0U, 1U}) dead.push_back(entry(n).lease);
  expect_told_within_a_second(*first, [&] { server_.revoke(dead[0]); });
  expect_soon([&] { server_.revoke(dead[1]); }, [&] { return is_ready(all_.at(3).waiting); });
  auto third = get(all_.at(3).waiting);
  auto second = third ? result<lease>{error{errc::busy, "comes later"}} : get(all_.at(2).waiting);
  ASSERT_TRUE(is_ok(third)) << "or the second was faster than its death";
  EXPECT_TRUE(is_ok(third->release()));
  expect_served(4);
  expect_served(2);
}

// The end of a session takes its keys, and tells nobody; so releases under way are waited for.
TEST_F(etcd_successors, of_clients_that_go_are_handed_the_lock_first) {
  auto first = first_of(12);
  ASSERT_TRUE(is_ok(first));
  *first = lease{};  // sent
  all_.pop_front();  // who held at the beginning
  all_.pop_front();
  for (std::size_t i = 2; i <= 12; ++i) {
    auto next = served(0);
    ASSERT_TRUE(is_ok(next)) << i;
    EXPECT_TRUE(is_marked(0)) << i;
    *next = lease{};
    all_.pop_front();
  }
  EXPECT_TRUE(leaves_nothing(server_)) << left_behind(server_);
}

// Waiters of all kinds that come, give up, hold, shrink and go. Who is forgotten asleep wakes up a second later; that
// must not be how the line moves.
TEST_F(etcd_successors, are_not_forgotten_whoever_comes_and_goes) {
  std::atomic<int> writers{0}, readers{0}, overlaps{0}, grants{0}, late{0};
  token_log tokens;
  const auto end = std::chrono::steady_clock::now() + 6s;
  const auto contend = [&](unsigned seed) {
    std::minstd_rand dice{seed};  // NOLINT: the same each time
    const auto one_in = [&](unsigned n) { return dice() % n == 0; };
    const auto own = client::open(server_.url());
    shared_mutex lock{own, "stock"};
    while (std::chrono::steady_clock::now() < end) {
      acquire_options how{.wait = one_in(3) ? dice() % 60 * 1ms : nanoseconds{3 * patience}};
      how.own_token = true;
      if (one_in(20)) how.label = "labelled";
      const bool reads = one_in(8);
      const auto begin = std::chrono::steady_clock::now();
      auto held = reads ? lock.acquire_shared(how) : lock.acquire(how);
      if (!held) {
        EXPECT_TRUE(held.error().code() == errc::timed_out || held.error().code() == errc::busy)
            << held.error().message();
        continue;
      }
      ++grants;
      if (std::chrono::steady_clock::now() - begin > 1s) ++late;
      auto& others = reads ? writers : readers;
      auto& same = reads ? readers : writers;
      if ((++same > 1 && !reads) || others > 0) ++overlaps;
      if (!reads) tokens.add(held->token());
      std::this_thread::sleep_for(dice() % 1000 * 1us);  // the work
      if (others > 0) ++overlaps;
      --same;
      const bool shrinks = !reads && one_in(10), waits = one_in(2);
      EXPECT_TRUE(!shrinks || is_ok(lock.downgrade(*held)));
      EXPECT_TRUE(!waits || is_ok(held->release()));
    }
  };
  {
    std::vector<std::jthread> pool;
    for (unsigned i = 1; i <= 12; ++i) pool.emplace_back(contend, i);
  }
  EXPECT_EQ(overlaps, 0);
  EXPECT_GT(grants, 100);
  EXPECT_LE(late * 100, grants.load()) << late << " of " << grants;
  EXPECT_TRUE(leaves_nothing(server_)) << left_behind(server_);
}

// An election's value is read by other programs: nobody writes to it.
TEST_F(etcd_successors, with_a_label_are_not_written_to) {
  auto held = hold();
  ASSERT_TRUE(is_ok(held));
  for (const auto* label : {"north", "south", "west"}) line_up({.label = label});
  ASSERT_TRUE(is_ok(held->release()));
  for (const std::size_t n : {1U, 2U, 3U}) {
    auto next = served(n);
    ASSERT_TRUE(is_ok(next));
    EXPECT_FALSE(is_touched(0)) << n;
    ASSERT_TRUE(is_ok(next->release()));
  }
}

}  // namespace
}  // namespace holdfast::testing

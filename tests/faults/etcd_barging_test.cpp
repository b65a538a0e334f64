// What breaks here: those who come in over the heads of waiters, while waiters come and leave all the time. What must
// hold: never more than fit (S1), tokens that rise, and no key that nobody knows of.
#include "faults/etcd_faults.hpp"

#include "support/judge.hpp"

#include <random>
#include <thread>

namespace holdfast::testing {
namespace {

class etcd_barging : public etcd_faults {
 protected:
  void SetUp() override {
    etcd_faults::SetUp();
    if (!IsSkipped()) server_.emplace();
  }
  // Takes the lock again and again, by `acquire`, for a moment each time.
  template <class Acquire>
  void fight(unsigned seed, turn kind, const Acquire& acquire) {
    std::mt19937 random{seed};
    while (!done_) {
      auto mine = kind;
      mine.name = "stock";
      mine.asked = std::chrono::steady_clock::now();
      auto held = acquire(random);
      if (!held) {
        const auto code = held.error().code();
        const bool slow =
            code == errc::outcome_unknown || code == errc::unavailable;  // the machine
        if (code != errc::busy && code != errc::timed_out && !slow)
          ADD_FAILURE() << held.error().message();
        continue;
      }
      mine.token = held->token();
      mine.begin = std::chrono::steady_clock::now();
      if (!held->valid()) continue;
      std::this_thread::sleep_for(std::chrono::microseconds{random() % 3000});
      mine.last = held->valid() ? std::chrono::steady_clock::now() : mine.begin;
      EXPECT_TRUE(is_ok(held->release()));
      history_.add(mine);
    }
  }
  void expect_order() {
    for (const auto& one : judge(history_.all()).complaints) ADD_FAILURE() << one;
    EXPECT_GT(history_.size(), 10U) << "nothing was tried";
    EXPECT_TRUE(wait_until([&] { return entries(*server_, "stock").empty(); }))
        << left_behind(*server_);
  }
  static acquire_options briefly(std::mt19937& random) {
    acquire_options out;
    out.wait = std::chrono::milliseconds{1 + random() % 4};
    out.own_token = true;
    return out;
  }
  static acquire_options barging(std::mt19937& random) {
    auto out = briefly(random);
    out.order = queue_order::barging;
    out.wait = random() % 2 == 0 ? nanoseconds{0} : nanoseconds{20ms};
    return out;
  }

  std::optional<etcd_server> server_;
  record history_;
  std::atomic<bool> done_{false};
};

// Two of four are taken. The first waiter wants three, and leaves: the next one fits, and so does a newcomer, but not
// both.
TEST_F(etcd_barging, never_more_permits_than_there_are) {
  constexpr std::size_t all = 4;
  const std::array clients{client::open(server_->url()), client::open(server_->url()),
                           client::open(server_->url())};
  {
    counting_semaphore permits{clients[0], "stock", all};
    auto half = permits.acquire_permits(2, {.ttl = 1min, .own_token = true});
    ASSERT_TRUE(is_ok(half));
    turn kept;
    kept.name = "stock";
    kept.weight = 2;
    kept.capacity = all;
    kept.token = half->token();
    kept.begin = std::chrono::steady_clock::now();
    std::vector<std::jthread> pool;
    unsigned seed = 1;
    for (const auto& as : clients)
      for (const std::size_t weight : {3U, 2U, 2U}) {
        const bool barges = seed % 3 == 0;
        pool.emplace_back([this, &as, weight, barges, seed] {
          counting_semaphore some{as, "stock", all};
          turn kind;
          kind.weight = weight;
          kind.capacity = all;
          fight(seed, kind, [&](std::mt19937& random) {
            return some.acquire_permits(weight, barges ? barging(random) : briefly(random));
          });
        });
        ++seed;
      }
    std::this_thread::sleep_for(3s);
    done_ = true;
    pool.clear();
    kept.last = std::chrono::steady_clock::now();
    EXPECT_TRUE(is_ok(half->release()));
    history_.add(kept);
  }
  expect_order();
}

// No fault is needed for that: a reader that comes in marks those who wait, of whom one has just left.
TEST_F(etcd_barging, readers_beside_writers_that_give_up_leave_nothing_behind) {
  const std::array clients{client::open(server_->url()), client::open(server_->url())};
  {
    std::vector<std::jthread> pool;
    unsigned seed = 1;
    for (const auto& as : clients)
      for (const bool reads : {true, true, false, false}) {
        pool.emplace_back([this, &as, reads, seed] {
          shared_mutex lock{as, "stock"};
          turn kind;
          kind.capacity = 100;
          kind.weight = reads ? 1 : 100;
          fight(seed, kind, [&](std::mt19937& random) {
            return reads ? lock.acquire_shared(barging(random)) : lock.acquire(briefly(random));
          });
        });
        ++seed;
      }
    std::this_thread::sleep_for(2s);
    done_ = true;
  }
  expect_order();
}

// However it came about: a key in the place that we would use, which none of our owners has put.
TEST_F(etcd_barging, key_of_an_owner_that_is_gone_is_not_inherited) {
  const auto a = client::open(server_->url(), {.handoff_limit = 0});
  mutex lock{a, "stock"};
  auto held = lock.acquire();
  ASSERT_TRUE(is_ok(held));
  const auto key = entries(*server_, "stock").at(0).key;
  ASSERT_TRUE(is_ok(held->release()));
  server_->put(key, "left behind");
  const auto left = server_->revision();
  for (const nanoseconds wait : {nanoseconds{patience}, nanoseconds{0}}) {
    auto next = lock.acquire({.wait = wait});
    ASSERT_TRUE(is_ok(next));
    EXPECT_GT(next->token().value, static_cast<std::uint64_t>(left)) << "it is another's";
    EXPECT_TRUE(is_proven(*server_, *next));
    EXPECT_TRUE(is_ok(next->release()));
  }
  EXPECT_TRUE(leaves_nothing(*server_)) << left_behind(*server_);
}

}  // namespace
}  // namespace holdfast::testing

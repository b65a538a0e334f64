// What breaks here: one of several stores over which locks are taken together. What must hold: all or none; a store
// that does not answer delays neither the caller beyond its time nor the locks of the others.
#include "faults/faults.hpp"

namespace holdfast::testing {
namespace {

class redis_stores : public redis_faults {
 protected:
  redis_server first_, second_;
};

TEST_F(redis_stores, one_that_stands_still_does_not_keep_the_locks_of_the_others) {
  const auto a = client::open(first_.url(), {.call_timeout = 20s});
  const auto b = client::open(second_.url()), other = client::open(second_.url());
  mutex last{other, "z"};
  auto held = last.acquire({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  const std::vector<lock_place> places{{a, "x"}, {b, "y"}, {b, "z"}};
  const auto begun = std::chrono::steady_clock::now();
  auto all =
      std::async(std::launch::async, [&] { return lock_all(places, {.wait = 2s, .ttl = 60s}); });
  ASSERT_TRUE(wait_until([&] { return is_locked(first_, "x") && is_locked(second_, "y"); }));
  first_.stop();
  EXPECT_TRUE(fails_with(all.get(), errc::timed_out));
  EXPECT_LE(std::chrono::steady_clock::now() - begun, 10s) << "not for as long as a call may take";
  EXPECT_TRUE(wait_until([&] { return !is_locked(second_, "y"); }, 2s)) << "that store is well";
  first_.resume();
  EXPECT_TRUE(wait_until([&] { return !is_locked(first_, "x"); })) << "it is given back later";
}

TEST_F(redis_stores, one_that_is_gone_leaves_nothing_held_in_the_others) {
  const auto a = client::open(first_.url()), b = client::open(second_.url());
  const std::vector<lock_place> places{{a, "x"}, {b, "y"}};
  second_.kill();
  EXPECT_FALSE(lock_all(places, {.wait = 300ms, .ttl = 60s}).has_value());
  EXPECT_TRUE(wait_until([&] { return !is_locked(first_, "x"); }));
  second_.restart();
  auto all = lock_all(places, {.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(all));
  EXPECT_TRUE(all->at(0).valid() && all->at(1).valid());
}

}  // namespace
}  // namespace holdfast::testing

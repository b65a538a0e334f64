#include "server/limits.hpp"

#include "unit/serve/fakes.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

namespace holdfast::server {
namespace {

using testing::refusal_of;
using testing::status_of;

key named(const char* name) {
  key out;
  out.name = name;
  return out;
}

TEST(serve_limits, one_lease_too_many_of_a_key_is_429_and_another_key_has_its_own) {
  limits bounds{{.leases = 2, .waiters = 1, .watchers = 1}};
  const auto a = named("a"), b = named("b");
  std::vector<limits::place> held;
  held.push_back(bounds.lease(a));
  held.push_back(bounds.lease(a));
  const auto why = refusal_of([&] { bounds.lease(a); });
  ASSERT_TRUE(why);
  EXPECT_EQ(why->status, 429);
  EXPECT_EQ(why->code, "too_many");
  EXPECT_GT(why->retry_after.count(), 0);
  EXPECT_EQ(why->done, false);
  held.push_back(bounds.lease(b));
  EXPECT_EQ(bounds.leases(), 3U);
  held.erase(held.begin());
  held.push_back(bounds.lease(a));
  EXPECT_EQ(status_of([&] { bounds.lease(a); }), 429);
}

TEST(serve_limits, waiters_are_counted_apart_from_leases) {
  limits bounds{{.leases = 1, .waiters = 1, .watchers = 1}};
  const auto a = named("a"), b = named("b");
  const auto lease = bounds.lease(a);
  {
    const auto waiter = bounds.waiter(a);
    EXPECT_EQ(status_of([&] { bounds.waiter(a); }), 429);
    const auto other = bounds.waiter(b);
    EXPECT_EQ(bounds.waiters(), 2U);
  }
  EXPECT_EQ(bounds.waiters(), 0U);
  EXPECT_EQ(status_of([&] { bounds.waiter(a); }), 0);
}

TEST(serve_limits, watchers_are_counted_for_all_together) {
  limits bounds{{.leases = 1, .waiters = 1, .watchers = 2}};
  const auto one = bounds.watcher();
  {
    const auto two = bounds.watcher();
    EXPECT_EQ(status_of([&] { bounds.watcher(); }), 429);
  }
  EXPECT_EQ(status_of([&] { bounds.watcher(); }), 0);
  EXPECT_EQ(bounds.watchers(), 1U);
}

TEST(serve_limits, calls_of_a_slow_store_are_counted_for_each_key_and_for_all) {
  limits bounds{{.jobs = 2}};
  const auto a = named("a"), b = named("b");
  std::vector<std::optional<limits::place>> places;
  for (int i = 0; i < 2; ++i) places.push_back(bounds.job(a));
  EXPECT_FALSE(bounds.job(a));
  places.push_back(bounds.job(b));
  EXPECT_TRUE(places.back());
  EXPECT_EQ(bounds.jobs(), 3U);
  places.clear();
  EXPECT_EQ(bounds.jobs(), 0U);
  EXPECT_TRUE(bounds.job(a));
}

TEST(serve_limits, a_place_is_given_back_once_however_it_moves) {
  limits bounds{{.leases = 9, .waiters = 9, .watchers = 9}};
  const auto a = named("a");
  auto first = bounds.lease(a);
  auto second = std::move(first);
  EXPECT_EQ(bounds.leases(), 1U);
  first = bounds.lease(a);
  EXPECT_EQ(bounds.leases(), 2U);
  second = std::move(first);  // what it had before is given back
  EXPECT_EQ(bounds.leases(), 1U);
  second = limits::place{};
  EXPECT_EQ(bounds.leases(), 0U);
}

}  // namespace
}  // namespace holdfast::server

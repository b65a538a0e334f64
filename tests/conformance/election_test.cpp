// One leader, and everybody can see who.
#include "conformance/conformance.hpp"

#include <atomic>

namespace holdfast::testing {
namespace {

class elections : public conformance {};
FOR_EVERY_ENGINE(elections);

TEST_P(elections, leader_is_visible_and_the_next_takes_over) {
  NEEDS(listing);  // the layouts that others have defined show neither waiters nor values
  const auto a = open(), b = open(), c = open();
  election first{a, name(), "host-a:1"}, second{b, name(), "host-b:2"}, citizen{c, name()};
  EXPECT_FALSE(citizen.leader().value());
  auto leading = first.campaign();
  ASSERT_TRUE(is_ok(leading));
  const auto seen = citizen.leader().value();
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->value, "host-a:1");
  EXPECT_EQ(seen->term, leading->token());
  expect_owner(seen->owner, *leading);
  EXPECT_EQ(seen->pid, ::getpid());
  EXPECT_FALSE(seen->host.empty());

  auto next = later([&] { return second.campaign({.wait = patience}); });
  ASSERT_TRUE(wait_for_waiters(name(), 1));
  ASSERT_TRUE(is_ok(leading->release()));
  auto led = next.get();
  ASSERT_TRUE(is_ok(led));
  const auto now = citizen.leader().value();
  ASSERT_TRUE(now);
  EXPECT_EQ(now->value, "host-b:2");
  EXPECT_GT(now->term, seen->term);
}

// They were handed one grant inside the process once, and led one after the other in the same term.
TEST_P(elections, candidates_that_share_a_client_have_terms_of_their_own) {
  const auto a = open(), c = open();
  election first{a, name(), "first"}, second{a, name(), "second"}, citizen{c, name()};
  auto leading = first.campaign();
  ASSERT_TRUE(is_ok(leading));
  std::atomic<bool> comes{false};
  auto next = later([&] {
    comes = true;
    return second.campaign({.wait = patience});
  });
  ASSERT_TRUE(wait_until([&] { return comes.load(); }));
  const auto term = leading->token();
  ASSERT_TRUE(is_ok(leading->release()));
  auto led = next.get();
  ASSERT_TRUE(is_ok(led));
  EXPECT_GT(led->token(), term);
  const auto seen = citizen.leader().value();
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->term, led->token());
  expect_owner(seen->owner, *led);
}

TEST_P(elections, observe_returns_when_the_term_changes) {
  const auto a = open(), b = open();
  election candidate{a, name(), "x"}, citizen{b, name()};
  auto watching = std::async(std::launch::async, [&] { return citizen.observe({}, patience); });
  auto leading = candidate.campaign();
  const auto seen = watching.get();
  ASSERT_TRUE(is_ok(seen));
  ASSERT_TRUE(*seen);
  EXPECT_EQ((*seen)->term, leading->token());

  EXPECT_TRUE(fails_with(citizen.observe(leading->token(), 20ms), errc::timed_out));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(
      fails_with(citizen.observe(leading->token(), patience, stop.get_token()), errc::cancelled));

  auto after =
      std::async(std::launch::async, [&] { return citizen.observe(leading->token(), patience); });
  EXPECT_EQ(after.wait_for(50ms), std::future_status::timeout);
  ASSERT_TRUE(is_ok(leading->release()));
  const auto vacant = after.get();
  ASSERT_TRUE(is_ok(vacant));
  EXPECT_FALSE(*vacant) << "nobody leads now";
}

TEST_P(elections, dead_leader_is_replaced) {
  NEEDS_SHORT_TTL();
  const auto plan = std::make_shared<faults>();
  election first{open_flaky(plan), name(), "cut off"}, second{open(), name(), "alive"};
  plan->fail_renewals = true;
  auto leading = first.campaign({.ttl = short_ttl()});
  ASSERT_TRUE(is_ok(leading));
  auto next = second.campaign({.wait = patience});
  ASSERT_TRUE(is_ok(next));
  EXPECT_FALSE(leading->valid());
  EXPECT_EQ(second.leader().value().value().term, next->token());
}

TEST_P(elections, value_is_checked) {
  const auto a = open();
  EXPECT_EQ(thrown_by([&] { election(a, name(), std::string(65, 'x')); }), errc::misconfigured);
  EXPECT_EQ(thrown_by([&] { election(a, name(), "a\nb"); }), errc::misconfigured);
}

}  // namespace
}  // namespace holdfast::testing

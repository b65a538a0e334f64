// What breaks here: a statement is held up on its way; its caller gives it up, finds out on another connection that
// nothing happened, and only then it is delivered. What must hold: it has no effect. It would take the lock for an
// owner that no client knows of, for its whole ttl.
#include "faults/mysql_raw.hpp"

#include <future>
#include <optional>

namespace holdfast::testing {
namespace {

class mysql_ghosts : public mysql_faults {
 protected:
  void SetUp() override {
    mysql_faults::SetUp();
    if (IsSkipped()) return;
    server_.emplace();
    net_.emplace(server_->port());
    a_.emplace(engines::mysql::make_engine, mysql_url(*net_), system_clock(), 1);
    // So that the connections are there, and their statements prepared.
    for (int round = 0; round < 2; ++round) {
      const auto first = enter(*a_, "warm", 10s);
      auto next = a_->ask("warm");
      ASSERT_EQ(a_->verbs->enter(next, soon()).value().what, entered::kind::waiting);
      ASSERT_TRUE(is_ok(a_->verbs->leave({next.name, next.owner}, soon())));
      ASSERT_TRUE(is_ok(a_->verbs->release(first, soon())));
    }
    ASSERT_EQ(left_behind(*server_), "0");
  }

  // What is sent now arrives when deliver() is called, and its sender gives up long before.
  template <class Ask>
  void with_request_kept(const Ask& ask) {
    const auto before = net_->bytes(fault_proxy::requests);
    net_->strand();
    const auto outcome = ask(call_within(300ms));
    ASSERT_FALSE(outcome);
    ASSERT_FALSE(outcome.error().is_not_done()) << outcome.error().message();
    ASSERT_GT(net_->bytes(fault_proxy::requests), before);
  }
  void deliver() { net_->heal(); }
  bool nothing_appears() {
    return stays_true([&] { return left_behind(*server_) == "0"; }, 500ms);
  }

  std::optional<mariadb_server> server_;
  std::optional<fault_proxy> net_;
  std::optional<raw_client> a_;
};

TEST_F(mysql_ghosts, request_delivered_after_it_was_settled_takes_nothing) {
  const auto ask = a_->ask("stock");
  with_request_kept([&](const call& limits) { return a_->verbs->enter(ask, limits); });
  const auto settled = a_->verbs->settle(ask, soon());
  ASSERT_TRUE(is_ok(settled));
  EXPECT_EQ(settled->what, entered::kind::busy);
  deliver();
  EXPECT_TRUE(nothing_appears());
}

TEST_F(mysql_ghosts, request_delivered_after_its_owner_left_takes_nothing) {
  const auto ask = a_->ask("stock");
  with_request_kept([&](const call& limits) { return a_->verbs->enter(ask, limits); });
  ASSERT_TRUE(is_ok(a_->verbs->leave({ask.name, ask.owner}, soon())));
  deliver();
  EXPECT_TRUE(nothing_appears());
}

TEST_F(mysql_ghosts, request_delivered_after_its_owner_was_granted_and_gave_back_takes_nothing) {
  const auto ask = a_->ask("stock");
  with_request_kept([&](const call& limits) { return a_->verbs->enter(ask, limits); });
  const auto again = a_->verbs->enter(ask, soon());
  ASSERT_TRUE(is_ok(again));
  ASSERT_EQ(again->what, entered::kind::granted);
  ASSERT_TRUE(is_ok(a_->verbs->release(again->granted, soon())));
  deliver();
  EXPECT_TRUE(nothing_appears());
}

// A transaction of several statements, kept at one or the other of them, the commit among them.
TEST_F(mysql_ghosts, request_for_several_takes_none_of_them_later) {
  int doubts = 0;
  for (std::size_t sent = 1; sent < 1500; sent += 300) {
    const std::vector<request> asks{a_->ask("left"), a_->ask("right")};
    const auto before = net_->bytes(fault_proxy::requests);
    net_->delay(fault_proxy::replies, 20ms);
    auto answer = std::async(std::launch::async,
                             [&] { return a_->verbs->enter_all(asks, call_within(700ms)); });
    wait_until([&] { return net_->bytes(fault_proxy::requests) >= before + sent; }, 700ms);
    net_->strand();
    const auto outcome = answer.get();
    net_->delay(fault_proxy::replies, 0ns);
    for (const auto& ask : asks) {
      auto settled = a_->verbs->settle(ask, call_within(300ms));
      if (!settled) settled = a_->verbs->settle(ask, soon());  // the first was stranded, too
      ASSERT_TRUE(is_ok(settled));
      EXPECT_EQ(settled->what == entered::kind::granted, outcome.has_value()) << sent;
      if (settled->what == entered::kind::granted) {
        EXPECT_TRUE(is_ok(a_->verbs->release(settled->granted, soon())));
      }
    }
    doubts += !outcome ? 1 : 0;
    deliver();
    ASSERT_TRUE(nothing_appears()) << sent;
  }
  EXPECT_GT(doubts, 0);
}

// The answer was "taken", and the transaction that found it out still has the rows.
TEST_F(mysql_ghosts, transaction_whose_end_is_not_delivered_keeps_no_rows) {
  auto b = raw_mysql(server_->url(), 2);
  enter(b, "right", 60s);
  const auto try_both = [&](const call& limits) {
    const std::vector<request> asks{a_->ask("left"), a_->ask("right")};
    const auto got = a_->verbs->enter_all(asks, limits);
    EXPECT_TRUE(is_ok(got));
    EXPECT_TRUE(got->empty());
  };
  for (int round = 0; round < 2; ++round) try_both(soon());  // so that all is prepared
  const auto begin = net_->bytes(fault_proxy::requests);
  try_both(soon());
  const auto all = net_->bytes(fault_proxy::requests) - begin;
  constexpr std::size_t length_of_rollback = 4 + 1 + 8;
  net_->delay(fault_proxy::replies, 150ms);
  auto trying = std::async(std::launch::async, [&] { try_both(call_within(3s)); });
  const auto last = begin + all + all - length_of_rollback;
  ASSERT_TRUE(wait_until([&] { return net_->bytes(fault_proxy::requests) >= last; }));
  ASSERT_EQ(net_->bytes(fault_proxy::requests), last) << "all but the last";
  net_->strand();
  trying.get();
  net_->delay(fault_proxy::replies, 0ns);
  const auto ask = a_->ask("left");
  ASSERT_EQ(a_->verbs->settle(ask, soon()).value().what, entered::kind::busy);
  EXPECT_TRUE(is_ok(b.verbs->enter(b.ask("left"), call_within(1s))));
  deliver();
}

// What was given up over one name does not hold up the others, and all threads that ask about it wait for its end.
TEST_F(mysql_ghosts, all_who_ask_at_once_see_it_gone) {
  const auto ask = a_->ask("stock");
  with_request_kept([&](const call& limits) { return a_->verbs->enter(ask, limits); });
  std::vector<std::future<result<entered>>> crowd;
  for (int i = 0; i < 4; ++i)
    crowd.push_back(std::async(std::launch::async, [&] { return a_->verbs->settle(ask, soon()); }));
  const auto first = crowd.front().get();
  ASSERT_TRUE(is_ok(first));
  deliver();
  for (std::size_t i = 1; i < crowd.size(); ++i) {
    const auto settled = crowd[i].get();
    ASSERT_TRUE(is_ok(settled));
    EXPECT_EQ(settled->what, entered::kind::busy);
  }
  EXPECT_TRUE(nothing_appears());
}

}  // namespace
}  // namespace holdfast::testing

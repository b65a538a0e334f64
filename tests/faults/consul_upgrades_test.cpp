// What breaks here: an upgrade that ends in doubt, or is given up after its request was sent twice. What must hold:
// what it would have replaced is as it was. It can be renewed, and it hears of its loss within a second (S5).
#include "faults/consul_faults.hpp"
#include "faults/consul_relay.hpp"

namespace holdfast::testing {
namespace {

class consul_upgrades : public consul_faults {
 protected:
  void SetUp() override {
    consul_faults::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    server_.emplace();
    relay_.emplace(server_->port());
    client_.emplace(client::open(fmt::format("consul://127.0.0.1:{},127.0.0.1:{}{}", relay_->port(),
                                             server_->port(), consul_at_once),
                                 {.call_timeout = 2s}));
    alone_.emplace(client::open(relay_->url(), {.call_timeout = 2s}));
    other_.emplace(client::open(server_->url() + consul_at_once));
  }
  static bool is_transaction(const consul_relay::question& asked) {
    return asked.target.starts_with("/v1/txn");
  }
  void expect_renewed_and_told(lease& held) {
    EXPECT_TRUE(wait_until([&] { return held.renew().has_value(); }));
    expect_told_within_a_second(held, [&] { EXPECT_TRUE(is_ok(other_->revoke("stock"))); });
  }

  std::optional<consul_server> server_;
  std::optional<consul_relay> relay_;
  std::optional<client> client_;  // of two agents, the first of which is the relay
  std::optional<client> alone_;   // of the relay
  std::optional<client> other_;
};

TEST_F(consul_upgrades, lease_whose_upgrade_ended_in_doubt_hears_of_its_loss) {
  shared_mutex lock{*alone_, "stock"};
  auto held = lock.acquire_upgradeable({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  // The upgrade's request is lost, and from then on nothing is answered.
  std::atomic<bool> is_mute{false}, is_over{false};
  relay_->answer_with([&](auto& asked) -> std::optional<std::string> {
    if (!is_mute && !is_transaction(asked)) return std::nullopt;
    is_mute = true;
    is_over.wait(false);
    return consul_relay::reply(503, "lost");
  });
  EXPECT_FALSE(lock.upgrade(*held, {.wait = 1s}));
  EXPECT_TRUE(is_mute);
  relay_->heal();
  is_over = true;
  is_over.notify_all();
  expect_renewed_and_told(*held);
}

// A reader comes in between the two copies of its request, neither of which changes anything.
TEST_F(consul_upgrades, lease_whose_upgrade_was_given_up_hears_of_its_loss) {
  shared_mutex lock{*client_, "stock"}, theirs{*other_, "stock"};
  auto held = lock.acquire_upgradeable({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  result<lease> reader{error{errc::not_held, "none yet"}};
  std::atomic<bool> has_come{false};
  relay_->answer_with([&](auto& asked) -> std::optional<std::string> {
    if (!is_transaction(asked) || has_come.exchange(true)) return std::nullopt;
    reader = theirs.acquire_shared({.wait = patience, .ttl = 60s});
    return consul_relay::reply(500, "rpc error making call: EOF");
  });
  EXPECT_TRUE(fails_with(lock.upgrade(*held, {.wait = 0s}), errc::busy));
  ASSERT_TRUE(has_come);
  EXPECT_TRUE(is_ok(reader));
  relay_->heal();
  expect_renewed_and_told(*held);
}

}  // namespace
}  // namespace holdfast::testing

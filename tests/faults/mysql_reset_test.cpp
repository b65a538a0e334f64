// What breaks here: one connection of a client that is queued, or several, are reset, and the next one works. What must
// hold: an acquire with time left goes on as if nothing had happened, is served when its turn comes, and not at its
// next look in ten seconds; and when its turn does not come, it says so when its time is up (L2).
#include "faults/mysql_faults.hpp"

#include <functional>
#include <optional>

namespace holdfast::testing {
namespace {

// Soon after the lock became free: by being told.
constexpr auto at_once = 3s;

class mysql_reset : public mysql_faults {
 protected:
  enum role : char { session = 's', listener = 'l' };

  void SetUp() override {
    mysql_faults::SetUp();
    if (IsSkipped()) return;
    server_.emplace();
    network_.emplace(server_->port());
  }

  // The server's number for that connection of the client that waits; 0 when there is none.
  std::string connection_of_waiter(role what) const {
    return server_->sql(fmt::format("SELECT COALESCE(IS_USED_LOCK('holdfast:{}:{}'),0)",
                                    static_cast<char>(what), waiter_));
  }
  void end(role what) const {
    const auto before = connection_of_waiter(what);
    server_->sql("KILL " + before);
    EXPECT_TRUE(is_another(what, before)) << "it is there again";
  }
  bool is_another(role what, const std::string& than) const {
    return wait_until([&] {
      const auto now = connection_of_waiter(what);
      return now != "0" && now != than;
    });
  }

  // `breaks` is called while a client waits; it must wait on, and be served.
  void while_queued(const std::function<void()>& breaks) {
    const auto a = client::open(server_->url()), b = client::open(mysql_url(*network_));
    mutex ours{a, "stock"}, theirs{b, "stock"};
    auto held = ours.acquire({.ttl = 60s});
    ASSERT_TRUE(is_ok(held));
    auto waiting = acquire_later(theirs);
    ASSERT_TRUE(wait_for_waiters(*server_, "stock", 1));
    waiter_ = server_->sql("SELECT HEX(client) FROM holdfast_entry WHERE state=1");
    ASSERT_TRUE(is_another(listener, "0"));
    for (int round = 0; round < 2; ++round) breaks();
    EXPECT_TRUE(wait_for_waiters(*server_, "stock", 1));
    EXPECT_FALSE(is_ready(waiting));
    ASSERT_TRUE(is_ok(held->release()));
    EXPECT_TRUE(is_ok(get(waiting, at_once)));
  }

  std::optional<mariadb_server> server_;
  std::optional<fault_proxy> network_;
  std::string waiter_;
};

TEST_F(mysql_reset, queued_client_lives_through_the_end_of_its_session) {
  while_queued([this] { end(session); });
}

TEST_F(mysql_reset, queued_client_lives_through_the_end_of_its_listener) {
  while_queued([this] { end(listener); });
}

TEST_F(mysql_reset, queued_client_lives_through_the_end_of_all_its_connections) {
  while_queued([this] {
    const auto before = connection_of_waiter(session), other = connection_of_waiter(listener);
    network_->cut();
    EXPECT_TRUE(is_another(session, before));
    EXPECT_TRUE(is_another(listener, other));
  });
}

// While it has no session another client looks at the queue, and takes it for dead.
TEST_F(mysql_reset, queued_client_that_was_passed_over_queues_up_again) {
  const auto c = client::open(server_->url());
  mutex passes_by{c, "stock"};
  while_queued([&] {
    network_->refuse();
    server_->sql("KILL " + connection_of_waiter(session));
    const auto queued = [&] {
      return server_->sql("SELECT COUNT(*) FROM holdfast_entry WHERE state=1") == "1";
    };
    EXPECT_TRUE(wait_until([&] {
      EXPECT_FALSE(passes_by.acquire({.wait = 1ms}));
      return !queued();
    }));
    network_->heal();
    EXPECT_TRUE(wait_until(queued, at_once));
  });
}

TEST_F(mysql_reset, client_that_is_cut_again_and_again_waits_until_its_time_is_up) {
  const auto a = client::open(server_->url()), b = client::open(mysql_url(*network_));
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  const auto begin = std::chrono::steady_clock::now();
  auto waiting = std::async(std::launch::async, [&] { return theirs.acquire({.wait = 3s}); });
  while (std::chrono::steady_clock::now() - begin < 2500ms) {
    if (waiting.wait_for(100ms) == std::future_status::ready) break;
    network_->cut();
  }
  const auto outcome = waiting.get();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 3s);
  EXPECT_TRUE(fails_with(outcome, errc::timed_out));
  ASSERT_TRUE(is_ok(held->release()));
  EXPECT_TRUE(is_ok(theirs.acquire({.wait = patience})));
}

}  // namespace
}  // namespace holdfast::testing

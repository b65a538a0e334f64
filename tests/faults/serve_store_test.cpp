// What breaks here: the store under a service (Redis), for an instant, for longer than a lease, and for good with all
// that was in it; and one of two services on one store. What must hold: the service lives and says what is the matter
// (503, /readyz), a lease that was lost is told to be lost and is over before anybody else has the lock, tokens rise,
// and when the store is back everybody is served.
#include "faults/serve_faults.hpp"
#include "faults/serve_relay.hpp"

#include "support/redis_server.hpp"

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace holdfast::testing {
namespace {

class serve_store : public serve_faults {
 protected:
  void SetUp() override {
    serve_faults::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (const auto redis = redis_server::available(); !redis) GTEST_SKIP() << redis.why;
    store_.emplace();
    service_.emplace(serve_process::options{.store = store_->url()});
  }
  std::uint16_t port() const { return service_->port(); }
  bool becomes(http_line& line, int readiness) const {
    return wait_until([&] { return line.ask("GET", "/readyz").status == readiness; }, 2 * patience);
  }
  static bool one_waits_at(http_line& line) {
    return wait_until([&] { return line.ask("GET", "/v1/stats").number("waiting") == 1; });
  }
  static std::string lease_path(const said& held) { return "/v1/leases/" + held.text("lease"); }

  std::optional<redis_server> store_;
  std::optional<serve_process> service_;
};

// For less than the session of the service lasts: nobody loses anything.
TEST_F(serve_store, short_stop_costs_no_lease) {
  lease_keeper keeper{port(), "order/", 50, 6s};
  http_line line{port(), 2 * patience}, other{port(), 2 * patience};
  ASSERT_TRUE(keeper.goes_on());
  store_->stop();
  const auto stopped = std::chrono::steady_clock::now();
  ASSERT_TRUE(line.send(acquire_request("stock", acquire_body(10s, 5s))));
  EXPECT_EQ(other.ask("GET", "/healthz").status, 200);
  wait_until([&] { return std::chrono::steady_clock::now() - stopped > 1500ms; });
  store_->resume();
  const auto got = line.hear();
  EXPECT_EQ(got.status, 200) << got.body;
  EXPECT_TRUE(keeper.goes_on(3)) << keeper.complaints();
  keeper.stop();
  EXPECT_EQ(keeper.complaints(), "");
  for (const auto& one : keeper.all()) EXPECT_TRUE(is_proven(*service_, one.name, one.token));
  expect_all_can_go_on(port(), keeper.all());
}

// A grant that no replica has is taken back, and its owner with it: what took it back may be said once more, to another
// master, and would end whatever that owner had got since.
TEST_F(serve_store, owner_that_was_taken_back_never_comes_again) {
  const serve_process careful{{.store = store_->url() + "?wait_replicas=1&wait_timeout=100ms"}};
  std::mutex guard;
  std::vector<std::uint64_t> owners;
  serve_relay relay{careful.port()};
  relay.answer_with([&](const serve_relay::question& asked) {
    if (asked.verb() == "enter") {
      const auto body = nlohmann::json::parse(asked.bytes.substr(asked.bytes.find("\r\n\r\n")));
      const std::lock_guard lock{guard};
      owners.push_back(body["owner"]);
    }
    return std::optional<std::string>{};
  });
  {
    const auto a = client::open(relay.url(), {.call_timeout = 2s});
    EXPECT_TRUE(fails_with(mutex{a, "stock"}.acquire({.wait = 2s}), errc::unavailable));
  }
  const std::lock_guard lock{guard};
  EXPECT_GT(owners.size(), 2U) << "it did not ask again";
  std::ranges::sort(owners);
  EXPECT_EQ(std::ranges::adjacent_find(owners), owners.end()) << "one owner asked twice";
}

// While the store stands still one client piles up renewals of its lease, and gives it back in the middle. With a small
// stack, so that a few thousand are too many for it.
TEST_F(serve_store, renewals_of_clients_that_have_gone_harm_nobody_else) {
  lease_keeper keeper{port(), "order/", 10, 6s};
  http_line line{port(), 3 * patience}, gives_back{port(), 3 * patience};
  const auto held = line.acquire("stock", 0s, 5s);
  ASSERT_EQ(held.status, 200) << held.body;
  ASSERT_TRUE(keeper.goes_on());
  const auto pid = service_->pid();
  constexpr rlimit small_stack{256 * 1024, RLIM_INFINITY};
  ASSERT_EQ(::prlimit(pid, RLIMIT_STACK, &small_stack, nullptr), 0);
  const auto renew = http_request("POST", lease_path(held) + ":renew", "{}");
  const auto renew_and_go = [&](int times) {
    for (int i = 0; i < times; ++i) {
      http_line one{port()};
      ASSERT_TRUE(one.send(renew));
    }
  };
  store_->stop();
  renew_and_go(10);
  ASSERT_TRUE(gives_back.send(http_request("DELETE", lease_path(held))));
  EXPECT_EQ(line.ask("GET", "/healthz").status, 200) << "it has been read";
  renew_and_go(2000);
  EXPECT_EQ(line.ask("GET", "/healthz").status, 200);
  EXPECT_EQ(line.renew(held.text("lease")).status, 429) << "its line is full";
  store_->resume();
  EXPECT_EQ(gives_back.hear().status, 204);
  EXPECT_EQ(line.ask("GET", "/healthz").status, 200);
  EXPECT_TRUE(service_->is_running()) << service_->log();
  EXPECT_EQ(service_->pid(), pid);
  EXPECT_TRUE(keeper.goes_on(2)) << keeper.complaints();
  keeper.stop();
  EXPECT_EQ(keeper.complaints(), "");
  EXPECT_EQ(line.acquire("stock", 0s, 5s).status, 200);
}

// A client that asks for its session over and over again while the store stands still. What has gone makes room.
TEST_F(serve_store, few_wait_for_one_session_that_begins) {
  const auto begin = http_request(
      "POST", "/v1/sessions", R"({"client":"0123456789abcdef0123456789abcdef","grace_ms":60000})");
  store_->stop();
  http_line looks{port()}, one_more{port(), 3 * patience};
  std::deque<http_line> all;
  for (int i = 0; i < 9; ++i)
    ASSERT_TRUE(all.emplace_back(port(), 3 * patience).send(begin)) << "one begins, eight wait";
  ASSERT_EQ(looks.ask("GET", "/healthz").status, 200) << "all of that has been read";
  ASSERT_TRUE(one_more.send(begin));
  EXPECT_EQ(one_more.hear().status, 429);
  for (int i = 1; i < 9; ++i) all[static_cast<std::size_t>(i)].drop();
  ASSERT_EQ(looks.ask("GET", "/healthz").status, 200);
  ASSERT_TRUE(one_more.send(begin));
  ASSERT_EQ(looks.ask("GET", "/healthz").status, 200);
  store_->resume();
  EXPECT_EQ(all.front().hear().status, 200);
  const auto said = one_more.hear();
  EXPECT_EQ(said.status, 200) << said.body;
}

// Nothing was given back: what stands in line behind a renewal is left to the store, and not told to be done.
TEST_F(serve_store, release_that_waits_when_the_service_ends_is_not_said_to_be_done) {
  http_line holder{port()}, renews{port(), 3 * patience}, gives_back{port(), 3 * patience},
      line{port()};
  const auto held = holder.acquire("stock", 0s, 60s);
  ASSERT_EQ(held.status, 200) << held.body;
  store_->stop();
  ASSERT_TRUE(renews.send(http_request("POST", lease_path(held) + ":renew", "{}")));
  ASSERT_TRUE(line.ask("GET", "/healthz")) << "it has been read";
  ASSERT_TRUE(gives_back.send(http_request("DELETE", lease_path(held))));
  ASSERT_TRUE(line.ask("GET", "/healthz"));
  service_->terminate();
  ASSERT_TRUE(wait_until([&] { return !http_line{port()}.ask("GET", "/healthz"); }));
  store_->resume();
  for (auto* each : {&renews, &gives_back}) {
    const auto said = each->hear();
    EXPECT_EQ(said.status, 503) << said.body;
    EXPECT_EQ(said.text("code"), "stopping") << said.body;
    EXPECT_NE(said.body.find(R"("done":null)"), std::string::npos) << said.body;
  }
  EXPECT_EQ(service_->wait(), 0) << service_->log();
}

// Whoever asks again while the first answer is still to come is not told that it is done.
TEST_F(serve_store, release_that_the_store_has_not_confirmed_is_not_said_to_be_done) {
  http_line holder{port()}, first{port(), 3 * patience}, again{port(), 3 * patience}, line{port()};
  const auto held = holder.acquire("stock", 0s, 60s);
  ASSERT_EQ(held.status, 200) << held.body;
  store_->stop();
  ASSERT_TRUE(first.send(http_request("DELETE", lease_path(held))));
  ASSERT_TRUE(line.ask("GET", "/healthz")) << "it has been read";
  const auto said = again.ask("DELETE", lease_path(held));
  EXPECT_EQ(said.status, 503) << said.body;
  EXPECT_NE(said.body.find(R"("done":null)"), std::string::npos) << said.body;
  store_->resume();
  first.hear();
  EXPECT_TRUE(wait_until([&] { return line.ask("DELETE", lease_path(held)).status == 204; }));
  EXPECT_EQ(line.acquire("stock", 10s, 10s).status, 200);
}

// A thread of the pool has it meanwhile, and replaces it: nobody else looks at it.
TEST_F(serve_store, lease_that_is_being_downgraded_is_not_looked_at) {
  http_line stream{port(), 3 * patience}, downgrades{port(), 3 * patience}, line{port()};
  ASSERT_TRUE(stream.send(http_request("POST", "/v1/locks/stock:hold", R"({"ttl":"3s"})")));
  std::string heard;
  ASSERT_TRUE(stream.hear_until(heard, "event: renewed")) << heard;
  const auto path = "/v1/leases/" + text_in(heard, "lease");
  store_->stop();
  ASSERT_TRUE(downgrades.send(http_request("POST", path + ":downgrade", R"({"mode":"shared"})")));
  ASSERT_TRUE(line.ask("GET", "/healthz")) << "it has been read";
  EXPECT_FALSE(stream.comes(1300ms)) << "each second it would be told how long it is valid";
  EXPECT_EQ(line.ask("GET", path).status, 503);
  store_->resume();
  EXPECT_EQ(downgrades.hear().status, 200);
  heard.clear();
  EXPECT_TRUE(stream.hear_until(heard, "event: renewed")) << heard;
}

TEST_F(serve_store, renewal_beside_an_upgrade_that_waits_for_a_downgrade_is_to_come_again) {
  http_line downgrades{port(), 3 * patience}, upgrades{port(), 3 * patience}, line{port()};
  const auto held = line.acquire("stock", 0s, 30s);
  ASSERT_EQ(held.status, 200) << held.body;
  const auto path = lease_path(held);
  store_->stop();
  ASSERT_TRUE(
      downgrades.send(http_request("POST", path + ":downgrade", R"({"mode":"upgradeable"})")));
  ASSERT_TRUE(line.ask("GET", "/healthz"));
  ASSERT_TRUE(upgrades.send(http_request("POST", path + ":upgrade", R"({"wait":"10s"})")));
  ASSERT_TRUE(line.ask("GET", "/healthz"));
  const auto said = line.renew(held.text("lease"));
  EXPECT_EQ(said.status, 503) << said.body;
  EXPECT_NE(said.body.find(R"("done":false)"), std::string::npos) << said.body;
  store_->resume();
  EXPECT_EQ(downgrades.hear().status, 200);
  EXPECT_EQ(upgrades.hear().status, 200);
  EXPECT_EQ(line.renew(held.text("lease")).status, 200);
}

// Each of them would have the store asked who holds it.
TEST_F(serve_store, busy_answers_of_one_key_leave_room_for_what_others_ask) {
  const serve_process service{{.store = store_->url(),
                               .keys = {key_line("one", "acquire", "*", "key-one"),
                                        key_line("two", "acquire,inspect,break", "*", "key-two")}}};
  http_line one{service.port(), 3 * patience, bearer("key-one")},
      two{service.port(), 3 * patience, bearer("key-two")};
  ASSERT_EQ(one.acquire("stock", 0s, 60s).status, 200);
  store_->stop();
  http_crowd crowd{service.port()};
  for (int i = 0; i < 400; ++i)
    crowd.add(http_request("POST", "/v1/locks/stock:acquire", "{}", bearer("key-one")), {});
  EXPECT_TRUE(crowd.run([&] { return crowd.statuses(409) == 400 - 64; }, 2s))
      << "a quarter of all places: " << crowd.story();
  EXPECT_EQ(one.ask("GET", "/v1/latches/batch").status, 429) << "it has them all";
  ASSERT_TRUE(two.send(http_request("DELETE", "/v1/locks/stock", {},
                                    bearer("key-two") + "X-Holdfast-Intent: break\r\n")));
  store_->resume();
  const auto broken = two.hear();
  EXPECT_EQ(broken.status, 200) << broken.body;
  EXPECT_TRUE(crowd.run([&] { return crowd.answers() == 400; })) << crowd.story();
  EXPECT_EQ(crowd.statuses(409), 400U) << crowd.story();
}

// As after a restart of the service, with a store that is slow: more than a key has places.
TEST_F(serve_store, all_clients_of_a_key_may_begin_at_once) {
  const serve_process service{
      {.store = store_->url(), .keys = {key_line("one", "acquire", "*", "key-one")}}};
  store_->stop();
  http_crowd crowd{service.port()};
  for (int i = 1; i <= 100; ++i)
    crowd.add(http_request("POST", "/v1/sessions", fmt::format(R"({{"client":"{:032x}"}})", i),
                           bearer("key-one")),
              {});
  EXPECT_FALSE(crowd.run([&] { return crowd.answers() > 0; }, 300ms)) << crowd.story();
  store_->resume();
  EXPECT_TRUE(crowd.run([&] { return crowd.answers() == 100; })) << crowd.story();
  EXPECT_EQ(crowd.statuses(200), 100U) << crowd.story();
}

// For longer than a lease: it is told to be lost, in words, and what was asked meanwhile is not done behind anybody's
// back.
TEST_F(serve_store, long_stop_ends_leases_in_words_and_the_service_lives) {
  http_line line{port(), 3 * patience}, sentinel{port(), 3 * patience}, asks{port(), 3 * patience};
  const auto held = line.acquire("stock", 0s, 3s);
  ASSERT_EQ(held.status, 200);
  std::string heard;
  ASSERT_TRUE(sentinel.send(http_request("POST", "/v1/locks/shelf:hold", acquire_body(0s, 3s))));
  ASSERT_TRUE(sentinel.hear_until(heard, "event: granted"));
  ASSERT_TRUE(becomes(asks, 200));
  store_->stop();
  EXPECT_TRUE(sentinel.hear_until(heard, "event: lost")) << heard;
  EXPECT_TRUE(becomes(asks, 503));
  const auto shown = line.ask("GET", lease_path(held));
  EXPECT_EQ(shown.status, 410) << shown.body;
  EXPECT_EQ(shown.text("code"), "lost");
  const auto refused = line.acquire("other", 0s, 3s);
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_NE(refused.head.find("Retry-After: "), std::string::npos) << refused.head;
  EXPECT_EQ(asks.ask("GET", "/healthz").status, 200);
  EXPECT_EQ(asks.ask("GET", "/v1/stats").status, 200) << "answered without the store";
  store_->resume();
  EXPECT_TRUE(becomes(asks, 200));
  for (const auto* name : {"stock", "shelf", "other"}) {
    const auto next = line.acquire(name, patience, 3s);
    ASSERT_EQ(next.status, 200) << name << ' ' << next.body;
    EXPECT_TRUE(is_proven(*service_, name, next.number("token")));
    EXPECT_EQ(line.release(next.text("lease")).status, 204);
  }
  EXPECT_TRUE(leaves_nothing(*service_)) << left_behind(*service_);
}

// The store dies and comes back with nothing.
TEST_F(serve_store, store_that_forgot_everything_is_not_believed_to_hold) {
  http_line line{port(), 3 * patience}, waiter{port(), 3 * patience};
  const auto held = line.acquire("stock", 0s, 3s);
  ASSERT_EQ(held.status, 200);
  ASSERT_TRUE(waiter.send(acquire_request("stock", acquire_body(25s, 3s))));
  ASSERT_TRUE(one_waits_at(line));
  store_->kill();
  EXPECT_EQ(line.ask("GET", "/healthz").status, 200);
  store_->restart();
  EXPECT_TRUE(wait_until(
      [&] {
        const auto said = line.renew(held.text("lease"));
        return said.status == 410 || said.status == 404;
      },
      2 * patience));
  auto next = waiter.hear();
  ASSERT_TRUE(next) << "answered, whatever happened";
  if (next.status == 503) next = waiter.acquire("stock", patience, 3s);
  ASSERT_EQ(next.status, 200) << next.body;
  EXPECT_GT(next.number("token"), held.number("token")) << "after a loss of all data, too";
  EXPECT_TRUE(is_proven(*service_, "stock", next.number("token")));
  EXPECT_EQ(line.ask("GET", lease_path(held)).status, 410);
}

// Of our own clients: the loss of the service's session with its store is the loss of theirs, on time.
TEST_F(serve_store, leases_of_the_engine_are_over_before_the_store_lets_others_in) {
  const auto direct = client::open(store_->url());
  const auto a = client::open(service_->url());
  mutex ours{a, "stock"}, theirs{direct, "stock"};
  auto held = ours.acquire({.ttl = 6s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  store_->stop();
  expect_loss_on_time(*held, loss);
  store_->resume();
  auto next = theirs.acquire({.wait = 2 * patience, .ttl = 6s});
  ASSERT_TRUE(is_ok(next));
  EXPECT_GT(next->token(), held->token());
  EXPECT_FALSE(held->valid());
  EXPECT_TRUE(is_ok(next->release()));
  EXPECT_TRUE(is_ok(ours.acquire({.wait = 2 * patience, .ttl = 6s})));
}

// Nothing breaks here: whoever waits is shown, also behind a holder of the same service, of whom the store hears
// nothing.
TEST_F(serve_store, waiter_behind_a_holder_of_the_same_service_is_shown) {
  http_line line{port()}, waiter{port()};
  const auto held = line.acquire("stock", 0s, 20s);
  ASSERT_EQ(held.status, 200) << held.body;
  ASSERT_TRUE(waiter.send(acquire_request("stock", acquire_body(25s, 3s))));
  ASSERT_TRUE(one_waits_at(line));
  EXPECT_TRUE(wait_until([&] { return waiters_shown(line, "stock") == 1; }, 3s))
      << line.ask("GET", "/v1/locks/stock").body;
}

// ---- two services

TEST_F(serve_store, other_service_takes_over_from_one_that_was_killed) {
  const serve_process two{{.store = store_->url()}};
  const auto bound = client::open(store_->url()).capabilities().dead_holder_bound;
  lease_keeper keeper{two.port(), "kept/", 20, 3s};
  http_line dies{port()}, lives{two.port(), 3 * patience};
  std::uint64_t newest = 0;
  for (int round = 0; round < 3; ++round) {
    const auto held = dies.acquire("stock", 0s, 60s);
    ASSERT_EQ(held.status, 200) << held.body;
    EXPECT_GT(held.number("token"), newest);
    ASSERT_TRUE(lives.send(acquire_request("stock", acquire_body(20s, 60s))));
    ASSERT_TRUE(wait_until([&] { return waiters_shown(dies, "stock") == 1; }));
    service_->kill();
    const auto begin = std::chrono::steady_clock::now();
    const auto next = lives.hear();
    ASSERT_EQ(next.status, 200) << next.body;
    EXPECT_LE(std::chrono::steady_clock::now() - begin, bound + 1s);
    EXPECT_GT(next.number("token"), held.number("token"));
    newest = next.number("token");
    service_->restart();
    dies.drop();
    EXPECT_EQ(dies.acquire("stock", 0s, 60s).status, 409);
    EXPECT_EQ(lives.release(next.text("lease")).status, 204);
  }
  EXPECT_EQ(keeper.complaints(), "");
}

// One stands still for longer than its session: its clients know that they have lost before the other's are served.
TEST_F(serve_store, service_that_stands_still_loses_and_its_clients_know) {
  const serve_process two{{.store = store_->url()}};
  http_line line{port(), 3 * patience}, other{two.port(), 3 * patience};
  const auto sent = std::chrono::steady_clock::now();
  const auto held = line.acquire("stock", 0s, 6s);
  ASSERT_EQ(held.status, 200) << held.body;
  // As a client counts that begins when it sends.
  const auto valid_until = sent + std::chrono::milliseconds{held.number("valid_ms")};
  ASSERT_TRUE(other.send(acquire_request("stock", acquire_body(25s, 6s))));
  ASSERT_TRUE(wait_until([&] { return waiters_shown(line, "stock") == 1; }));
  service_->stop();
  const auto next = other.hear();
  const auto granted = std::chrono::steady_clock::now();
  ASSERT_EQ(next.status, 200) << next.body;
  EXPECT_GT(granted, valid_until) << "two holders";
  service_->resume();
  const auto said = line.renew(held.text("lease"));
  EXPECT_TRUE(said.status == 410 || said.status == 404) << said.status << said.body;
  EXPECT_EQ(other.renew(next.text("lease")).status, 200) << "it was not touched";
  EXPECT_TRUE(is_proven(two, "stock", next.number("token")));
}

}  // namespace
}  // namespace holdfast::testing

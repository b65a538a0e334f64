// What breaks here: the service. It is killed and asked to end, again and again, under leases that are renewed, under
// waiters, and in the middle of requests. What must hold over a file: store: leases keep their ids and tokens, none is
// lost and none has two holders (S1, S4); over a store without successors they end, and are known to have ended; what
// a dead client left ends by its ttl; after the restart everybody is served (L2).
#include "faults/serve_faults.hpp"

#include "support/redis_server.hpp"

#include <deque>
#include <random>

namespace holdfast::testing {
namespace {

class serve_restart : public serve_faults {};

// Others, who want the same locks all the time. One that is granted is one too many.
class intruder {
 public:
  intruder(std::uint16_t port, const std::vector<lease_keeper::kept>& wanted)
      : wanted_(wanted), line_(port, 2s), thread_([this] { try_all(); }) {}
  intruder(const intruder&) = delete;
  intruder& operator=(const intruder&) = delete;
  ~intruder() { stop(); }
  void stop() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::size_t refused() const noexcept { return refused_; }
  std::string granted() const { return granted_; }  // REQUIRES: stopped

 private:
  void try_all() {
    for (std::size_t i = 0; !done_; i = (i + 1) % wanted_.size()) {
      const auto said = line_.acquire(wanted_[i].name, 0s, 2s);
      if (said.status == 409) ++refused_;
      if (said.status == 200) granted_ += wanted_[i].name + ' ';
      if (said.status == 0) std::this_thread::sleep_for(5ms);  // its own rest; nobody listens
    }
  }
  const std::vector<lease_keeper::kept>& wanted_;
  http_line line_;
  std::atomic<bool> done_{false};
  std::atomic<std::size_t> refused_{0};
  std::string granted_;
  std::thread thread_;
};

TEST_F(serve_restart, two_hundred_renewed_leases_keep_their_ids_and_tokens) {
  serve_process service;
  lease_keeper keeper{service.port(), "order/", 200, 4s};
  intruder others{service.port(), keeper.all()};
  for (int round = 0; round < 4; ++round) {
    const auto before = others.refused();
    ASSERT_TRUE(keeper.goes_on()) << keeper.complaints();
    ASSERT_TRUE(wait_until([&] { return others.refused() > before + 100; }))
        << "a run without load";
    if (round % 2 == 1) {
      service.terminate();
      EXPECT_EQ(service.wait(), 0) << service.log();
    }
    service.restart();
  }
  // For longer than the ttl: what was taken over is renewed in the store, too.
  EXPECT_TRUE(keeper.goes_on(4)) << keeper.complaints();
  keeper.stop(), others.stop();
  EXPECT_EQ(keeper.complaints(), "");
  EXPECT_EQ(others.granted(), "") << "two holders";
  for (const auto& one : keeper.all()) ASSERT_TRUE(is_proven(service, one.name, one.token));
  expect_all_can_go_on(service.port(), keeper.all());
  EXPECT_TRUE(leaves_nothing(service)) << left_behind(service);
}

// The service comes back, the client does not.
TEST_F(serve_restart, lease_of_a_dead_client_ends_within_its_ttl) {
  serve_process service;
  http_line line{service.port()};
  for (int round = 0; round < 2; ++round) {
    const auto held = line.acquire("stock", 0s, 2s);
    ASSERT_EQ(held.status, 200) << held.body;
    service.restart();
    line.drop();
    const auto begin = std::chrono::steady_clock::now();
    const auto next = line.acquire("stock", patience, 2s);
    const auto took = std::chrono::steady_clock::now() - begin;
    ASSERT_EQ(next.status, 200) << next.body;
    EXPECT_GT(next.number("token"), held.number("token"));
    EXPECT_LE(took, 3s) << "its ttl, and a second for a busy machine";
    EXPECT_EQ(line.renew(held.text("lease")).status, 404);
    EXPECT_EQ(line.release(next.text("lease")).status, 204);
  }
}

// Whether the answer came or not: asked again with the same request_id, there is one grant, and it is that one.
TEST_F(serve_restart, acquires_in_the_middle_of_a_kill_end_with_one_grant) {
  serve_process service;
  std::mt19937 random{std::random_device{}()};
  std::array<std::uint64_t, 4> newest{};
  int answered = 0;
  for (int round = 0; round < 16; ++round) {
    const auto which = static_cast<std::size_t>(round) % newest.size();
    const auto name = fmt::format("order/{}", which);
    const auto request = fmt::format("job-{}", round);
    http_line line{service.port(), 10 * patience};
    ASSERT_TRUE(line.ask("GET", "/healthz")) << "connected";
    const auto body = acquire_body(5s, 2s, request);
    ASSERT_TRUE(line.send(acquire_request(name, body)));
    std::thread kills{[&service, delay = std::chrono::microseconds{random() % 1500}] {
      std::this_thread::sleep_for(delay);
      service.kill();
    }};
    const auto first = line.hear();
    kills.join();
    if (first) ++answered;
    service.restart();
    line.drop();
    const auto again = line.acquire(name, 5s, 2s, request);
    ASSERT_EQ(again.status, 200) << again.body;
    if (first) {
      EXPECT_EQ(first.text("lease"), again.text("lease")) << "round " << round;
      EXPECT_EQ(first.number("token"), again.number("token"));
    }
    EXPECT_TRUE(is_proven(service, name, again.number("token")));
    EXPECT_GT(again.number("token"), newest[which]);
    newest[which] = again.number("token");
    EXPECT_EQ(line.release(again.text("lease")).status, 204);
  }
  RecordProperty("answered_before_the_kill", answered);
  EXPECT_TRUE(leaves_nothing(service)) << left_behind(service);
}

// Of our own clients: leases go on, waiters queue up again and are served.
TEST_F(serve_restart, leases_and_waiters_of_the_engine_go_on) {
  serve_process service;
  const auto url = service.url() + "?grace=8s";
  const auto a = client::open(url), b = client::open(url);
  std::deque<mutex> locks, theirs;
  std::vector<lease> held;
  std::vector<std::unique_ptr<loss_recorder>> losses;
  for (int i = 0; i < 50; ++i) {
    locks.emplace_back(a, fmt::format("order/{}", i));
    auto got = locks.back().acquire({.ttl = 6s});
    ASSERT_TRUE(is_ok(got));
    losses.push_back(std::make_unique<loss_recorder>(*got));
    held.push_back(std::move(*got));
  }
  std::vector<std::future<result<lease>>> waiting;
  for (int i = 0; i < 5; ++i) {
    theirs.emplace_back(b, fmt::format("order/{}", i));
    waiting.push_back(acquire_later(theirs.back(), {.ttl = 6s}));
    ASSERT_TRUE(one_waits(service, theirs.back().name()));
  }
  for (int round = 0; round < 4; ++round) {
    if (round % 2 == 1) {
      service.terminate();
      EXPECT_EQ(service.wait(), 0) << service.log();
    }
    service.restart();
    const auto back = std::chrono::steady_clock::now();
    for (auto& one : held) {
      ASSERT_TRUE(wait_until([&] { return one.renew().has_value() || !one.valid(); }))
          << one.name();
      EXPECT_TRUE(one.valid()) << one.name();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - back, 5s);
  }
  for (std::size_t i = 0; i < held.size(); ++i) {
    EXPECT_FALSE(losses[i]->fired()) << held[i].name();
    EXPECT_TRUE(is_proven(service, held[i]));
  }
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    EXPECT_FALSE(is_ready(waiting[i])) << "two holders";
    const auto token = held[i].token();
    ASSERT_TRUE(is_ok(held[i].release()));
    auto next = get(waiting[i]);
    ASSERT_TRUE(is_ok(next));
    EXPECT_GT(next->token(), token);
    EXPECT_TRUE(is_proven(service, *next));
    EXPECT_TRUE(is_ok(next->release()));
  }
  losses.clear(), held.clear();
  EXPECT_TRUE(leaves_nothing(service)) << left_behind(service);
}

// Asked to end it goes long before their grace is over, and gives nothing back.
TEST_F(serve_restart, asked_to_end_it_leaves_the_leases_of_the_engine_to_the_next_service) {
  serve_process service;
  const auto a = client::open(service.url() + "?grace=3s");
  mutex stock{a, "stock"}, order{a, "order"};
  auto held = stock.acquire({.ttl = 10s});
  ASSERT_TRUE(is_ok(held));
  loss_recorder loss{*held};
  const auto token = held->token();
  // What goes on for long must not keep it, either.
  const auto b = client::open(service.url() + "?grace=3s");
  mutex same{b, "stock"};
  auto waiting = acquire_later(same, {.ttl = 10s});
  ASSERT_TRUE(one_waits(service, "stock"));
  service.terminate();
  EXPECT_EQ(service.wait(2s), 0) << service.log();
  service.restart();
  EXPECT_TRUE(held->valid());
  EXPECT_TRUE(wait_until([&] { return held->renew().has_value() || !held->valid(); }));
  EXPECT_TRUE(held->valid());
  EXPECT_FALSE(loss.fired());
  EXPECT_EQ(held->token(), token);
  EXPECT_TRUE(is_proven(service, *held));
  EXPECT_FALSE(is_ready(waiting)) << "two holders";
  ASSERT_TRUE(is_ok(held->release()));
  auto next = get(waiting);
  ASSERT_TRUE(is_ok(next));
  EXPECT_GT(next->token(), token);
}

// Where the store would end them together with us it is told no goodbye: they end when nobody counts on them.
TEST_F(serve_restart, asked_to_end_it_lets_nobody_in_before_a_client_of_the_engine_knows) {
  if (const auto redis = redis_server::available(); !redis) GTEST_SKIP() << redis.why;
  redis_server store;
  serve_process service{{.store = store.url()}};
  const auto a = client::open(service.url() + "?grace=5s"), b = client::open(store.url());
  mutex ours{a, "stock"}, theirs{b, "stock"};
  const auto held = ours.acquire({.ttl = 10s});
  ASSERT_TRUE(is_ok(held));
  auto next = acquire_later(theirs, {.ttl = 10s});
  ASSERT_TRUE(one_waits(service, "stock"));
  service.terminate();
  EXPECT_EQ(service.wait(2s), 0) << service.log();
  EXPECT_TRUE(held->valid());
  const auto got = get(next);
  EXPECT_FALSE(held->valid()) << "two holders";
  ASSERT_TRUE(is_ok(got));
  EXPECT_GT(got->token(), held->token());
}

// Half a request, and a reader of events who does not go: neither counts on anything.
TEST_F(serve_restart, clients_that_hold_nothing_do_not_keep_it_from_its_end) {
  serve_process service;
  http_line half{service.port()}, reader{service.port()}, line{service.port()};
  ASSERT_TRUE(reader.send(http_request("GET", "/v1/events")));
  std::string events;
  ASSERT_TRUE(reader.hear_until(events, "event: hello"));
  ASSERT_TRUE(half.ask("GET", "/healthz")) << "connected";
  ASSERT_TRUE(half.send("POST /v1/locks/stock:acquire HTTP/1.1\r\nHost: "));
  ASSERT_TRUE(line.ask("GET", "/healthz")) << "it has been read";
  service.terminate();
  EXPECT_EQ(service.wait(7s), 0) << "as long as a request may take, and a lease be counted on";
  const auto said = half.hear();
  EXPECT_EQ(said.status, 503);
  EXPECT_EQ(said.text("code"), "stopping");
}

// What the next service knows is not unknown, and not given back. Half of each request arrives before the signal.
TEST_F(serve_restart, lease_is_not_said_to_be_gone_while_the_service_ends) {
  serve_process service;
  http_line line{service.port()};
  const auto held = line.acquire("stock", 0s, 20s);
  ASSERT_EQ(held.status, 200) << held.body;
  const auto path = "/v1/leases/" + held.text("lease");
  std::deque<http_line> asking;
  const std::vector requests{http_request("POST", path + ":renew", "{}"),
                             http_request("DELETE", path), http_request("GET", path),
                             http_request("POST", "/unlock?lease=" + held.text("lease"))};
  for (const auto& each : requests) {
    ASSERT_TRUE(asking.emplace_back(service.port()).ask("GET", "/healthz"));
    ASSERT_TRUE(asking.back().send(each.substr(0, 10)));
  }
  ASSERT_TRUE(line.ask("GET", "/healthz"));
  service.terminate();
  ASSERT_TRUE(wait_until([&] { return !http_line{service.port()}.ask("GET", "/healthz"); }));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(asking[i].send(requests[i].substr(10)));
    const auto said = asking[i].hear();
    EXPECT_EQ(said.status, 503) << requests[i] << said.body;
    EXPECT_NE(said.body.find("stopping"), std::string::npos) << said.body;
  }
  EXPECT_EQ(service.wait(), 0);
  service.restart();
  line.drop();
  EXPECT_EQ(line.renew(held.text("lease")).status, 200);
}

// Waits of other people's clients end with the service, and nobody is left in the queue that its holder would let in.
TEST_F(serve_restart, waiting_calls_of_a_killed_service_leave_the_queue) {
  serve_process service;
  http_line holder{service.port()}, next{service.port(), 3 * patience};
  const auto held = holder.acquire("stock", 0s, 4s);
  ASSERT_EQ(held.status, 200);
  std::deque<http_line> waiters;
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(
        waiters.emplace_back(service.port()).send(acquire_request("stock", acquire_body(60s, 4s))));
  ASSERT_TRUE(wait_until([&] { return waiters_shown(next, "stock") == 20; }));
  service.restart();
  for (auto& one : waiters) EXPECT_FALSE(one.hear());
  next.drop();
  EXPECT_TRUE(wait_for_queue(service, "stock", 0));
  ASSERT_TRUE(wait_until([&] { return holder.renew(held.text("lease")).status == 200; }));
  EXPECT_EQ(holder.release(held.text("lease")).status, 204);
  EXPECT_EQ(next.acquire("stock", 5s, 4s).status, 200);
}

// Nothing outlives its client there: the locks are free within the bound that the store has published, and no id of
// before is worth anything.
TEST_F(serve_restart, over_a_store_without_successors_leases_end_and_say_so) {
  if (const auto redis = redis_server::available(); !redis) GTEST_SKIP() << redis.why;
  redis_server store;
  serve_process service{{.store = store.url()}};
  const auto bound = client::open(store.url()).capabilities().dead_holder_bound;
  http_line line{service.port(), 3 * patience};
  const auto held = line.acquire("stock", 0s, 60s);
  ASSERT_EQ(held.status, 200) << held.body;
  service.restart();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(line.ask("GET", "/v1/leases/" + held.text("lease")).status, 0) << "cut";
  EXPECT_EQ(line.ask("GET", "/v1/leases/" + held.text("lease")).status, 404);
  EXPECT_EQ(line.renew(held.text("lease")).status, 404);
  const auto next = line.acquire("stock", 2 * patience, 60s);
  ASSERT_EQ(next.status, 200) << next.body;
  EXPECT_LE(std::chrono::steady_clock::now() - begin, bound + 1s);
  EXPECT_GT(next.number("token"), held.number("token"));
  EXPECT_EQ(line.renew(held.text("lease")).status, 404);
  EXPECT_TRUE(is_proven(service, "stock", next.number("token")));
}

}  // namespace
}  // namespace holdfast::testing

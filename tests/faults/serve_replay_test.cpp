// What breaks here: somebody repeats requests. Clients that try again, proxies that send twice, or send once more when
// everybody has forgotten; answers that were lost. What must hold (F18): a replayed acquire is the same grant, a
// replayed release is harmless, nothing that was given back appears again, and nobody else's lease is touched.
#include "faults/serve_faults.hpp"
#include "faults/serve_relay.hpp"

namespace holdfast::testing {
namespace {

class serve_replay : public serve_faults {};

TEST_F(serve_replay, same_request_id_is_the_same_grant_however_often_and_at_once) {
  const serve_process service;
  std::vector<http_line> lines;
  for (int i = 0; i < 20; ++i) lines.emplace_back(service.port());
  const auto request = acquire_request("stock", acquire_body(0s, 10s, "job-7"));
  for (auto& one : lines) ASSERT_TRUE(one.send(request));
  const auto first = lines.front().hear();
  ASSERT_EQ(first.status, 200) << first.body;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const auto same = lines[i].hear();
    EXPECT_EQ(same.status, 200) << same.body;
    EXPECT_EQ(same.text("lease"), first.text("lease"));
    EXPECT_EQ(same.number("token"), first.number("token"));
  }
  EXPECT_EQ(lines[0].ask("GET", "/v1/stats").number("leases"), 1U);
  const auto other = lines[1].acquire("stock", 0s, 20s, "job-7");
  EXPECT_EQ(other.status, 409) << "another question";
  EXPECT_EQ(other.text("code"), "conflict");
  EXPECT_EQ(lines[1].acquire("stock", 0s, 10s, "job-8").text("code"), "busy");
  for (auto& one : lines)
    EXPECT_EQ(one.release(first.text("lease")).status, 204) << "again and again";
  // A proxy that comes with it when all is over makes no lock that nobody knows of.
  const auto late = lines[0].acquire("stock", 0s, 10s, "job-7");
  EXPECT_EQ(late.status, 409) << late.body;
  EXPECT_EQ(late.text("code"), "conflict");
  EXPECT_TRUE(leaves_nothing(service)) << left_behind(service);
}

// The client goes away while it waits, and comes again: it has not lost its place to itself, nor is it there twice.
TEST_F(serve_replay, waiting_again_with_the_same_request_id_is_one_place) {
  const serve_process service;
  http_line holder{service.port()};
  const auto held = holder.acquire("stock", 0s, 30s);
  ASSERT_EQ(held.status, 200);
  http_line waits{service.port()}, waits_too{service.port()};
  const auto request = acquire_request("stock", acquire_body(30s, 10s, "job-7"));
  ASSERT_TRUE(waits.send(request));
  ASSERT_TRUE(wait_until([&] { return waiters_shown(holder, "stock") == 1; }));
  ASSERT_TRUE(waits_too.send(request));
  EXPECT_TRUE(stays_true([&] { return waiters_shown(holder, "stock") == 1; }, 200ms));
  waits.reset();
  EXPECT_TRUE(stays_true([&] { return waiters_shown(holder, "stock") == 1; }, 200ms));
  EXPECT_EQ(holder.release(held.text("lease")).status, 204);
  const auto got = waits_too.hear();
  ASSERT_EQ(got.status, 200) << got.body;
  const auto again = waits.acquire("stock", 30s, 10s, "job-7");
  EXPECT_EQ(again.text("lease"), got.text("lease"));
  EXPECT_EQ(waits.release(got.text("lease")).status, 204);
  EXPECT_TRUE(leaves_nothing(service)) << left_behind(service);
}

// The answer was on its way when the service was killed. It is in the journal, so it is given again.
TEST_F(serve_replay, grant_whose_answer_was_lost_with_the_service_is_given_again) {
  serve_process service;
  for (int round = 0; round < 5; ++round) {
    fault_proxy network{service.port()};
    http_line line{network.port()};
    const auto name = fmt::format("order/{}", round), request = fmt::format("job-{}", round);
    network.drop(fault_proxy::replies);
    ASSERT_TRUE(line.send(acquire_request(name, acquire_body(5s, 5s, request))));
    ASSERT_TRUE(wait_until([&] { return network.bytes(fault_proxy::replies) > 100; }));
    const auto before = seen_in_store(service, name);
    ASSERT_EQ(before.holders.size(), 1U);
    service.restart();
    http_line again{service.port()};
    const auto got = again.acquire(name, 5s, 5s, request);
    ASSERT_EQ(got.status, 200) << got.body;
    EXPECT_EQ(got.number("token"), before.holders.front().token.value);
    EXPECT_EQ(again.release(got.text("lease")).status, 204);
  }
  EXPECT_TRUE(leaves_nothing(service)) << left_behind(service);
}

TEST_F(serve_replay, proxy_that_sends_everything_twice) {
  const serve_process service;
  serve_relay relay{service.port()};
  relay.repeat();
  http_line line{relay.port()};
  std::uint64_t newest = 0;
  for (int round = 0; round < 10; ++round) {
    const auto got = line.acquire("stock", 0s, 10s, fmt::format("job-{}", round));
    ASSERT_EQ(got.status, 200) << got.body;
    EXPECT_GT(got.number("token"), newest);
    newest = got.number("token");
    EXPECT_TRUE(is_proven(service, "stock", newest));
    EXPECT_EQ(line.renew(got.text("lease")).status, 200);
    EXPECT_EQ(line.release(got.text("lease")).status, 204);
    EXPECT_FALSE(is_locked(service, "stock"));
  }
  EXPECT_GE(relay.repeated(), 30U);
}

// Our own clients by way of it: each verb is idempotent, and an owner that was given back never comes again.
TEST_F(serve_replay, engine_behind_a_proxy_that_sends_everything_twice) {
  const serve_process service;
  serve_relay relay{service.port()};
  relay.repeat();
  {
    const auto a = client::open(relay.url()), b = client::open(relay.url());
    mutex ours{a, "stock"}, theirs{b, "stock"};
    token_log tokens;
    for (int round = 0; round < 20; ++round) {
      auto held = ours.acquire({.wait = patience, .ttl = 10s});
      ASSERT_TRUE(is_ok(held));
      tokens.add(held->token());
      EXPECT_TRUE(is_proven(service, *held));
      auto waiting = acquire_later(theirs, {.ttl = 10s});
      ASSERT_TRUE(one_waits(service, "stock"));
      EXPECT_TRUE(is_ok(held->renew()));
      static_cast<void>(held->release());  // its second answer may say that it is not held any more
      auto next = get(waiting);
      ASSERT_TRUE(is_ok(next));
      tokens.add(next->token());
      EXPECT_TRUE(is_proven(service, *next));
      static_cast<void>(next->release());
      EXPECT_FALSE(is_locked(service, "stock"));
    }
    latch ready{a, "ready", 3};
    static_cast<void>(ready.count_down());
    EXPECT_TRUE(wait_until([&] { return leaves_nothing(service, 0s); }));
  }
  EXPECT_GE(relay.repeated(), 100U);
}

// Everything that was ever asked is asked once more, right afterwards and when it is late: no lock is taken, none is
// given back that somebody has now, and no place in the queue comes back.
TEST_F(serve_replay, replayed_requests_of_the_engine_have_no_effect) {
  const serve_process service;
  serve_relay relay{service.port()};
  relay.keep();
  const auto a = client::open(relay.url()), b = client::open(service.url());
  mutex lock{a, "stock"}, other{a, "shelf"}, theirs{b, "stock"}, taken{b, "taken"};
  const auto kept = taken.acquire({.ttl = 20s});
  ASSERT_TRUE(is_ok(kept));
  for (int i = 0; i < 3; ++i) {
    auto held = lock.acquire({.wait = patience, .ttl = 20s});
    ASSERT_TRUE(is_ok(held));
    ASSERT_TRUE(is_ok(held->renew()));
    ASSERT_TRUE(is_ok(held->release()));
    mutex waits{a, "taken"};
    EXPECT_TRUE(fails_with(waits.acquire({.wait = 50ms}), errc::timed_out));
  }
  ASSERT_TRUE(wait_until([&] { return seen_in_store(service, "taken").waiters.empty(); }));
  auto held = theirs.acquire({.ttl = 20s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  for (int round = 0; round < 3; ++round) {
    EXPECT_GT(relay.replay().size(), 10U);
    EXPECT_TRUE(is_proven(service, *held));
    EXPECT_TRUE(is_proven(service, *kept));
    EXPECT_TRUE(seen_in_store(service, "taken").waiters.empty()) << left_behind(service);
    EXPECT_TRUE(seen_in_store(service, "stock").waiters.empty()) << left_behind(service);
    // Later than any request may be carried out, in the last round.
    const auto passed = std::chrono::steady_clock::now();
    if (round == 1) wait_until([&] { return std::chrono::steady_clock::now() - passed > 5500ms; });
  }
  EXPECT_FALSE(loss.fired());
  EXPECT_TRUE(is_ok(held->release()));
  relay.replay();
  EXPECT_FALSE(is_locked(service, "stock")) << left_behind(service);
}

// ---- a client of the engine's own words

class raw_session {
 public:
  explicit raw_session(const serve_process& service) : line_(service.port()) {
    const auto got = line_.ask("POST", "/v1/sessions",
                               R"({"client":"00112233445566778899aabbccddeeff","grace_ms":60000})");
    id_ = got.text("session");
  }
  said ask(std::string_view verb, std::string_view words) {
    constexpr std::int64_t soon = 4'000'000'000;
    const auto now = std::chrono::nanoseconds{system_clock().now().time_since_epoch()}.count();
    return line_.ask("POST", fmt::format("/v1/sessions/{}:{}", id_, verb),
                     fmt::format(R"({{"name":"stock",{},"by_ns":{}}})", words, now + soon));
  }
  said enter(std::uint64_t owner, std::string_view mode = "exclusive",
             std::uint64_t weight = 1 << 30) {
    return ask("enter", fmt::format(R"("owner":{},"mode":"{}","weight":{},"capacity":1073741824,)"
                                    R"("ttl_ns":60000000000,"wait":false)",
                                    owner, mode, weight));
  }

 private:
  http_line line_;
  std::string id_;
};

TEST_F(serve_replay, session_whose_events_nobody_reads_keeps_what_it_has) {
  const serve_process service;
  raw_session one{service};
  ASSERT_EQ(one.enter(1).status, 200);
  EXPECT_TRUE(stays_true([&] { return is_locked(service, "stock"); }, 12s))
      << "its client was told a minute";
}

TEST_F(serve_replay, what_is_only_asked_about_leaves_nothing_behind) {
  const serve_process service;
  raw_session one{service};
  ASSERT_EQ(one.enter(1).status, 200);
  ASSERT_EQ(one.ask("settle", R"("owner":1,"replaces":2)").text("what"), "granted");
  const auto before = service.memory();
  for (int i = 0; i < 40'000; ++i)
    ASSERT_EQ(one.ask("settle", fmt::format(R"("owner":9,"replaces":{})", 1'000 + i)).status, 200);
  EXPECT_LT(service.memory(), before + (std::size_t{8} << 20U));
}

// It would give its place back, and have it still.
TEST_F(serve_replay, lease_that_was_not_upgraded_is_not_taken_for_replaced) {
  const serve_process service{{.config = {"leases-per-key = 2"}}};
  raw_session one{service};
  ASSERT_EQ(one.enter(1, "shared", 1).status, 200);
  ASSERT_EQ(one.enter(2, "shared", 1).status, 200);
  EXPECT_EQ(one.ask("settle", R"("owner":2,"replaces":1)").text("what"), "granted");
  EXPECT_EQ(one.enter(3, "shared", 1).status, 429);
}

// ---- two services on one store (F18)

TEST_F(serve_replay, tokens_rise_across_services_and_ids_stay_with_theirs) {
  const serve_process one;
  const serve_process two{{.store = one.store()}};
  http_line first{one.port()}, second{two.port(), 3 * patience};
  std::uint64_t newest = 0;
  for (int round = 0; round < 20; ++round) {
    auto& ours = round % 2 == 0 ? first : second;
    auto& theirs = round % 2 == 0 ? second : first;
    const auto request = fmt::format("job-{}", round);
    const auto held = ours.acquire("stock", 0s, 20s, request);
    ASSERT_EQ(held.status, 200) << held.body;
    EXPECT_GT(held.number("token"), newest);
    newest = held.number("token");
    EXPECT_EQ(theirs.acquire("stock", 0s, 20s, request).status, 409) << "another service's request";
    EXPECT_EQ(theirs.renew(held.text("lease")).status, 404);
    EXPECT_EQ(theirs.release(held.text("lease")).status, 404);
    EXPECT_TRUE(is_proven(one, "stock", newest)) << "it was not touched";
    // Whoever waits at the other service is let in by the release here.
    ASSERT_TRUE(theirs.send(acquire_request("stock", acquire_body(10s, 20s))));
    ASSERT_TRUE(one_waits(one, "stock"));
    EXPECT_EQ(ours.release(held.text("lease")).status, 204);
    const auto next = theirs.hear();
    ASSERT_EQ(next.status, 200) << next.body;
    EXPECT_GT(next.number("token"), newest);
    newest = next.number("token");
    EXPECT_EQ(theirs.release(next.text("lease")).status, 204);
  }
  EXPECT_TRUE(leaves_nothing(one)) << left_behind(one);
}

}  // namespace
}  // namespace holdfast::testing

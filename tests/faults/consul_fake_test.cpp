// What breaks here: an agent that is overloaded, fails, lies about its index, or does not block when it is asked to.
// What must hold: errors have a type and a sentence, nobody asks all the time (requests per second are counted), and
// whoever waits is served once it is over.
#include "faults/consul_faults.hpp"
#include "faults/consul_relay.hpp"

namespace holdfast::testing {
namespace {

// Of one client that waits: what nobody would call a busy loop.
constexpr std::size_t requests_per_second = 50;

class consul_fake : public consul_faults {
 protected:
  void SetUp() override {
    consul_faults::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    server_.emplace();
    relay_.emplace(server_->port());
    client_.emplace(client::open(relay_->url(), {.call_timeout = 2s}));
    other_.emplace(client::open(server_->url() + consul_at_once));
    ASSERT_TRUE(is_ok(mutex(*client_, "warm").acquire({.wait = patience})));
  }
  static consul_relay::answerer always(int status, std::string body) {
    return [answer = consul_relay::reply(status, body)](auto&) { return std::optional{answer}; };
  }
  static consul_relay::answerer to_blocking_queries(int status, std::string body) {
    return [answer = consul_relay::reply(status, body)](auto& asked) {
      return asked.blocks() ? std::optional{answer} : std::nullopt;
    };
  }
  // While it waits for this long, in vain.
  void expect_few_requests(const std::future<result<lease>>& waiting, std::chrono::seconds length) {
    const auto before = relay_->asked();
    EXPECT_TRUE(stays_true([&] { return !is_ready(waiting); }, length));
    const auto asked = relay_->asked() - before;
    EXPECT_LT(asked, requests_per_second * static_cast<std::size_t>(length.count()));
    RecordProperty(
        "requests_per_second",
        fmt::format("{:.1f}", static_cast<double>(asked) / static_cast<double>(length.count())));
  }

  // What the agent says to everything is an error with a type; nobody hammers it, and later all is well.
  void expect_typed_and_few(int status, const std::string& body) {
    mutex lock{*client_, "stock"};
    relay_->answer_with(always(status, body));
    const auto tried = lock.try_acquire();
    EXPECT_TRUE(is_out_of_reach(tried)) << status << ' ' << body;
    if (!tried) {
      EXPECT_NE(tried.error().message().find("stock"), std::string::npos)
          << tried.error().message();
    }
    EXPECT_TRUE(is_out_of_reach(client_->inspect("stock")));
    const auto before = relay_->asked();
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(lock.acquire({.wait = 3s}));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took, 8s);
    EXPECT_LT(static_cast<double>(relay_->asked() - before),
              static_cast<double>(requests_per_second) * std::max(took.count(), 1.0));
    relay_->heal();
    EXPECT_TRUE(is_ok(lock.acquire({.wait = patience}))) << "after " << status;
  }

  // Somebody else has "stock", and we wait for it by way of the relay.
  std::future<result<lease>> wait_for_stock() {
    theirs_ = mutex{*other_, "stock"}.acquire({.wait = patience, .ttl = 60s}).value();
    auto waiting = acquire_later(lock_.emplace(*client_, "stock"));
    EXPECT_TRUE(one_waits(*server_, "stock"));
    return waiting;
  }
  void expect_served(std::future<result<lease>>& waiting, nanoseconds within) {
    EXPECT_TRUE(is_ok(theirs_.release()));
    const auto released = std::chrono::steady_clock::now();
    auto held = get(waiting);
    ASSERT_TRUE(is_ok(held));
    EXPECT_LT(std::chrono::steady_clock::now() - released, within);
    EXPECT_TRUE(is_proven(*server_, *held));
    EXPECT_TRUE(is_ok(held->release()));
  }

  std::optional<consul_server> server_;
  std::optional<consul_relay> relay_;
  std::optional<client> client_, other_;
  std::optional<mutex> lock_;
  lease theirs_;
};

// ---- answers to everything

// It queued up, the lock became free at that moment, and what would take it was certainly refused: that is no proof
// that nothing is there.
TEST_F(consul_fake, refusal_behind_a_place_in_the_queue_leaves_no_place) {
  auto held = mutex{*other_, "stock"}.acquire({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  std::atomic<bool> refuses{false};
  relay_->answer_with([&](consul_relay::question& asked) {
    std::optional<std::string> out;
    if (!asked.target.starts_with("/v1/txn")) return out;
    if (refuses) return out = consul_relay::reply(429, "slow down");
    if (asked.body.find("get-tree") != std::string::npos) {
      EXPECT_TRUE(is_ok(held->release()));
      refuses = true;  // from the next one on
    }
    return out;
  });
  EXPECT_FALSE(mutex(*client_, "stock").acquire({.wait = 1s}));
  EXPECT_TRUE(refuses);
  relay_->heal();
  EXPECT_TRUE(is_ok(mutex(*other_, "stock").acquire({.wait = patience})));
  EXPECT_TRUE(wait_until([&] {
    const auto seen = other_->inspect("stock");
    return seen && seen->holders.empty() && seen->waiters.empty();
  }));
}

// Its first copy was carried out, and the answer lost; the second copy met a policy that has changed. So somebody may
// have the lock, and is asked for.
TEST_F(consul_fake, denied_copy_of_a_request_that_was_carried_out_is_a_doubt) {
  mutex lock{*client_, "stock"};
  const auto copies = std::make_shared<std::atomic<int>>(0);  // the relay outlives this test
  const auto is_taking = [](const consul_relay::question& asked) {
    return asked.target.starts_with("/v1/txn") && asked.body.find("\"lock\"") != std::string::npos;
  };
  relay_->answer_with([=](auto& asked) -> std::optional<std::string> {
    if (!is_taking(asked) || ++*copies != 2) return std::nullopt;
    return consul_relay::reply(
        409, R"({"Results":null,"Errors":[{"OpIndex":0,"What":"Permission denied"}]})");
  });
  relay_->edit_answers([=](const auto& asked, std::string& answer) {
    if (is_taking(asked) && *copies == 1) answer = consul_relay::reply(500, "rpc error: EOF");
  });
  auto held = lock.acquire({.wait = patience});
  EXPECT_TRUE(is_ok(held)) << "it was found";
  EXPECT_GE(*copies, 2);
  relay_->heal();
  if (held) static_cast<void>(held->release());
  EXPECT_TRUE(is_ok(mutex(*other_, "stock").acquire({.wait = patience}))) << "nobody has it";
}

TEST_F(consul_fake, agent_that_is_overloaded) {
  expect_typed_and_few(429, "Your IP is issuing too many concurrent connections");
}

TEST_F(consul_fake, agent_that_is_out_of_service) { expect_typed_and_few(503, "overloaded"); }

TEST_F(consul_fake, agent_without_a_leader) { expect_typed_and_few(500, "No cluster leader"); }

TEST_F(consul_fake, agent_that_fails) { expect_typed_and_few(500, "rpc error making call: EOF"); }

// They would lead to another key, or another host.
TEST_F(consul_fake, redirects_are_not_followed) {
  std::atomic<int> followed{0};
  relay_->answer_with([&](auto& asked) -> std::optional<std::string> {
    if (asked.target.find("/elsewhere") != std::string::npos) {
      ++followed;
      return consul_relay::reply(200, "true");
    }
    return consul_relay::reply(301, "", "Location: /v1/kv/elsewhere\r\n");
  });
  EXPECT_FALSE(mutex(*client_, "stock").try_acquire());
  EXPECT_EQ(followed, 0);
  relay_->heal();
  EXPECT_TRUE(is_ok(mutex(*client_, "stock").acquire({.wait = patience})));
}

TEST_F(consul_fake, answers_that_are_no_json_are_an_error_and_no_grant) {
  for (const auto* body : {"", "null", "[]", "{}", "true", "\xff\xfe", "[[[[[[", "{\"Results\":7}",
                           "{\"Results\":[{\"KV\":null}],\"Errors\":null}"}) {
    relay_->answer_with(always(200, body));
    const auto tried = mutex{*client_, "stock"}.try_acquire();
    EXPECT_FALSE(tried) << body;
    EXPECT_FALSE(is_locked(*server_, "stock"));
    relay_->heal();
    auto held = mutex{*client_, "stock"}.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(held)) << body;
    ASSERT_TRUE(is_ok(held->release())) << "before the agent talks nonsense again";
  }
}

// ---- blocking queries

TEST_F(consul_fake, blocking_queries_that_fail_are_asked_again_with_rests) {
  for (const auto& [status, body] :
       {std::pair{429, "too many"}, {500, "No cluster leader"}, {500, "rpc error"}}) {
    auto waiting = wait_for_stock();
    relay_->answer_with(to_blocking_queries(status, body));
    // The one that is under way ends with the next change; so let there be one.
    server_->put("holdfast/stock/noise", std::to_string(status));
    expect_few_requests(waiting, 3s);
    relay_->heal();
    expect_served(waiting, 5s);
    server_->erase("holdfast/stock/noise");
  }
}

TEST_F(consul_fake, blocking_queries_that_never_block_are_no_busy_loop) {
  // Passed on without a wait: the true answer, but at once.
  relay_->answer_with([](auto& asked) -> std::optional<std::string> {
    if (asked.blocks()) asked.set_parameter("index", "0");
    return std::nullopt;
  });
  auto waiting = wait_for_stock();
  expect_few_requests(waiting, 4s);
  expect_served(waiting, 3s);
  // Nor while it holds: its own key is watched, too.
  const auto held = mutex{*client_, "stock"}.acquire({.wait = patience});
  ASSERT_TRUE(is_ok(held));
  const auto before = relay_->asked();
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 3s));
  EXPECT_LT(relay_->asked() - before, 3 * requests_per_second);
}

// The servers were restored from a snapshot: what was 1,000,020 is 20 now, and a question that knows the greater number
// is answered at once for as long as it is asked so.
TEST_F(consul_fake, index_that_goes_backwards_is_no_busy_loop) {
  constexpr std::uint64_t more = 1'000'000;
  const auto restored = std::make_shared<std::atomic<bool>>(false);  // the relay outlives this test
  relay_->edit_answers([restored](const auto&, std::string& answer) {
    if (!*restored) consul_relay::set_index(answer, consul_relay::index_in(answer) + more);
  });
  relay_->answer_with([restored](auto& asked) -> std::optional<std::string> {
    if (!asked.blocks()) return std::nullopt;
    const auto index = std::stoull(asked.parameter("index"));
    if (index >= more) asked.set_parameter("index", std::to_string(*restored ? 0 : index - more));
    return std::nullopt;
  });
  auto waiting = wait_for_stock();
  *restored = true;
  server_->put("holdfast/stock/noise", "ends the question that is under way");
  expect_few_requests(waiting, 3s);
  expect_served(waiting, 3s);
  auto again = wait_for_stock();
  expect_few_requests(again, 2s);
  expect_served(again, 3s);
}

// An index of 0, or none, would make the next question return at once.
TEST_F(consul_fake, index_of_zero_or_none_is_no_busy_loop) {
  for (const bool none : {false, true}) {
    relay_->edit_answers([none](const auto&, std::string& answer) {
      if (const auto at = answer.find("X-Consul-Index"); none && at != std::string::npos) {
        answer.replace(at, 1, "Y");
      } else {
        consul_relay::set_index(answer, 0);
      }
    });
    auto waiting = wait_for_stock();
    expect_few_requests(waiting, 3s);
    expect_served(waiting, 5s);
    relay_->heal();
  }
}

// Nothing to wait for: a client that holds and one that idles ask for no more than the session needs.
TEST_F(consul_fake, quiet_client_asks_rarely) {
  const auto held = mutex{*client_, "stock"}.acquire({.wait = patience, .ttl = 60s});
  ASSERT_TRUE(is_ok(held));
  const auto before = relay_->asked();
  EXPECT_TRUE(stays_true([&] { return held->valid(); }, 4s));
  EXPECT_LT(relay_->asked() - before, 20U);
}

}  // namespace
}  // namespace holdfast::testing

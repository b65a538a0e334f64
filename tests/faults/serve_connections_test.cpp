// What breaks here: the connections of clients. They are reset, half closed, vanish without a word, and are slow in
// both directions. What must hold: what a connection kept is free at once, or within the time that a dead peer is
// noticed in; whoever waited has left the queue; a slow client costs nobody else anything.
#include "faults/serve_faults.hpp"

#include <deque>

namespace holdfast::testing {
namespace {

class serve_connections : public serve_faults {};

// In server/listener.cpp: probes after 5 s of silence, 5 s apart, two of them; and no acknowledgement for 10 s.
constexpr nanoseconds dead_peer_is_noticed_in = 20s;

std::string hold_request(std::string_view name, nanoseconds wait = 0s) {
  return http_request("POST", fmt::format("/v1/locks/{}:hold", name), acquire_body(wait, 60s));
}

// A client whose lock is the connection; throws when it does not get it.
class sentinel_client {
 public:
  sentinel_client(std::uint16_t port, std::string_view name) : line_(port) {
    if (!line_.send(hold_request(name)) || !line_.hear_until(heard_, "event: granted"))
      throw std::runtime_error("not held: " + heard_);
  }
  http_line& line() noexcept { return line_; }
  std::string lease() const {
    constexpr std::string_view field = "\"lease\":\"";
    const auto begin = heard_.find(field) + field.size();
    return heard_.substr(begin, heard_.find('"', begin) - begin);
  }

 private:
  http_line line_;
  std::string heard_;
};

TEST_F(serve_connections, what_a_connection_keeps_is_free_as_soon_as_it_ends) {
  const serve_process service;
  http_line next{service.port(), 3 * patience}, looker{service.port()};
  for (const auto& end : std::vector<std::function<void(http_line&)>>{
           [](http_line& line) { line.reset(); }, [](http_line& line) { line.drop(); },
           [](http_line& line) { line.end_output(); }}) {
    sentinel_client crashes{service.port(), "stock"};
    ASSERT_TRUE(is_locked(service, "stock"));
    ASSERT_TRUE(next.send(acquire_request("stock", acquire_body(20s, 10s))));
    ASSERT_TRUE(wait_until([&] { return waiters_shown(looker, "stock") == 1; }));
    const auto begin = std::chrono::steady_clock::now();
    end(crashes.line());
    const auto got = next.hear();
    ASSERT_EQ(got.status, 200) << got.body;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s) << "its ttl is a minute";
    EXPECT_EQ(next.release(got.text("lease")).status, 204);
  }
  EXPECT_TRUE(leaves_nothing(service)) << left_behind(service);
}

TEST_F(serve_connections, waiters_whose_connections_end_leave_the_queue) {
  const serve_process service;
  http_line holder{service.port()};
  const auto held = holder.acquire("stock", 0s, 60s);
  ASSERT_EQ(held.status, 200);
  std::deque<http_line> waiters;
  for (int i = 0; i < 60; ++i) {
    auto& one = waiters.emplace_back(service.port());
    ASSERT_TRUE(one.send(i % 2 == 0 ? acquire_request("stock", acquire_body(600s, 60s))
                                    : hold_request("stock", 600s)));
  }
  ASSERT_TRUE(wait_until([&] { return waiters_shown(holder, "stock") == 60; }));
  for (std::size_t i = 0; i < waiters.size(); ++i)
    i % 3 == 0 ? waiters[i].reset() : i % 3 == 1 ? waiters[i].drop() : waiters[i].end_output();
  EXPECT_TRUE(wait_until([&] { return waiters_shown(holder, "stock") == 0; }))
      << waiters_shown(holder, "stock");
  EXPECT_EQ(holder.release(held.text("lease")).status, 204);
  EXPECT_TRUE(leaves_nothing(service)) << left_behind(service);
  EXPECT_EQ(holder.acquire("stock", 0s, 60s).status, 200);
}

// A cable is pulled: nothing that arrives for these clients is acknowledged any more, and nothing is closed.
TEST_F(serve_connections, clients_that_vanish_without_a_word_are_noticed) {
  const serve_process service;
  sentinel_client holder{service.port(), "stock"};
  http_line waiter{service.port()}, next{service.port(), 4 * patience};
  const auto other = next.acquire("shelf", 0s, 60s);
  ASSERT_EQ(other.status, 200);
  ASSERT_TRUE(waiter.send(acquire_request("shelf", acquire_body(600s, 60s))));
  ASSERT_TRUE(wait_until([&] { return waiters_shown(next, "shelf") == 1; }));
  ASSERT_TRUE(holder.line().go_deaf());
  ASSERT_TRUE(waiter.go_deaf());
  const auto begin = std::chrono::steady_clock::now();
  const auto got = next.acquire("stock", dead_peer_is_noticed_in, 10s);
  EXPECT_EQ(got.status, 200) << got.body;
  EXPECT_TRUE(wait_until([&] { return waiters_shown(next, "shelf") == 0; },
                         dead_peer_is_noticed_in - (std::chrono::steady_clock::now() - begin)));
  EXPECT_TRUE(holder.line().is_open()) << "it has not ended anything";
}

// It is let go ten seconds after the first byte that was not acknowledged, however many were sent since, and what it is
// told may not outlast that.
TEST_F(serve_connections, what_a_client_may_count_on_shrinks_while_it_acknowledges_nothing) {
  const serve_process service;
  sentinel_client holder{service.port(), "stock"};
  http_line looker{service.port()};
  const auto told = [&] { return looker.ask("GET", "/v1/leases/" + holder.lease()); };
  ASSERT_EQ(told().status, 200);
  EXPECT_GT(told().number("valid_ms"), 9'000U);
  ASSERT_TRUE(holder.line().go_deaf());
  said last;
  EXPECT_TRUE(wait_until(
      [&] {
        last = told();
        return last.status != 200 || last.number("valid_ms") < 7'000;
      },
      dead_peer_is_noticed_in));
  EXPECT_EQ(last.status, 200) << "told before it was over: " << last.body;
}

// The end of the connection stands behind what is not read for now.
TEST_F(serve_connections, waiters_that_have_sent_much_ahead_leave_the_queue_when_they_go) {
  const serve_process service;
  http_line holder{service.port()};
  const auto held = holder.acquire("stock", 0s, 60s);
  ASSERT_EQ(held.status, 200);
  std::deque<http_line> waiters;
  for (int i = 0; i < 4; ++i) {
    auto& one = waiters.emplace_back(service.port());
    ASSERT_TRUE(one.send(
        (i < 2 ? acquire_request("stock", acquire_body(600s, 60s)) : hold_request("stock", 600s)) +
        std::string(40'000, 'x')));
  }
  ASSERT_TRUE(wait_until([&] { return waiters_shown(holder, "stock") == 4; }));
  for (std::size_t i = 0; i < waiters.size(); ++i)
    i % 2 == 0 ? waiters[i].reset() : waiters[i].drop();
  EXPECT_TRUE(wait_until([&] { return waiters_shown(holder, "stock") == 0; }))
      << waiters_shown(holder, "stock");
  EXPECT_EQ(holder.release(held.text("lease")).status, 204);
}

// ---- slow

TEST_F(serve_connections, requests_that_come_byte_by_byte_are_answered_in_time_or_refused) {
  const serve_process service{{.config = {"request-time = 2s"}}};
  fault_proxy network{service.port()};
  network.trickle();
  http_line slow{network.port(), 3 * patience}, brisk{service.port()};
  const auto got = slow.acquire("stock", 0s, 10s);
  EXPECT_EQ(got.status, 200) << got.body;
  EXPECT_EQ(slow.release(got.text("lease")).status, 204);
  // Of one that never ends the service has heard enough when the time is over.
  http_line stuck{service.port()};
  const auto whole = acquire_request("stock", acquire_body(0s, 10s));
  const auto begin = std::chrono::steady_clock::now();
  std::size_t sent = 0;
  ASSERT_TRUE(stuck.send(whole.substr(0, ++sent))) << "connected";
  said answer;
  std::thread hears{[&] { answer = stuck.hear(); }};
  while (sent + 1 < whole.size() && std::chrono::steady_clock::now() - begin < 1500ms) {
    if (!stuck.send_on(whole.substr(sent++, 1))) break;
    EXPECT_TRUE(brisk.ask("GET", "/healthz")) << "others are served meanwhile";
    std::this_thread::sleep_for(10ms);  // this is what a slow client does
  }
  hears.join();
  EXPECT_EQ(answer.status, 408) << answer.body;
  EXPECT_EQ(answer.text("code"), "slow_request");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s + 1500ms);
  EXPECT_FALSE(is_locked(service, "stock"));
}

// They ask for more and more and read nothing of it.
TEST_F(serve_connections, clients_that_never_read_cost_no_memory_and_nobody_else) {
  const serve_process service;
  lease_keeper keeper{service.port(), "order/", 20, 3s};
  std::string many;
  for (int i = 0; i < 200; ++i) many += http_request("GET", "/openapi.json");
  std::deque<http_line> deaf;
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(deaf.emplace_back(service.port(), 1s).send_some(many));
  ASSERT_TRUE(keeper.goes_on(4)) << keeper.complaints();
  http_line brisk{service.port()};
  EXPECT_EQ(brisk.acquire("stock", 0s, 10s).status, 200);
  EXPECT_EQ(keeper.complaints(), "");
  EXPECT_LT(keeper.slowest_answer(), 1s);
  EXPECT_LT(service.most_memory(), std::size_t{512} << 20U);
  RecordProperty("most_memory_mb", static_cast<int>(service.most_memory() >> 20U));
  // And they do not keep their places for ever.
  EXPECT_TRUE(wait_until([&] { return connections_shown(brisk) < 20; }, 3 * patience))
      << connections_shown(brisk);
}

}  // namespace
}  // namespace holdfast::testing

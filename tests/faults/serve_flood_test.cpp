// What breaks here: nothing, there is only too much of everything. Half-sent requests by the thousand, bodies and
// headers without end, thousands of readers of events, tens of thousands of acquires, and all of it at once. What
// must hold: no held lease is lost (L4), neither of clients that renew over HTTP nor of our own; others are still
// served; each flood gets its clear answer; the memory of the service stays below 512 MB.
#include "faults/serve_faults.hpp"

#include <array>
#include <deque>
#include <optional>
#include <random>

namespace holdfast::testing {
namespace {

constexpr std::size_t files_needed = 18'000;  // of this process, and as many of the service
constexpr std::size_t memory_allowed = std::size_t{512} << 20U;

class serve_flood : public serve_faults {
 protected:
  void SetUp() override {
    serve_faults::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (const auto files = allow_many_files(); files < files_needed)
      GTEST_SKIP() << "a process may have " << files << " files here; this needs " << files_needed;
  }
};

// Who was there before the flood, and comes and goes during it.
class bystanders {
 public:
  explicit bystanders(const serve_process& service)
      : service_(service),
        keeper_(service.port(), "kept/", 20, ttl),
        client_(client::open(service.url())),
        lock_(client_, "engine/kept"),
        lease_(lock_.acquire({.ttl = ttl}).value()),
        loss_(lease_),
        thread_([this] { come_and_go(); }) {}
  bystanders(const bystanders&) = delete;
  bystanders& operator=(const bystanders&) = delete;
  ~bystanders() { stop(); }

  std::size_t served() const noexcept { return served_; }
  // Until all leases were renewed, and so many guests served, after all.
  void expect_unharmed() {
    const auto served = served_.load();
    EXPECT_TRUE(keeper_.goes_on()) << keeper_.complaints();
    EXPECT_TRUE(wait_until([&] { return served_ > served + 3; })) << "nobody is served any more";
    stop();
    EXPECT_EQ(keeper_.complaints(), "");
    EXPECT_EQ(turned_away_, "");
    EXPECT_FALSE(loss_.fired());
    EXPECT_TRUE(is_ok(lease_.renew()));
    for (const auto& one : keeper_.all())
      EXPECT_TRUE(is_proven(service_, one.name, one.token)) << one.name;
    EXPECT_LT(service_.most_memory(), memory_allowed);
    ::testing::Test::RecordProperty("most_memory_mb",
                                    static_cast<int>(service_.most_memory() >> 20U));
    ::testing::Test::RecordProperty(
        "slowest_ms",
        static_cast<int>(std::max(nanoseconds{slowest_}, keeper_.slowest_answer()) / 1ms));
  }

 private:
  static constexpr nanoseconds ttl = 3s;
  void come_and_go() {
    while (!done_) {
      const auto begin = std::chrono::steady_clock::now();
      const auto got = guest_.acquire("guest", 0s, 2s);
      if (got.status != 200) turned_away_ += fmt::format("acquire: {} {}\n", got.status, got.body);
      const auto gave = guest_.release(got.text("lease"));
      if (gave.status != 204)
        turned_away_ += fmt::format("release: {} {}\n", gave.status, gave.body);
      slowest_ = std::max(slowest_, (std::chrono::steady_clock::now() - begin).count());
      ++served_;
      std::this_thread::sleep_for(20ms);  // between two guests
    }
  }
  void stop() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
    keeper_.stop();
  }

  const serve_process& service_;
  lease_keeper keeper_;
  client client_;
  mutex lock_;
  lease lease_;
  loss_recorder loss_;
  http_line guest_{service_.port()};
  std::atomic<bool> done_{false};
  std::atomic<std::size_t> served_{0};
  std::int64_t slowest_ = 0;  // these two: when stopped
  std::string turned_away_;
  std::thread thread_;
};

// ---- what comes

constexpr std::size_t half_sent = 2'000, watchers = 5'000, acquires = 20'000, takers = 4'000;

void add_half_sent(http_crowd& to) {
  const auto whole = acquire_request("half", acquire_body(0s, 10s));
  for (std::size_t i = 0; i < half_sent; ++i)
    to.add(whole.substr(0, i % 2 == 0 ? whole.size() / 2 : whole.size() - 5), {});
}

void add_watchers(http_crowd& to, std::string_view mark) {
  for (std::size_t i = 0; i < watchers; ++i) to.add(http_request("GET", "/v1/events"), mark);
}

void add_takers(http_crowd& to, nanoseconds ttl) {
  std::mt19937_64 random{std::random_device{}()};
  for (std::size_t i = 0; i < takers; ++i) {
    std::string all;
    for (std::size_t k = 0; k < acquires / takers; ++k)
      all += acquire_request(fmt::format("random/{:016x}", random()), acquire_body(0s, ttl));
    to.add(std::move(all), {});
  }
}

std::string many_headers(std::size_t lines) {
  std::string out = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n";
  for (std::size_t i = 0; i < lines; ++i) out += fmt::format("X-{}: {}\r\n", i, i);
  return out + "\r\n";
}

enum class framing { length, chunks };
// As much of a body of 1 GiB as the service takes. What it said to it.
int pour_a_gibibyte(std::uint16_t port, framing how) {
  constexpr std::size_t all = std::size_t{1} << 30U, piece = std::size_t{1} << 20U;
  http_line line{port};
  auto begin = fmt::format(
      "POST /v1/locks/big:acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\n{}"
      "\r\n",
      how == framing::chunks ? "Transfer-Encoding: chunked\r\n"
                             : fmt::format("Content-Length: {}\r\n", all));
  if (!line.send(begin)) return 0;
  std::string block(piece, ' ');
  if (how == framing::chunks) block = fmt::format("{:x}\r\n{}\r\n", piece, block);
  std::thread pours{[&] {
    for (std::size_t sent = 0; sent < all && line.send_on(block); sent += piece) {
    }
  }};
  const auto said = line.hear_on();
  pours.join();
  return said;
}

// ---- one at a time

TEST_F(serve_flood, half_sent_requests_are_ended) {
  const serve_process service{{.config = {"request-time = 3s"}}};
  bystanders others{service};
  http_crowd crowd{service.port()};
  add_half_sent(crowd);
  EXPECT_TRUE(crowd.run([&] { return crowd.ended() == half_sent; })) << crowd.story();
  EXPECT_EQ(crowd.statuses(408), half_sent) << crowd.story();
  others.expect_unharmed();
  EXPECT_FALSE(is_locked(service, "half"));
}

// Each within its limit: beyond 128 MB of all together only small ones arrive.
TEST_F(serve_flood, large_requests_that_never_end_leave_room_for_small_ones) {
  const serve_process service;
  bystanders others{service};
  http_crowd crowd{service.port()};
  const auto half = fmt::format(
      "POST /v1/locks/big:acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nContent-Length: 65536\r\n\r\n{}",
      std::string(60'000, ' '));
  for (int i = 0; i < 3'000; ++i) crowd.add(half, {});
  EXPECT_TRUE(crowd.run([&] { return crowd.statuses(503) > 500; })) << crowd.story();
  others.expect_unharmed();
}

TEST_F(serve_flood, bodies_and_headers_without_end_are_refused) {
  const serve_process service;
  bystanders others{service};
  EXPECT_EQ(pour_a_gibibyte(service.port(), framing::length), 413);
  EXPECT_EQ(pour_a_gibibyte(service.port(), framing::chunks), 413);
  http_crowd crowd{service.port()};
  const auto endless = many_headers(100'000), some = many_headers(101);
  for (int i = 0; i < 20; ++i) crowd.add(i % 2 == 0 ? endless : some, {});
  EXPECT_TRUE(crowd.run([&] { return crowd.ended() == crowd.size(); })) << crowd.story();
  EXPECT_EQ(crowd.statuses(431), crowd.size()) << crowd.story();
  others.expect_unharmed();
}

// Each piece ends in the middle of a line, where the parser does not know yet how long the line will be.
TEST_F(serve_flood, headers_in_pieces_are_counted_together) {
  const serve_process service;
  constexpr std::size_t all = std::size_t{64} << 20U;
  http_line line{service.port()};
  ASSERT_TRUE(line.send("GET /aaa HTTP/1.1\r\na"));
  ASSERT_TRUE(http_line{service.port()}.ask("GET", "/healthz")) << "it has been read by itself";
  std::string piece;
  while (piece.size() < 4096) piece += ":\r\na";
  std::thread pours{[&] {
    for (std::size_t sent = 0; sent < all && line.send_on(piece); sent += piece.size()) {
    }
  }};
  EXPECT_EQ(line.hear_on(), 431);
  pours.join();
  EXPECT_LT(service.most_memory(), std::size_t{128} << 20U);
}

TEST_F(serve_flood, thousands_of_readers_hear_of_every_event) {
  const serve_process service;
  bystanders others{service};
  http_crowd crowd{service.port()};
  add_watchers(crowd, "\"name\":\"seen/");
  ASSERT_TRUE(crowd.run([&] { return crowd.answers() == watchers; })) << crowd.story();
  ASSERT_EQ(crowd.statuses(200), watchers) << crowd.story();
  http_line line{service.port()};
  constexpr int locks = 10;
  for (int i = 0; i < locks; ++i) {
    const auto got = line.acquire(fmt::format("seen/{}", i), 0s, 10s);
    ASSERT_EQ(got.status, 200) << got.body;
    EXPECT_EQ(line.release(got.text("lease")).status, 204);
    EXPECT_TRUE(crowd.run([&] {
      return crowd.marks() >= (2 * static_cast<std::size_t>(i) + 2) * watchers;
    })) << crowd.story();
  }
  EXPECT_EQ(crowd.marks(), 2 * locks * watchers) << "granted and released, once each";
  EXPECT_EQ(crowd.ended(), 0U) << crowd.story();
  others.expect_unharmed();
}

// And all their leases end at the same time.
TEST_F(serve_flood, acquires_of_random_names_are_all_granted_and_end_together) {
  const serve_process service;
  bystanders others{service};
  http_line line{service.port()};
  http_crowd crowd{service.port()};
  add_takers(crowd, 15s);
  EXPECT_TRUE(crowd.run([&] { return crowd.answers() == acquires; })) << crowd.story();
  EXPECT_EQ(crowd.statuses(200), acquires) << crowd.story();
  EXPECT_TRUE(
      wait_until([&] { return line.ask("GET", "/v1/stats").number("leases") <= 21; }, 3 * patience))
      << line.ask("GET", "/v1/stats").body;
  others.expect_unharmed();
}

// Large answers, until there is no room for one more: what was asked has been carried out then.
TEST_F(serve_flood, answers_that_nobody_reads_leave_the_next_one_in_doubt) {
  const serve_process service;
  bystanders others{service};
  http_line line{service.port()};
  http_crowd crowd{service.port()};
  constexpr std::size_t names = 10'000, at_once = 20;
  for (std::size_t i = 0; i < names; i += at_once) {
    std::string all;
    for (std::size_t k = i; k < i + at_once; ++k)
      all += acquire_request(fmt::format("long/{:0>240}", k), acquire_body(0s, 60s));
    crowd.add(std::move(all), {});
  }
  ASSERT_TRUE(crowd.run([&] { return crowd.answers() == names; })) << crowd.story();
  std::deque<http_line> deaf;
  said next;
  const bool is_full = wait_until(
      [&] {
        for (int i = 0; i < 4; ++i)
          EXPECT_TRUE(
              deaf.emplace_back(service.port()).send(http_request("GET", "/v1/locks?limit=10000")));
        next = line.ask("GET", "/v1/locks?limit=10000");
        return next.status != 200;
      },
      2 * patience);
  EXPECT_TRUE(is_full) << deaf.size();
  EXPECT_EQ(next.status, 429);
  EXPECT_NE(next.body.find(R"("done":null)"), std::string::npos) << next.body.substr(0, 300);
  deaf.clear();
  others.expect_unharmed();
}

// One key takes all it may have, and more: it is told, and other keys are not concerned.
TEST_F(serve_flood, what_is_over_a_limit_is_refused_and_told_when_to_come_again) {
  const serve_process service{{.config = {"leases-per-key = 40", "waiters-per-key = 10",
                                          "watchers = 5", "connections-per-address = 200"}}};
  lease_keeper keeper{service.port(), "kept/", 20, 3s};
  http_line line{service.port()};
  int granted = 0, refused = 0;
  for (int i = 0; i < 60; ++i) {
    const auto got = line.acquire(fmt::format("more/{}", i), 0s, 30s);
    if (got.status == 200) ++granted;
    if (got.status != 429) continue;
    ++refused;
    EXPECT_NE(got.head.find("Retry-After: "), std::string::npos) << got.head;
    EXPECT_EQ(got.text("code"), "too_many");
  }
  EXPECT_EQ(granted, 20);
  EXPECT_EQ(refused, 40);
  http_crowd crowd{service.port()};
  for (int i = 0; i < 8; ++i) crowd.add(http_request("GET", "/v1/events"), {});
  EXPECT_TRUE(crowd.run([&] { return crowd.answers() == 8; }));
  EXPECT_EQ(crowd.statuses(429), 3U) << crowd.story();
  http_crowd strangers{service.port()};
  for (int i = 0; i < 300; ++i) strangers.add(http_request("GET", "/healthz"), {});
  EXPECT_TRUE(strangers.run([&] { return strangers.answers() + strangers.ended() >= 300; }))
      << strangers.story();
  EXPECT_GT(strangers.statuses(429), 50U) << strangers.story();
  EXPECT_TRUE(keeper.goes_on()) << keeper.complaints();
  EXPECT_EQ(keeper.complaints(), "");
}

// ---- all of it

// Each acquire is an event for each reader: a hundred million of them, if all stayed. So it takes its time; and when
// the readers go, all at once, the rest is granted.
TEST_F(serve_flood, everything_at_once) {
  const serve_process service{{.config = {"request-time = 5s"}}};
  bystanders others{service};
  std::optional<http_crowd> readers{std::in_place, service.port()};
  add_watchers(*readers, {});
  ASSERT_TRUE(readers->run([&] { return readers->answers() == watchers; })) << readers->story();
  http_crowd crowd{service.port()};
  add_half_sent(crowd);
  const auto endless = many_headers(100'000);
  for (int i = 0; i < 4; ++i) crowd.add(endless, {});
  std::vector<std::thread> pouring;
  std::array<int, 2> poured{};
  for (std::size_t i = 0; i < poured.size(); ++i)
    pouring.emplace_back([&poured, i, port = service.port()] {
      poured[i] = pour_a_gibibyte(port, i == 0 ? framing::length : framing::chunks);
    });
  const auto before = others.served();
  add_takers(crowd, 60s);
  EXPECT_TRUE(crowd.run(
      [&] {
        readers->turn(0ms);
        return crowd.statuses(408) == half_sent && crowd.statuses(431) == 4;
      },
      4 * patience))
      << crowd.story();
  EXPECT_GT(crowd.statuses(200), 0U) << crowd.story();
  EXPECT_GT(others.served(), before) << "during the flood, not after it";
  RecordProperty("granted_before_the_readers_went", static_cast<int>(crowd.statuses(200)));
  readers.reset();
  EXPECT_TRUE(crowd.run([&] { return crowd.statuses(200) == acquires; }, 4 * patience))
      << crowd.story();
  for (auto& one : pouring) one.join();
  EXPECT_EQ(poured, (std::array{413, 413}));
  others.expect_unharmed();
}

}  // namespace
}  // namespace holdfast::testing

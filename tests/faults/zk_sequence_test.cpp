// What breaks here: the number that ZooKeeper gives to each node of a lock, of 31 bits, at its end. What must hold:
// never two holders, and no waiter that is never served.
#include "faults/zk_faults.hpp"

#include <holdfast/lock_all.hpp>

#include <deque>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <thread>

namespace holdfast::testing {
namespace {

std::uint32_t adler32(std::string_view bytes) {
  std::uint32_t a = 1, b = 0;
  for (const char c : bytes) {
    a = (a + static_cast<unsigned char>(c)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16U | a;
}

// Makes the server believe that so many nodes were created below `folder`. Its log of transactions is changed while it
// is down: each is a checksum (Adler32, 8 bytes), a length, the transaction and a 'B'; the creation of a node ends with
// the number of children that were ever made below its parent.
void set_children_ever_made(zookeeper_server& server, const std::string& folder,
                            std::int32_t count) {
  const auto child = folder + "/seed";
  {
    zookeeper_hand hand{server};
    hand.create({.path = child, .data = "to be found"});
  }
  server.kill();
  int changed = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator{server.folder()}) {
    if (!file.path().filename().string().starts_with("log.")) continue;
    std::string all;
    {
      std::ifstream in{file.path(), std::ios::binary};
      all.assign(std::istreambuf_iterator<char>{in}, {});
    }
    for (std::size_t at = 16; at + 12 < all.size();) {  // behind the head of the file
      jute::reader head{std::string_view{all}.substr(at)};
      static_cast<void>(head.big());
      const auto length = head.integer();
      if (length <= 0) break;
      const auto begin = at + 12, size = static_cast<std::size_t>(length);
      std::string transaction = all.substr(begin, size);
      at = begin + size + 1;
      const auto path = transaction.find(child);
      if (path == std::string::npos) continue;
      // Behind path and data: one right (permissions, scheme, id), "is it ephemeral", the count.
      const auto end = transaction.find("anyone", path) + 6 + 1;
      std::string number;
      jute::writer{number}.integer(count);
      transaction.replace(end, 4, number);
      std::string sum;
      jute::writer{sum}.big(adler32(transaction));
      all.replace(begin - 12, 8, sum);
      all.replace(begin, size, transaction);
      ++changed;
    }
    std::ofstream{file.path(), std::ios::binary} << all;
  }
  EXPECT_EQ(changed, 1);
  server.restart();
  zookeeper_hand{server}.erase(child);
}

class zk_sequence : public zk_faults {
 protected:
  void SetUp() override {
    zk_faults::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    server_.emplace(zookeeper_server::options{.flags = {"-Dzookeeper.digest.enabled=false"}});
  }
  // So many more have an order.
  void leave(const std::string& folder, int more) {
    set_children_ever_made(*server_, folder, std::numeric_limits<std::int32_t>::max() - more);
  }
  std::optional<zookeeper_server> server_;
};

// Newer servers do not wrap: they give the last number to all that come, and, to those that come at the same moment,
// negative ones, which are given out again the next time. Curator takes nodes with the same number in the order of the
// list, which is none: it has several holders then. Ours do not stay.
TEST_F(zk_sequence, waiters_behind_the_last_number_are_served_when_the_lock_is_free) {
  zookeeper_hand{*server_}.create({.path = "/stock"});
  leave("/stock", 2);
  std::deque<client> clients;
  std::deque<mutex> locks;
  std::vector<std::future<result<lease>>> waiting;
  for (int i = 0; i < 5; ++i)
    locks.emplace_back(
        clients.emplace_back(client::open(server_->url(), {.call_timeout = 3 * patience})),
        "stock");
  token_log tokens;
  auto held = locks[0].acquire();
  ASSERT_TRUE(is_ok(held));
  ASSERT_TRUE(contenders(*server_, "stock").at(0).path.ends_with("-2147483645"));
  tokens.add(held->token());
  auto second = acquire_later(locks[1]);
  ASSERT_TRUE(one_waits(*server_, "stock"));
  for (std::size_t i = 2; i < 5; ++i) waiting.push_back(acquire_later(locks[i]));
  EXPECT_TRUE(
      stays_true([&] { return std::ranges::none_of(waiting, is_ready) && held->valid(); }, 1s));
  ASSERT_TRUE(is_ok(held->release()));
  auto next = get(second);
  ASSERT_TRUE(is_ok(next));
  tokens.add(next->token());
  EXPECT_TRUE(
      stays_true([&] { return std::ranges::none_of(waiting, is_ready) && next->valid(); }, 1s));
  EXPECT_TRUE(wait_for_nodes(*server_, "stock", 1))
      << "those that came together do not stay either";
  ASSERT_TRUE(is_ok(next->release()));
  while (!waiting.empty()) {
    const auto served = [&] { return std::ranges::find_if(waiting, is_ready); };
    ASSERT_TRUE(wait_until([&] { return served() != waiting.end(); }, 2 * patience));
    EXPECT_EQ(std::ranges::count_if(waiting, is_ready), 1) << "two holders";
    const auto at = served();
    auto got = at->get();
    waiting.erase(at);
    ASSERT_TRUE(is_ok(got));
    tokens.add(got->token());
    ASSERT_TRUE(is_ok(got->release()));
  }
  EXPECT_TRUE(leaves_nothing(*server_)) << left_behind(*server_);
}

TEST_F(zk_sequence, never_two_holders_at_the_end_of_the_numbers) {
  zookeeper_hand{*server_}.create({.path = "/stock"});
  leave("/stock", 20);
  std::atomic<int> inside{0}, served{0}, overlaps{0};
  std::vector<std::thread> fighters;
  for (int i = 0; i < 4; ++i)
    fighters.emplace_back([&] {
      const auto own = client::open(server_->url(), {.handoff_limit = 0});
      mutex lock{own, "stock"};
      for (int turn = 0; turn < 20; ++turn) {
        auto held = lock.acquire({.wait = patience});
        if (!held) continue;
        if (++inside > 1) ++overlaps;
        std::this_thread::sleep_for(2ms);
        --inside;
        ++served;
        EXPECT_TRUE(is_ok(held->release()));
      }
    });
  for (auto& one : fighters) one.join();
  EXPECT_EQ(overlaps, 0);
  EXPECT_EQ(served, 80) << "all of them in the end";
}

TEST_F(zk_sequence, several_locks_at_once_and_permits) {
  for (const char* name : {"/left", "/right", "/seats", "/seats/leases"})
    zookeeper_hand{*server_}.create({.path = name});
  leave("/left", 0);
  leave("/seats/leases", 1);
  const auto a = client::open(server_->url()), b = client::open(server_->url());
  const std::vector<std::string> names{"left", "right"};
  auto both = lock_all(a, names, {.wait = patience});
  ASSERT_TRUE(is_ok(both));
  EXPECT_TRUE(fails_with(lock_all(b, names, {.wait = 0s}), errc::busy));
  counting_semaphore ours{a, "seats", 2}, theirs{b, "seats", 2};
  auto two = ours.acquire_permits(2, {.wait = patience});
  ASSERT_TRUE(is_ok(two));
  EXPECT_TRUE(fails_with(theirs.acquire_permits(1, {.wait = 0s}), errc::busy));
}

}  // namespace
}  // namespace holdfast::testing

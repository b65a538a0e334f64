// The watches alone, against a fake agent that answers the query of everything when the test says so: who is told, when
// more places are watched than there are queries.
#include "engines/consul/watches.hpp"

#include "faults/fake_server.hpp"
#include "support/wait_until.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::engines::consul::watches_tests {
namespace {

using testing::wait_until;

struct stored {
  std::string key;
  std::uint64_t index;
};

// Queries of one place are never answered.
class queried_agent final : public testing::fake_server {
 public:
  queried_agent() { begin(); }
  ~queried_agent() override {
    {
      const std::lock_guard lock{guard_};
      is_over_ = true;
    }
    changed_.notify_all();
    end();
  }
  // To the query of everything that waits, or comes next.
  void answer(std::uint64_t index, const std::vector<stored>& all) {
    std::string body;
    for (const auto& one : all)
      body += fmt::format(R"({}{{"Key":"{}","Value":null,"Flags":0,"LockIndex":0,)"
                          R"("CreateIndex":{},"ModifyIndex":{}}})",
                          body.empty() ? "" : ",", one.key, one.index, one.index);
    const std::lock_guard lock{guard_};
    answer_ = fmt::format("HTTP/1.1 200 OK\r\nX-Consul-Index: {}\r\nContent-Length: {}\r\n\r\n[{}]",
                          index, body.size() + 2, body);
    changed_.notify_all();
  }
  bool is_read() const {
    const std::lock_guard lock{guard_};
    return answer_.empty();
  }
  std::atomic<int> asked{0}, asked_of_all{0};

 private:
  void serve(int fd) override {
    std::string request;
    while (receive(fd, request)) {
      if (request.find("\r\n\r\n") == std::string::npos) continue;
      const bool is_of_all = request.starts_with("GET /v1/kv/root/?recurse");
      ++(is_of_all ? asked_of_all : asked);
      request.clear();
      std::string said;
      {
        std::unique_lock lock{guard_};
        changed_.wait(lock, [&] { return is_over_ || (is_of_all && !answer_.empty()); });
        if (is_over_) return;
        said = std::exchange(answer_, {});
      }
      if (!send(fd, said)) return;
    }
  }
  std::condition_variable changed_;
  std::string answer_;
  bool is_over_ = false;
};

class consul_watches : public ::testing::Test {
 protected:
  consul_watches() {
    settings how;
    how.url = "consul://the-agent";
    how.root = "root/";
    how.where.push_back({"127.0.0.1", server_.port(), "127.0.0.1", {}});
    agent_ = std::move(agent::start(how)).value();
    all_ = std::make_unique<watches>(*agent_);
    for (std::size_t i = 0; i < watches::most_queries; ++i) watch(fmt::format("root/{}/", i), i);
    const auto are_asked = [&] { return server_.asked == int{watches::most_queries}; };
    EXPECT_TRUE(wait_until(are_asked));
  }
  ~consul_watches() override {
    all_->end();
    agent_->stop();
  }
  void watch(const std::string& key, std::uint64_t watcher, const watches::seen& last = {1, 1}) {
    all_->watch(key, watcher, last, [this, watcher](const auto&, std::uint64_t) {
      ++told_[watcher];
      return true;
    });
  }
  // All that came of it has been told when the next query is there.
  void answer(std::uint64_t index, const std::vector<stored>& all) {
    server_.answer(index, all);
    ++answers_;
    ASSERT_TRUE(wait_until([&] { return server_.is_read() && server_.asked_of_all > answers_; }));
  }

  static constexpr std::uint64_t first = 20, second = 21;
  queried_agent server_;
  int answers_ = 0;
  std::array<std::atomic<int>, 32> told_{};
  std::unique_ptr<agent> agent_;
  std::unique_ptr<watches> all_;
};

// At 120 the key of the first one was deleted; the second one came at 130, and knows that.
TEST_F(consul_watches, tell_the_first_what_a_second_watcher_knows_already) {
  watch("root/stock/", first, {100, 2});
  ASSERT_TRUE(wait_until([&] { return server_.asked_of_all == 1; }));
  watch("root/stock/", second, {130, 2});
  answer(130, {{"root/stock/a", 90}, {"root/stock/b", 130}});
  EXPECT_EQ(told_[first], 1);
  EXPECT_EQ(told_[second], 0);
  answer(140, {{"root/stock/a", 90}, {"root/stock/b", 140}});
  EXPECT_EQ(told_[first], 2);
  EXPECT_EQ(told_[second], 1);
}

// It leaves no write behind, and the index of everything says nothing about one place.
TEST_F(consul_watches, tell_of_a_deletion_before_the_first_answer) {
  watch("root/stock/", first, {100, 2});
  watch("root/shelf/", second, {100, 1});
  answer(120, {{"root/shelf/a", 80}, {"root/stock/a", 90}});
  EXPECT_EQ(told_[first], 1);
  EXPECT_EQ(told_[second], 0);
}

TEST_F(consul_watches, tell_the_first_answer_to_who_did_not_count) {
  watch("root/stock/", first, {100, std::nullopt});
  answer(120, {{"root/stock/a", 90}});
  EXPECT_EQ(told_[first], 1);
  answer(121, {{"root/other", 121}, {"root/stock/a", 90}});
  EXPECT_EQ(told_[first], 1);
}

// The query was asked before the watcher came.
TEST_F(consul_watches, compare_nobody_with_what_is_older_than_what_he_has_seen) {
  watch("root/stock/", first, {100, 1});
  ASSERT_TRUE(wait_until([&] { return server_.asked_of_all == 1; }));
  watch("root/stock/", second, {130, 2});
  answer(110, {{"root/stock/a", 110}});
  EXPECT_EQ(told_[first], 1);
  EXPECT_EQ(told_[second], 0);
  answer(140, {{"root/stock/a", 110}});
  EXPECT_EQ(told_[second], 1) << "what it has seen was deleted";
}

}  // namespace
}  // namespace holdfast::engines::consul::watches_tests

// What the tests of one connection share: who is told an answer, who hears a stream, and the reactor below.
#pragma once

#include "net/channel.hpp"
#include "net/reactor.hpp"

#include "support/wait_until.hpp"
#include "unit/net/line_server.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace holdfast::testing {

// Remembers what it was told, and where.
class reply final : public net::reply_handler {
 public:
  void on_reply(result<std::string_view> frames) noexcept override {
    thread = std::this_thread::get_id();
    if (frames) {
      text = *frames;
    } else {
      failure = frames.error();
    }
    times.fetch_add(1);
  }
  bool came() const {
    return wait_until([this] { return times.load() > 0; });
  }
  result<std::string> get() const {
    if (!came()) return error{errc::timed_out, "the handler was never told"};
    if (failure) return *failure;
    return text;
  }

  std::atomic<int> times{0};
  std::thread::id thread;
  std::string text;
  std::optional<error> failure;
};

class listener final : public net::channel_listener {
 public:
  void on_push(std::string_view frame) noexcept override {
    note(std::string{frame.substr(0, frame.size() - 1)});
  }
  void on_up(std::uint64_t generation) noexcept override {
    note("up " + std::to_string(generation));
  }
  void on_down(const error& why) noexcept override { note("down: " + why.message()); }
  std::vector<std::string> heard() const {
    std::lock_guard locked{guard_};
    return heard_;
  }
  bool hears(std::size_t count) const {
    return wait_until([&] { return heard().size() >= count; });
  }

 private:
  void note(std::string what) {
    std::lock_guard locked{guard_};
    heard_.push_back(std::move(what));
  }
  mutable std::mutex guard_;
  std::vector<std::string> heard_;
};

struct net_channel : ::testing::Test {
  std::unique_ptr<net::reactor> reactor = std::move(net::reactor::start()).value();
};

inline std::string answer_of(const result<std::string>& got) {
  return got ? *got : "(" + got.error().message() + ")";
}

}  // namespace holdfast::testing

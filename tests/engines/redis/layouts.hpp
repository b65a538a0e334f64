// What the tests of the layouts share: one Redis, emptied before each test, a client of a layout, and commands of
// another program to the same server.
#pragma once

#include <holdfast/holdfast.hpp>

#include "engines/redis/engine.hpp"
#include "support/engine_fixture.hpp"
#include "support/expect.hpp"
#include "support/redis_server.hpp"
#include "support/wait_until.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <initializer_list>
#include <string>
#include <string_view>

namespace holdfast::testing {

class layouts : public ::testing::Test {
 protected:
  void SetUp() override {
    need(redis_server::available(), "redis");
    if (!IsSkipped() && !HasFatalFailure()) redis("FLUSHALL");
  }

  template <class... Words>
  static std::string redis(const Words&... words) {
    return redis_command(shared_redis(), {std::string_view{words}...});
  }
  static std::int64_t redis_number(std::initializer_list<std::string_view> words) {
    return std::stoll(redis_command(shared_redis(), words));
  }
  static std::string url(std::string_view options) {
    return fmt::format("{}?layout={}", shared_redis().url(), options);
  }
  static client open(std::string_view options) { return client::open(url(options)); }
  static raw_client raw(std::string_view options, std::uint64_t number = 1) {
    return {engines::redis::make_engine, url(options), system_clock(), number};
  }
  static nanoseconds time_of(auto&& action) {
    const auto begin = std::chrono::steady_clock::now();
    action();
    return std::chrono::steady_clock::now() - begin;
  }
  static auto acquire_later(const client& own, const std::string& name) {
    return std::async(std::launch::async, [own, name] {
      mutex lock{own, name};
      return lock.acquire({.wait = patience});
    });
  }
  // How many clients of any kind listen to a channel.
  static std::size_t listeners(std::string_view channel) {
    const auto reply = redis("PUBSUB", "NUMSUB", channel);
    return static_cast<std::size_t>(std::stoll(reply.substr(reply.rfind(' ') + 1)));
  }
};

inline std::int64_t wall_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace holdfast::testing

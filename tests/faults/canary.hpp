// A secret that is planted everywhere, and must come out nowhere.
#pragma once

#include <holdfast/holdfast.hpp>

#include "support/expect.hpp"
#include "support/wait_until.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>
#include <random>
#include <string>
#include <string_view>

namespace holdfast::testing {

// Something that nobody else would say. Easily quoted, so that escaping does not hide it.
inline std::string make_canary() {
  std::random_device random;
  return fmt::format("CANARY-{:08x}{:08x}", random(), random());
}

// Remembers all that it is told, as a log would.
class listening_observer final : public observer {
 public:
  void acquired(std::string_view name, fencing_token, nanoseconds) override { note(name); }
  void released(std::string_view name, fencing_token) override { note(name); }
  void release_failed(std::string_view name, const error& why) override {
    note(name), note(why.message());
  }
  void lost(std::string_view name, fencing_token, std::string_view why) override {
    note(name), note(why);
  }
  void renew_failed(const error& why) override { note(why.message()); }
  void settled(std::string_view name, bool) override { note(name); }

  std::string heard() const {
    const std::lock_guard lock{guard_};
    return heard_;
  }

 private:
  void note(std::string_view text) {
    const std::lock_guard lock{guard_};
    heard_.append(text).push_back('\n');
  }
  mutable std::mutex guard_;
  std::string heard_;
};

// Hears everything that is said, and knows whether the canary was in it.
class canary_listener {
 public:
  const std::string canary = make_canary();
  std::string everything;  // that was said so far

  void hear(std::string_view text) { everything.append(text).push_back('\n'); }
  template <class T>
  void hear(const result<T>& outcome) {
    if (!outcome) hear(outcome.error().message());
  }
  // Hears a client of `server` while that stops, wakes up and dies. It has started again afterwards.
  template <class Server>
  void hear_outage(Server& server, const std::string& url, const client& user, nanoseconds ttl) {
    mutex lock{user, "stock"};
    auto held = lock.acquire({.ttl = ttl});
    ASSERT_TRUE(is_ok(held));
    server.stop();
    ASSERT_TRUE(wait_until([&] { return held->lost().stop_requested(); }, 2 * patience));
    hear(lock.try_acquire());
    hear(held->release());
    server.resume();
    auto again = lock.acquire({.wait = patience});
    ASSERT_TRUE(is_ok(again));
    server.kill();
    hear(again->release());
    hear(lock.try_acquire());
    hear(user.inspect("stock"));
    hear(client::try_open(url));
    server.restart();
  }
  void expect_silence() const {
    EXPECT_EQ(everything.find(canary), std::string::npos) << everything;
    // Nor a part of it, cut off by some limit.
    EXPECT_EQ(everything.find(canary.substr(0, 15)), std::string::npos) << everything;
  }
};

}  // namespace holdfast::testing

// The contract asked of the engine directly, without core around it.
#pragma once

#include "faults/faults.hpp"

#include "engines/redis/engine.hpp"
#include "support/child.hpp"
#include "support/engine_fixture.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace holdfast::testing {
using network = fault_proxy;

inline bool is_valid(const raw_client& by, const grant& held) {
  return std::chrono::steady_clock::now() < by.believed_until(held);
}

inline grant of_unknown_owner(const raw_client& by, std::string_view name, lock_mode mode) {
  grant out;
  out.name = name;
  out.owner = {by.id, 999};
  out.mode = mode;
  if (mode == lock_mode::permits) out.weight = 1;
  out.ttl = 10s;
  return out;
}

class redis_contract : public redis_faults {
 protected:
  raw_client raw(const std::string& url, std::uint64_t number) {
    return {engines::redis::make_engine, url, system_clock(), number};
  }
  raw_client raw(std::uint64_t number, std::string_view options = "grace=30s") {
    return raw(redis_url(server_, options), number);
  }
  template <class... Words>
  std::string redis(const Words&... words) const {
    return redis_command(server_, {std::string_view{words}...});
  }
  static grant take(raw_client& by, std::string_view name, lock_mode mode = lock_mode::exclusive) {
    return take(by, asked(by, name, mode));
  }
  static grant take(raw_client& by, const request& ask) {
    const auto got = by.verbs->enter(ask, call_within(patience));
    EXPECT_TRUE(is_ok(got));
    EXPECT_EQ(got->what, entered::kind::granted);
    return got->granted;
  }
  static request asked(raw_client& by, std::string_view name, lock_mode mode) {
    auto out = by.ask(name);
    out.mode = mode;
    out.weight = mode == lock_mode::shared        ? 1
                 : mode == lock_mode::upgradeable ? upgradeable_weight
                                                  : rw_capacity;
    out.ttl = 60s;
    return out;
  }
  static ticket queue(raw_client& by, const request& ask) {
    const auto got = by.verbs->enter(ask, call_within(patience));
    EXPECT_TRUE(is_ok(got));
    EXPECT_EQ(got->what, entered::kind::waiting);
    return got->waiting;
  }
  static entered::kind fate(raw_client& by, const request& ask) {
    const auto got = by.verbs->settle(ask, call_within(patience));
    EXPECT_TRUE(is_ok(got));
    return got->what;
  }
  static renewal renewed(raw_client& by, const grant& held) {
    renewal asked_about;
    asked_about.held = &held;
    EXPECT_TRUE(is_ok(by.verbs->renew({&asked_about, 1}, call_within(patience))));
    return asked_about;
  }
  // All that has been sent to its channel so far has been heard.
  static void hear(raw_client& by) {
    EXPECT_TRUE(is_ok(by.verbs->renew({}, call_within(patience))));
  }
  std::size_t holders(raw_client& by, std::string_view name) {
    return by.verbs->inspect(name, call_within(patience)).value().holders.size();
  }

  redis_server server_;
};

struct layout {
  std::string name;
  std::string options;
  lock_mode mode = lock_mode::exclusive;
};

class redis_layout_contract : public redis_contract, public ::testing::WithParamInterface<layout> {
 protected:
  static request ask(raw_client& by) {
    auto out = by.ask("stock");
    out.mode = GetParam().mode;
    if (out.mode == lock_mode::permits) out.weight = out.capacity = 1;
    return out;
  }
  raw_client open(std::uint64_t number) { return raw(number, GetParam().options); }
};

inline std::vector<layout> all_layouts() {
  return {{"native", "grace=30s"},
          {"setnx", "layout=setnx"},
          {"setnx_expire_lua", "layout=setnx-expire-lua"},
          {"getset", "layout=getset"},
          {"redisson", "layout=redisson"},
          {"redisson_permits", "layout=redisson", lock_mode::permits}};
}

}  // namespace holdfast::testing

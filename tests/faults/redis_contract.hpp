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

inline call within(nanoseconds length) { return {std::chrono::steady_clock::now() + length, {}}; }

inline bool is_valid(const raw_client& who, const grant& held) {
  return std::chrono::steady_clock::now() < who.believed_until(held);
}

inline grant of_nobody(const raw_client& who, std::string_view name, lock_mode mode) {
  grant out;
  out.name = name;
  out.owner = {who.id, 999};
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
  static grant take(raw_client& who, std::string_view name, lock_mode mode = lock_mode::exclusive) {
    return take(who, asked(who, name, mode));
  }
  static grant take(raw_client& who, const request& ask) {
    const auto got = who.verbs->enter(ask, within(patience));
    EXPECT_TRUE(is_ok(got));
    EXPECT_EQ(got->what, entered::kind::granted);
    return got->granted;
  }
  static request asked(raw_client& who, std::string_view name, lock_mode mode) {
    auto out = who.ask(name);
    out.mode = mode;
    out.weight = mode == lock_mode::shared        ? 1
                 : mode == lock_mode::upgradeable ? upgradeable_weight
                                                  : rw_capacity;
    out.ttl = 60s;
    return out;
  }
  static ticket queue(raw_client& who, const request& ask) {
    const auto got = who.verbs->enter(ask, within(patience));
    EXPECT_TRUE(is_ok(got));
    EXPECT_EQ(got->what, entered::kind::waiting);
    return got->waiting;
  }
  static entered::kind fate(raw_client& who, const request& ask) {
    const auto got = who.verbs->settle(ask, within(patience));
    EXPECT_TRUE(is_ok(got));
    return got->what;
  }
  static renewal renewed(raw_client& who, const grant& held) {
    renewal one;
    one.held = &held;
    EXPECT_TRUE(is_ok(who.verbs->renew({&one, 1}, within(patience))));
    return one;
  }
  // All that has been sent to its channel so far has been heard.
  static void hear(raw_client& who) { EXPECT_TRUE(is_ok(who.verbs->renew({}, within(patience)))); }
  std::size_t holders(raw_client& who, std::string_view name) {
    return who.verbs->inspect(name, within(patience)).value().holders.size();
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
  static request ask(raw_client& who) {
    auto out = who.ask("stock");
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

// The mysql engine by hand, without core around it.
#pragma once

#include "engines/mysql/engine.hpp"
#include "faults/mysql_faults.hpp"

#include "support/engine_fixture.hpp"

namespace holdfast::testing {

inline raw_client raw_mysql(const std::string& url, std::uint64_t number,
                            const clock& time = system_clock()) {
  return raw_client{engines::mysql::make_engine, url, time, number};
}

inline call soon() { return call_within(patience); }

inline grant enter(raw_client& by, std::string_view name, nanoseconds ttl) {
  auto ask = by.ask(name);
  ask.ttl = ttl;
  auto got = by.verbs->enter(ask, soon());
  EXPECT_TRUE(is_ok(got));
  EXPECT_EQ(got->what, entered::kind::granted);
  return got->granted;
}

inline renewal upkeep(raw_client& by, const grant& held) {
  std::vector<renewal> batch{{.held = &held}};
  promised<session_proof> done;
  const auto limits = soon();
  by.verbs->start_renew(batch, limits, done);
  EXPECT_TRUE(is_ok(done.get()));
  return batch.front();
}

}  // namespace holdfast::testing

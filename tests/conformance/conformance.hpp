// One list of scenarios, one table of engines. Everything goes through the public API; capabilities
// decide what applies to a store, and what does not apply is a visible skip with its reason.
//
//   HOLDFAST_REQUIRE_ENGINES=memory,file   engines that must not be skipped as a whole (CI sets it; "all" is all)
//   HOLDFAST_TEST_URL_<NAME>=url           tests engine NAME against this store instead of one of its own
#pragma once

#include <holdfast/holdfast.hpp>

#include "support/child.hpp"
#include "support/expect.hpp"
#include "support/flaky_engine.hpp"
#include "support/plain_counter.hpp"
#include "support/temp_dir.hpp"
#include "support/wait_until.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

namespace holdfast::testing {

using namespace std::chrono_literals;

// A row of the table. A new engine is done when its row is green.
struct engine_row {
  std::string name;
  std::string scheme;
  // An empty store, or one nobody else uses; `dir` is gone after the test.
  std::string (*own_store)(const temp_dir& dir);
  // Why the server it needs cannot be had here; empty when it can.
  std::string (*missing)() = nullptr;
  // What others see of an owner id is not the id itself, with which its locks could be given back.
  bool owners_are_pseudonyms = false;
};

inline void PrintTo(const engine_row& row, std::ostream* out) { *out << row.name; }

const std::vector<engine_row>& engine_table();

class conformance : public ::testing::TestWithParam<engine_row> {
 protected:
  void SetUp() override;

  // Another client of the store under test: as good as another process, except when it dies.
  client open(client_options options = {}) const { return client::open(url_, std::move(options)); }
  client open_flaky(std::shared_ptr<faults> plan, client_options options = {}) const {
    return testing::open_flaky(url_, std::move(plan), std::move(options));
  }
  const std::string& url() const noexcept { return url_; }
  const capabilities& caps() const { return probe_->capabilities(); }
  // Of what another client sees.
  void expect_owner(const owner_id& seen, const lease& held) const {
    if (!GetParam().owners_are_pseudonyms) {
      EXPECT_EQ(seen, held.owner());
      return;
    }
    EXPECT_EQ(seen.sequence, held.owner().sequence);
    EXPECT_NE(seen.client, held.owner().client);
  }

  // A name of this test's own; the store may be shared with others.
  std::string name(std::string_view word = "lock") const { return prefix_ + std::string{word}; }
  const std::string& prefix() const noexcept { return prefix_; }
  // As short as the store allows, and long enough for a busy machine to renew it.
  nanoseconds short_ttl() const { return std::max<nanoseconds>(caps().min_ttl, 400ms); }

  // For what the store has to notice by itself first: a client that is dead.
  nanoseconds patience_for_the_dead() const {
    return std::max<nanoseconds>(patience, caps().dead_holder_bound + 2s);
  }

  std::size_t waiters(const std::string& of) const;
  std::size_t holders(const std::string& of) const;
  bool wait_for_waiters(const std::string& of, std::size_t count) const {
    return wait_until([&] { return waiters(of) == count; });
  }
  // Is the name free, and forgotten: no holder, no waiter?
  bool no_trace_of(const std::string& of) const { return waiters(of) + holders(of) == 0; }

 private:
  temp_dir dir_;
  std::string url_;
  std::string prefix_;
  std::optional<client> probe_;
};

// An acquire on a thread of its own.
template <class Acquire>
std::future<result<lease>> later(Acquire acquire) {
  return std::async(std::launch::async, std::move(acquire));
}

// Never for ever: a scenario that fails in the middle must end, too.
inline std::future<result<lease>> acquire_later(mutex& lock, acquire_options options = {}) {
  options.wait = std::min(options.wait, patience);
  return later([&lock, options] { return lock.acquire(options); });
}

template <class T>
bool is_ready(const std::future<T>& answer) {
  return answer.wait_for(0s) == std::future_status::ready;
}

inline std::string row_name(const ::testing::TestParamInfo<engine_row>& info) {
  return info.param.name;
}

}  // namespace holdfast::testing

// In a scenario: what the store must be able to do.
#define NEEDS(capability) \
  if (!caps().capability) \
  GTEST_SKIP() << GetParam().name << " does not declare the capability " #capability

// In a scenario that waits for a ttl to pass.
#define NEEDS_SHORT_TTL()                                      \
  if (caps().min_ttl > std::chrono::seconds{2})                \
  GTEST_SKIP() << GetParam().name << " has a smallest ttl of " \
               << holdfast::format_duration(caps().min_ttl) << ": too slow to wait for"

// Once per file of scenarios: `suite` is the file's fixture.
#define FOR_EVERY_ENGINE(suite)                                                                 \
  INSTANTIATE_TEST_SUITE_P(each, suite, ::testing::ValuesIn(holdfast::testing::engine_table()), \
                           holdfast::testing::row_name)

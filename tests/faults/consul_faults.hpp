// What the bad days of the Consul engine share. Locks lie below the prefix that is used when none is given: that of
// "stock" is the key holdfast/stock/.lock, locked by the session of its holder.
//
//   HOLDFAST_REQUIRE_ENGINES=consul   a missing consul fails instead of skipping (CI sets it; "all" is all)
#pragma once

#include "faults/faults.hpp"

#include "support/consul_server.hpp"

#include <fmt/format.h>

#include <stdexcept>

namespace holdfast::testing {

class consul_faults : public ::testing::Test {
 protected:
  void SetUp() override { need(consul_server::available(), "consul"); }
};

// After the end of a session the next one shall not wait: most of these tests are not about that.
inline constexpr std::string_view consul_delay_option = "lock_delay=0s";
inline const std::string consul_at_once = fmt::format("?{}", consul_delay_option);

// The same store by way of a bad network.
inline std::string consul_url(const fault_proxy& network, std::string_view options = {}) {
  return fmt::format("{}?{}{}{}", network.url("consul"), consul_delay_option,
                     options.empty() ? "" : "&", options);
}

// Consul may take twice its time to end a session of 10 s, the shortest that it has.
inline constexpr std::chrono::seconds end_of_a_session{22};

// ---- the server's view

inline std::string lock_key(std::string_view name) {
  return fmt::format("holdfast/{}/.lock", name);
}

// Of whoever has the lock; empty: nobody.
inline std::string session_of(const consul_server& server, std::string_view name) {
  const auto key = server.find(lock_key(name));
  return key ? key->session : std::string{};
}

inline bool is_locked(const consul_server& server, const std::string& name) {
  return !session_of(server, name).empty();
}

inline bool wait_for_queue(const consul_server& server, const std::string& name, std::size_t length,
                           nanoseconds within = patience) {
  const auto looker = client::open(server.url() + consul_at_once, {.call_timeout = 5s});
  return wait_until(
      [&] {
        const auto seen = looker.inspect(name);
        return seen && seen->waiters.size() == length;
      },
      within);
}

inline bool one_waits(const consul_server& server, const std::string& name) {
  return wait_for_queue(server, name, 1);
}

// All there is but the marks of sessions that live (docs/internals/consul-layout.md).
inline std::vector<std::string> remains(const consul_server& server) {
  auto out = server.keys("");
  std::erase_if(out, [](const auto& key) { return key.find("/.epoch-") != std::string::npos; });
  return out;
}

inline bool leaves_nothing(const consul_server& server, nanoseconds within = patience) {
  return wait_until([&] { return remains(server).empty(); }, within);
}

inline std::string left_behind(const consul_server& server) {
  return fmt::format("{}", fmt::join(remains(server), ", "));
}

// What is claimed is in the store: somebody has the lock, and the token is the index of a write that is still there.
inline ::testing::AssertionResult is_proven(const consul_server& server, const lease& held) {
  if (!is_locked(server, held.name()))
    return ::testing::AssertionFailure() << "nobody has " << held.name();
  std::string seen;
  for (const auto& one : server.all("holdfast/" + held.name() + "/")) {
    if (one.modify_index == held.token().value) return ::testing::AssertionSuccess();
    seen += fmt::format(" {} of {}", one.modify_index, one.key);
  }
  return ::testing::AssertionFailure()
         << "the token is " << held.token().value << ", the store has" << seen;
}

// A lease that is gone says so, however it is asked.
inline ::testing::AssertionResult is_over(lease& held) {
  if (held.valid()) return ::testing::AssertionFailure() << "it is valid";
  const auto released = held.release();
  if (released) return ::testing::AssertionFailure() << "it could be released";
  const auto code = released.error().code();
  if (code == errc::not_held || code == errc::lost) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << to_string(code) << ": " << released.error().message();
}

// An answer for want of an agent that does as asked.
template <class T>
::testing::AssertionResult is_out_of_reach(const result<T>& outcome) {
  if (outcome) return ::testing::AssertionFailure() << "succeeded";
  const auto code = outcome.error().code();
  if (code == errc::unavailable || code == errc::outcome_unknown)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << to_string(code) << ": " << outcome.error().message();
}

}  // namespace holdfast::testing

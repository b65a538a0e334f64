// What the bad days of the etcd engine share.
//
//   HOLDFAST_REQUIRE_ENGINES=etcd   a missing etcd fails instead of skipping (CI sets it; "all" is all)
#pragma once

#include "faults/faults.hpp"

#include "support/etcd_server.hpp"

#include <fmt/format.h>

namespace holdfast::testing {

class etcd_faults : public ::testing::Test {
 protected:
  void SetUp() override { need(etcd_server::available(), "etcd"); }
};

// The same store by way of a bad network.
inline std::string etcd_url(const fault_proxy& network, std::string_view options = {}) {
  return fmt::format("{}{}{}", network.url("etcd"), options.empty() ? "" : "?", options);
}

// ---- the server's view

// The entries of a lock, the holder's first.
inline std::vector<etcd_server::key_value> entries(const etcd_server& server,
                                                   const std::string& name) {
  return server.all(name + "/");
}

inline bool wait_for_entries(const etcd_server& server, const std::string& name,
                             std::size_t count) {
  return wait_until([&] { return entries(server, name).size() == count; });
}

// Behind the holder.
inline bool one_waits(const etcd_server& server, const std::string& name) {
  return wait_for_entries(server, name, 2);
}

inline bool is_locked(const etcd_server& server, const std::string& name) {
  return !entries(server, name).empty();
}

// All there is but the fences of clients that live (docs/internals/etcd-layout.md).
inline std::vector<std::string> remains(const etcd_server& server) {
  auto out = server.keys("");
  std::erase_if(out, [](const auto& key) { return key.find("./fences/") != std::string::npos; });
  return out;
}

inline bool leaves_nothing(const etcd_server& server, std::chrono::nanoseconds within = patience) {
  return wait_until([&] { return remains(server).empty(); }, within);
}

inline std::string left_behind(const etcd_server& server) {
  return fmt::format("{}", fmt::join(remains(server), ", "));
}

// What is claimed is in the store: the first entry, created at the revision that is the token.
inline ::testing::AssertionResult is_proven(const etcd_server& server, const lease& held) {
  const auto all = entries(server, held.name());
  if (all.empty()) return ::testing::AssertionFailure() << "there is no entry";
  const auto first = static_cast<std::uint64_t>(all.front().create_revision);
  if (first == held.token().value) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "the first entry, " << all.front().key << ", is of revision " << first
         << ", the token is " << held.token().value;
}

// The lease under somebody's entry.
inline std::int64_t lease_of(const etcd_server& server, const lease& held) {
  for (const auto& one : entries(server, held.name()))
    if (static_cast<std::uint64_t>(one.create_revision) == held.token().value) return one.lease;
  throw std::runtime_error("no entry has the token of " + held.name());
}

}  // namespace holdfast::testing

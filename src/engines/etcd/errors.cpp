#include "engines/etcd/errors.hpp"

#include "support/text.hpp"

#include <fmt/format.h>

#include <array>

namespace holdfast::engines::etcd {

namespace {

using grpc::status;

struct status_kind {
  status code;
  std::string_view words;  // a part of the message; empty: any
  errc meaning;
  std::string_view advice;
};

constexpr std::string_view rights = "the user needs the rights listed in docs/guides/etcd.md";

// The first row that fits applies.
constexpr std::array kinds{
    status_kind{status::resource_exhausted, "space exceeded", errc::unavailable,
                "its database is full; compact and defragment it, then disarm the alarm NOSPACE"},
    status_kind{status::resource_exhausted, "too many requests", errc::unavailable,
                "it has more to do than it can"},
    status_kind{status::permission_denied, "", errc::denied, rights},
    status_kind{status::unauthenticated, "", errc::denied, "check user and password"},
    status_kind{status::invalid_argument, "user name is empty", errc::denied,
                "it wants a user and a password (etcd://user@host, password_file, password_env)"},
    status_kind{status::invalid_argument, "authentication failed", errc::denied,
                "check user and password"},
    status_kind{status::invalid_argument, "too many operations", errc::misconfigured,
                "its --max-txn-ops must be at least 128"},
    status_kind{status::invalid_argument, "request is too large", errc::misconfigured,
                "its --max-request-bytes is too small"},
    status_kind{status::unimplemented, "", errc::misconfigured, "etcd 3.4 or newer is needed"},
    status_kind{status::not_found, "lease", errc::unavailable,
                "our session has ended; the next attempt makes a new one"},
    status_kind{status::unavailable, "", errc::outcome_unknown,
                "the cluster has no leader at the moment, or did not agree in time"},
    status_kind{status::deadline_exceeded, "", errc::outcome_unknown, "it took too long"},
    status_kind{status::cancelled, "", errc::outcome_unknown, "it was given up"},
    // What the server has no code for, as etcd 3.4 says it.
    status_kind{status::unknown, "too many requests", errc::unavailable,
                "it has more to do than it can"},
    status_kind{status::unknown, "context deadline exceeded", errc::outcome_unknown,
                "the cluster did not agree in time"},
    status_kind{status::unknown, "context canceled", errc::outcome_unknown, "it was given up"},
    status_kind{status::unknown, "raft proposal dropped", errc::outcome_unknown,
                "the cluster has no leader at the moment"},
};

bool says(const grpc::reply& status, std::string_view words) noexcept {
  return status.message.find(words) != std::string::npos;
}

}  // namespace

bool is_passing(const grpc::reply& got) noexcept {
  return got.status == status::unavailable || got.status == status::deadline_exceeded ||
         got.status == status::cancelled ||
         (got.status == status::unknown &&
          (says(got, "context ") || says(got, "raft proposal dropped")));
}

bool is_overloaded(const grpc::reply& got) noexcept { return says(got, "too many requests"); }

bool wants_login(const grpc::reply& got) noexcept {
  return got.status == status::unauthenticated || says(got, "invalid auth token") ||
         says(got, "user name is empty") || says(got, "revision of auth store is old");
}

bool lease_is_gone(const grpc::reply& got) noexcept {
  return got.status == status::not_found && says(got, "lease not found");
}

bool lease_exists(const grpc::reply& got) noexcept {
  return got.status == status::failed_precondition && says(got, "lease already exists");
}

bool is_without_auth(const grpc::reply& got) noexcept {
  return got.status == status::failed_precondition && says(got, "not enabled");
}

bool is_out_of_space(const grpc::reply& got) noexcept {
  return got.status == status::resource_exhausted && says(got, "space exceeded");
}

error status_error(const grpc::reply& got, std::string_view name, std::string_view store) {
  const auto where = name.empty() ? std::string{store}
                                  : fmt::format("Lock {} on {}", support::quoted(name), store);
  for (const auto& row : kinds)
    if (row.code == got.status && says(got, row.words)) {
      auto sentence = fmt::format("{}: the server answered {}: {}.", where,
                                  support::quoted(got.message, 160), row.advice);
      if (row.meaning == errc::outcome_unknown) return {row.meaning, std::move(sentence)};
      return not_done{row.meaning, std::move(sentence)};
    }
  return {errc::protocol,
          fmt::format("{}: the server answered {} (status {}), which is not understood here.",
                      where, support::quoted(got.message, 160), static_cast<int>(got.status))};
}

error unexpected_answer(std::string_view name, std::string_view store) {
  return {
      errc::protocol,
      fmt::format("{}{}: the server's answer has not the form that was asked for; is this an "
                  "etcd server?",
                  name.empty() ? "" : fmt::format("Lock {} on ", support::quoted(name)), store)};
}

retry_policy::fate fate_of(const result<grpc::reply>& got) {
  using fate = retry_policy::fate;
  if (!got) {
    if (got.error().code() == errc::outcome_unknown) return fate::unanswered;
    return got.error().code() == errc::unavailable ? fate::not_sent : fate::refused;
  }
  if (got->ok()) return fate::answered;
  if (wants_login(*got)) return fate::wants_login;
  if (is_overloaded(*got)) return fate::overloaded;
  return is_passing(*got) ? fate::no_leader : fate::answered;
}

}  // namespace holdfast::engines::etcd

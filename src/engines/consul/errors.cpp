#include "engines/consul/errors.hpp"

#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace holdfast::engines::consul {

namespace {

struct refusal_kind {
  int status;              // 0: any
  std::string_view words;  // a part of what it says; empty: anything
  errc meaning;
  std::string_view advice;
};

constexpr std::string_view policy = "the token needs the policy of docs/guides/consul.md";

// The first row that fits applies.
constexpr std::array refusal_kinds{
    refusal_kind{403, "", errc::denied, policy},
    refusal_kind{0, "Permission denied", errc::denied, policy},
    refusal_kind{0, "ACL not found", errc::denied, "it does not know the token"},
    refusal_kind{0, "No path to datacenter", errc::misconfigured, "it knows no such datacenter"},
    refusal_kind{0, "Invalid Session TTL", errc::misconfigured,
                 "its session_ttl_min is longer than session= in the store's address"},
    refusal_kind{413, "", errc::misconfigured, "the request is too long for it"},
    refusal_kind{400, "", errc::misconfigured, "Consul 1.7 or newer is needed"},
    refusal_kind{429, "", errc::unavailable, "it has more to do than it can"},
    refusal_kind{0, "No cluster leader", errc::unavailable, "the servers have no leader now"},
    refusal_kind{0, "invalid session", errc::unavailable,
                 "our session has ended; the next attempt makes a new one"},
    refusal_kind{500, "", errc::outcome_unknown, "it failed on the way"},
    refusal_kind{502, "", errc::outcome_unknown, "it failed on the way"},
    refusal_kind{503, "", errc::unavailable, "it has more to do than it can"},
    refusal_kind{504, "", errc::outcome_unknown, "it took too long"},
};

std::string place(std::string_view name, std::string_view store) {
  return name.empty() ? std::string{store}
                      : fmt::format("Lock {} on {}", support::quoted(name), store);
}

error refusal(int status, std::string_view words, std::string_view name, std::string_view store) {
  constexpr std::size_t quoted_at_most = 160;
  const auto said = support::quoted(words, quoted_at_most);
  for (const auto& row : refusal_kinds) {
    if ((row.status != 0 && row.status != status) || words.find(row.words) == std::string::npos)
      continue;
    auto sentence = fmt::format("{}: the server answered {} {}: {}.", place(name, store), status,
                                said, row.advice);
    if (row.meaning == errc::outcome_unknown) return {row.meaning, std::move(sentence)};
    return not_done{row.meaning, std::move(sentence)};
  }
  return {errc::protocol,
          fmt::format("{}: the server answered {} {}, which is not understood here.",
                      place(name, store), status, said)};
}

}  // namespace

error status_error(const http_reply& got, std::string_view name, std::string_view store) {
  return refusal(got.status, got.body, name, store);
}

error unexpected_answer(std::string_view name, std::string_view store) {
  return {errc::protocol,
          fmt::format("{}: the server's answer has not the form that was asked for; "
                      "is this a Consul agent?",
                      place(name, store))};
}

result<txn_reply> read_txn_reply(answer said, const transaction& asked, std::string_view name,
                                 std::string_view store) {
  constexpr int done = 200, failed = 409;
  if (!said.got) return about(std::move(said.got).error(), name);
  if (said.got->status != done && said.got->status != failed) {
    auto why = status_error(*said.got, name, store);
    if (said.repeated) return error{errc::outcome_unknown, why.message()};  // of this try only
    return why;
  }
  auto out = read_txn(said.got->body, asked.results_before_tree());
  if (!out || (said.got->status == failed) == out->done()) return unexpected_answer(name, store);
  out->repeated = said.repeated;
  const auto is_refused = [](const txn_reply::failure& one) {
    return one.what.find("Permission denied") != std::string::npos;
  };
  if (std::ranges::any_of(out->failures, is_refused)) {
    auto why = failed_txn(*out, name, store);
    if (said.repeated) return error{errc::outcome_unknown, why.message()};  // of this copy only
    return why;
  }
  return std::move(*out);
}

error failed_txn(const txn_reply& got, std::string_view name, std::string_view store) {
  constexpr int failed = 409;
  // With its session its other keys have gone, so other checks fail as well.
  const auto is_about_session = [](const txn_reply::failure& one) {
    return one.what.find("invalid session") != std::string::npos;
  };
  auto most = std::ranges::find_if(got.failures, is_about_session);
  if (most == got.failures.end()) most = got.failures.begin();
  return refusal(failed, most == got.failures.end() ? std::string_view{} : most->what, name, store);
}

}  // namespace holdfast::engines::consul

#include "engines/redis/errors.hpp"

#include "engines/common/sentences.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>

namespace holdfast::engines::redis {

namespace {

struct reply_kind {
  std::string_view prefix;
  errc code;
  std::string_view advice;
};

constexpr std::string_view in_cluster =
    "this is a node of a Redis Cluster, whose address begins with redis+cluster://";

// What the server's error codes mean to the caller. The first row whose prefix fits applies. What a server refuses for
// the state it is in (memory, replicas, read only), it refuses at the first write of a script, so nothing was done;
// but a right may be missing for the second write, when the first was done.
constexpr std::array reply_kinds{
    reply_kind{"NOAUTH", errc::denied, "give a password (password_file, password_env)"},
    reply_kind{"WRONGPASS", errc::denied, "check user and password"},
    reply_kind{"NOPERM", errc::denied, "the user needs the rights listed in docs/guides/redis.md"},
    reply_kind{"ERR The user executing the script", errc::denied,
               "the user needs the rights listed in docs/guides/redis.md"},
    reply_kind{"ERR ACL failure in script", errc::denied,
               "the user needs the rights listed in docs/guides/redis.md"},
    reply_kind{"ERR AUTH", errc::denied, "check user and password"},
    reply_kind{"ERR invalid password", errc::denied, "check user and password"},
    reply_kind{"LOADING", errc::unavailable, "it is still loading its data"},
    reply_kind{"BUSY", errc::unavailable, "a script of another program blocks it"},
    reply_kind{"READONLY", errc::unavailable, "this is a replica; name the master"},
    reply_kind{"OOM", errc::unavailable, "it has reached maxmemory"},
    reply_kind{"MISCONF", errc::unavailable, "it cannot save its data and refuses writes"},
    reply_kind{"NOREPLICAS", errc::unavailable, "too few replicas are in reach"},
    reply_kind{"MASTERDOWN", errc::unavailable, "this replica has lost its master"},
    reply_kind{"CLUSTERDOWN", errc::unavailable, "the cluster is down"},
    reply_kind{"TRYAGAIN", errc::unavailable, "the cluster is being changed"},
    reply_kind{"MOVED", errc::misconfigured, in_cluster},
    reply_kind{"ASK", errc::misconfigured, in_cluster},
    reply_kind{"CROSSSLOT", errc::misconfigured, in_cluster},
    reply_kind{"ERR This instance has cluster support disabled", errc::misconfigured,
               "it is no node of a cluster; its address begins with redis://"},
    reply_kind{"WRONGTYPE", errc::misconfigured,
               "the key of this lock is used for something else; choose another name or prefix"},
    reply_kind{"NOPROTO", errc::misconfigured, "Redis 6.0 or newer is needed"},
    reply_kind{"ERR unknown command 'HELLO'", errc::misconfigured, "Redis 6.0 or newer is needed"},
    reply_kind{"ERR unknown command `HELLO`", errc::misconfigured, "Redis 6.0 or newer is needed"},
    reply_kind{"ERR DB index", errc::misconfigured, "it has no such database"},
    reply_kind{"HFGONE", errc::not_held, "the grant to be upgraded is gone"},
    reply_kind{"HFOVER", errc::outcome_unknown, "this attempt was given up before"},
    reply_kind{"HFNOOWNER", errc::unsupported,
               "its permits (?semaphore=plain) have no owner, so none can be taken away: a holder "
               "that gives its own back later would make more of them than there are"},
};

// A server may repeat what it was sent: Redis before 6.0 answers our login with "unknown command", and all of it. To
// look for the password in the answer and to mask it there would tell what a short one is, by what is missing. So of an
// answer to a login nothing is shown but the words that we know.
std::string_view shown_of_login(std::string_view reply) {
  for (const auto& row : reply_kinds)
    if (reply.starts_with(row.prefix)) return row.prefix;
  return reply.starts_with("ERR ") ? "ERR" : "an error";
}

// What a command inside a script failed with. Before Redis 7 that came wrapped up:
// "ERR Error running script (call to f_...): @user_script:4: @user_script: 4: -READONLY You can't ...".
std::string_view unwrapped(std::string_view reply) {
  constexpr std::string_view place = "@user_script";
  const auto at = reply.rfind(place);
  if (!reply.starts_with("ERR Error running script") || at == std::string_view::npos) return reply;
  const auto begin = reply.find_first_not_of(": 0123456789-", at + place.size());
  return begin == std::string_view::npos ? reply : reply.substr(begin);
}

// "HFCAPACITY 4": what our scripts answer when a name is in use as something else.
std::optional<std::uint64_t> other_capacity_in(std::string_view reply) {
  constexpr std::string_view begin = "HFCAPACITY ";
  if (!reply.starts_with(begin)) return std::nullopt;
  reply.remove_prefix(begin.size());
  std::uint64_t capacity = 0;
  std::from_chars(reply.data(), reply.data() + reply.size(), capacity);
  return capacity;
}

// With only `shown` of the reply in the sentence.
error sentence_about(std::string_view reply, std::string_view name, std::string_view store,
                     std::string_view shown) {
  const auto inner = unwrapped(reply);
  const auto about = name.empty() ? std::string{store}
                                  : fmt::format("Lock {} on {}", support::quoted(name), store);
  if (const auto capacity = other_capacity_in(inner))
    return not_done{errc::misconfigured,
                    fmt::format("{} is in use as {}, and was asked for as something else; all "
                                "users of a name must agree on its kind and its permits.",
                                about, kind_of_lock(*capacity))};
  // In the middle of a script whose keys are being moved to another node: what it did before that is done.
  if (inner.find("cript attempted to access") != std::string_view::npos)
    return {errc::outcome_unknown,
            fmt::format("{}: its slot is being moved to another node of the cluster.", about)};
  for (const auto& row : reply_kinds) {
    if (!inner.starts_with(row.prefix)) continue;
    auto sentence = fmt::format("{}: the server answered {}: {}.", about,
                                support::quoted(shown, 160), row.advice);
    if (row.code == errc::denied && reply.find("script") != std::string_view::npos)
      return {row.code, std::move(sentence)};
    return not_done{row.code, std::move(sentence)};
  }
  return {errc::protocol, fmt::format("{}: the server answered {}, which is not understood here.",
                                      about, support::quoted(shown, 160))};
}

}  // namespace

error reply_error(std::string_view reply, std::string_view name, std::string_view store) {
  return sentence_about(reply, name, store, reply);
}

error login_error(std::string_view reply, std::string_view store) {
  return sentence_about(reply, {}, store, shown_of_login(reply));
}

bool is_replica(const resp::value& reply) {
  return reply.is_error() && unwrapped(reply.text).starts_with("READONLY");
}

bool is_redirection(std::string_view reply) {
  return reply.starts_with("MOVED ") || reply.starts_with("ASK ");
}

error redirected(std::string_view name, std::string_view store) {
  return not_done{errc::unavailable, fmt::format("Lock {} on {}: its slot is on another node now.",
                                                 support::quoted(name), store)};
}

error unexpected_reply(std::string_view name, std::string_view store) {
  return {errc::protocol, fmt::format("Lock {} on {}: the server's answer has not the form that "
                                      "was asked for; is this a Redis server?",
                                      support::quoted(name), store)};
}

}  // namespace holdfast::engines::redis

#include "engines/zk/errors.hpp"

#include "support/text.hpp"

#include <fmt/format.h>

#include <array>

namespace holdfast::engines::zk {

namespace {

using jute::code;

struct kind_of_refusal {
  code said;
  errc meaning;
  std::string_view advice;
};

constexpr std::array kinds{
    kind_of_refusal{
        code::no_auth, errc::denied,
        "the ACL of the node, or of the one above it, does not allow it; the rights that "
        "are needed are in docs/guides/zookeeper.md"},
    kind_of_refusal{code::auth_failed, errc::denied, "check user and password"},
    kind_of_refusal{code::invalid_acl, errc::misconfigured,
                    "acl=creator needs a login that this server accepts"},
    kind_of_refusal{code::session_expired, errc::unavailable,
                    "our session has ended; the next attempt makes a new one"},
    kind_of_refusal{code::unknown_session, errc::unavailable,
                    "our session has ended; the next attempt makes a new one"},
    kind_of_refusal{code::session_moved, errc::unavailable,
                    "our session has gone to another server; the next attempt follows it"},
    kind_of_refusal{code::not_read_only, errc::unavailable,
                    "the server is cut off from the others"},
    kind_of_refusal{code::throttled, errc::unavailable, "it has more to do than it can"},
    kind_of_refusal{code::quota_exceeded, errc::misconfigured,
                    "the quota of the chroot is used up; raise it"},
    kind_of_refusal{code::unimplemented, errc::misconfigured, "ZooKeeper 3.5 or newer is needed"},
    kind_of_refusal{code::no_node, errc::misconfigured,
                    "the chroot of the store's address does not exist; create it once"},
    kind_of_refusal{
        code::no_children_for_ephemerals, errc::misconfigured,
        "a node above it is ephemeral: another program uses that path as a lock itself"},
    kind_of_refusal{code::node_exists, errc::misconfigured,
                    "another program has made that node, and not as a lock"},
};

std::string where(std::string_view name, std::string_view store) {
  return name.empty() ? std::string{store}
                      : fmt::format("Lock {} on {}", support::quoted(name), store);
}

}  // namespace

error refusal(code said, std::string_view name, std::string_view store) {
  for (const auto& row : kinds)
    if (row.said == said)
      return not_done{row.meaning,
                      fmt::format("{}: the server answered {}: {}.", where(name, store),
                                  jute::name_of(said), row.advice)};
  if (said == code::connection_loss || said == code::timed_out ||
      said == code::new_config_no_quorum)
    return {errc::outcome_unknown,
            fmt::format("{}: the server answered {}: the ensemble did not agree in time.",
                        where(name, store), jute::name_of(said))};
  return {errc::protocol,
          fmt::format("{}: the server answered {} ({}), which is not understood here.",
                      where(name, store), jute::name_of(said), static_cast<int>(said))};
}

error unexpected_answer(std::string_view name, std::string_view store) {
  return {errc::protocol,
          fmt::format("{}: the server's answer has not the form that was asked for; is this a "
                      "ZooKeeper server?",
                      where(name, store))};
}

}  // namespace holdfast::engines::zk

// What the agents tell about themselves, and what that means for locks (`holdfast doctor`).
#include "engines/common/doctor_checks.hpp"
#include "engines/consul/consul_engine.hpp"

#include "support/text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

namespace holdfast::engines::consul {

namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using level = finding::level;

using replies = std::vector<result<http_reply>>;

bool is_good(const result<http_reply>& got) { return got && got->status == 200; }

std::string refusal_text(const result<http_reply>& got) {
  return got ? support::quoted(got->body, 100) : std::string{"no answer"};
}

json parsed_reply(const result<http_reply>& got) {
  return is_good(got) ? json::parse(got->body, nullptr, false) : json{};
}

finding check_reach(const settings& how, const replies& leaders) {
  std::vector<std::string> away;
  for (std::size_t i = 0; i < leaders.size(); ++i)
    if (!is_good(leaders[i])) away.push_back(how.where[i].name);
  if (!away.empty())
    return {level::warning, "agents of the address",
            fmt::format("{} of {} do not answer: {}. We go on with the others.", away.size(),
                        leaders.size(), fmt::join(away, ", "))};
  if (leaders.size() == 1)
    return {level::note, "agents of the address",
            "One. While it is down we cannot reach the servers, even if they are well; an agent on "
            "this machine is usual, or name several: consul://a,b,c."};
  return {level::good, "agents of the address", fmt::format("All {} answer.", leaders.size())};
}

finding check_leader(const replies& leaders) {
  std::vector<std::string> said;
  for (const auto& got : leaders)
    if (is_good(got) && std::ranges::find(said, got->body) == said.end()) said.push_back(got->body);
  const auto named = said.size() == 1 ? json::parse(said.front(), nullptr, false) : json{};
  if (named.is_string() && !named.get<std::string>().empty())
    return {level::good, "leader", support::quoted(named.get<std::string>(), 60) + "."};
  return {level::bad, "leader",
          "The agents name no leader, or not the same: nobody can lock until they do."};
}

finding check_peers(const result<http_reply>& got) {
  const auto in = parsed_reply(got);
  if (!in.is_array())
    return not_allowed_to_look("servers", refusal_text(got), "There should be three or five.");
  if (in.size() == 1)
    return {level::note, "servers",
            "One: while it is down, nobody can lock, and its disk is the only one."};
  if (in.size() % 2 == 0)
    return {level::note, "servers",
            fmt::format("{}: one less would survive as many failures.", in.size())};
  return {level::good, "servers", fmt::format("{}; {} may fail.", in.size(), (in.size() - 1) / 2)};
}

std::string config_text(const json& self, const char* part, const char* key) {
  if (!self.is_object()) return {};
  const auto at = self.find(part);
  if (at == self.end() || !at->is_object()) return {};
  const auto value = at->find(key);
  if (value == at->end()) return {};
  return value->is_string() ? value->get<std::string>() : value->dump();
}

finding check_version(const json& self) {
  const auto version = config_text(self, "Config", "Version");
  if (version.empty())
    return not_allowed_to_look("version", "agent:read is not granted", "1.7 or newer is needed.");
  int major = 0, minor = 0;
  const auto* end = version.data() + version.size();
  const auto dot = std::from_chars(version.data(), end, major).ptr;
  if (dot != end) std::from_chars(dot + 1, end, minor);
  if (major < 1 || (major == 1 && minor < 7))
    return {level::bad, "version", fmt::format("Consul {} is too old: 1.7 is needed.", version)};
  return {level::good, "version", fmt::format("Consul {}.", version)};
}

finding check_sessions(const settings& how, const json& self) {
  const auto least = config_text(self, "DebugConfig", "SessionTTLMin");
  const auto spoken = fmt::format(
      "session={} is asked for and kept; a dead holder is noticed within 2 x {} + lock_delay={}.",
      format_duration(how.session), format_duration(how.session), format_duration(how.lock_delay));
  if (least.empty()) return {level::good, "session", spoken};
  return {level::good, "session",
          fmt::format("{} session_ttl_min is {} (0s: Consul's own 10s).", spoken, least)};
}

// Consul ends a session at once when the node of its agent leaves, or is removed.
finding check_lock_delay(const settings& how) {
  if (how.lock_delay >= how.session)
    return {level::good, "lock-delay",
            fmt::format("{}: a holder whose session is ended early has stopped by itself before "
                        "another client gets its lock. So long nobody gets it after a crash.",
                        format_duration(how.lock_delay))};
  return {level::note, "lock-delay",
          fmt::format("{}, less than the session of {}: when the agent that we use leaves, its "
                      "sessions end at once, and a holder that is cut off believes on for up to a "
                      "session beside the next one.",
                      format_duration(how.lock_delay), format_duration(how.session))};
}

finding check_acl(const settings& how, const json& self) {
  const auto on = config_text(self, "DebugConfig", "ACLsEnabled");
  const auto policy = config_text(self, "DebugConfig", "ACLDefaultPolicy");
  if (on == "false")
    return {level::warning, "ACL",
            "Off: whoever reaches an agent may do everything to the locks. See "
            "docs/guides/consul.md for a policy with just enough rights."};
  if (on == "true" && policy == "allow")
    return {level::warning, "ACL", "On, but what is not forbidden is allowed (default_policy)."};
  if (on == "true" || !how.token.empty())
    return {level::good, "ACL",
            how.token.empty() ? "On. We have no token." : "On. We have a token."};
  return not_allowed_to_look("ACL", "agent:read is not granted", "It should be on.");
}

finding check_transport(const settings& how) {
  const bool is_local = std::ranges::all_of(
      how.where, [](const member_address& member) { return is_this_machine(member.host); });
  return check_encryption({how.use_tls, is_local, "consuls://"});
}

// How long a blocking query takes to say that nothing has changed: it must neither come at once nor hang.
finding check_queries(nanoseconds asked, nanoseconds took, bool answered) {
  if (!answered)
    return {level::warning, "blocking queries",
            "One that was to end by itself did not: waiters look again every 10 s only. Is there a "
            "proxy with a short time-out in between?"};
  if (took < asked / 2)
    return {level::warning, "blocking queries",
            fmt::format("One of {} came back after {}: something in between answers for Consul.",
                        format_duration(asked), in_ms(took))};
  return {level::good, "blocking queries",
          fmt::format("One of {} took {}.", format_duration(asked), in_ms(took))};
}

}  // namespace

result<std::vector<finding>> consul_engine::diagnose(const call& limits) {
  const auto get = [](std::string path) { return question{question::verb::get, std::move(path)}; };
  replies leaders;
  for (std::size_t i = 0; i < agent_->size(); ++i)
    leaders.push_back(agent_->run_at(i, get("/v1/status/leader"), limits));
  if (std::ranges::none_of(leaders, is_good))
    return error{errc::unavailable, fmt::format("{}: no agent answers.", how_.url)};
  auto self = parsed_reply(agent_->run(get("/v1/agent/self"), limits).got);
  const auto peers = agent_->run(get("/v1/status/peers"), limits).got;

  const auto now = sessions_->current();
  const auto epoch = "/v1/kv/" + escaped_path(now ? now->epoch_key : how_.root);
  std::vector<nanoseconds> took;
  std::uint64_t index = 0;
  for (int i = 0; i < 9; ++i) {
    const auto since = clock_.now();
    const auto said = agent_->run(get(epoch + "?consistent"), limits);
    if (!said.got) break;
    if (said.got->status == 403) return status_error(*said.got, {}, how_.url);
    took.push_back(clock_.now() - since);
    index = said.got->index;
  }
  constexpr nanoseconds asked = 300ms;
  const auto since = clock_.now();
  const auto waited =
      agent_->run(get(fmt::format("{}?index={}&wait=300ms", epoch, index)), limits).got;
  const auto lasted = clock_.now() - since;
  return std::vector<finding>{
      check_version(self),
      check_reach(how_, leaders),
      check_leader(leaders),
      check_peers(peers),
      check_sessions(how_, self),
      check_lock_delay(how_),
      check_queries(asked, lasted, waited.has_value()),
      check_acl(how_, self),
      check_transport(how_),
      check_round_trips(std::move(took), {nanoseconds{how_.session} / 10, "session", how_.session}),
  };
}

}  // namespace holdfast::engines::consul

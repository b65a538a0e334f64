// What the cluster tells about itself, and what that means for locks (`holdfast doctor`).
#include "engines/common/doctor_checks.hpp"
#include "engines/common/store_address.hpp"
#include "engines/etcd/etcd_engine.hpp"

#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;
using level = finding::level;

constexpr double usual_quota =
    2.0 * 1024 * 1024 * 1024;  // --quota-backend-bytes when it is not set

finding not_allowed(std::string_view about, const result<grpc::reply>& got,
                    std::string_view advice) {
  const auto why = got ? support::quoted(got->message, 100) : std::string{"no answer"};
  return not_allowed_to_look(about, why, advice);
}

struct member_status {
  std::string at;
  std::optional<rpc::StatusResponse> said;
  std::string why;  // not
};

finding check_version(const std::vector<member_status>& members) {
  std::vector<std::string> versions;
  bool old = false;
  for (const auto& member : members) {
    if (!member.said) continue;
    const auto& text = member.said->version();
    int major = 0, minor = 0;
    const auto* end = text.data() + text.size();
    const auto dot = std::from_chars(text.data(), end, major).ptr;
    if (dot != end) std::from_chars(dot + 1, end, minor);
    old = old || major < 3 || (major == 3 && minor < 4);
    if (std::ranges::find(versions, text) == versions.end()) versions.push_back(text);
  }
  const auto spoken = fmt::format("etcd {}", fmt::join(versions, ", "));
  if (old) return {level::bad, "version", spoken + " is too old: 3.4 is needed."};
  return {level::good, "version", spoken + "."};
}

finding check_reach(const std::vector<member_status>& members) {
  std::vector<std::string> away;
  for (const auto& member : members)
    if (!member.said) away.push_back(member.at);
  if (!away.empty())
    return {level::warning, "members of the address",
            fmt::format("{} of {} do not answer: {}. We go on with the others.", away.size(),
                        members.size(), fmt::join(away, ", "))};
  if (members.size() == 1)
    return {level::note, "members of the address",
            "One. While it is down we cannot reach the cluster, even if that is well; name them "
            "all: etcd://a,b,c."};
  return {level::good, "members of the address", fmt::format("All {} answer.", members.size())};
}

finding check_leader(const std::vector<member_status>& members) {
  std::vector<std::uint64_t> leaders;
  for (const auto& member : members)
    if (member.said && std::ranges::find(leaders, member.said->leader()) == leaders.end())
      leaders.push_back(member.said->leader());
  if (leaders.size() == 1 && leaders.front() != 0)
    return {level::good, "leader", fmt::format("Member {:x}.", leaders.front())};
  return {level::bad, "leader",
          "The members do not agree on a leader: nobody can lock until they do."};
}

finding check_learner(const std::vector<member_status>& members) {
  for (const auto& member : members)
    if (member.said && member.said->islearner())
      return {level::bad, "learners",
              fmt::format("{} is a learner: it refuses what we ask. Take it out of the address, or "
                          "promote it.",
                          member.at)};
  return {level::good, "learners", "None in the address."};
}

finding check_size(const std::vector<member_status>& members) {
  std::int64_t largest = 0, used = 0;
  for (const auto& member : members)
    if (member.said && member.said->dbsize() > largest) {
      largest = member.said->dbsize();
      used = member.said->dbsizeinuse();
    }
  const auto spoken =
      fmt::format("{:.1f} MB, of which {:.1f} MB are used.", static_cast<double>(largest) / 1e6,
                  static_cast<double>(used) / 1e6);
  if (static_cast<double>(largest) < 0.75 * usual_quota) return {level::good, "database", spoken};
  return {
      level::warning, "database",
      spoken +
          " When it reaches its quota (2 GB unless set), the cluster refuses new locks. Compact "
          "and defragment it (--auto-compaction-retention)."};
}

finding check_alarms(const result<grpc::reply>& got) {
  rpc::AlarmResponse in;
  if (!got || !got->ok() || !in.ParseFromString(got->body))
    return not_allowed("alarms", got, "etcdctl alarm list, as root.");
  for (const auto& raised : in.alarms()) {
    if (raised.alarm() == 1)
      return {
          level::bad, "alarms",
          "NOSPACE: the database is full, and no lock can be taken; held ones live on. Compact, "
          "defragment, then etcdctl alarm disarm."};
    if (raised.alarm() != 0)
      return {level::bad, "alarms",
              "CORRUPT: the members do not have the same data. Do not use this cluster for locks."};
  }
  return {level::good, "alarms", "None."};
}

finding check_cluster(const result<grpc::reply>& got) {
  rpc::MemberListResponse in;
  if (!got || !got->ok() || !in.ParseFromString(got->body))
    return not_allowed("cluster", got, "It should have three or five members.");
  const auto voters = std::ranges::count_if(
      in.members(), [](const rpc::Member& member) { return !member.islearner(); });
  if (voters == 1)
    return {level::note, "cluster",
            "One member: while it is down, nobody can lock, and its disk is the only one."};
  if (voters % 2 == 0)
    return {level::note, "cluster",
            fmt::format("{} members: one less would survive as many failures.", voters)};
  return {level::good, "cluster",
          fmt::format("{} members; {} may fail.", voters, (voters - 1) / 2)};
}

finding check_users(const settings& how, bool auth_off) {
  if (!how.user.empty() && !auth_off)
    return {level::good, "users", fmt::format("On. We are {}.", support::quoted(how.user))};
  if (!how.user.empty())
    return {level::warning, "users",
            "The address names a user, but authentication is off: whoever reaches the cluster may "
            "do everything to the locks. etcdctl auth enable."};
  return {
      level::warning, "users",
      "Off: whoever reaches the cluster may do everything to the locks. See docs/guides/etcd.md "
      "for a user with just enough rights."};
}

finding check_transport(const settings& how) {
  const bool is_local = std::ranges::all_of(
      how.where, [](const net::address& member) { return is_this_machine(member.host); });
  return check_encryption({how.where.front().use_tls, is_local, "etcds://"});
}

finding check_session(const settings& how, const std::optional<lease_view>& lease) {
  if (!lease) return {level::bad, "session", "The cluster grants none: no lock can be taken."};
  if (lease->ttl > how.session)
    return {level::note, "session",
            fmt::format("{} was asked for, and {} was granted: that is the least with the election "
                        "timeout of this cluster. Dead holders are noticed after that.",
                        format_duration(how.session), format_duration(lease->ttl))};
  return {level::good, "session",
          fmt::format("{}: dead holders are noticed after that.", format_duration(lease->ttl))};
}

}  // namespace

result<std::vector<finding>> etcd_engine::diagnose(const call& limits) {
  std::vector<member_status> members;
  const question status{method::status, {}};
  for (std::size_t i = 0; i < cluster_->size(); ++i) {
    member_status member{how_.names[i], {}, {}};
    const auto got = cluster_->run_at(i, status, limits);
    rpc::StatusResponse in;
    if (got && got->ok() && in.ParseFromString(got->body)) member.said = std::move(in);
    members.push_back(std::move(member));
  }
  if (std::ranges::none_of(members,
                           [](const member_status& member) { return member.said.has_value(); }))
    return error{errc::unavailable, fmt::format("{}: no member answers.", how_.url)};
  const question alarms{method::alarm, {}}, list{method::members, {}};
  std::vector<nanoseconds> took;
  const question read{method::range, bytes_of(range_of(how_.root + "."))};
  for (int i = 0; i < 9; ++i) {
    const auto since = clock_.now();
    const auto said = cluster_->run(read, limits);
    if (said.got && said.got->ok()) took.push_back(clock_.now() - since);
    if (!said.got) break;
    if (said.got->status == grpc::status::permission_denied)
      return status_error(*said.got, {}, how_.url);
  }
  return std::vector<finding>{
      check_version(members),
      check_reach(members),
      check_leader(members),
      check_learner(members),
      check_cluster(cluster_->run(list, limits).got),
      check_alarms(cluster_->run(alarms, limits).got),
      check_size(members),
      check_session(how_, session_->current()),
      check_users(how_, cluster_->is_auth_off()),
      check_transport(how_),
      check_round_trips(std::move(took), {nanoseconds{how_.session} / 10, "session", how_.session}),
  };
}

}  // namespace holdfast::engines::etcd

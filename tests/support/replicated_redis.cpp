#include "support/replicated_redis.hpp"

#include "support/shared_server.hpp"
#include "support/wait_until.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <stdexcept>
#include <utility>

namespace holdfast::testing {

namespace {

using namespace std::chrono_literals;

std::string field_in(const std::string& list, const std::string& name) {
  const auto at = list.find(' ' + name + ' ');
  if (at == std::string::npos) return {};
  const auto begin = at + name.size() + 2;
  return list.substr(begin, list.find_first_of(" ]", begin) - begin);
}

std::size_t replicas_in_step(const redis_server& master) {
  const auto info = master.try_command({"INFO", "replication"});
  std::size_t count = 0;
  for (auto at = info.find("state=online"); at != std::string::npos;
       at = info.find("state=online", at + 1))
    ++count;
  return count;
}

}  // namespace

replicated_redis::replicated_redis(const options& how) {
  for (std::size_t i = 0; i <= how.replicas; ++i) {
    auto each = how.each;
    each.network = how.network;
    each.place = i;
    if (i > 0) {
      each.config.push_back(
          fmt::format("replicaof {} {}", servers_[0]->host(), servers_[0]->port()));
      each.config.emplace_back("repl-diskless-sync yes");
    }
    if (!each.password.empty()) each.config.push_back("masterauth " + each.password);
    servers_.push_back(std::make_unique<redis_server>(each));
  }
  if (!wait_until([&] { return replicas_in_step(*servers_[0]) == how.replicas; }))
    throw std::runtime_error("the replicas do not come in step");
  for (std::size_t i = 0; i < how.sentinels; ++i) {
    auto each = how.watcher;
    each.network = how.network;
    each.place = i;
    each.is_sentinel = true;
    each.config.push_back(fmt::format("sentinel monitor mymaster {} {} {}", servers_[0]->host(),
                                      servers_[0]->port(), how.sentinels / 2 + 1));
    each.config.emplace_back("sentinel down-after-milliseconds mymaster 1000");
    each.config.emplace_back("sentinel failover-timeout mymaster 5000");
    if (!how.each.password.empty())
      each.config.push_back("sentinel auth-pass mymaster " + how.each.password);
    each.config.insert(each.config.end(), how.watched_with.begin(), how.watched_with.end());
    sentinels_.push_back(std::make_unique<redis_server>(each));
    if (how.usual_times) continue;
    redis_command(*sentinels_.back(), {"SENTINEL", "DEBUG", "info-period", "500", "publish-period",
                                       "200", "ping-period", "200", "ask-period", "200"});
  }
  if (!wait_until([this] { return is_ready(); }, 3 * patience))
    throw std::runtime_error("the sentinels do not find each other");
}

bool replicated_redis::is_ready() const {
  return std::ranges::all_of(sentinels_, [this](const auto& one) {
    const auto known = one->try_command({"SENTINEL", "MASTER", "mymaster"});
    return field_in(known, "num-slaves") == std::to_string(servers_.size() - 1) &&
           field_in(known, "num-other-sentinels") == std::to_string(sentinels_.size() - 1) &&
           field_in(known, "flags") == "master";
  });
}

std::string replicated_redis::url(const std::string& query, std::size_t first) const {
  std::string out;
  for (std::size_t i = 0; i < sentinels_.size(); ++i) {
    const auto& one = sentinels_[(first + i) % sentinels_.size()];
    out +=
        fmt::format("{}{}:{}", out.empty() ? "redis+sentinel://" : ",", one->host(), one->port());
  }
  return out + "/mymaster" + query;
}

std::optional<std::size_t> replicated_redis::master_by(const redis_server& sentinel) const {
  const auto said = sentinel.try_command({"SENTINEL", "MASTER", "mymaster"});
  for (std::size_t i = 0; i < servers_.size(); ++i)
    if (field_in(said, "ip") == servers_[i]->host() &&
        field_in(said, "port") == std::to_string(servers_[i]->port()))
      return i;
  return std::nullopt;
}

std::optional<std::size_t> replicated_redis::master() const {
  std::map<std::size_t, std::size_t> votes;
  for (const auto& one : sentinels_)
    if (const auto named = master_by(*one); named && ++votes[*named] > sentinels_.size() / 2)
      return named;
  return std::nullopt;
}

bool replicated_redis::has_master_other_than(std::size_t old) const {
  return wait_until(
      [&] {
        const auto now = master();
        const bool is_over =
            now && *now != old && std::ranges::all_of(sentinels_, [&](const auto& one) {
              const auto named = master_by(*one);
              return !named || *named == *now;
            });
        return is_over && servers_[*now]->try_command({"ROLE"}).starts_with("[master");
      },
      3 * patience);
}

bool replicated_redis::has_replicas(std::size_t count) const {
  return wait_until(
      [&] {
        const auto now = master();
        return now && replicas_in_step(*servers_[*now]) >= count;
      },
      3 * patience);
}

replicated_redis& shared_replicated_redis() {
  static shared_server<replicated_redis> single;
  return *single;
}

}  // namespace holdfast::testing

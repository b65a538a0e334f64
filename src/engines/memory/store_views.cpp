// The store's other half: what operators see, and counters.
#include "engines/common/counter_rule.hpp"
#include "engines/memory/store.hpp"

#include <algorithm>

namespace holdfast::engines::memory {

// ---- operators' view

holder_info store::describe(const entry& described, bool holds, steady_time now) {
  holder_info out;
  out.owner = described.owner;
  out.mode = described.mode;
  out.weight = described.weight;
  out.token = described.token;
  out.age = now - described.since;
  if (holds) out.expires_in = described.expires - now;
  out.priority = described.priority;
  out.pid = described.client->pid();
  out.host = described.client->host();
  out.label = described.label;
  return out;
}

lock_info store::inspect(std::string_view name, steady_time now) {
  lock_info out;
  out.name = name;
  const auto at = expire_and_find(name, now);
  if (at == locks_.end()) return out;
  out.capacity = at->second.capacity;
  out.version = at->second.version;
  for (const auto& holder : at->second.holders) out.holders.push_back(describe(holder, true, now));
  for (const auto& waiter : at->second.queue) out.waiters.push_back(describe(waiter, false, now));
  return out;
}

std::vector<lock_info> store::list(std::string_view prefix, std::size_t limit, steady_time now) {
  std::vector<std::string> names;  // first, because looking at a lock may forget it
  for (auto at = locks_.lower_bound(prefix); at != locks_.end(); ++at) {
    if (!at->first.starts_with(prefix)) break;
    names.push_back(at->first);
  }
  std::vector<lock_info> out;
  for (const auto& name : names) {
    if (out.size() == limit) break;
    auto info = inspect(name, now);
    if (!info.holders.empty() || !info.waiters.empty()) out.push_back(std::move(info));
  }
  return out;
}

bool store::contended(std::string_view name) const {
  const auto at = locks_.find(name);
  return at != locks_.end() && !at->second.queue.empty();
}

// ---- counters

store::counter_map::iterator store::expire_and_find_counter(std::string_view name,
                                                            steady_time now) {
  auto at = counters_.find(name);
  if (at != counters_.end() && now - at->second.changed >= at->second.keep) {
    const topic about{topic::what::counter, at->first};
    counters_.erase(at);
    wake(about);
    at = counters_.end();
  }
  return at;
}

counter store::count(const counter_request& ask, steady_time now) {
  auto at = expire_and_find_counter(ask.name, now);
  counter out;
  out.applied = apply(ask, at, now);
  out.exists = at != counters_.end();
  if (out.exists) {
    out.value = at->second.value;
    out.version = at->second.version;
  }
  return out;
}

// A counter that is forgotten by now is left to the next call that is about it.
std::vector<counter_info> store::list_counters(std::string_view prefix, std::size_t limit,
                                               steady_time now) const {
  std::vector<counter_info> out;
  for (auto at = counters_.lower_bound(prefix); at != counters_.end(); ++at) {
    if (out.size() == limit || !at->first.starts_with(prefix)) break;
    const auto& [value, version, changed, keep] = at->second;
    if (now - changed >= keep) continue;
    const auto left = keep == nanoseconds::max() ? no_expiry : keep - (now - changed);
    out.push_back({at->first, value, left});
  }
  return out;
}

// Says whether the operation applied, and leaves in `at` where the counter is now, if anywhere.
bool store::apply(const counter_request& ask, counter_map::iterator& at, steady_time now) {
  const bool exists = at != counters_.end();
  const auto change = change_of(ask, exists ? std::optional{at->second.value} : std::nullopt);
  if (change.what == counter_change::kind::none) return change.applied;
  if (change.what == counter_change::kind::erase) {
    counters_.erase(at);
    at = counters_.end();
    wake({topic::what::counter, std::string{ask.name}});
    return true;
  }
  if (!exists) at = counters_.emplace(ask.name, stored_counter{}).first;
  const auto keep = ask.keep > nanoseconds::zero() ? ask.keep : at->second.keep;
  at->second = stored_counter{change.value, ++last_version_, now, keep};
  wake({topic::what::counter, at->first});
  return true;
}

// ---- watching

std::uint64_t store::version(watch_kind kind, std::string_view name, steady_time now) {
  if (kind == watch_kind::counter) {
    const auto at = expire_and_find_counter(name, now);
    return at == counters_.end() ? 0 : at->second.version;
  }
  const auto at = expire_and_find(name, now);
  return at == locks_.end() ? 0 : at->second.version;
}

steady_time store::next_change(watch_kind kind, std::string_view name) const {
  auto next = steady_time::max();
  if (kind == watch_kind::counter) {
    const auto at = counters_.find(name);
    if (at == counters_.end()) return next;
    const bool for_ever = at->second.keep >= next - at->second.changed;
    return for_ever ? next : at->second.changed + at->second.keep;
  }
  const auto at = locks_.find(name);
  if (at == locks_.end()) return next;
  for (const auto& holder : at->second.holders) next = std::min(next, holder.expires);
  return next;
}

}  // namespace holdfast::engines::memory

#include "engines/memory/store.hpp"

#include "engines/common/grant_rule.hpp"
#include "engines/common/modes.hpp"
#include "engines/common/sentences.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::engines::memory {

namespace {

std::uint64_t wall_clock_microseconds() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count());
}

steady_time saturating_add(steady_time from, nanoseconds length) {
  return length >= steady_time::max() - from ? steady_time::max() : from + length;
}

error gone(std::string_view name) {
  return {errc::not_held,
          fmt::format("The lock {} is not held by this owner (any more); nothing was changed.",
                      support::quoted(name))};
}

}  // namespace

store::store() : last_token_(wall_clock_microseconds()) {}

// ---- asking

result<entered> store::enter(const request& ask, session& client, steady_time now) {
  if (auto known = settle(ask.name, ask.owner, now); known.what != entered::kind::busy) {
    const bool already = known.what == entered::kind::waiting || known.granted.mode == ask.mode;
    if (already) return known;  // asked again: the same answer
  }
  auto at = expire_and_find(ask.name, now);
  if (at == locks_.end() && ask.replaces != nullptr) return gone(ask.name);
  const auto capacity = at == locks_.end() ? ask.capacity : at->second.capacity;
  if (capacity != ask.capacity || ask.weight > capacity) {
    return other_capacity(ask, capacity, "memory:");
  }
  if (at == locks_.end()) {
    at = locks_.emplace(ask.name, lock{}).first;
    at->second.capacity = capacity;
  }
  lock& here = at->second;

  entry added{ask.owner, &client, ask.mode, ask.weight, ask.priority, std::string{ask.label},
              ask.ttl,   now};
  const entry* replaced = nullptr;
  if (ask.replaces != nullptr) {
    const auto old = find_owner(here.holders, ask.replaces->owner);
    if (old == here.holders.end()) return gone(ask.name);
    replaced = &*old;
    added.replaces = ask.replaces->owner;
  }

  if (may_enter_now(here, ask, replaced)) {
    grant_to(here, std::move(added), now);
    after_change(at, true, now);
  } else if (ask.wait) {
    queue_up(here, std::move(added));
  } else {
    return entered{};
  }
  return settle(ask.name, ask.owner, now);
}

bool store::may_enter_now(const lock& at, const request& ask, const entry* replaced) {
  queue_state state{at.capacity, weight_of_holders(at)};
  for (const auto& other : at.queue) {
    state.upgrade_waiting = state.upgrade_waiting || other.replaces.has_value();
    state.waiters_ahead = state.waiters_ahead || other.priority >= ask.priority;
  }
  return may_enter(state, ask.weight, ask.order, replaced == nullptr ? 0 : replaced->weight);
}

entered store::settle(std::string_view name, const owner_id& owner, steady_time now) {
  entered answer;
  const auto at = expire_and_find(name, now);
  if (at == locks_.end()) return answer;
  if (const auto holder = find_owner(at->second.holders, owner);
      holder != at->second.holders.end()) {
    answer.what = entered::kind::granted;
    answer.granted = as_grant(name, *holder);
  }
  // Looked at second: an upgrade may wait under the very owner that holds.
  if (find_owner(at->second.queue, owner) != at->second.queue.end()) {
    answer.what = entered::kind::waiting;
    answer.waiting = ticket{name, owner};
  }
  return answer;
}

// ---- giving up

void store::leave(std::string_view name, const owner_id& owner, steady_time now) {
  const auto at = expire_and_find(name, now);
  if (at == locks_.end()) return;
  lock& here = at->second;
  if (const auto place = find_owner(here.queue, owner); place != here.queue.end()) {
    here.queue.erase(place);
    after_change(at, false, now);
    return;
  }
  const auto holder = find_owner(here.holders, owner);
  if (holder == here.holders.end()) return;
  if (holder->replaced.empty()) {
    here.holders.erase(holder);
  } else {
    // An upgrade that arrived after all and is not wanted: its owner reads on as before.
    entry replaced = std::move(holder->replaced.front());
    replaced.expires = saturating_add(now, replaced.ttl);
    *holder = std::move(replaced);
  }
  after_change(at, true, now);
}

bool store::release(std::string_view name, const owner_id& owner, steady_time now) {
  const auto at = expire_and_find(name, now);
  if (at == locks_.end()) return false;
  const auto holder = find_owner(at->second.holders, owner);
  if (holder == at->second.holders.end()) return false;
  at->second.holders.erase(holder);
  after_change(at, true, now);
  return true;
}

result<grant> store::downgrade(const grant& held, lock_mode to, steady_time now) {
  const auto at = expire_and_find(held.name, now);
  if (at == locks_.end()) return gone(held.name);
  const auto holder = find_owner(at->second.holders, held.owner);
  if (holder == at->second.holders.end()) return gone(held.name);
  if (weight_of(to) > holder->weight) {
    return error{errc::misconfigured,
                 fmt::format("The lock {} is held as {}; it cannot be downgraded to {}.",
                             support::quoted(held.name), to_string(holder->mode), to_string(to))};
  }
  holder->mode = to;
  holder->weight = weight_of(to);
  holder->replaced.clear();
  auto shrunk = as_grant(held.name, *holder);
  after_change(at, true, now);
  return shrunk;
}

void store::end(const session& client, steady_time now) {
  const auto is_theirs = [&client](const entry& asked) { return asked.client == &client; };
  for (auto at = locks_.begin(); at != locks_.end();) {
    const auto here = at++;  // after_change may forget it
    const auto held = std::erase_if(here->second.holders, is_theirs);
    const auto waited = std::erase_if(here->second.queue, is_theirs);
    if (held + waited > 0) after_change(here, held > 0, now);
  }
}

std::size_t store::revoke(std::string_view name, steady_time now) {
  const auto at = expire_and_find(name, now);
  if (at == locks_.end()) return 0;
  const auto ended = std::move(at->second.holders);
  at->second.holders.clear();
  for (const auto& holder : ended) holder.client->lost(holder.owner, "it was revoked");
  ++last_token_;  // every later token is above all given so far, also when the lock was free
  after_change(at, true, now);
  return ended.size();
}

// ---- renewal and expiry

bool store::renew(const grant& held, steady_time now) {
  const auto at = expire_and_find(held.name, now);
  if (at == locks_.end()) return false;
  const auto holder = find_owner(at->second.holders, held.owner);
  if (holder == at->second.holders.end()) return false;
  holder->expires = saturating_add(now, holder->ttl);
  return true;
}

store::lock_map::iterator store::expire_and_find(std::string_view name, steady_time now) {
  const auto at = locks_.find(name);
  if (at == locks_.end()) return at;
  const auto expired = std::erase_if(at->second.holders, [now](const entry& holder) {
    if (now < holder.expires) return false;
    holder.client->lost(holder.owner, "its ttl passed without a renewal");
    return true;
  });
  if (expired > 0) after_change(at, true, now);
  return locks_.find(name);
}

// ---- the queue

void store::queue_up(lock& at, entry&& added) {
  const auto goes_behind = [&added](const entry& other) {
    if (added.replaces) return false;
    return other.replaces || other.priority >= added.priority;
  };
  const auto place = std::find_if_not(at.queue.begin(), at.queue.end(), goes_behind);
  at.queue.insert(place, std::move(added));
}

void store::grant_to(lock& at, entry&& granted, steady_time now) {
  granted.token = {++last_token_};
  granted.since = now;
  granted.expires = saturating_add(now, granted.ttl);
  if (!granted.replaces) {
    at.holders.push_back(std::move(granted));
    return;
  }
  const auto old = find_owner(at.holders, *granted.replaces);
  granted.replaces.reset();
  granted.replaced.push_back(std::move(*old));
  granted.replaced.front().replaced.clear();
  *old = std::move(granted);
}

void store::after_change(lock_map::iterator at, bool holders_changed, steady_time now) {
  const std::string& name = at->first;
  lock& here = at->second;
  // An upgrade whose grant is gone has nothing to upgrade; its owner asks again and learns that.
  std::erase_if(here.queue, [&](const entry& waiter) {
    if (!waiter.replaces) return false;
    if (find_owner(here.holders, *waiter.replaces) != here.holders.end()) return false;
    wake({topic::what::ticket, name, waiter.owner});
    return true;
  });
  const auto token_before = last_token_;
  serve(name, here, now);
  if (holders_changed || last_token_ != token_before) {
    here.version = ++last_version_;
    wake({topic::what::lock, name});
  }
  wake_first_awaited(name, here);
  if (here.holders.empty() && here.queue.empty()) locks_.erase(at);
}

void store::serve(const std::string& name, lock& at, steady_time now) {
  while (!at.queue.empty()) {
    entry& head = at.queue.front();
    queue_state state{at.capacity, weight_of_holders(at)};
    if (head.replaces) state.used -= find_owner(at.holders, *head.replaces)->weight;
    if (!fits(state, head.weight)) return;
    const owner_id owner = head.owner;
    grant_to(at, std::move(head), now);
    at.queue.erase(at.queue.begin());
    wake({topic::what::ticket, name, owner});
  }
}

void store::wake(const topic& about) {
  const auto [first, last] = subscribers_.equal_range(about);
  for (auto found = first; found != last; ++found) found->second->wake();
}

// The holders have changed, so the time at which the first of them expires may have, and one subscriber must know.
void store::wake_first_awaited(const std::string& name, const lock& at) {
  for (const auto& waiter : at.queue) {
    const auto found = subscribers_.find(topic{topic::what::ticket, name, waiter.owner});
    if (found == subscribers_.end()) continue;
    found->second->wake();
    return;
  }
}

void store::subscribe(const topic& about, subscriber& added) {
  subscribers_.emplace(about, &added);
}

void store::unsubscribe(const topic& about, subscriber& removed) {
  const auto [first, last] = subscribers_.equal_range(about);
  const auto found =
      std::find_if(first, last, [&removed](const auto& known) { return known.second == &removed; });
  if (found != last) subscribers_.erase(found);
}

// ---- helpers

grant store::as_grant(std::string_view name, const entry& holder) {
  grant out;
  out.name = name;
  out.owner = holder.owner;
  out.mode = holder.mode;
  out.weight = holder.weight;
  out.token = holder.token;
  out.valid_from = holder.expires - holder.ttl;
  out.ttl = holder.ttl;
  return out;
}

std::uint64_t store::weight_of_holders(const lock& at) {
  std::uint64_t sum = 0;
  for (const auto& holder : at.holders) sum += holder.weight;
  return sum;
}

std::vector<store::entry>::iterator store::find_owner(std::vector<entry>& among,
                                                      const owner_id& owner) {
  return std::find_if(among.begin(), among.end(),
                      [&owner](const entry& asked) { return asked.owner == owner; });
}

std::shared_ptr<store> shared_store(const std::string& name) {
  // Never destroyed: a client may be opened and closed while the program ends.
  static auto& guard = *new std::mutex;
  static auto& stores = *new std::map<std::string, std::weak_ptr<store>>;
  const std::lock_guard lock{guard};
  auto& slot = stores[name];
  auto shared = slot.lock();
  if (!shared) slot = shared = std::make_shared<store>();
  return shared;
}

}  // namespace holdfast::engines::memory

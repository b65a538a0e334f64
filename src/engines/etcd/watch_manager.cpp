#include "engines/etcd/watch_manager.hpp"

#include <algorithm>

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;

constexpr auto cache_kept = 2s;

}  // namespace

// ---- waiting

void watch_manager::add(by_name& to, const own_entries::ref& waiter) {
  const auto [first, last] = to.equal_range(waiter->name);
  if (std::none_of(first, last, [&](const auto& known) { return known.second == waiter; }))
    to.emplace(waiter->name, waiter);
}

void watch_manager::take_out(by_name& from, const own_entries::ref& waiter) {
  const auto [first, last] = from.equal_range(waiter->name);
  const auto at =
      std::find_if(first, last, [&](const auto& known) { return known.second == waiter; });
  if (at != last) from.erase(at);
}

std::vector<own_entries::ref> watch_manager::still_waiting(by_name& of, const std::string& name) {
  std::vector<own_entries::ref> out;
  const auto lock = entries_.lock();
  auto [at, end] = of.equal_range(name);
  while (at != end) {
    const bool waits = at->second->is == own_entry::state::waiting;
    if (waits) out.push_back(at->second);
    at = waits ? std::next(at) : of.erase(at);
  }
  return out;
}

void watch_manager::hold(own_entry& waiter, fencing_token token) {
  waiter.is = own_entry::state::holding;
  waiter.since = clock_.now();
  waiter.until = waiter.since + waiter.ttl;  // until it is told, and renews
  waiter.token = token;
}

void watch_manager::look_for(const own_entries::ref& waiter) {
  if (ending_) return;
  plan_tick();
  bool may_be_passive = false, has_key = false;
  {
    const auto lock = entries_.lock();
    has_key = waiter->is == own_entry::state::waiting && !waiter->key.empty();
    may_be_passive = waiter->may_be_passive;
  }
  if (!has_key) return waits_.look_again(waiter->owner.sequence);
  if (may_be_passive) return become_passive(waiter);
  become_active(waiter);
  add(waiters_, waiter);
  const auto seen = cache_of(watch_kind::lock, waiter->name);
  if (seen->is_true()) serve(*waiter, seen->as_queue(), seen->revision());
}

std::string watch_manager::topic_of(watch_kind kind, std::string_view name) {
  return std::string{kind == watch_kind::lock ? "l" : "c"}.append(name);
}

std::shared_ptr<queue_cache> watch_manager::cache_of(watch_kind kind, const std::string& name) {
  auto& slot = caches_[topic_of(kind, name)];
  if (!slot) {
    auto range =
        kind == watch_kind::lock ? keys_of(root_, name) : key_range{counter_key(root_, name), {}};
    slot = std::make_shared<queue_cache>(
        cluster_, watches_, std::move(range),
        [this, kind, name](queue_cache& now) { changed(kind, name, now); });
    slot->begin();
  }
  slot->used_at = clock_.now();
  return slot;
}

void watch_manager::changed(watch_kind kind, const std::string& name, queue_cache& now) {
  if (ending_) return;
  if (kind == watch_kind::counter)
    return tell_observers(kind, name, static_cast<std::uint64_t>(now.modified()));
  const auto seen = now.as_queue();
  serve(name, seen, now.revision());
  note_contention(name, seen.anybody_waits());
  if (observers_.contains(topic_of(kind, name))) tell_observers(kind, name, seen.version());
}

void watch_manager::serve(const std::string& name, const lock_queue& now, std::int64_t revision) {
  for (const auto& waiter : still_waiting(waiters_, name)) serve(*waiter, now, revision);
}

// The queue shows the waiter's own key at a revision, and what held then. A holder stays one as long as its key is
// there, so this is as good as having asked.
void watch_manager::serve(own_entry& waiter, const lock_queue& now, std::int64_t revision) {
  bool granted = false;
  {
    const auto lock = entries_.lock();
    if (waiter.is != own_entry::state::waiting || revision < waiter.created) return;
    const auto* own = waiter.key.empty() ? nullptr : now.find(waiter.key);
    if (own != nullptr && own->created != waiter.created) own = nullptr;
    if (own != nullptr && own->stands == queue_entry::standing::holder && !own->overtaken()) {
      hold(waiter, own->token);
      waiter.granted_at = revision;
      learn_successors(waiter, now, *own);
      granted = true;
    } else if (own != nullptr) {
      const bool turn = own->stands == queue_entry::standing::holder || now.lets_upgrade(*own) ||
                        own->stands == queue_entry::standing::idle;
      if (!turn) return;
    }
  }
  tell(waiter, granted);
}

// If it does not hold yet: its key is gone, or there is something left to do.
void watch_manager::tell(const own_entry& waiter, bool granted) {
  const auto number = waiter.owner.sequence;
  if (granted) {
    waits_.granted(number, {});
  } else {
    waits_.look_again(number);
  }
}

// ---- is there a waiter?

bool watch_manager::is_contended(std::string_view name) {
  {
    const std::lock_guard lock{guard_};
    const auto [at, fresh] = contended_.try_emplace(std::string{name}, true);
    if (!fresh && !at->second) return false;
  }
  cluster_.driver().post([this, of = std::string{name}] {
    if (ending_) return;
    plan_tick();
    cache_of(watch_kind::lock, of);
  });
  return true;
}

void watch_manager::note_contention(const std::string& name, bool contended) {
  const std::lock_guard lock{guard_};
  const auto at = contended_.find(name);
  if (at != contended_.end()) at->second = contended;
}

// ---- watch verbs

void watch_manager::observe(watch_kind kind, const std::string& name, std::uint64_t seen,
                            sign_of_life alive) {
  if (ending_) return;
  plan_tick();
  const auto topic = topic_of(kind, name);
  observers_.emplace(topic, observer{seen, std::move(alive)});
  const auto now = cache_of(kind, name);
  if (!now->is_true()) return;
  tell_observers(kind, name,
                 kind == watch_kind::lock ? now->as_queue().version()
                                          : static_cast<std::uint64_t>(now->modified()));
}

void watch_manager::tell_observers(watch_kind kind, const std::string& name,
                                   std::uint64_t version) {
  const auto topic = topic_of(kind, name);
  const auto [first, last] = observers_.equal_range(topic);
  bool any = false;
  for (auto at = first; at != last;) {
    const bool over = !*at->second.alive || at->second.seen != version;
    any = any || at->second.seen != version;
    at = over ? observers_.erase(at) : std::next(at);
  }
  if (any) waits_.changed(topic);  // the others look again, too
}

// ---- from time to time

void watch_manager::tend_caches() {
  const auto now = clock_.now();
  std::erase_if(observers_, [](const auto& observing) { return !*observing.second.alive; });
  {
    const auto lock = entries_.lock();
    const auto waits = [](const auto& entry) { return entry->is == own_entry::state::waiting; };
    std::erase_if(waiters_, [&](const auto& waiter) { return !waits(waiter.second); });
    std::erase_if(passive_waiters_, [&](const auto& waiter) { return !waits(waiter.second); });
    std::erase_if(predecessors_, [&](const auto& waiter) {
      const auto at = entries_.all().find(waiter.first);
      return at == entries_.all().end() || !waits(at->second);
    });
  }
  for (auto at = caches_.begin(); at != caches_.end();) {
    const auto& topic = at->first;
    const bool lock = topic.front() == 'l';
    if (observers_.contains(topic) || (lock && waiters_.contains(topic.substr(1))))
      at->second->used_at = now;
    if (now - at->second->used_at < cache_kept) {
      ++at;
      continue;
    }
    at->second->end();
    if (lock) {
      const std::lock_guard held{guard_};
      contended_.erase(topic.substr(1));
    }
    at = caches_.erase(at);
  }
}

}  // namespace holdfast::engines::etcd

// The holders' half of the watch_manager: is the key still there, and has its ttl passed?
#include "engines/etcd/watch_manager.hpp"

#include <algorithm>

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;

constexpr auto young = 150ms;
constexpr auto pace = 100ms;
constexpr auto check_again_after = 200ms;

}  // namespace

class watch_manager::own_key final : private watcher {
 public:
  own_key(watch_manager& in, own_entries::ref holder) : in_(in), holder_(std::move(holder)) {
    id_ = in.watches_.add(holder_->key, *this);
  }
  ~own_key() { in_.watches_.remove(id_); }
  const own_entries::ref& holder() const noexcept { return holder_; }

 private:
  void on_watching(std::int64_t) noexcept override { in_.check_soon(*this); }
  void on_events(const rpc::WatchResponse& what) noexcept override {
    for (const auto& event : what.events())
      if (event.type() == rpc::Event::DELETE) return in_.is_missing(own_entries::ref{holder_});
  }
  watch_manager& in_;
  const own_entries::ref holder_;
  watches::id id_ = 0;
};

watch_manager::watch_manager(cluster& with, const session& under, own_entries& entries,
                             wait_registry& waits, const class clock& time,
                             engine_listener& listener, std::string root)
    : cluster_(with),
      session_(under),
      entries_(entries),
      waits_(waits),
      clock_(time),
      listener_(listener),
      root_(std::move(root)),
      watches_(with) {}

void watch_manager::end() noexcept {
  run_there(cluster_.driver(), [this] {
    ending_ = true;
    own_keys_.clear();
    predecessors_.clear();
    for (auto& [topic, copy] : caches_) copy->end();
    caches_.clear();
    for (auto& [name, own] : own_queues_) own.copy->end();
    own_queues_.clear();
    waiters_.clear();
    passive_waiters_.clear();
  });
  watches_.end();
}

// ---- time

void watch_manager::plan_tick() {
  if (tick_planned_.exchange(true, std::memory_order_relaxed)) return;
  cluster_.driver().at(std::chrono::steady_clock::now() + pace, [this] { tick(); });
}

void watch_manager::tick() {
  if (ending_) return;
  tick_planned_.store(false, std::memory_order_relaxed);
  tend_holders();
  tend_caches();
  tend_passive_waiters();
  bool busy =
      !caches_.empty() || !own_queues_.empty() || !own_keys_.empty() || !predecessors_.empty();
  if (!busy) {
    const auto lock = entries_.lock();
    busy = !entries_.all().empty();
  }
  if (busy) plan_tick();
}

void watch_manager::tend_holders() {
  const auto now = clock_.now();
  std::vector<own_entries::ref> over, grown;
  {
    const auto lock = entries_.lock();
    for (const auto& [number, mine] : entries_.all()) {
      if (mine->is != own_entry::state::holding || mine->covered) continue;
      if (now >= mine->until) {
        over.push_back(mine);
      } else if (!mine->watched && now - mine->since >= young) {
        grown.push_back(mine);
      }
    }
    std::erase_if(own_keys_, [&](const auto& watched) {
      const auto at = entries_.all().find(watched.first);
      return at == entries_.all().end() || at->second != watched.second->holder() ||
             at->second->is != own_entry::state::holding;
    });
  }
  for (const auto& holder : over) ttl_is_over(holder);
  for (const auto& holder : grown) watch_own_key(holder);
}

// It was not renewed, so core has given it up, and cannot or will not say so: what the store shows must not outlive
// that.
void watch_manager::ttl_is_over(const own_entries::ref& holder) {
  std::vector<stored> keys;
  {
    const auto lock = entries_.lock();
    if (holder->is != own_entry::state::holding) return;
    keys = keys_in({holder});
    for (auto* entry = holder.get(); entry != nullptr; entry = entry->over.get())
      entries_.drop(*entry);
  }
  own_keys_.erase(holder->owner.sequence);
  end_late_requests(*holder);
  sweep(std::move(keys));
  announce_lost({holder->owner}, "its ttl passed without a renewal");
}

// Of a holder that was given up: what was sent for it must not be carried out later.
void watch_manager::end_late_requests(const own_entry& lost) {
  {
    const auto lock = entries_.lock();
    if (!may_have_late_requests(lost)) return;
  }
  cluster_.send_off({method::txn, bytes_of(epoch_step(session_.epoch(lost.lease), lost.lease))});
}

// ---- is it still there?

void watch_manager::watch_own_key(const own_entries::ref& holder) {
  {
    const auto lock = entries_.lock();
    if (holder->is != own_entry::state::holding) return;
    holder->watched = true;
  }
  own_keys_.insert_or_assign(holder->owner.sequence, std::make_shared<own_key>(*this, holder));
}

void watch_manager::check_soon(own_key& watched) {
  if (to_check_.empty()) cluster_.driver().post([this] { check(); });
  to_check_.push_back(watched.holder()->owner.sequence);
}

void watch_manager::check() {
  if (ending_) return;
  auto all = std::exchange(to_check_, {});
  std::erase_if(all, [&](std::uint64_t number) { return !own_keys_.contains(number); });
  for (std::size_t from = 0; from < all.size(); from += most_at_once) {
    const auto count = std::min(most_at_once, all.size() - from);
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(from);
    std::vector<std::uint64_t> some{first, first + static_cast<std::ptrdiff_t>(count)};
    std::vector<stored> keys;
    {
      const auto lock = entries_.lock();
      for (const auto number : some) {
        const auto& holder = *own_keys_[number]->holder();
        keys.push_back({holder.key, holder.created});
      }
    }
    const auto ask = bytes_of(ask_for_keys(keys));
    cluster_.ask_in_background(
        {method::txn, ask}, cluster::answered_within,
        [this, some = std::move(some), keys](const answer& said) { checked(some, keys, said); });
  }
}

void watch_manager::checked(const std::vector<std::uint64_t>& asked,
                            const std::vector<stored>& keys, const answer& said) {
  if (ending_) return;
  rpc::TxnResponse in;
  const bool good = said.got && said.got->ok() && in.ParseFromString(said.got->body);
  const auto there = good ? are_there(keys, in) : std::nullopt;
  if (!there) {
    cluster_.driver().at(std::chrono::steady_clock::now() + check_again_after, [this, asked] {
      to_check_.insert(to_check_.end(), asked.begin(), asked.end());
      check();
    });
    return;
  }
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const auto at = own_keys_.find(asked[i]);
    if (at != own_keys_.end() && !(*there)[i]) is_missing(own_entries::ref{at->second->holder()});
  }
}

void watch_manager::is_missing(const own_entries::ref& holder) {
  if (ending_) return;
  std::vector<stored> below;
  {
    const auto lock = entries_.lock();
    if (holder->is != own_entry::state::holding) return;  // we have taken it away ourselves
    if (holder->over) below = keys_in({holder->over});
    for (auto* entry = holder.get(); entry != nullptr; entry = entry->over.get())
      entries_.drop(*entry);
    holder->is = own_entry::state::releasing;
  }
  own_keys_.erase(holder->owner.sequence);
  end_late_requests(*holder);
  if (!below.empty()) sweep(std::move(below));
  announce_lost({holder->owner}, "its key was removed from the store");
}

// ---- telling and clearing up

void watch_manager::announce_lost(std::vector<owner_id> owners, std::string_view why) {
  if (owners.empty()) return;
  {
    const std::lock_guard lock{guard_};
    const bool told_soon = !lost_.empty();
    auto at = lost_.find(why);
    if (at == lost_.end()) at = lost_.emplace(why, std::vector<owner_id>{}).first;
    at->second.insert(at->second.end(), owners.begin(), owners.end());
    if (told_soon) return;
  }
  cluster_.driver().post([this] {
    if (ending_) return;
    const auto all = [this] {
      const std::lock_guard lock{guard_};
      return std::exchange(lost_, {});
    }();
    for (const auto& [reason, some] : all) listener_.on_lost(some, reason);
  });
}

void watch_manager::announce_session_lost(std::uint64_t number, std::string why) {
  cluster_.driver().post([this, number, why = std::move(why)] {
    if (!ending_) listener_.on_session_lost(number, why);
  });
}

void watch_manager::sweep(std::vector<stored> keys) {
  while (!keys.empty()) {
    rpc::TxnRequest out;
    for (std::size_t i = 0; i < most_at_once && !keys.empty(); ++i) {
      add_delete(*out.mutable_success(), keys.back());
      keys.pop_back();
    }
    cluster_.send_off({method::txn, bytes_of(out)});
  }
}

}  // namespace holdfast::engines::etcd

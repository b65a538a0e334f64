// What this client has put, or may have put, into the store: an entry for each owner that asked, from before its
// request is sent until it is certainly gone from the store. Found by owner: a grant or a ticket says no more.
//
// Entry: what the engine has to know about it, derived from own_entry. Thread-safe where nothing else is said.
#pragma once

#include <holdfast/engine.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace holdfast::engines {

struct own_entry {
  enum class state : std::uint8_t { asking, waiting, holding, releasing };

  // Never changed.
  std::string name;
  owner_id owner;
  std::string label;
  nanoseconds ttl{};  // as asked for

  // Under the table's guard.
  state is = state::asking;
  lock_mode mode = lock_mode::exclusive;
  std::uint64_t weight = 0;
  fencing_token token;
  steady_time since{};  // it holds, or waits
  steady_time until{};  // its grant ends if it is not renewed
};

template <class Entry>
class own_entries {
 public:
  using ref = std::shared_ptr<Entry>;

  std::unique_lock<std::mutex> lock() const { return std::unique_lock{guard_}; }

  ref find(const owner_id& owner) const {
    const std::lock_guard lock{guard_};
    const auto at = all_.find(owner.sequence);
    return at == all_.end() || at->second->owner != owner ? nullptr : at->second;
  }
  // An entry that is being released is not found again: the owner has a new one.
  ref find_or_make(const request& ask);

  // It is about to be taken out of the store: for this client it is gone. False: another call does that already.
  bool begin_release(Entry& which);
  // It may still be there: from now on it is held again, until then. REQUIRES: lock() is held.
  void end_release(Entry& which, steady_time until) {
    take_off(which);
    which.is = own_entry::state::holding;
    which.until = until;
  }
  // To be ignored in what is read, and perhaps deleted by the way.
  std::vector<ref> releasing(std::string_view name) const;

  // By the sequence of the owner. REQUIRES: lock() is held.
  const std::unordered_map<std::uint64_t, ref>& all() const noexcept { return all_; }
  // What was dropped; nothing: it was dropped before. REQUIRES: lock() is held.
  ref drop(const Entry& which);

 private:
  void take_off(const Entry& which);

  mutable std::mutex guard_;
  std::unordered_map<std::uint64_t, ref> all_;
  std::multimap<std::string, ref, std::less<>> releasing_;
};

template <class Entry>
auto own_entries<Entry>::find_or_make(const request& ask) -> ref {
  const std::lock_guard lock{guard_};
  auto& slot = all_[ask.owner.sequence];
  if (slot && slot->is != own_entry::state::releasing) return slot;
  slot = std::make_shared<Entry>();
  slot->name = ask.name;
  slot->owner = ask.owner;
  slot->label = ask.label;
  slot->ttl = ask.ttl;
  slot->mode = ask.mode;
  slot->weight = ask.weight;
  return slot;
}

template <class Entry>
bool own_entries<Entry>::begin_release(Entry& which) {
  const std::lock_guard lock{guard_};
  if (which.is == own_entry::state::releasing) return false;
  which.is = own_entry::state::releasing;
  const auto at = all_.find(which.owner.sequence);
  if (at != all_.end() && at->second.get() == &which) releasing_.emplace(which.name, at->second);
  return true;
}

template <class Entry>
auto own_entries<Entry>::releasing(std::string_view name) const -> std::vector<ref> {
  std::vector<ref> out;
  const std::lock_guard lock{guard_};
  if (releasing_.empty()) return out;
  const auto [first, last] = releasing_.equal_range(name);
  for (auto at = first; at != last; ++at) out.push_back(at->second);
  return out;
}

template <class Entry>
auto own_entries<Entry>::drop(const Entry& which) -> ref {
  take_off(which);
  const auto at = all_.find(which.owner.sequence);
  if (at == all_.end() || at->second.get() != &which) return nullptr;
  auto out = std::move(at->second);
  all_.erase(at);
  return out;
}

template <class Entry>
void own_entries<Entry>::take_off(const Entry& which) {
  const auto [first, last] = releasing_.equal_range(which.name);
  for (auto at = first; at != last; ++at) {
    if (at->second.get() != &which) continue;
    releasing_.erase(at);
    return;
  }
}

}  // namespace holdfast::engines

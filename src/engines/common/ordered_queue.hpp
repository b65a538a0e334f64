// The entries under one name, in an order of creation that the store gives and never changes (etcd's create revision,
// Consul's CreateIndex). Which of them hold follows from that order alone, so all clients find the
// same without asking each other. The rule (grant_rule.hpp), applied from the first entry to the last:
//
// - An entry that has entered by a mark in its value (it came in ahead of waiters, was upgraded or downgraded) holds.
// - Any other holds when no entry before it waits and its weight fits. Another capacity than that of the first entry
//   never fits.
// - An upgrade waits until it is the only entry beside the one it replaces; it holds only once it was marked so, by a
//   transaction that checks that nothing has changed since. The replaced entry stays below it until it is released:
//   clients that know nothing but the order of creation wait for that one.
//
// A holder stays one until its entry goes: later entries come behind it, and an entry that comes in ahead of waiters
// is marked by a transaction that fails if what keeps those waiters waiting has gone meanwhile (takes_barging).
//
// Entry: what the engine reads from its store, derived from ordered_entry. Pure: no I/O, no time.
#pragma once

#include "engines/common/grant_rule.hpp"

#include <holdfast/engine.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace holdfast::engines {

struct ordered_entry {
  enum class standing : std::uint8_t {
    holder,
    waiter,
    upgrade,  // waits to take the position of a holder
    hidden,   // has been upgraded: the other entry counts
    idle      // an upgrade of something that is gone
  };

  std::int64_t created = 0;  // its position; 0 is none
  owner_id owner;
  lock_mode mode = lock_mode::exclusive;
  std::uint64_t weight = rw_capacity;
  std::uint64_t capacity = rw_capacity;
  std::int64_t replaces = 0;  // what it upgrades was created then
  bool foreign = false;       // of another program, which knows nothing but the order of creation
  bool entered = false;       // holds by a mark, not by its position
  fencing_token token;        // that its grant has, or will have

  standing stands = standing::waiter;  // found by ordered_queue
};

template <class Entry>
class ordered_queue {
 public:
  using standing = ordered_entry::standing;
  using entries = std::vector<const Entry*>;

  ordered_queue() = default;
  explicit ordered_queue(std::vector<Entry> all) : all_(std::move(all)) {  // in any order
    std::ranges::sort(all_, {}, &Entry::created);
    hide_replaced();
    find_holders();
  }

  const std::vector<Entry>& all() const noexcept { return all_; }
  bool empty() const noexcept { return all_.empty(); }
  std::uint64_t capacity() const noexcept { return capacity_; }  // rw_capacity when empty
  std::uint64_t used() const noexcept { return used_; }

  const Entry* find(const owner_id& owner) const noexcept;  // the one that counts
  const Entry* created_at(std::int64_t position) const noexcept;
  const Entry* just_before(const Entry& entry) const noexcept {
    return &entry == all_.data() ? nullptr : &entry - 1;
  }
  const Entry* first_after(std::int64_t created) const noexcept;  // of those that count
  const Entry* first_waiter() const noexcept;                     // upgrades are not meant
  bool anybody_waits() const noexcept { return first_waiter() != nullptr; }

  // May a newcomer enter now, at the end of the queue?
  bool takes(std::uint64_t weight) const noexcept {
    return may_enter({capacity_, used_, anybody_waits(), upgrade_waits_}, weight,
                     queue_order::fifo);
  }
  // May it come in ahead of the waiters? If so, the entries without which they, or some of them, would not have to wait
  // any more: the first waiter, behind which the others must stay, and the holders for which it has no room.
  std::optional<entries> takes_barging(std::uint64_t weight) const;
  // Could this holder turn into something of that weight now?
  bool takes_instead_of(const Entry& held, std::uint64_t weight) const noexcept {
    return may_enter({capacity_, used_, anybody_waits()}, weight, queue_order::fifo, held.weight);
  }
  // Is this upgrade the only entry left beside the one it replaces?
  bool lets_upgrade(const Entry& upgrade) const noexcept {
    const auto* old = created_at(upgrade.replaces);
    return upgrade.stands == standing::upgrade && old != nullptr &&
           takes_instead_of(*old, upgrade.weight);
  }
  // The entries without which the other clients would see another queue than we do when it enters: the replaced one,
  // and the first waiter, behind which the rest must stay.
  entries needed_to_upgrade(const Entry& old) const {
    entries out{&old};
    if (const auto* first = first_waiter()) out.push_back(first);
    return out;
  }

  // Changes whenever the holders do; 0: there are none.
  std::uint64_t version() const noexcept;

 private:
  void hide_replaced();
  void find_holders();
  void hold(Entry& entry) {
    entry.stands = standing::holder;
    used_ += entry.weight;
  }

  std::vector<Entry> all_;
  std::uint64_t capacity_ = rw_capacity;
  std::uint64_t used_ = 0;
  bool upgrade_waits_ = false;
  bool foreigner_waits_ = false;
};

// An upgrade that has entered stands for the entry that it replaced, and for what that one had replaced.
template <class Entry>
void ordered_queue<Entry>::hide_replaced() {
  for (auto& entry : all_) entry.stands = standing::waiter;
  for (auto upgrade = all_.rbegin(); upgrade != all_.rend(); ++upgrade) {
    const bool counts = upgrade->stands == standing::hidden || upgrade->entered;
    if (!counts || upgrade->replaces == 0) continue;
    for (auto& old : all_)
      if (old.created == upgrade->replaces) old.stands = standing::hidden;
  }
}

template <class Entry>
void ordered_queue<Entry>::find_holders() {
  bool first = true;
  for (auto& entry : all_) {
    if (entry.stands == standing::hidden) continue;
    if (std::exchange(first, false)) capacity_ = entry.capacity;
    if (entry.entered) hold(entry);
  }
  bool waiters_ahead = false;
  for (auto& entry : all_) {
    if (entry.stands == standing::hidden || entry.entered) continue;
    if (entry.replaces != 0) {
      const auto* old = created_at(entry.replaces);
      const bool alive = old != nullptr && old->stands == standing::holder;
      entry.stands = alive ? standing::upgrade : standing::idle;
      upgrade_waits_ = upgrade_waits_ || alive;
      waiters_ahead = waiters_ahead || alive;
    } else if (entry.capacity == capacity_ &&
               may_enter({capacity_, used_, waiters_ahead}, entry.weight, queue_order::fifo)) {
      hold(entry);
    } else {
      waiters_ahead = true;
      foreigner_waits_ = foreigner_waits_ || entry.foreign;
    }
  }
}

// Of two entries of one owner, the younger one: it came in when the elder seemed lost.
template <class Entry>
const Entry* ordered_queue<Entry>::find(const owner_id& owner) const noexcept {
  const auto at = std::find_if(all_.rbegin(), all_.rend(), [&](const Entry& entry) {
    return !entry.foreign && entry.owner == owner && entry.stands != standing::hidden;
  });
  return at == all_.rend() ? nullptr : &*at;
}

template <class Entry>
const Entry* ordered_queue<Entry>::created_at(std::int64_t position) const noexcept {
  const auto at = std::ranges::lower_bound(all_, position, {}, &Entry::created);
  return at == all_.end() || at->created != position ? nullptr : &*at;
}

template <class Entry>
const Entry* ordered_queue<Entry>::first_after(std::int64_t created) const noexcept {
  const auto at = std::ranges::find_if(all_, [created](const Entry& entry) {
    return entry.created > created && entry.stands != standing::hidden &&
           entry.stands != standing::idle;
  });
  return at == all_.end() ? nullptr : &*at;
}

template <class Entry>
const Entry* ordered_queue<Entry>::first_waiter() const noexcept {
  const auto at = std::ranges::find(all_, standing::waiter, &Entry::stands);
  return at == all_.end() ? nullptr : &*at;
}

template <class Entry>
std::optional<std::vector<const Entry*>> ordered_queue<Entry>::takes_barging(
    std::uint64_t weight) const {
  // A foreign waiter would not see a newcomer that came later, and not wait for it.
  const queue_state at{capacity_, used_, true, upgrade_waits_ || foreigner_waits_};
  if (!may_enter(at, weight, queue_order::barging)) return std::nullopt;
  entries blockers;
  const auto* waiter = first_waiter();
  if (waiter == nullptr) return blockers;
  for (const auto& entry : all_)
    if (entry.stands == standing::holder) blockers.push_back(&entry);
  std::ranges::sort(blockers, std::ranges::greater{}, &Entry::weight);
  std::uint64_t sum = 0;
  std::size_t enough = 0;
  while (enough < blockers.size() && fits({capacity_, sum}, waiter->weight))
    sum += blockers[enough++]->weight;
  if (fits({capacity_, sum}, waiter->weight))
    return std::nullopt;  // of another capacity: it leaves soon
  blockers.resize(enough);
  blockers.push_back(waiter);
  return blockers;
}

// FNV-1a over what the holders are: no position comes twice.
template <class Entry>
std::uint64_t ordered_queue<Entry>::version() const noexcept {
  std::uint64_t sum = 0xcbf29ce484222325U;
  bool any = false;
  for (const auto& entry : all_) {
    if (entry.stands != standing::holder) continue;
    any = true;
    const auto created = static_cast<std::uint64_t>(entry.created);
    for (const auto part : {entry.token.value, created, entry.weight})
      sum = (sum ^ part) * 0x100000001b3U;
  }
  if (!any) return 0;
  return sum == 0 ? 1 : sum;
}

}  // namespace holdfast::engines

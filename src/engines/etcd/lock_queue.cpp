#include "engines/etcd/lock_queue.hpp"

#include "engines/common/grant_rule.hpp"

#include <algorithm>

namespace holdfast::engines::etcd {

using standing = queue_entry::standing;

lock_queue::lock_queue(std::vector<queue_entry> all) : all_(std::move(all)) {
  std::ranges::sort(all_, {}, &queue_entry::created);
  judge();
}

void lock_queue::judge() {
  // An upgrade that has entered stands for its old key, and for what that had replaced.
  for (auto one = all_.rbegin(); one != all_.rend(); ++one) {
    const bool counts = one->stands == standing::hidden || (one->entered && one->replaces != 0);
    if (!counts || one->replaces == 0) continue;
    for (auto& old : all_)
      if (old.created == one->replaces) old.stands = standing::hidden;
  }
  bool first = true;
  for (auto& one : all_) {
    if (one.stands == standing::hidden) continue;
    if (std::exchange(first, false)) capacity_ = one.capacity;
    if (!one.entered) continue;
    one.stands = standing::holder;
    used_ += one.weight;
  }
  bool waiters_ahead = false;
  for (auto& one : all_) {
    if (one.stands == standing::hidden || one.entered) continue;
    if (one.replaces != 0) {
      const auto* old = created_at(one.replaces);
      const bool alive = old != nullptr && old->stands == standing::holder;
      one.stands = alive ? standing::upgrade : standing::idle;
      upgrade_waits_ = upgrade_waits_ || alive;
      waiters_ahead = waiters_ahead || alive;
      continue;
    }
    const queue_state at{capacity_, used_, waiters_ahead};
    if (one.capacity == capacity_ && may_enter(at, one.weight, queue_order::fifo)) {
      one.stands = standing::holder;
      used_ += one.weight;
    } else {
      one.stands = standing::waiter;
      waiters_ahead = true;
      foreigner_waits_ = foreigner_waits_ || one.foreign;
    }
  }
}

// Of two keys of one owner, the younger one: it came in when the elder seemed lost.
const queue_entry* lock_queue::find(const owner_id& owner) const noexcept {
  const auto at = std::find_if(all_.rbegin(), all_.rend(), [&](const queue_entry& one) {
    return !one.foreign && one.owner == owner && one.stands != standing::hidden;
  });
  return at == all_.rend() ? nullptr : &*at;
}

const queue_entry* lock_queue::find(std::string_view key) const noexcept {
  const auto at = std::ranges::find(all_, key, &queue_entry::key);
  return at == all_.end() ? nullptr : &*at;
}

const queue_entry* lock_queue::created_at(std::int64_t revision) const noexcept {
  const auto at = std::ranges::lower_bound(all_, revision, {}, &queue_entry::created);
  return at == all_.end() || at->created != revision ? nullptr : &*at;
}

const queue_entry* lock_queue::just_before(const queue_entry& one) const noexcept {
  return &one == all_.data() ? nullptr : &one - 1;
}

const queue_entry* lock_queue::first_waiter() const noexcept {
  const auto at = std::ranges::find(all_, standing::waiter, &queue_entry::stands);
  return at == all_.end() ? nullptr : &*at;
}

const queue_entry* lock_queue::first_after(std::int64_t created) const noexcept {
  const auto at = std::ranges::find_if(all_, [created](const queue_entry& one) {
    return one.created > created && one.stands != standing::hidden && one.stands != standing::idle;
  });
  return at == all_.end() ? nullptr : &*at;
}

bool lock_queue::may_sleep(const queue_entry& waiter) const noexcept {
  const auto* before = just_before(waiter);
  return waiter.stands == standing::waiter && waiter.may_inherit() && before != nullptr &&
         before->stands == standing::waiter && before->hands_over();
}

successor as_successor(const queue_entry& of) {
  return {of.key, of.created, of.modified, of.owner.sequence, of.since_ms, of.overtaken()};
}

std::vector<successor> lock_queue::successors_of(const queue_entry& holder) const {
  std::vector<successor> out;
  for (const auto* one = first_after(holder.created);
       one != nullptr && out.size() < most_successors; one = first_after(one->created)) {
    if (one->stands != standing::waiter || !one->may_inherit()) break;
    const bool touched = one->modified != one->created;
    if (touched && !out.empty()) break;  // as it is, it can be told of to nobody
    out.push_back(as_successor(*one));
    if (touched) break;
  }
  return out;
}

bool lock_queue::takes(std::uint64_t weight) const noexcept {
  const queue_state at{capacity_, used_, anybody_waits(), upgrade_waits_};
  return may_enter(at, weight, queue_order::fifo);
}

std::optional<std::vector<const queue_entry*>> lock_queue::takes_barging(
    std::uint64_t weight) const {
  // A client of another kind that waits would not see one who came later, and not wait for it.
  const queue_state at{capacity_, used_, true, upgrade_waits_ || foreigner_waits_};
  if (!may_enter(at, weight, queue_order::barging)) return std::nullopt;
  std::vector<const queue_entry*> blockers;
  const auto* waiter = first_waiter();
  if (waiter == nullptr) return blockers;
  for (const auto& one : all_)
    if (one.stands == standing::holder) blockers.push_back(&one);
  std::ranges::sort(blockers, std::ranges::greater{}, &queue_entry::weight);
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

bool lock_queue::lets_upgrade(const queue_entry& one) const noexcept {
  const auto* old = created_at(one.replaces);
  if (one.stands != standing::upgrade || old == nullptr) return false;
  return may_enter({capacity_, used_, anybody_waits()}, one.weight, queue_order::fifo, old->weight);
}

std::vector<const queue_entry*> lock_queue::untouched() const {
  std::vector<const queue_entry*> out;
  for (const auto& one : all_)
    if (one.stands == standing::waiter && !one.foreign && !one.overtaken()) out.push_back(&one);
  return out;
}

// FNV-1a over what the holders are: no revision comes twice.
std::uint64_t lock_queue::version() const noexcept {
  std::uint64_t sum = 0xcbf29ce484222325U;
  bool any = false;
  for (const auto& one : all_) {
    if (one.stands != standing::holder) continue;
    any = true;
    for (const auto part : {one.token.value, static_cast<std::uint64_t>(one.created), one.weight})
      sum = (sum ^ part) * 0x100000001b3U;
  }
  if (!any) return 0;
  return sum == 0 ? 1 : sum;
}

}  // namespace holdfast::engines::etcd

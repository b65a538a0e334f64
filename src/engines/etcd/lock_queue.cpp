#include "engines/etcd/lock_queue.hpp"

#include <algorithm>

namespace holdfast::engines::etcd {

const queue_entry* lock_queue::find(std::string_view key) const noexcept {
  const auto at = std::ranges::find(all(), key, &queue_entry::key);
  return at == all().end() ? nullptr : &*at;
}

bool lock_queue::may_be_passive(const queue_entry& waiter) const noexcept {
  const auto* before = just_before(waiter);
  return waiter.stands == standing::waiter && waiter.takes_hand_over() && before != nullptr &&
         before->stands == standing::waiter && before->hands_over();
}

successor as_successor(const queue_entry& of) {
  return {of.key, of.created, of.modified, of.owner.sequence, of.since_ms, of.overtaken()};
}

std::vector<successor> lock_queue::successors_of(const queue_entry& holder) const {
  std::vector<successor> out;
  for (const auto* next = first_after(holder.created);
       next != nullptr && out.size() < most_successors; next = first_after(next->created)) {
    if (next->stands != standing::waiter || !next->takes_hand_over()) break;
    const bool touched = next->modified != next->created;
    if (touched && !out.empty()) break;  // as it is, no other waiter can be told of it
    out.push_back(as_successor(*next));
    if (touched) break;
  }
  return out;
}

std::vector<const queue_entry*> lock_queue::untouched() const {
  std::vector<const queue_entry*> out;
  for (const auto& entry : all())
    if (entry.stands == standing::waiter && !entry.foreign && !entry.overtaken())
      out.push_back(&entry);
  return out;
}

}  // namespace holdfast::engines::etcd

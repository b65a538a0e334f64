// Everybody under one name, in the order in which they came; who holds follows from that alone, so that all clients
// find the same. The rule (grant_rule.hpp), applied from the first to the last:
//
// - Whoever has entered by a mark (came in over the heads of waiters, upgraded, downgraded, or stamped) holds.
// - Anybody else holds when nobody before it waits and its weight fits. Another capacity than that of the first never
//   fits.
// - An upgrade waits until it is the last but its own old key; it holds only once it has been marked so, by a
//   transaction that checks that nothing has changed since. Its old key stays until it goes: clients that know only the
//   order of creation wait for that one.
//
// A holder stays one until its key goes: those who come later come behind, and whoever comes in over the heads of
// waiters does so in a transaction that would fail if those in front of them had gone meanwhile.
//
// Exclusive waiters are handed the lock: whoever held exclusively, and had to wait for it, marks the next one with its
// token (t=) in the transaction that ends its own key. The mark says what the order says anyway; it is there to be seen
// by one who looks at its own key only. So all who waited behind an exclusive waiter may do that. The mark also tells
// some of those who come next, which spares the successor a look at the queue.
//
// Tokens are the revisions of creation. One who comes in over the heads of waiters touches their keys in the same
// transaction; a waiter that was touched takes a new revision as its token when its turn comes (it is stamped).
//
// Pure: no I/O, no time.
#pragma once

#include "engines/etcd/queue_entry.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace holdfast::engines::etcd {

successor as_successor(const queue_entry& of);

class lock_queue {
 public:
  lock_queue() = default;
  explicit lock_queue(std::vector<queue_entry> all);  // in any order

  const std::vector<queue_entry>& all() const noexcept { return all_; }
  bool empty() const noexcept { return all_.empty(); }
  std::uint64_t capacity() const noexcept { return capacity_; }  // rw_capacity when empty
  std::uint64_t used() const noexcept { return used_; }

  const queue_entry* find(const owner_id& owner) const noexcept;  // the one that counts
  const queue_entry* find(std::string_view key) const noexcept;
  const queue_entry* created_at(std::int64_t revision) const noexcept;
  const queue_entry* just_before(const queue_entry& one) const noexcept;
  bool anybody_waits() const noexcept { return first_waiter() != nullptr; }
  const queue_entry* first_waiter() const noexcept;                     // upgrades are not meant
  const queue_entry* first_after(std::int64_t created) const noexcept;  // of those that count
  // May it look at its own key only? Somebody will hand over to it, and has to wait for that itself.
  bool may_sleep(const queue_entry& waiter) const noexcept;
  // To whom `holder`, which holds exclusively, hands over, and who follows: `most_successors` of them at most.
  static constexpr std::size_t most_successors = 8;
  std::vector<successor> successors_of(const queue_entry& holder) const;

  // May a newcomer enter now, at the end of the queue?
  bool takes(std::uint64_t weight) const noexcept;
  // May it come in before those who wait? If so, the keys without which they, or some of them, would not have to wait
  // any more: the first of them, behind whom the others must stay, and the holders for whom it has no room.
  std::optional<std::vector<const queue_entry*>> takes_barging(std::uint64_t weight) const;
  // Is this upgrade the only one left beside its old key?
  bool lets_upgrade(const queue_entry& one) const noexcept;

  // Waiters that have not been touched since they came.
  std::vector<const queue_entry*> untouched() const;
  // Changes whenever the holders do; 0: there are none.
  std::uint64_t version() const noexcept;

 private:
  void judge();
  std::vector<queue_entry> all_;
  std::uint64_t capacity_ = rw_capacity;
  std::uint64_t used_ = 0;
  bool upgrade_waits_ = false;
  bool foreigner_waits_ = false;
};

}  // namespace holdfast::engines::etcd

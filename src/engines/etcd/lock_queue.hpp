// All keys under one name, in order of creation, and which of them hold (common/ordered_queue.hpp). What etcd adds:
//
// Hand-over. An exclusive holder that had to wait for the lock marks the next waiter, its successor, with that waiter's
// token (t=) in the transaction that ends its own key. The mark says what the order says anyway; it is there for a
// waiter that watches nothing but its own key. So all that wait behind an exclusive waiter may do that. The mark also
// names some of the waiters behind the successor, which spares the successor a look at the queue.
//
// Tokens are the revisions of creation. A client that comes in ahead of waiters touches their keys in the same
// transaction; a waiter whose key was touched takes a new revision as its token when its turn comes.
//
// Pure: no I/O, no time.
#pragma once

#include "engines/common/ordered_queue.hpp"
#include "engines/etcd/queue_entry.hpp"

#include <string_view>
#include <vector>

namespace holdfast::engines::etcd {

successor as_successor(const queue_entry& of);

class lock_queue : public ordered_queue<queue_entry> {
 public:
  using ordered_queue::find;
  using ordered_queue::ordered_queue;

  const queue_entry* find(std::string_view key) const noexcept;
  // May this waiter watch nothing but its own key? The entry before it will hand over to it, and has to wait itself.
  bool may_be_passive(const queue_entry& waiter) const noexcept;
  // The waiters to which `holder`, which holds exclusively, hands over one after the other: `most_successors` at most.
  static constexpr std::size_t most_successors = 8;
  std::vector<successor> successors_of(const queue_entry& holder) const;
  // Waiters that have not been touched since they came.
  std::vector<const queue_entry*> untouched() const;
};

}  // namespace holdfast::engines::etcd

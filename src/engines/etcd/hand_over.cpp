// Handing over to the next waiter, which may be watching nothing but its own key (lock_queue.hpp).
//
// A client that leaves the queue in another way than by a release that hands over calls the waiter behind it: when a
// waiter gives up, a holder shrinks or is broken. Should that fail, or the client die, the waiter behind notices by
// itself, a second later at most (watch_manager.hpp).
#include "engines/etcd/etcd_engine.hpp"

#include <algorithm>
#include <iterator>

namespace holdfast::engines::etcd {

using standing = queue_entry::standing;

void etcd_engine::note_successors(own_entry& holder, const seen_queue& seen,
                                  const queue_entry& own) {
  const auto lock = entries_.lock();
  holder.granted_at = seen.revision;
  learn_successors(holder, seen.queue, own);
}

std::vector<successor> etcd_engine::successors_of(const own_entry& holder) const {
  const auto lock = entries_.lock();
  const bool any = holder.mode == lock_mode::exclusive && !holder.over &&
                   !holder.successors.empty() &&
                   holder.successors.front().created < holder.granted_at;
  return any ? holder.successors : std::vector<successor>{};
}

// Not knowing them is no reason not to release.
operation<void> etcd_engine::find_successors(own_entries::ref holder, invocation how) {
  {
    const auto lock = entries_.lock();
    const bool known = !holder->more_successors || !holder->successors.empty();
    if (known || holder->mode != lock_mode::exclusive) co_return result<void>{};
  }
  auto seen = co_await look(holder->name, how);
  const auto* own = seen ? seen->queue.find(holder->key) : nullptr;
  if (own == nullptr) co_return result<void>{};  // or a later request of ours has taken it along
  const auto lock = entries_.lock();
  learn_successors(*holder, seen->queue, *own);
  co_return result<void>{};
}

operation<void> etcd_engine::call_next(std::string_view name, const lock_queue& seen,
                                       std::int64_t after, std::int64_t until, invocation how) {
  const auto* next = seen.first_after(after);
  // A waiter need not be called if the entry before it will hand over to it.
  const bool asleep = next != nullptr && next->created < until && next->takes_hand_over() &&
                      !seen.may_be_passive(*next);
  if (!asleep) co_return result<void>{};
  rpc::TxnRequest out;
  if (next->stands == standing::holder || next->overtaken()) {
    std::vector<successor> all{as_successor(*next)};
    std::ranges::copy(seen.successors_of(*next), std::back_inserter(all));
    add_hand_over(*out.mutable_success(), all, keys_of(how_.root, name));
  } else {
    add_call(*out.mutable_success(), *next);
  }
  auto got = co_await transact(std::move(out), name, {}, how);
  if (!got) co_return std::move(got).error();
  co_return result<void>{};
}

}  // namespace holdfast::engines::etcd

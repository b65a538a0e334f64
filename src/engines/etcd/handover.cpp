// Handing over to the next one, who may be looking at nothing but its own key (line.hpp).
//
// Whoever leaves the line in another way than by a release that hands over calls the one behind it: a waiter that gives
// up, a holder that shrinks or is broken. Should that fail, or its client die, the one behind notices by itself, a
// second later at most (lookout.hpp).
#include "engines/etcd/etcd_engine.hpp"

#include <algorithm>
#include <iterator>

namespace holdfast::engines::etcd {

using standing = place::standing;

void etcd_engine::note_heirs(entry& holder, const sight& seen, const place& own) {
  const auto lock = book_.lock();
  holder.granted_at = seen.revision;
  learn_heirs(holder, seen.of, own);
}

std::vector<heir> etcd_engine::heirs_of(const entry& holder) const {
  const auto lock = book_.lock();
  const bool any = holder.mode == lock_mode::exclusive && !holder.over && !holder.heirs.empty() &&
                   holder.heirs.front().created < holder.granted_at;
  return any ? holder.heirs : std::vector<heir>{};
}

// Not knowing them is no reason not to release.
operation<void> etcd_engine::find_heirs(book::ref holder, invocation how) {
  {
    const auto lock = book_.lock();
    const bool known = !holder->more_heirs || !holder->heirs.empty();
    if (known || holder->mode != lock_mode::exclusive) co_return result<void>{};
  }
  auto seen = co_await look(holder->name, how);
  const auto* own = seen ? seen->of.find(holder->key) : nullptr;
  if (own == nullptr) co_return result<void>{};  // or a later request of ours has taken it along
  const auto lock = book_.lock();
  learn_heirs(*holder, seen->of, *own);
  co_return result<void>{};
}

operation<void> etcd_engine::call_next(std::string_view name, const line& seen, std::int64_t after,
                                       std::int64_t until, invocation how) {
  const auto* next = seen.first_after(after);
  // Nobody need be called whom the one before it will hand over to.
  const bool asleep =
      next != nullptr && next->created < until && next->may_inherit() && !seen.may_sleep(*next);
  if (!asleep) co_return result<void>{};
  rpc::TxnRequest out;
  if (next->stands == standing::holder || next->overtaken()) {
    std::vector<heir> all{as_heir(*next)};
    std::ranges::copy(seen.heirs_of(*next), std::back_inserter(all));
    add_hand_over(*out.mutable_success(), all, keys_of(how_.root, name));
  } else {
    add_call(*out.mutable_success(), *next);
  }
  auto got = co_await transact(std::move(out), name, {}, how);
  if (!got) co_return std::move(got).error();
  co_return result<void>{};
}

}  // namespace holdfast::engines::etcd

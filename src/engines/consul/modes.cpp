// Changing the mode of what is held. An upgrade is an enter: enter.cpp.
#include "engines/consul/consul_engine.hpp"

#include "engines/common/modes.hpp"

namespace holdfast::engines::consul {

// Looks first, and shrinks what was seen: a copy of this that is delivered late, when the key has changed again, has no
// effect, and asked again it finds that it is done.
operation<grant> consul_engine::do_downgrade(const grant& held, lock_mode to, invocation how) {
  for (int round = 0; round < rounds; ++round) {
    const auto own = entries_.find(held.owner);
    const auto now = sessions_->current();
    if (!own || !now) co_return gone(held.name, held.owner);
    {
      const auto lock = entries_.lock();
      if (own->is != own_entry::state::holding || own->session != now->id)
        co_return gone(held.name, held.owner);
    }
    const auto sent = clock_.now();
    auto seen = co_await look(held.name, how);
    if (!seen) co_return std::move(seen).error();
    const auto* there = seen->find(held.owner);
    if (there == nullptr || !there->holds()) co_return gone(held.name, held.owner);
    if (there->mode != to) {
      if (!shrinks(there->mode, to)) co_return cannot_downgrade(held, there->mode, to, how_.url);
      auto done = co_await shrink(own, *seen, to, how);
      if (!done) co_return std::move(done).error();
      if (!*done) continue;
    } else {
      const auto lock = entries_.lock();  // an earlier one of ours, whose answer was lost
      adopt(*own, *there);
      own->lock_index = 0;
      own->is_changing = false;
    }
    {
      const auto lock = entries_.lock();
      own->is_watched = false;
    }
    note_new_grant(own);
    const auto lock = entries_.lock();
    co_return as_grant(held.name, *own, sent);
  }
  co_return kept_changing(held.name);
}

// False: the key is no longer as it was seen. While the answer is out, a change of our keys is our own.
operation<bool> consul_engine::shrink(mine own, const lock_state& seen, lock_mode to,
                                      invocation how) {
  const auto keys = keys_of(how_.root, own->name);
  const auto& there = *seen.find(own->owner);
  auto value = there;
  value.mode = to;
  transaction out;
  out.check_index(there.key, there.modified);
  out.check_as_seen(keys.readers, seen.readers_index());
  out.set(keys.readers, stamp());
  out.lock(there.key, there.session, entry_value(value));
  // The first waiter watches .lock, and may fit now. The session stays.
  if (there.mode == lock_mode::exclusive && seen.lock_session() == there.session) {
    out.check_index(keys.lock, seen.lock_index());
    out.set(keys.lock, stamp(), lock_flags);
  }
  {
    const auto lock = entries_.lock();
    own->is_changing = true;
  }
  auto got = co_await transact(std::move(out), own->name, there.session, how);
  const auto lock = entries_.lock();
  if (!got && !got.error().is_not_done()) co_return std::move(got).error();  // still in doubt
  own->is_changing = false;
  if (!got) co_return std::move(got).error();
  if (!got->done()) co_return false;
  own->mode = to;
  own->weight = weight_of(to);
  own->modified = got->index_of(there.key);
  own->lock_index = 0;
  co_return true;
}

}  // namespace holdfast::engines::consul

// Changing the mode of what is held.
#include "engines/etcd/etcd_engine.hpp"

#include "support/text.hpp"

#include <fmt/format.h>

namespace holdfast::engines::etcd {

error etcd_engine::gone(std::string_view name) const {
  return {errc::not_held,
          fmt::format("Lock {} on {} is no longer held by us.", support::quoted(name), how_.url)};
}

operation<entered> etcd_engine::enter_upgrade(const enter_attempt& given, invocation how) {
  enter_attempt attempt = given;
  if (++attempt.repeats > rounds) co_return failed(attempt, kept_changing(attempt.ask.name));
  const auto old = entries_.find(attempt.ask.replaces->owner);
  stored old_key;
  if (old) {
    const auto lock = entries_.lock();
    if (old->is == own_entry::state::holding && old->lease == attempt.under.id)
      old_key = {old->key, old->created};
    attempt.mine->over = old;
  }
  for (int round = 0; round < rounds; ++round) {
    auto seen = co_await look(attempt.ask.name, how);
    if (!seen) co_return failed(attempt, as_reading(std::move(seen).error()));
    const auto* base = old_key.key.empty() ? nullptr : seen->queue.find(old_key.key);
    if (base == nullptr || base->created != old_key.created) {
      // What may yet be carried out compares the old key, too. What has been has no use any more.
      if (const auto* left = seen->queue.find(attempt.ask.owner)) {
        std::vector<stored> keys{{left->key, left->created}};
        if (auto away = co_await remove(attempt.ask.name, std::move(keys), how); !away)
          co_return failed(attempt, std::move(away).error());
      }
      forget(attempt.mine);
      co_return gone(attempt.ask.name);
    }
    attempt.key = name_key(*attempt.mine, attempt.ask, attempt.under, base->created);
    const auto* own = attempt.find_in(seen->queue);
    if (own != nullptr) note_position(*attempt.mine, own->created);
    if (own != nullptr && own->entered)
      co_return granted(attempt, clock_.now(), own->created, own->token);
    if (seen->queue.takes_instead_of(*base, attempt.ask.weight)) {
      const auto needed = seen->queue.needed_to_upgrade(*base);
      auto in = co_await enter_by_mark(attempt, *seen, needed, how);
      if (!in) co_return failed(attempt, std::move(in).error());
      if (*in) co_return **in;
    } else if (own != nullptr) {
      co_return waiting(attempt, *seen, *own);
    } else if (!attempt.ask.wait) {
      break;
    } else if (auto queued = co_await queue_upgrade(attempt, *old, how); !queued) {
      co_return failed(attempt, std::move(queued).error());
    }
  }
  if (attempt.ask.wait) co_return ask_again(attempt.ask);
  auto doubted = co_await end_late_requests(attempt.mine, how);
  if (!doubted) co_return std::move(doubted).error();
  if (*doubted) {
    auto again = co_await enter_upgrade(attempt, how);
    if (!again) co_return as_doubt(again.error());
    co_return std::move(again);
  }
  forget(attempt.mine);
  co_return entered{};
}

// Into the queue: entries that come from now on come behind it.
operation<bool> etcd_engine::queue_upgrade(const enter_attempt& attempt, const own_entry& old,
                                           invocation how) {
  const auto epoch = session_->epoch(attempt.under.id);
  rpc::TxnRequest out;
  expect_created(out, old.key, old.created);
  expect_created(out, attempt.key, 0);
  expect_modified(out, epoch.key, epoch.modified);
  add_put(*out.mutable_success(), attempt.key, value_of(*attempt.mine), attempt.under.id);
  add_range(*out.mutable_failure(), epoch.key);
  auto got = co_await transact(std::move(out), attempt.ask.name, {attempt.under.id}, how);
  if (!got) co_return std::move(got).error();
  note_repetition(*attempt.mine, got->repeated);
  if (got->said.succeeded()) {
    note_position(*attempt.mine, got->said.header().revision());
  } else {
    note_epoch(attempt.under.id, got->said);
  }
  co_return got->said.succeeded();
}

// ---- shrinking

// Looks first, and shrinks what was seen: a copy of this that is delivered late, when the key has changed again, has no
// effect, and asked again it finds that it is done.
operation<grant> etcd_engine::do_downgrade(const grant& held, lock_mode to, invocation how) {
  for (;;) {
    const auto mine = entries_.find(held.owner);
    const auto under = session_->current();
    stored key;
    if (mine) {
      const auto lock = entries_.lock();
      if (mine->is == own_entry::state::holding) key = {mine->key, mine->created};
    }
    if (key.key.empty() || !under || under->id != mine->lease) co_return gone(held.name);
    const auto sent = clock_.now();
    auto seen = co_await look(held.name, how);
    if (!seen) co_return std::move(seen).error();
    const auto* own = seen->queue.find(key.key);
    if (own == nullptr || own->created != key.created) co_return gone(held.name);
    if (own->mode != to) {
      if (!shrinks(own->mode, to)) co_return cannot_downgrade(held, own->mode, to, how_.url);
      auto done = co_await shrink(mine, *own, held.token, to, how);
      if (!done) co_return std::move(done).error();
      if (!*done) continue;
    }
    const auto lock = entries_.lock();
    mine->mode = to;
    mine->weight = weight_of(to);
    co_return as_grant(held.name, *mine, *under, sent);
  }
}

// False: the key is no longer as it was seen.
operation<bool> etcd_engine::shrink(own_entries::ref mine, queue_entry own, fencing_token token,
                                    lock_mode to, invocation how) {
  std::int64_t granted_at = 0, lease = 0;
  bool has_successors = false;
  {
    const auto lock = entries_.lock();
    lease = mine->lease;
    granted_at = mine->granted_at;
    has_successors = mine->more_successors || !mine->successors.empty();
  }
  marks with;
  with.mode = to;
  with.token = token;
  rpc::TxnRequest out;
  expect_modified(out, own.key, own.modified);
  add_put(*out.mutable_success(), own.key, value_of(*mine, with), lease);
  if (has_successors) add_range(*out.mutable_success(), keys_of(how_.root, mine->name));
  auto got = co_await transact(std::move(out), mine->name, {lease}, how);
  if (!got) co_return std::move(got).error();
  if (!got->said.succeeded()) co_return false;
  if (has_successors) {  // not any more: they look at the queue from now on
    const auto seen = seen_in(got->said, mine->name);
    static_cast<void>(co_await call_next(mine->name, seen.queue, own.created, granted_at, how));
  }
  co_return true;
}

}  // namespace holdfast::engines::etcd

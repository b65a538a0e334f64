// Changing the mode of what is held.
#include "engines/etcd/etcd_engine.hpp"

#include "support/text.hpp"

#include <fmt/format.h>

namespace holdfast::engines::etcd {

error etcd_engine::gone(std::string_view name) const {
  return {errc::not_held,
          fmt::format("Lock {} on {} is no longer held by us.", support::quoted(name), how_.url)};
}

operation<entered> etcd_engine::enter_upgrade(const asker& given, invocation how) {
  asker who = given;
  if (++who.attempts > rounds) co_return failed(who, kept_changing(who.ask.name));
  const auto old = entries_.find(who.ask.replaces->owner);
  stored old_key;
  if (old) {
    const auto lock = entries_.lock();
    if (old->is == own_entry::state::holding && old->lease == who.under.id)
      old_key = {old->key, old->created};
    who.mine->over = old;
  }
  for (int round = 0; round < rounds; ++round) {
    auto seen = co_await look(who.ask.name, how);
    if (!seen) co_return failed(who, as_reading(std::move(seen).error()));
    const auto* base = old_key.key.empty() ? nullptr : seen->of.find(old_key.key);
    if (base == nullptr || base->created != old_key.created) {
      // What may yet be carried out compares the old key, too. What has been has no use any more.
      if (const auto* left = seen->of.find(who.ask.owner)) {
        std::vector<stored> keys{{left->key, left->created}};
        if (auto away = co_await remove(who.ask.name, std::move(keys), how); !away)
          co_return failed(who, std::move(away).error());
      }
      forget(who.mine);
      co_return gone(who.ask.name);
    }
    who.key = name_key(*who.mine, who.ask, who.under, base->created);
    const auto* own = who.find_in(seen->of);
    if (own != nullptr) note_position(*who.mine, *own);
    if (own != nullptr && own->entered)
      co_return granted(who, clock_.now(), own->created, own->token);
    if (seen->of.takes_instead_of(*base, who.ask.weight)) {
      const auto needed = seen->of.needed_to_upgrade(*base);
      auto in = co_await step_in(who, *seen, needed, how);
      if (!in) co_return failed(who, std::move(in).error());
      if (*in) co_return **in;
    } else if (own != nullptr) {
      co_return waiting(who, *seen, *own);
    } else if (!who.ask.wait) {
      break;
    } else if (auto queued = co_await queue_upgrade(who, *old, how); !queued) {
      co_return failed(who, std::move(queued).error());
    }
  }
  if (who.ask.wait) co_return ask_again(who.ask);
  auto doubted = co_await end_late_requests(who.mine, how);
  if (!doubted) co_return std::move(doubted).error();
  if (*doubted) co_return co_await enter_upgrade(who, how);
  forget(who.mine);
  co_return entered{};
}

// Into the queue: whoever comes from now on comes behind it.
operation<bool> etcd_engine::queue_upgrade(const asker& who, const own_entry& old, invocation how) {
  const auto epoch = session_->epoch(who.under.id);
  rpc::TxnRequest out;
  expect_created(out, old.key, old.created);
  expect_created(out, who.key, 0);
  expect_modified(out, epoch.key, epoch.modified);
  add_put(*out.mutable_success(), who.key, value_of(*who.mine), who.under.id);
  add_range(*out.mutable_failure(), epoch.key);
  auto got = co_await transact(std::move(out), who.ask.name, {who.under.id}, how);
  if (!got) co_return std::move(got).error();
  note_repetition(*who.mine, got->repeated);
  if (!got->said.succeeded()) note_epoch(who.under.id, got->said);
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
    const auto* own = seen->of.find(key.key);
    if (own == nullptr || own->created != key.created) co_return gone(held.name);
    if (own->mode != to) {
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
    const auto seen = sight_in(got->said, mine->name);
    static_cast<void>(co_await call_next(mine->name, seen.of, own.created, granted_at, how));
  }
  co_return true;
}

}  // namespace holdfast::engines::etcd

// Changing the mode of what is held.
#include "engines/etcd/etcd_engine.hpp"

#include "engines/grant_rule.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

namespace holdfast::engines::etcd {

namespace {

constexpr int rounds = 16;

// Could `old` turn into something of this weight now?
bool may_replace(const line& in, const place& old, std::uint64_t weight) {
  return may_enter({in.capacity(), in.used(), in.anybody_waits()}, weight, queue_order::fifo,
                   old.weight);
}

// Without these the others would see another line than we do: the one that is upgraded, and the first of those who
// wait, behind whom the rest must stay.
std::vector<const place*> needed_for(const line& in, const place& old) {
  std::vector<const place*> out{&old};
  if (const auto* first = in.first_waiter()) out.push_back(first);
  return out;
}

}  // namespace

error etcd_engine::gone(std::string_view name) const {
  return {errc::not_held,
          fmt::format("Lock {} on {} is no longer held by us.", support::quoted(name), how_.url)};
}

verb<entered> etcd_engine::upgrade_verb(const asker& given, way how) {
  asker who = given;
  const auto old = book_.find(who.ask.replaces->owner);
  std::string old_key;
  if (old) {
    const auto lock = book_.lock();
    if (old->is == entry::state::holding && old->lease == who.under.id) old_key = old->key;
    who.mine->over = old;
  }
  for (int round = 0; round < rounds; ++round) {
    auto seen = co_await look(who.ask.name, how);
    if (!seen) co_return failed(who, as_reading(std::move(seen).error()));
    const auto* base = old_key.empty() ? nullptr : seen->of.find(old_key);
    if (base == nullptr) {
      forget(who.mine);  // what may yet be carried out compares the old key, too
      co_return gone(who.ask.name);
    }
    who.key = name_key(*who.mine, who.ask, who.under, base->created);
    const auto* own = seen->of.find(who.key);
    if (own != nullptr && own->entered)
      co_return granted(who, clock_.now(), own->created, own->token);
    if (may_replace(seen->of, *base, who.ask.weight)) {
      auto in = co_await step_in(who, *seen, needed_for(seen->of, *base), how);
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
  auto doubted = co_await end_doubt(who.mine, how);
  if (!doubted) co_return std::move(doubted).error();
  if (*doubted) co_return co_await upgrade_verb(given, how);
  forget(who.mine);
  co_return entered{};
}

// Into the line: whoever comes from now on comes behind it.
verb<bool> etcd_engine::queue_upgrade(const asker& who, const entry& old, way how) {
  const auto fence = session_->fence(who.under.id);
  rpc::TxnRequest out;
  expect_created(out, old.key, old.created);
  expect_created(out, who.key, 0);
  expect_modified(out, fence.key, fence.modified);
  add_put(*out.mutable_success(), who.key, value_of(*who.mine), who.under.id);
  add_range(*out.mutable_failure(), fence.key);
  auto got = co_await transact(std::move(out), who.ask.name, {who.under.id}, how);
  if (!got) co_return std::move(got).error();
  note_repetition(*who.mine, got->repeated);
  if (!got->said.succeeded()) note_fence(who.under.id, got->said);
  co_return got->said.succeeded();
}

// ---- shrinking

result<grant> etcd_engine::downgrade(const grant& held, lock_mode to, const call& limits) {
  return downgrade_verb(held, to, {limits, true}).run();
}

verb<grant> etcd_engine::downgrade_verb(const grant& held, lock_mode to, way how) {
  const auto mine = book_.find(held.owner);
  const auto under = session_->current();
  std::string key;
  std::int64_t created = 0;
  std::int64_t granted_at = 0;
  bool has_heirs = false;
  if (mine) {
    const auto lock = book_.lock();
    if (mine->is == entry::state::holding) key = mine->key;
    created = mine->created;
    granted_at = mine->granted_at;
    has_heirs = mine->more_heirs || !mine->heirs.empty();
  }
  if (key.empty() || !under || under->id != mine->lease) co_return gone(held.name);
  marks with;
  with.mode = to;
  with.token = held.token;
  rpc::TxnRequest out;
  expect_created(out, key, created);
  add_put(*out.mutable_success(), key, value_of(*mine, with), under->id);
  if (has_heirs) add_range(*out.mutable_success(), keys_of(how_.root, held.name));
  const auto sent = clock_.now();
  auto got = co_await transact(std::move(out), held.name, {under->id}, how);
  if (!got) co_return std::move(got).error();
  if (!got->said.succeeded()) co_return gone(held.name);
  if (has_heirs) {  // not any more: they look at the line from now on
    const auto seen = sight_in(got->said, held.name);
    static_cast<void>(co_await call_next(held.name, seen.of, created, granted_at, how));
  }
  const auto lock = book_.lock();
  mine->mode = to;
  mine->weight = weight_of(to);
  co_return as_grant(held.name, *mine, *under, sent);
}

}  // namespace holdfast::engines::etcd

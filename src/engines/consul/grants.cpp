// Small steps of asking for a lock: requests, the grant, the place in the queue.
#include "engines/consul/consul_engine.hpp"

#include "support/text.hpp"

#include <fmt/format.h>

#include <chrono>

namespace holdfast::engines::consul {

namespace {

using namespace std::chrono_literals;

constexpr nanoseconds recheck_after = 10s;  // the back-stop; everything is pushed
// Consul does not say when a lock-delay is over, and tells nobody.
constexpr nanoseconds recheck_delayed_after = 500ms;

}  // namespace

std::string consul_engine::stamp() {
  return fmt::format("{:016x}{:016x}.{}", client_[0], client_[1], ++last_stamp_);
}

// ---- asking

// `session`: under which it puts keys; if that turns out to be gone, so is the session.
operation<txn_reply> consul_engine::transact(transaction what, std::string_view name,
                                             std::string session, invocation how) {
  const question ask{question::verb::put, "/v1/txn", what.body()};
  auto said = co_await agent_->ask(ask, how);
  auto got = read_txn_reply(std::move(said), what, name, how_.url);
  if (!got) co_return std::move(got).error();
  if (!session.empty() && got->is_session_invalid(session)) {
    sessions_->is_gone(session, "the session has ended in the store");
    co_return failed_txn(*got, name, how_.url);
  }
  co_return std::move(*got);
}

operation<kv_tree> consul_engine::read_tree(std::string prefix, std::string_view name,
                                            invocation how) {
  constexpr int found = 200, absent = 404;
  question ask{question::verb::get, "/v1/kv/" + escaped_path(prefix) + "?recurse&consistent"};
  const auto said = co_await agent_->ask(ask, how);
  if (!said.got) co_return about(as_reading(said.got.error()), name);
  if (said.got->status == absent) co_return kv_tree{{}, said.got->index};
  if (said.got->status != found) co_return as_reading(status_error(*said.got, name, how_.url));
  auto pairs = read_pairs(said.got->body);
  if (!pairs) co_return unexpected_answer(name, how_.url);
  co_return kv_tree{std::move(*pairs), said.got->index};
}

operation<lock_state> consul_engine::look(std::string_view name, invocation how) {
  const auto keys = keys_of(how_.root, name);
  auto tree = co_await read_tree(keys.folder, name, how);
  if (!tree) co_return std::move(tree).error();
  co_return lock_state{tree->pairs, keys, tree->index};
}

// ---- requests that come late

// What compares the epoch and was sent before this is not carried out any more.
operation<void> consul_engine::move_epoch(const session_view& under, std::string_view name,
                                          invocation how) {
  transaction step;
  step.lock(under.epoch_key, under.id, stamp());
  auto got = co_await transact(std::move(step), name, under.id, how);
  if (!got) co_return std::move(got).error();
  if (!got->done()) co_return failed_txn(*got, name, how_.url);
  sessions_->note_epoch(under.id, got->index_of(under.epoch_key));
  co_return result<void>{};
}

// A transaction was refused because the epoch had moved: another verb has moved it, or somebody has removed its key.
// True: it is to be sent again.
operation<bool> consul_engine::follow_epoch(attempt& at, const txn_reply& failed, invocation how) {
  if (!failed.failed_at(0)) co_return false;
  auto now = sessions_->current();
  if (now && now->id == at.under.id && now->epoch == at.under.epoch) {
    if (auto moved = co_await move_epoch(at.under, at.ask.name, how); !moved)
      co_return std::move(moved).error();
    now = sessions_->current();
  }
  if (!now || now->id != at.under.id)
    co_return error{errc::unavailable, fmt::format("{}: the session ended meanwhile.", how_.url)};
  at.under = std::move(*now);
  co_return true;
}

// Whatever was sent for this entry, and is still under way, will not be carried out. It may have been until now. A
// session that we have given up must be gone from the store: it would take a late request.
operation<void> consul_engine::end_late_requests(mine own, invocation how) {
  std::string session;
  {
    const auto lock = entries_.lock();
    if (!own->in_doubt) co_return result<void>{};
    session = own->session;
  }
  const auto now = sessions_->current();
  auto ended = now && now->id == session ? move_epoch(*now, own->name, how)
                                         : sessions_->destroy(session, how);
  auto done = co_await ended;
  if (!done) {
    // The end of the session found on the way will do, too.
    const auto then = sessions_->current();
    const bool is_over = now && now->id == session && (!then || then->id != session);
    if (!is_over) co_return error{errc::outcome_unknown, done.error().message()};
  }
  const auto lock = entries_.lock();
  own->in_doubt = false;
  co_return result<void>{};
}

// ---- the grant

queue_entry consul_engine::entry_of(const own_entry& own, bool holds) const {
  queue_entry out;
  out.key = own.key;
  out.session = own.session;
  out.owner = own.owner;
  out.mode = own.mode;
  out.weight = own.weight;
  out.capacity = own.capacity;
  out.entered = holds;
  out.since_ms = own.since_ms;
  out.session_lasts = how_.session;
  out.pid = pid_;
  out.host = host_;
  out.label = own.label;
  return out;
}

queue_entry consul_engine::entry_of(const attempt& at, bool holds) const {
  const auto lock = entries_.lock();
  auto out = entry_of(*at.own, holds);
  out.key = at.key;
  out.session = at.under.id;
  return out;
}

// While a change of its key by ourselves is under way its watch is not listened to.
void consul_engine::begin_change(const attempt& by) {
  const auto own = entries_.find(by.ask.replaces->owner);
  if (!own) return;
  const auto lock = entries_.lock();
  own->is_changing = true;
  by.own->over = own;
}
// It was not replaced: so it is watched as before. What it is, the entry knows: who clears up need not.
void consul_engine::end_change(const mine& by) {
  mine over;
  {
    const auto lock = entries_.lock();
    over = std::exchange(by->over, nullptr);
    if (!over || !std::exchange(over->is_changing, false)) return;
    over->is_watched = false;
  }
  note_new_grant(over);
}

grant consul_engine::as_grant(std::string_view name, own_entry& of, steady_time sent) const {
  grant out;
  out.name = name;
  out.owner = of.owner;
  out.mode = of.mode;
  out.weight = of.weight;
  out.token = of.token;
  out.ttl = of.ttl;
  out.valid_from = sent;
  const auto now = sessions_->current();
  if (now && now->number == of.number) {
    out.session = now->proof();
  } else {
    // Left over from a session that is over: not worth anything, and core gives it back.
    out.session = {of.number, steady_time{}};
  }
  of.until = out.valid_from + out.ttl;
  return out;
}

// What the store has of it. REQUIRES: the table's lock is held.
void consul_engine::adopt(own_entry& own, const queue_entry& there) {
  own.key = there.key;
  own.created = static_cast<std::uint64_t>(there.created);
  own.modified = there.modified;
  own.token = there.token;
  own.mode = there.mode;
  own.weight = there.weight;
  own.permit_sessions = there.permit_sessions;
}

entered consul_engine::granted(const attempt& at, const queue_entry& as, std::uint64_t lock_index) {
  entered out;
  mine over;
  {
    const auto lock = entries_.lock();
    auto& own = *at.own;
    if (own.key.empty() || own.session != at.under.id) return ask_again(at.ask);  // lost meanwhile
    if (own.is != own_entry::state::holding) own.since = clock_.now();
    own.is = own_entry::state::holding;
    adopt(own, as);
    own.lock_index = as.mode == lock_mode::exclusive ? lock_index : 0;
    own.idle_queue = 0;
    own.is_watched = false;
    out.what = entered::kind::granted;
    out.granted = as_grant(at.ask.name, own, at.sent);
    over = std::exchange(own.over, nullptr);
  }
  if (!over && at.ask.replaces != nullptr) over = entries_.find(at.ask.replaces->owner);
  if (over) forget(over);
  waits_->forget(at.ask.owner.sequence);
  note_new_grant(at.own);
  return out;
}

// The one before it that waits, too, tells it when to look again; the first one looks at .lock.
entered consul_engine::waiting(const attempt& at, const lock_state& seen, const queue_entry& own) {
  const auto* before = seen.waiter_before(own);
  const bool is_upgrade = at.ask.replaces != nullptr;
  // Who keeps an upgradeable out need not have .lock: a reader may.
  const bool needs_lock_only = !is_upgrade && at.ask.mode != lock_mode::upgradeable;
  entered out;
  out.what = entered::kind::waiting;
  out.waiting = ticket{at.ask.name, at.ask.owner, 0, clock_.now() + recheck_after};
  const auto lock = entries_.lock();
  auto& entry = *at.own;
  if (entry.is != own_entry::state::waiting) entry.since = clock_.now();
  entry.is = own_entry::state::waiting;
  entry.created = static_cast<std::uint64_t>(own.created);
  entry.modified = own.modified;
  entry.watches_folder = false;
  entry.watched_keys = 1;
  if (at.is_delayed) {
    entry.watched_key.clear();
    out.waiting.recheck_at = clock_.now() + recheck_delayed_after;
  } else if (before != nullptr && !is_upgrade) {
    entry.watched_key = before->key;
    entry.watched_index = before->modified;
  } else if (!seen.lock_session().empty() && needs_lock_only) {
    entry.watched_key = at.keys.lock;
    entry.watched_index = seen.lock_index();
  } else {
    entry.watched_key = at.keys.folder;
    entry.watches_folder = true;
    entry.watched_index = seen.newest();
    entry.watched_keys = seen.size();
  }
  return out;
}

entered consul_engine::ask_again(const request& ask) const {
  entered out;
  out.what = entered::kind::waiting;
  out.waiting = ticket{ask.name, ask.owner, 0, clock_.now()};
  return out;
}

// A request failed. The entry goes only if nothing of it is, or may yet come, into the store; otherwise core, which
// would take a certain failure for just that, is told to ask.
error consul_engine::failed(const attempt& at, error why) {
  const auto lock = entries_.lock();
  auto& own = *at.own;
  if (!why.is_not_done()) own.in_doubt = true;
  if (own.is != own_entry::state::asking || own.in_doubt)
    return {errc::outcome_unknown, why.message()};
  entries_.drop(own);
  return why;
}

error consul_engine::gone(std::string_view name, const owner_id& owner) const {
  return lock_not_held(name, how_.url, owner);
}

// A doubt, so core asks what became of it: some of what was tried may be there.
error consul_engine::kept_changing(std::string_view name) const {
  return {errc::outcome_unknown,
          fmt::format("Lock {} on {} changed faster than this client could take it.",
                      support::quoted(name), how_.url)};
}

// However it ended: what it would have replaced must be listened to again.
void consul_engine::forget(const mine& own) {
  waits_->forget(own->owner.sequence);
  std::vector<std::string> permit_sessions;
  {
    const auto lock = entries_.lock();
    own->is = own_entry::state::releasing;  // a verb that still knows it leaves it alone
    entries_.drop(*own);
    permit_sessions = std::exchange(own->permit_sessions, {});
  }
  sessions_->give_back(own->name, permit_sessions);
  end_change(own);
}

}  // namespace holdfast::engines::consul

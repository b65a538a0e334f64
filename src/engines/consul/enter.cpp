// Asking for a lock.
#include "engines/consul/consul_engine.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::engines::consul {

namespace {

using no_grants = std::vector<grant>;

// What a transaction holds beside the permits.
constexpr std::size_t most_permits = 32;

}  // namespace

// ---- the way in

operation<entered> consul_engine::do_enter(const request& ask, invocation how) {
  co_await releases_.after_releases(*agent_, ask.name, how);
  if (ask.mode == lock_mode::permits && ask.weight > most_permits)
    co_return not_done{errc::unsupported,
                       fmt::format("{}: one acquire can have {} permits at most; in Consul's "
                                   "semaphores each is a session of its own.",
                                   how_.url, most_permits)};
  for (int round = 0;; ++round) {
    auto under = co_await sessions_->ensure(how);
    if (!under) co_return about(std::move(under).error(), ask.name);
    const auto number = under->number;
    auto out = co_await enter_under(ask, std::move(*under), how);
    const auto now = sessions_->current();
    const bool ended =
        !out && out.error().code() == errc::unavailable && (!now || now->number != number);
    if (!ended || round > 0) co_return out;
    // The session was found to be gone: nothing was put. Once more, with a new session.
  }
}

operation<entered> consul_engine::enter_under(const request& ask, session_view under,
                                              invocation how) {
  attempt at{ask, entries_.find_or_make(ask), std::move(under), keys_of(how_.root, ask.name)};
  at.key = owner_key(at.keys, ask.owner);
  bool is_new = false;
  {
    const auto lock = entries_.lock();
    auto& own = *at.own;
    is_new = own.key.empty() || own.session != at.under.id;
    if (is_new) {
      own.key = at.key;
      own.session = at.under.id;
      own.number = at.under.number;
      own.capacity = ask.capacity;
      own.created = own.modified = own.lock_index = 0;
      own.since_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
      own.is = own_entry::state::asking;
    }
  }
  at.sent = clock_.now();
  // For permits that would need a further session it looks first: most tries find them taken.
  const bool is_blind =
      is_new && (ask.mode != lock_mode::permits || sessions_->has_free(ask.name, ask.weight));
  if (is_blind && ask.replaces == nullptr) {
    auto in = co_await take(at, lock_state{}, how);
    if (!in) co_return failed(at, std::move(in).error());
    if (*in) co_return **in;
  } else if (!is_new && ask.replaces == nullptr) {
    auto in = co_await take_next(at, how);
    if (!in) co_return failed(at, std::move(in).error());
    if (*in) co_return **in;
  }
  co_return co_await enter_or_wait(at, how);
}

// A waiter that was the first of the queue, and whose holder has gone: it knows enough to take the lock without a look.
operation<std::optional<entered>> consul_engine::take_next(attempt& at, invocation how) {
  lock_state guess;
  {
    const auto lock = entries_.lock();
    const auto& own = *at.own;
    const bool is_next = own.is == own_entry::state::waiting && !own.watches_folder &&
                         own.watched_key == at.keys.lock && at.ask.mode == lock_mode::exclusive;
    if (!is_next) co_return std::optional<entered>{};
    kv_pair there{own.key, entry_value(entry_of(own, false)), own.session};
    there.created = own.created;
    there.modified = own.modified;
    guess = lock_state{{there}, at.keys};
  }
  co_return co_await take(at, guess, how);
}

operation<entered> consul_engine::enter_or_wait(attempt& at, invocation how) {
  const auto& ask = at.ask;
  // A writer that finds the lock taken has to queue up nearly always; others may well fit beside the holders.
  bool enqueues = ask.wait && ask.mode == lock_mode::exclusive && ask.replaces == nullptr;
  {
    const auto lock = entries_.lock();
    enqueues = enqueues && at.own->is == own_entry::state::asking;
  }
  for (int round = 0; round < rounds; ++round) {
    std::optional<lock_state> seen;
    if (std::exchange(enqueues, false)) {
      auto queued = co_await enqueue(at, nullptr, how);
      if (!queued) co_return failed(at, std::move(queued).error());
      seen = std::move(*queued);
    }
    if (!seen) {
      at.sent = clock_.now();
      auto got = co_await look(ask.name, how);
      if (!got) co_return failed(at, std::move(got).error());
      seen = std::move(*got);
    }
    const auto* own = seen->find(ask.owner);
    if (own != nullptr && own->holds()) {
      if (seen->is_true(*own)) co_return granted(at, *own, seen->lock_index());
      // Core asks, and finds nothing.
      static_cast<void>(co_await remove(ask.name, ask.owner, how));
      co_return failed(at, error{errc::outcome_unknown, gone(ask.name, ask.owner).message()});
    }
    if (!seen->queue().empty() && ask.capacity != seen->queue().capacity())
      co_return co_await refuse_capacity(at, *seen, how);
    const auto* base = replaced_in(at, *seen);
    if (ask.replaces != nullptr && base == nullptr) {
      result<bool> away{true};
      if (own != nullptr) away = co_await remove(ask.name, ask.owner, how);
      if (!away) co_return failed(at, as_doubt(away.error()));
      forget(at.own);
      co_return gone(ask.name, ask.replaces->owner);
    }
    at.is_delayed = false;
    if (may_take(at, *seen)) {
      auto in = co_await take(at, *seen, how);
      if (!in) co_return failed(at, std::move(in).error());
      if (*in) co_return **in;
      if (!at.is_delayed) continue;
    }
    if (own != nullptr) co_return waiting(at, *seen, *own);
    if (!ask.wait) co_return co_await give_up(at, how);
    auto queued = co_await enqueue(at, base, how);
    if (!queued) co_return failed(at, std::move(queued).error());
  }
  co_return failed(at, kept_changing(ask.name));
}

const queue_entry* consul_engine::replaced_in(const attempt& at, const lock_state& seen) const {
  if (at.ask.replaces == nullptr) return nullptr;
  const auto* base = seen.find(at.ask.replaces->owner);
  return base != nullptr && base->holds() ? base : nullptr;
}

bool consul_engine::may_take(const attempt& at, const lock_state& seen) const {
  const auto& ask = at.ask;
  const auto* own = seen.find(ask.owner);
  if (const auto* base = replaced_in(at, seen))
    return seen.queue().takes_instead_of(*base, ask.weight);
  if (own != nullptr && own->stands == queue_entry::standing::holder) return true;
  if (ask.order == queue_order::barging && seen.queue().takes_barging(ask.weight)) return true;
  return own == nullptr && seen.queue().takes(ask.weight);
}

// Not even a late copy of what was asked comes any more; and one that came before that was ended goes.
operation<entered> consul_engine::give_up(attempt& at, invocation how) {
  bool was_in_doubt = false;
  {
    const auto lock = entries_.lock();
    was_in_doubt = at.own->in_doubt;
  }
  if (was_in_doubt) {
    if (auto away = co_await end_and_remove(at, how); !away)
      co_return failed(at, as_doubt(away.error()));
  }
  forget(at.own);
  co_return entered{};
}

operation<bool> consul_engine::end_and_remove(attempt& at, invocation how) {
  if (auto ended = co_await end_late_requests(at.own, how); !ended)
    co_return std::move(ended).error();
  co_return co_await remove(at.ask.name, at.ask.owner, how);
}

operation<entered> consul_engine::refuse_capacity(attempt& at, const lock_state& seen,
                                                  invocation how) {
  const auto why = other_capacity(at.ask, seen.queue().capacity(), how_.url);
  if (auto away = co_await end_and_remove(at, how); !away)
    co_return failed(at, as_doubt(away.error()));
  forget(at.own);
  co_return why;
}

// ---- requests

// To the end of the queue, if our key is not there yet; and what is there then. Nothing: look.
operation<std::optional<lock_state>> consul_engine::enqueue(attempt& at, const queue_entry* base,
                                                            invocation how) {
  auto value = entry_of(at, false);
  if (base != nullptr) value.replaces = base->created;
  transaction out;
  out.check_index(at.under.epoch_key, at.under.epoch);
  out.check_absent(at.key);
  if (base != nullptr) out.check_index(base->key, base->modified);
  out.set(at.keys.queue, stamp());
  out.lock(at.key, at.under.id, entry_value(value));
  out.get_tree(at.keys.folder);
  at.sent = clock_.now();
  auto got = co_await transact(std::move(out), at.ask.name, at.under.id, how);
  if (!got) co_return std::move(got).error();
  note_repeated(at, *got);
  if (got->done()) {
    note_queued(at);
    co_return std::optional{lock_state{got->tree, at.keys}};
  }
  if (auto moved = co_await follow_epoch(at, *got, how); !moved) co_return std::move(moved).error();
  co_return std::optional<lock_state>{};
}

// Its key is there: whatever fails from now on, even certainly, core has to ask about it or to take it away.
void consul_engine::note_queued(const attempt& at) {
  const auto lock = entries_.lock();
  auto& own = *at.own;
  if (own.is != own_entry::state::asking) return;
  own.is = own_entry::state::waiting;
  own.since = clock_.now();
}

// .lock keeps other programs out, whoever of us holds. That nobody of us holds, or only readers, was seen: a reader
// that comes, goes or becomes a writer changes .readers, and a writer has .lock.
void consul_engine::add_gate(transaction& to, const attempt& at, const lock_state& seen) const {
  const bool is_writer = at.ask.mode == lock_mode::exclusive;
  to.check_as_seen(at.keys.readers, seen.readers_index());
  if (!is_writer) {
    to.set(at.keys.readers, to_string(at.ask.owner));
  } else if (seen.readers_index() != 0) {
    to.erase(at.keys.readers);
  }
  to.check_as_seen(at.keys.lock, seen.lock_index());
  const auto locked_by = seen.lock_session();
  if (!locked_by.empty() && !is_writer) return;  // the session of a reader has it
  // An upgrade: locked anew, because writing what is there already is no change, and the index is the token.
  if (!locked_by.empty()) to.unlock(at.keys.lock, locked_by, {}, lock_flags);
  to.lock(at.keys.lock, at.under.id, is_writer ? at.ask.label : std::string_view{}, lock_flags);
}

// One session for each permit, as api.Semaphore counts them.
void consul_engine::add_permits(transaction& to, const attempt& at, const lock_state& seen,
                                const std::vector<std::string>& permit_sessions) const {
  to.check_as_seen(at.keys.readers, seen.readers_index());
  if (seen.readers_index() != 0) to.erase(at.keys.readers);
  to.check_as_seen(at.keys.lock, seen.lock_index());
  semaphore_record record;
  if (seen.is_semaphore()) record = seen.semaphore();
  record.limit = at.ask.capacity;
  record.holders.insert(record.holders.end(), permit_sessions.begin(), permit_sessions.end());
  to.set(at.keys.lock, semaphore_text(record), semaphore_flags);
  if (seen.find(at.ask.owner) != nullptr) to.erase(at.key);  // it may get another session
  for (std::size_t i = 1; i < permit_sessions.size(); ++i)
    to.lock(permit_key(at.key, i), permit_sessions[i], {});
}

transaction consul_engine::take_request(const attempt& at, const lock_state& seen,
                                        const std::vector<std::string>& permit_sessions) const {
  const auto* own = seen.find(at.ask.owner);
  const auto* base = replaced_in(at, seen);
  transaction out;
  out.check_index(at.under.epoch_key, at.under.epoch);
  if (own != nullptr) out.check_index(own->key, own->modified);
  if (base != nullptr) {
    out.check_index(base->key, base->modified);
    out.erase(base->key);
  }
  auto value = entry_of(at, true);
  value.permit_sessions = permit_sessions;
  if (permit_sessions.empty()) {
    add_gate(out, at, seen);
  } else {
    add_permits(out, at, seen, permit_sessions);
  }
  out.lock(at.key, permit_sessions.empty() ? at.under.id : permit_sessions.front(),
           entry_value(value));
  if (seen.queue_index() != 0 && !seen.anybody_waits(at.ask.owner)) {
    out.check_index(at.keys.queue, seen.queue_index());
    out.erase(at.keys.queue);
  } else if (own == nullptr && base == nullptr && at.ask.order == queue_order::fifo) {
    out.check_as_seen(at.keys.queue, seen.queue_index());  // a newcomer overtakes no waiter
  }
  for (const auto& dead : seen.dead())
    if (out.size() + 1 < transaction::most_operations) out.erase_if(dead.key, dead.modified);
  if (own != nullptr) out.get_tree(at.keys.folder);
  return out;
}

// Nobody waits behind it: so its release may take the mark of a queue along.
void consul_engine::note_idle_queue(const attempt& at, const lock_state& now) {
  const auto lock = entries_.lock();
  at.own->idle_queue = now.anybody_waits(at.ask.owner) ? 0 : now.queue_index();
}

operation<std::optional<entered>> consul_engine::take(attempt& at, const lock_state& seen,
                                                      invocation how) {
  using outcome = std::optional<entered>;
  std::vector<std::string> permit_sessions;
  if (at.ask.mode == lock_mode::permits) {
    {
      const auto lock = entries_.lock();
      permit_sessions = at.own->permit_sessions;  // of an earlier try whose fate is not known
    }
    if (permit_sessions.size() != at.ask.weight) {
      auto reserved = co_await sessions_->reserve(at.ask.name, at.ask.weight, how);
      if (!reserved) co_return std::move(reserved).error();
      permit_sessions = std::move(*reserved);
    }
  }
  at.sent = clock_.now();
  auto out = take_request(at, seen, permit_sessions);
  // What it replaces goes with that: by ourselves, and its watch hears of it before we do.
  if (at.ask.replaces != nullptr) begin_change(at);
  auto got = co_await transact(std::move(out), at.ask.name, at.under.id, how);
  if (got) note_repeated(at, *got);
  if (got && got->done()) {
    auto as = entry_of(at, true);
    as.modified = got->index_of(at.key);
    for (const auto& pair : got->written)
      if (pair.key == at.key) as.created = static_cast<std::int64_t>(pair.created);
    as.token = {as.modified};
    as.permit_sessions = std::move(permit_sessions);
    auto in = granted(at, as, got->index_of(at.keys.lock));
    note_idle_queue(at, lock_state{got->tree, at.keys});
    co_return outcome{in};
  }
  if (got ? !got->repeated : got.error().is_not_done()) {
    sessions_->give_back(at.ask.name, permit_sessions);
    {
      const auto lock = entries_.lock();
      at.own->permit_sessions.clear();
    }
    end_change(at.own);
  } else {
    const auto lock = entries_.lock();
    at.own->permit_sessions = permit_sessions;  // until it is known what became of it
  }
  if (!got) co_return std::move(got).error();
  at.is_delayed = got->is_delayed();
  if (auto moved = co_await follow_epoch(at, *got, how); !moved) co_return std::move(moved).error();
  co_return outcome{};
}

// An earlier copy of it may yet be carried out, also when this one was refused.
void consul_engine::note_repeated(const attempt& at, const txn_reply& got) {
  if (!got.repeated) return;
  const auto lock = entries_.lock();
  at.own->in_doubt = true;
}

// ---- several at once

void consul_engine::forget_all(const std::vector<attempt>& of) {
  for (const auto& at : of) forget(at.own);
}

operation<std::vector<grant>> consul_engine::do_enter_all(std::span<const request> asks,
                                                          invocation how) {
  for (const auto& ask : asks)
    if (ask.mode != lock_mode::exclusive || ask.replaces != nullptr) co_return no_grants{};
  for (const auto& ask : asks) co_await releases_.after_releases(*agent_, ask.name, how);
  auto under = co_await sessions_->ensure(how);
  if (!under) co_return std::move(under).error();
  transaction out;
  out.check_index(under->epoch_key, under->epoch);
  std::vector<attempt> all;
  for (const auto& ask : asks) {
    attempt at{ask, entries_.find_or_make(ask), *under, keys_of(how_.root, ask.name)};
    at.key = owner_key(at.keys, ask.owner);
    {
      const auto lock = entries_.lock();
      at.own->key = at.key;
      at.own->session = under->id;
      at.own->number = under->number;
      at.own->capacity = ask.capacity;
    }
    add_gate(out, at, lock_state{});
    out.lock(at.key, under->id, entry_value(entry_of(at, true)));
    out.check_absent(at.keys.queue);
    at.sent = clock_.now();
    all.push_back(std::move(at));
  }
  if (out.size() > transaction::most_operations) {
    forget_all(all);
    co_return no_grants{};
  }
  auto got = co_await transact(std::move(out), asks.front().name, under->id, how);
  // One of two copies was refused: perhaps because the other one was carried out.
  if (!got || (got->repeated && !got->done())) {
    error why{errc::outcome_unknown, fmt::format("{}: it was sent twice.", how_.url)};
    if (!got) why = std::move(got).error();
    if (why.is_not_done()) {
      forget_all(all);
      co_return why;
    }
    for (const auto& at : all) static_cast<void>(failed(at, why));
    co_return why;
  }
  if (!got->done()) {
    auto moved = co_await follow_epoch(all.front(), *got, how);
    forget_all(all);
    if (!moved) co_return std::move(moved).error();
    co_return no_grants{};
  }
  no_grants grants;
  for (const auto& at : all) {
    auto as = entry_of(at, true);
    as.modified = got->index_of(at.key);
    as.created = static_cast<std::int64_t>(as.modified);
    as.token = {as.modified};
    {
      const auto lock = entries_.lock();
      at.own->in_doubt = got->repeated;
    }
    auto in = granted(at, as, got->index_of(at.keys.lock));
    if (in.what != entered::kind::granted)
      co_return error{errc::outcome_unknown, fmt::format("{}: the session ended.", how_.url)};
    grants.push_back(in.granted);
  }
  co_return grants;
}

}  // namespace holdfast::engines::consul

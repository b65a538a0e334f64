// Giving back, and asking what became of an unanswered request.
#include "engines/consul/consul_engine.hpp"

#include <algorithm>

namespace holdfast::engines::consul {

namespace {

using namespace std::chrono_literals;

// A release whose fate is not known: core asks about it; if it does not, it ends after this.
constexpr auto left_to_core = 2s;

// Another owner that holds by this session, if there is one; else any other that holds.
const queue_entry* other_holder(const lock_state& seen, const queue_entry& own) {
  const queue_entry* out = nullptr;
  for (const auto& entry : seen.queue().all()) {
    if (!entry.entered || entry.foreign || entry.key == own.key) continue;
    if (entry.session == own.session) return &entry;
    out = &entry;
  }
  return out;
}

void add_queue_removal(transaction& to, const lock_state& seen, const queue_entry& own,
                       const lock_keys& keys) {
  if (seen.queue_index() == 0 || seen.anybody_waits(own.owner)) return;
  to.check_index(keys.queue, seen.queue_index());
  to.erase(keys.queue);
}

void add_permit_removal(transaction& to, const lock_state& seen, const queue_entry& own,
                        const lock_keys& keys) {
  for (std::size_t i = 1; i < own.permit_sessions.size(); ++i) to.erase(permit_key(own.key, i));
  add_queue_removal(to, seen, own, keys);
  if (!seen.is_semaphore()) return;
  auto record = seen.semaphore();
  std::erase_if(record.holders, [&](const std::string& session) {
    return std::ranges::find(own.permit_sessions, session) != own.permit_sessions.end();
  });
  to.check_index(keys.lock, seen.lock_index());
  if (record.holders.empty() && !seen.anybody_waits(own.owner)) {
    to.erase(keys.lock);
  } else {
    to.set(keys.lock, semaphore_text(record), semaphore_flags);
  }
}

}  // namespace

// ---- removing what was seen

// A reader that goes hands .lock on to another one. .readers makes sure that each of two that go at once knows of the
// other.
void consul_engine::add_removal(transaction& to, const lock_state& seen, const queue_entry& own,
                                const lock_keys& keys, const std::string& stamp) {
  to.check_index(own.key, own.modified);
  to.erase(own.key);
  if (!own.holds()) return add_queue_removal(to, seen, own, keys);
  if (own.mode == lock_mode::permits) return add_permit_removal(to, seen, own, keys);
  const auto* other = other_holder(seen, own);
  if (own.mode != lock_mode::exclusive) {
    to.check_as_seen(keys.readers, seen.readers_index());
    if (other != nullptr) {
      to.set(keys.readers, stamp);
    } else if (seen.readers_index() != 0) {
      to.erase(keys.readers);
    }
  }
  if (seen.lock_session() != own.session) return;
  if (other != nullptr && other->session == own.session) return;
  to.check_index(keys.lock, seen.lock_index());
  if (other == nullptr) {
    to.erase(keys.lock);
  } else {
    to.unlock(keys.lock, own.session, {}, lock_flags);
    to.lock(keys.lock, other->session, {}, lock_flags);
  }
}

// An operator has deleted the key of an owner of ours, and .lock is still locked by our living session, or the record
// still counts it: nobody would ever take that away. False: there is no such thing. An owner's key and .lock are
// written in one transaction, so what is seen without the other is left over.
bool consul_engine::add_orphans_removal(transaction& to, const lock_state& seen,
                                        const lock_keys& keys) const {
  if (seen.is_semaphore()) {
    auto record = seen.semaphore();
    const auto left_over = std::erase_if(record.holders, [&](const std::string& session) {
      return sessions_->is_ours(session) &&
             std::ranges::none_of(seen.queue().all(), [&](const queue_entry& entry) {
               return entry.entered && !entry.foreign &&
                      std::ranges::find(entry.permit_sessions, session) !=
                          entry.permit_sessions.end();
             });
    });
    if (left_over == 0) return false;
    to.check_index(keys.lock, seen.lock_index());
    to.set(keys.lock, semaphore_text(record), semaphore_flags);
    return true;
  }
  if (!seen.is_held_by_others() || !sessions_->is_ours(seen.lock_session())) return false;
  to.check_index(keys.lock, seen.lock_index());
  const auto& all = seen.queue().all();
  const auto reader = std::ranges::find_if(
      all, [](const queue_entry& entry) { return entry.entered && !entry.foreign; });
  if (reader == all.end()) {
    to.erase(keys.lock);
  } else {
    to.unlock(keys.lock, seen.lock_session(), {}, lock_flags);
    to.lock(keys.lock, reader->session, {}, lock_flags);
  }
  return true;
}

operation<bool> consul_engine::remove(std::string_view name, owner_id owner, invocation how) {
  const auto keys = keys_of(how_.root, name);
  bool was_sent = false;  // and may have been carried out
  for (int round = 0; round < rounds; ++round) {
    auto seen = co_await look(name, how);
    if (!seen) co_return std::move(seen).error();
    const auto* own = seen->find(owner);
    transaction out;
    if (own != nullptr) {
      add_removal(out, *seen, *own, keys, stamp());
    } else if (!add_orphans_removal(out, *seen, keys)) {
      co_return was_sent;
    }
    auto got = co_await transact(std::move(out), name, {}, how);
    if (!got) co_return std::move(got).error();
    if (got->done()) co_return own != nullptr || was_sent;
    was_sent = was_sent || (own != nullptr && got->repeated);
  }
  co_return kept_changing(name);
}

// ---- release

// A writer: nobody else has changed .lock since, or it was lost. Doubtful: it was refused, but a copy of it had been
// sent, and may have been what was in its way.
operation<consul_engine::alone> consul_engine::release_alone(mine own, invocation how) {
  const auto keys = keys_of(how_.root, own->name);
  std::uint64_t lock_index = 0, idle_queue = 0, modified = 0;
  std::string key;
  {
    const auto lock = entries_.lock();
    if (own->mode != lock_mode::exclusive || own->lock_index == 0) co_return alone::changed;
    lock_index = own->lock_index;
    idle_queue = own->idle_queue;
    modified = own->modified;
    key = own->key;
  }
  for (bool repeated = false;;) {
    transaction out;
    out.check_index(keys.lock, lock_index);
    out.check_index(key, modified);
    out.erase(keys.lock);
    out.erase(key);
    const auto queue_check = out.size();
    if (idle_queue != 0) {
      out.check_index(keys.queue, idle_queue);
      out.erase(keys.queue);
    }
    auto got = co_await transact(std::move(out), own->name, {}, how);
    if (!got) co_return std::move(got).error();
    if (got->done()) co_return alone::done;
    repeated = repeated || got->repeated;
    const bool only_queue =
        idle_queue != 0 && got->failures.size() == 1 && got->failed_at(queue_check);
    if (!only_queue) co_return repeated ? alone::doubtful : alone::changed;
    idle_queue = 0;  // another client has come: the queue stays
  }
}

// The entry stays: core asks again, or it ends by itself.
error consul_engine::not_released(const mine& own, error why) {
  const auto lock = entries_.lock();
  own->in_doubt = own->in_doubt || !why.is_not_done();
  entries_.end_release(*own, clock_.now() + left_to_core);
  return why;
}

operation<void> consul_engine::do_release(const grant& held, invocation how) {
  const release_order::under_way until_done{releases_, held.name};
  const auto own = entries_.find(held.owner);
  if (!own || !entries_.begin_release(*own)) {
    auto removed = co_await remove(held.name, held.owner, how);
    if (!removed) co_return std::move(removed).error();
    if (!*removed) co_return gone(held.name, held.owner);
    co_return result<void>{};
  }
  if (auto ended = co_await end_late_requests(own, how); !ended)
    co_return not_released(own, std::move(ended).error());
  auto by_itself = co_await release_alone(own, how);
  if (!by_itself) co_return not_released(own, std::move(by_itself).error());
  bool is_writer = false;
  {
    const auto lock = entries_.lock();
    is_writer = own->lock_index != 0;
  }
  // What the store still has of it goes in any case.
  // gcc 12 destroys the result twice when the co_await is part of a conditional expression (docs/decisions/0007).
  result<bool> rest{true};
  if (*by_itself != alone::done) rest = co_await remove(held.name, held.owner, how);
  if (!rest) co_return not_released(own, std::move(rest).error());
  forget(own);
  // A writer whose .lock has changed had lost it, whatever else was there; unless a copy of this very release had
  // changed it, which took everything along.
  const bool was_held =
      is_writer ? *by_itself == alone::done || (*by_itself == alone::doubtful && !*rest) : *rest;
  if (!was_held) co_return gone(held.name, held.owner);
  co_return result<void>{};
}

// ---- leaving

operation<void> consul_engine::do_leave(const ticket& place, invocation how) {
  const release_order::under_way until_done{releases_, place.name};
  const auto own = entries_.find(place.owner);
  if (own)
    if (auto ended = co_await end_late_requests(own, how); !ended)
      co_return std::move(ended).error();
  if (place.replacing) {
    // What it replaced is gone if it was granted meanwhile: then it stays, and core asks.
    auto seen = co_await look(place.name, how);
    if (!seen) co_return std::move(seen).error();
    const auto* there = seen->find(place.owner);
    if (there != nullptr && there->holds()) co_return result<void>{};
  }
  auto away = co_await remove(place.name, place.owner, how);
  if (!away) co_return std::move(away).error();
  if (own) forget(own);
  co_return result<void>{};
}

// ---- settling

operation<entered> consul_engine::do_settle(const request& ask, invocation how) {
  auto own = entries_.find(ask.owner);
  if (own) {
    {
      const auto lock = entries_.lock();
      own->in_doubt = own->in_doubt || !own->key.empty();
    }
    if (auto ended = co_await end_late_requests(own, how); !ended)
      co_return as_reading(std::move(ended).error());
  }
  const auto sent = clock_.now();
  auto seen = co_await look(ask.name, how);
  if (!seen) co_return as_reading(std::move(seen).error());
  const auto* there = seen->find(ask.owner);
  // What it would have replaced is as it was.
  if (own && (there == nullptr || !there->holds())) end_change(own);
  if (there != nullptr && there->holds() && !seen->is_true(*there)) {
    auto away = co_await remove(ask.name, ask.owner, how);
    if (!away) co_return as_reading(std::move(away).error());
    there = nullptr;
  }
  if (there == nullptr) {
    if (own) forget(own);
    co_return entered{};
  }
  const auto now = sessions_->current();
  if (!own) own = entries_.find_or_make(ask);
  attempt at{ask, own, now.value_or(session_view{}), keys_of(how_.root, ask.name)};
  at.key = owner_key(at.keys, ask.owner);
  at.sent = sent;
  bool is_earlier = false;
  {
    const auto lock = entries_.lock();
    is_earlier = !now || own->session != now->id;
    if (own->session.empty()) own->session = there->session;
    own->key = there->key;
    own->mode = there->mode;
    own->weight = there->weight;
    own->capacity = there->capacity;
    if (own->ttl == nanoseconds::zero()) own->ttl = how_.session;  // core clears up: any will do
  }
  if (!there->holds()) {
    auto out = waiting(at, *seen, *there);
    // What it waited for may have gone before this look: then nothing would tell it.
    if (may_take(at, *seen)) out.waiting.recheck_at = clock_.now();
    co_return out;
  }
  if (!is_earlier) co_return granted(at, *there, seen->lock_index());
  // Of a session that is over for us: not worth anything, and core gives it back.
  entered out;
  out.what = entered::kind::granted;
  const auto lock = entries_.lock();
  own->is = own_entry::state::holding;
  adopt(*own, *there);
  own->number = 0;
  out.granted = as_grant(ask.name, *own, sent);
  co_return out;
}

}  // namespace holdfast::engines::consul

// Small steps of asking for a lock: the key, the grant, the place in the queue.
#include "engines/etcd/etcd_engine.hpp"

#include "engines/common/sentences.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <chrono>

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;

constexpr nanoseconds recheck_after = 10s;  // the back-stop; everything is pushed

std::int64_t wall_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace

// The key of this owner under this lease. It keeps the key that it has, so that asking again is asking for the same.
std::string etcd_engine::name_key(own_entry& mine, const request& ask, const lease_view& under,
                                  std::int64_t replaces) {
  const auto lock = entries_.lock();
  if (!mine.key.empty() && mine.lease == under.id) return mine.key;
  const bool is_read_by_others = !mine.label.empty() || ask.label_is_value;
  if (!mine.slot && !is_read_by_others && replaces == 0) mine.slot = entries_.take_slot(ask.name);
  mine.since_ms = wall_ms();
  key_parts parts;
  parts.lease = under.id;
  parts.slot = mine.slot;
  parts.owner = ask.owner;
  parts.mode = ask.mode;
  parts.weight = ask.weight;
  parts.capacity = ask.capacity;
  parts.replaces = replaces;
  parts.since_ms = mine.since_ms;
  parts.pid = pid_;
  parts.host = host_;
  mine.key = make_key(how_.root, ask.name, parts);
  mine.lease = under.id;
  mine.created = 0;
  mine.is = own_entry::state::asking;
  return mine.key;
}

std::string etcd_engine::value_of(const own_entry& mine, marks with) const {
  const auto lock = entries_.lock();
  if (mine.slot) {
    with.sequence = mine.owner.sequence;
    with.since_ms = mine.since_ms;
  }
  return make_value(mine.label, with);
}

// The other copy may be carried out at any time, and put the key anew: after the release, too.
void etcd_engine::note_repetition(own_entry& mine, bool repeated) {
  if (!repeated) return;
  const auto lock = entries_.lock();
  mine.in_doubt = true;
}

bool etcd_engine::is_queued(const own_entry& mine) const {
  const auto lock = entries_.lock();
  return mine.is == own_entry::state::waiting;
}

// It is in the queue: from here on it is not forgotten without being taken out.
void etcd_engine::note_position(own_entry& mine, std::int64_t created) {
  const auto lock = entries_.lock();
  mine.created = created;
  if (mine.is != own_entry::state::asking) return;
  mine.is = own_entry::state::waiting;
  mine.since = clock_.now();
}

etcd_engine::seen_queue etcd_engine::seen_in(const rpc::TxnResponse& said,
                                             std::string_view name) const {
  seen_queue out;
  out.revision = said.header().revision();
  if (said.responses_size() == 0) return out;
  const auto& last = said.responses(said.responses_size() - 1).response_range();
  out.queue = queue_in(last.kvs(), keys_of(how_.root, name));
  return out;
}

grant etcd_engine::as_grant(std::string_view name, own_entry& of, const lease_view& under,
                            steady_time sent) const {
  grant out;
  out.name = name;
  out.owner = of.owner;
  out.mode = of.mode;
  out.weight = of.weight;
  out.token = of.token;
  out.ttl = of.ttl;
  out.valid_from = sent;
  // The latest proof, if it is of the same lease: this answer may have been long on its way.
  const auto now = session_->current();
  out.session = (now && now->id == under.id ? *now : under).proof(caps_.longest_validity);
  of.until = out.valid_from + out.ttl;
  return out;
}

entered etcd_engine::granted(const enter_attempt& attempt, steady_time sent, std::int64_t created,
                             fencing_token token) {
  entered out;
  out.what = entered::kind::granted;
  {
    const auto lock = entries_.lock();
    auto& mine = *attempt.mine;
    if (mine.key.empty() || mine.lease != attempt.under.id)
      return ask_again(attempt.ask);  // lost meanwhile
    if (mine.is != own_entry::state::holding) mine.since = clock_.now();
    mine.is = own_entry::state::holding;
    mine.created = created;
    mine.token = token;
    mine.mode = attempt.ask.mode;
    mine.weight = attempt.ask.weight;
    mine.granted_at = static_cast<std::int64_t>(token.value);
    mine.successors.clear();
    mine.more_successors = token.value != static_cast<std::uint64_t>(created) && !mine.over;
    if (mine.over) mine.over->covered = true;
    out.granted = as_grant(attempt.ask.name, mine, attempt.under, sent);
  }
  waits_->forget(attempt.ask.owner.sequence);
  watch_manager_->plan_tick();
  return out;
}

entered etcd_engine::waiting(const enter_attempt& attempt, const seen_queue& seen,
                             const queue_entry& own) {
  entered out;
  out.what = entered::kind::waiting;
  out.waiting = ticket{attempt.ask.name, attempt.ask.owner, 0, clock_.now() + recheck_after};
  const auto lock = entries_.lock();
  auto& mine = *attempt.mine;
  if (mine.is != own_entry::state::waiting) mine.since = clock_.now();
  mine.is = own_entry::state::waiting;
  mine.created = own.created;
  mine.looked = seen.revision;
  mine.may_be_passive = !mine.over && seen.queue.may_be_passive(own);
  const auto* before = seen.queue.just_before(own);
  mine.before = before == nullptr ? stored{} : stored{before->key, before->created};
  return out;
}

entered etcd_engine::ask_again(const request& ask) const {
  entered out;
  out.what = entered::kind::waiting;
  out.waiting = ticket{ask.name, ask.owner, 0, clock_.now()};
  return out;
}

// A request failed. The entry goes only if nothing of it is, or may yet come, into the store; otherwise core, which
// would take a certain failure for just that, is told to ask.
error etcd_engine::failed(const enter_attempt& attempt, error why) {
  const auto lock = entries_.lock();
  if (!why.is_not_done()) attempt.mine->in_doubt = true;
  if (attempt.mine->is != own_entry::state::asking || may_have_late_requests(*attempt.mine))
    return {errc::outcome_unknown, why.message()};
  entries_.drop(*attempt.mine, true);
  return why;
}

// For as long as it is free: the slot is ours, so the owner that put that key has gone, and its request came late or
// was not cleared up.
operation<bool> etcd_engine::clear_slot(const enter_attempt& attempt, const lock_queue& seen,
                                        invocation how) {
  const auto* left = seen.find(attempt.key);
  if (left == nullptr || left->owner == attempt.ask.owner) co_return false;
  std::vector<stored> keys{{left->key, left->created}};
  if (auto away = co_await remove(attempt.ask.name, std::move(keys), how); !away)
    co_return std::move(away).error();
  co_return true;
}

operation<entered> etcd_engine::refuse_capacity(const enter_attempt& attempt,
                                                const lock_queue& seen, bool queued,
                                                invocation how) {
  const auto why = other_capacity(attempt.ask, seen.capacity(), how_.url);
  auto doubted = co_await end_late_requests(attempt.mine, how);
  if (!doubted) co_return std::move(doubted).error();
  if (*doubted) {
    auto again = co_await enter_plainly(attempt, how);
    if (!again) co_return as_doubt(again.error());
    co_return std::move(again);
  }
  if (queued) {
    std::vector<stored> keys;
    if (const auto* own = attempt.find_in(seen)) keys.push_back({own->key, own->created});
    if (auto away = co_await remove(attempt.ask.name, std::move(keys), how); !away)
      co_return failed(attempt, as_doubt(away.error()));
  }
  forget(attempt.mine, true);
  co_return why;
}

// A doubt, so core asks what became of it: some of what was tried may be there.
error etcd_engine::kept_changing(std::string_view name) const {
  return {errc::outcome_unknown,
          fmt::format("Lock {} on {}: its queue changed faster than this client could enter it.",
                      support::quoted(name), how_.url)};
}

}  // namespace holdfast::engines::etcd

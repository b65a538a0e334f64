// Giving back, and asking what became of an unanswered request.
#include "engines/etcd/etcd_engine.hpp"

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;
using standing = queue_entry::standing;

// A release whose fate is not known: core asks about it; if it does not, it ends after this.
constexpr auto left_to_core = 2s;
constexpr auto removals_take = 1s;

}  // namespace

// A verb of ours is taking a key away, and perhaps calling the next waiter. The engine does not go before that is done.
class etcd_engine::removal {
 public:
  explicit removal(etcd_engine& from) : from_(from) {
    const std::lock_guard lock{from_.removals_guard_};
    ++from_.removals_;
  }
  removal(const removal&) = delete;
  removal& operator=(const removal&) = delete;
  ~removal() {
    const std::lock_guard lock{from_.removals_guard_};
    if (--from_.removals_ == 0) from_.removals_done_.notify_all();
  }

 private:
  etcd_engine& from_;
};

void etcd_engine::wait_for_removals() noexcept {
  std::unique_lock lock{removals_guard_};
  removals_done_.wait_for(lock, removals_take, [this] { return removals_ == 0; });
}

// ---- taken along

// A request for the same name deletes what is being released, too: whichever is carried out first.
void etcd_engine::begin_sweep(const std::vector<own_entries::ref>& leaving) {
  if (leaving.empty()) return;
  const auto lock = entries_.lock();
  for (const auto& left : leaving) ++left->sweepers;
}

// The deletions are the first in the request that change anything, in the order of keys_in(); see enter_request().
void etcd_engine::end_sweep(const std::vector<own_entries::ref>& leaving,
                            const result<txn_answer>& got) {
  if (leaving.empty()) return;
  std::vector<bool> deleted;
  for (int i = 0; got && i < got->said.responses_size(); ++i) {
    const auto& response = got->said.responses(i);
    if (response.has_response_delete_range())
      deleted.push_back(response.response_delete_range().deleted() > 0);
    if (response.has_response_txn()) deleted.push_back(response.response_txn().succeeded());
  }
  const bool unknown = got ? got->repeated : !got.error().is_not_done();
  const auto lock = entries_.lock();
  std::size_t at = 0;
  for (const auto& left : leaving) {
    --left->sweepers;
    left->swept = left->swept || unknown || (at < deleted.size() && deleted[at]);
    at += keys_in({left}).size();
  }
}

// ---- release

// From begin_release() on, which happens before this suspends, the key is gone for this client. So a verb that asks for
// the same name afterwards finds it released, although requests may overtake each other on their way.
operation<void> etcd_engine::do_release(const grant& held, invocation how) {
  const removal until_done{*this};
  const auto mine = entries_.find(held.owner);
  bool doubted = false;
  if (mine) {
    auto ended = co_await end_late_requests(mine, how);
    if (!ended) co_return std::move(ended).error();
    doubted = *ended;
  }
  if (!mine || !entries_.begin_release(*mine))
    co_return co_await release_unlisted(held.name, held.owner, how);
  const auto keys = keys_in({mine});
  if (keys.empty()) {
    forget(mine);
    co_return gone(held.name);
  }
  static_cast<void>(co_await find_successors(mine, how));
  const auto successors = successors_of(*mine);
  rpc::TxnRequest out;
  expect_created(out, keys.front().key, mine->created);
  for (const auto& key : keys) add_delete(*out.mutable_success(), key.key);
  if (!successors.empty())
    add_hand_over(*out.mutable_success(), successors, keys_of(how_.root, held.name));
  txn_options with;
  with.at_once = true;
  auto got = co_await transact(std::move(out), held.name, with, how);
  if (!got) {
    const auto lock = entries_.lock();
    mine->swept = mine->swept || !got.error().is_not_done();  // it may be that it was
    entries_.end_release(*mine, clock_.now() + left_to_core);
    co_return std::move(got).error();
  }
  const bool swept = [&] {
    const auto lock = entries_.lock();
    return mine->swept || mine->sweepers > 0;
  }();
  // It was taken away, and a late request of ours put it again: that goes, too.
  if (!got->said.succeeded() && doubted)
    static_cast<void>(co_await release_unlisted(held.name, held.owner, how));
  forget(mine, true);
  // Gone, and perhaps by an earlier try of ours, or by a later request that took it along.
  if (!got->said.succeeded() && !got->repeated && !swept) co_return gone(held.name);
  if (got->said.succeeded() && !successors.empty()) {
    const auto& handed = got->said.responses(got->said.responses_size() - 1).response_txn();
    if (!handed.succeeded()) {
      // The successor has left: the next waiter, then.
      const auto seen = seen_in(handed, held.name);
      static_cast<void>(
          co_await call_next(held.name, seen.queue, mine->created, mine->granted_at, how));
    }
  }
  co_return result<void>{};
}

// Not in our entries: it was lost, or this is said again. Whatever the store has of this owner goes.
operation<void> etcd_engine::release_unlisted(std::string_view name, owner_id owner,
                                              invocation how) {
  auto seen = co_await look(name, how);
  if (!seen) co_return std::move(seen).error();
  std::vector<stored> keys;
  for (const auto& entry : seen->queue.all())
    if (!entry.foreign && entry.owner == owner) keys.push_back({entry.key, entry.created});
  if (keys.empty()) co_return gone(name);
  co_return co_await remove(name, std::move(keys), how);
}

operation<void> etcd_engine::remove(std::string_view name, std::vector<stored> keys,
                                    invocation how) {
  rpc::TxnRequest out;
  for (const auto& key : keys) add_delete(*out.mutable_success(), key);
  auto got = co_await transact(std::move(out), name, {}, how);
  if (!got) co_return std::move(got).error();
  co_return result<void>{};
}

// An upgrade stands on what it has replaced: that goes with it.
void etcd_engine::forget(const own_entries::ref& which, bool is_gone) {
  waits_->forget(which->owner.sequence);
  const auto lock = entries_.lock();
  which->is = own_entry::state::releasing;  // a verb that still knows it leaves it alone
  const bool whole = which->over && which->over->covered;
  entries_.drop(*which, is_gone);
  if (!whole) return;
  for (auto* entry = which->over.get(); entry != nullptr; entry = entry->over.get())
    entries_.drop(*entry, is_gone);
}

// ---- leaving

operation<void> etcd_engine::do_leave(const ticket& place, invocation how) {
  const removal until_done{*this};
  const auto mine = entries_.find(place.owner);
  if (!mine) {
    auto away = co_await release_unlisted(place.name, place.owner, how);
    if (!away && away.error().code() != errc::not_held) co_return std::move(away).error();
    co_return result<void>{};
  }
  const auto doubted = co_await end_late_requests(mine, how);
  if (!doubted) co_return doubted.error();
  stored key;
  bool hands_over = false;
  {
    const auto lock = entries_.lock();
    key = {mine->key, *doubted ? 0 : mine->created};
    hands_over = mine->mode == lock_mode::exclusive && !mine->over;
    if (mine->is == own_entry::state::holding)
      mine->is = own_entry::state::waiting;  // it is not wanted
  }
  if (!key.key.empty() && key.created == 0) {  // we have not seen it yet
    auto seen = co_await look(place.name, how);
    if (!seen) co_return std::move(seen).error();
    const auto* own = seen->queue.find(key.key);
    if (own != nullptr && own->owner == place.owner) key.created = own->created;
  }
  if (!key.key.empty() && key.created != 0) {
    rpc::TxnRequest out;
    add_delete(*out.mutable_success(), key);
    if (hands_over) add_range(*out.mutable_success(), keys_of(how_.root, place.name));
    auto away = co_await transact(std::move(out), place.name, {}, how);
    if (!away) co_return std::move(away).error();
    if (hands_over) {
      const auto seen = seen_in(away->said, place.name);
      static_cast<void>(co_await call_next(place.name, seen.queue, key.created, anybody, how));
    }
  }
  if (mine->over) uncover(mine->over);
  forget(mine, true);
  co_return result<void>{};
}

// An upgrade that is not wanted any more: its owner reads on as before.
void etcd_engine::uncover(const own_entries::ref& old) {
  const auto lock = entries_.lock();
  if (!old->covered) return;
  old->covered = false;
  old->until = clock_.now() + old->ttl;
}

// ---- settling

operation<entered> etcd_engine::do_settle(const request& ask, invocation how) {
  auto mine = entries_.find(ask.owner);
  if (mine)
    if (auto ended = co_await end_late_requests(mine, how); !ended)
      co_return as_reading(std::move(ended).error());
  const auto sent = clock_.now();
  auto seen = co_await look(ask.name, how);
  if (!seen) co_return as_reading(std::move(seen).error());
  const auto* own = seen->queue.find(ask.owner);
  if (own == nullptr) {
    if (mine) {
      if (mine->over) uncover(mine->over);
      forget(mine, true);
    }
    co_return entered{};
  }
  auto under = session_->current();
  if (!under || under->id != own->lease) {
    // Left over from a session that we have given up: not worth anything, and core gives it back.
    under = lease_view{own->lease, clock_.now() - 2 * nanoseconds{how_.session}, how_.session};
  }
  if (!mine) mine = entries_.find_or_make(ask);
  enter_attempt attempt{ask, mine, own->key, *under};
  {
    const auto lock = entries_.lock();
    mine->key = own->key;
    mine->lease = own->lease;
    if (mine->ttl == nanoseconds::zero()) mine->ttl = how_.session;  // core clears up: any will do
  }
  if (own->stands != standing::holder) co_return waiting(attempt, *seen, *own);
  if (own->overtaken()) {
    auto out = waiting(attempt, *seen, *own);
    out.waiting.recheck_at = clock_.now();
    co_return out;
  }
  auto out = granted(attempt, sent, own->created, own->token);
  note_successors(*mine, *seen, *own);
  const auto lock = entries_.lock();
  out.granted.mode = mine->mode = own->mode;
  out.granted.weight = mine->weight = own->weight;
  co_return out;
}

}  // namespace holdfast::engines::etcd

// Asking for a lock.
#include "engines/etcd/etcd_engine.hpp"

#include <fmt/format.h>

namespace holdfast::engines::etcd {

namespace {

using standing = queue_entry::standing;

constexpr int most_compares = 128;  // in one transaction (--max-txn-ops)
using no_grants = std::vector<grant>;

}  // namespace

// ---- the way in

operation<entered> etcd_engine::do_enter(const request& ask, invocation how) {
  for (int round = 0;; ++round) {
    auto lease = session_->current();
    if (!lease) {
      auto made = co_await session_->ensure(how);
      if (!made) co_return about(std::move(made).error(), ask.name);
      lease = *made;
    }
    enter_attempt attempt{ask, entries_.find_or_make(ask), {}, *lease};
    auto inside =
        ask.replaces != nullptr ? enter_upgrade(attempt, how) : enter_plainly(attempt, how);
    auto out = co_await inside;
    const bool ended = !out && out.error().code() == errc::unavailable && !session_->current();
    if (!ended || round > 0) co_return out;
    // The session was found to be gone: nothing was put. Once more, with a new session.
  }
}

operation<entered> etcd_engine::enter_plainly(const enter_attempt& given, invocation how) {
  enter_attempt attempt = given;
  if (++attempt.repeats > rounds) co_return failed(attempt, kept_changing(attempt.ask.name));
  attempt.key = name_key(*attempt.mine, attempt.ask, attempt.under, 0);
  if (is_queued(*attempt.mine)) {
    // Where do we stand? A question, which costs the cluster less than a transaction that could write.
    const auto sent = clock_.now();
    auto seen = co_await look(attempt.ask.name, how);
    if (!seen) co_return std::move(seen).error();  // nothing has changed: core knows that we wait
    if (attempt.find_in(seen->queue) != nullptr)
      co_return co_await enter_or_wait(attempt, std::move(*seen), sent, how);
  }
  const auto leaving = entries_.releasing(attempt.ask.name);
  const auto epoch = session_->epoch(attempt.under.id);
  const auto sent = clock_.now();
  auto body = enter_request(attempt, epoch, leaving);
  begin_sweep(leaving);
  auto got = co_await transact(std::move(body), attempt.ask.name, {attempt.under.id}, how);
  end_sweep(leaving, got);
  if (!got) co_return failed(attempt, std::move(got).error());
  note_repetition(*attempt.mine, got->repeated);
  const auto revision = got->said.header().revision();
  if (got->said.succeeded())
    co_return granted(attempt, sent, revision, {static_cast<std::uint64_t>(revision)});
  auto seen = seen_in(got->said, attempt.ask.name);
  for (const auto& left : leaving) {
    // Its successor was not known then, or had left.
    auto called = call_next(attempt.ask.name, seen.queue, left->created, left->granted_at, how);
    static_cast<void>(co_await called);
  }
  note_epoch(attempt.under.id, got->said);
  if (attempt.find_in(seen.queue) == nullptr) {
    auto cleared = co_await clear_slot(attempt, seen.queue, how);
    if (!cleared) co_return failed(attempt, std::move(cleared).error());
    const bool moved = session_->epoch(attempt.under.id).modified != epoch.modified;
    if (moved || *cleared) co_return co_await enter_plainly(attempt, how);
    if (!attempt.ask.wait) co_return co_await enter_without_waiting(attempt, std::move(seen), how);
  }
  co_return co_await enter_or_wait(attempt, std::move(seen), sent, how);
}

// Puts the key if nothing else is there. Otherwise it is put to the end of the queue (if we wait), and the queue is
// read. What we are about to release does not count, and goes; the waiter that comes first then is told, as by the
// release itself.
rpc::TxnRequest etcd_engine::enter_request(const enter_attempt& attempt, const epoch_view& epoch,
                                           const std::vector<own_entries::ref>& leaving) const {
  const auto sweeps = keys_in(leaving);
  const auto range = keys_of(how_.root, attempt.ask.name);
  const auto value = value_of(*attempt.mine);
  rpc::TxnRequest out;
  expect_nothing(out, range, sweeps);
  expect_modified(out, epoch.key, epoch.modified);
  auto& free = *out.mutable_success();
  auto& taken = *out.mutable_failure();
  add_range(taken, epoch.key);
  for (const auto& key : sweeps) {
    add_delete(free, key.key);
    add_delete(taken, key);
  }
  for (const auto& left : leaving)
    if (const auto successors = successors_of(*left); !successors.empty())
      expect_created(add_hand_over(taken, successors, range), left->key, left->created);
  add_put(free, attempt.key, value, attempt.under.id);
  if (attempt.ask.wait) {
    auto& queue = *taken.Add()->mutable_request_txn();
    expect_created(queue, attempt.key, 0);
    expect_modified(queue, epoch.key, epoch.modified);
    add_put(*queue.mutable_success(), attempt.key, value, attempt.under.id);
  }
  add_range(taken, range);
  return out;
}

// ---- where we stand

operation<entered> etcd_engine::enter_or_wait(const enter_attempt& attempt, seen_queue seen,
                                              steady_time sent, invocation how) {
  for (int round = 0; round < rounds; ++round) {
    const auto* own = attempt.find_in(seen.queue);
    if (own == nullptr) co_return ask_again(attempt.ask);  // taken away at this very moment
    note_position(*attempt.mine, own->created);
    std::vector<const queue_entry*>
        needed;  // none for a waiter that was overtaken and takes a new token
    if (own->stands == standing::holder && !own->overtaken()) {
      auto out = granted(attempt, sent, own->created, own->token);
      note_successors(*attempt.mine, seen, *own);
      co_return out;
    }
    if (own->stands != standing::holder) {
      if (own->capacity != seen.queue.capacity())
        co_return co_await refuse_capacity(attempt, seen.queue, true, how);
      if (attempt.ask.order != queue_order::barging) co_return waiting(attempt, seen, *own);
      auto blockers = seen.queue.takes_barging(attempt.ask.weight);
      if (!blockers || blockers->size() > most_at_once) co_return waiting(attempt, seen, *own);
      needed = std::move(*blockers);
    }
    auto in = co_await enter_by_mark(attempt, seen, needed, how);
    if (!in) co_return failed(attempt, std::move(in).error());
    if (*in) co_return **in;
  }
  co_return ask_again(attempt.ask);
}

// Without waiting: our key is not in the queue, and comes into it only if that means that we hold.
operation<entered> etcd_engine::enter_without_waiting(const enter_attempt& attempt, seen_queue seen,
                                                      invocation how) {
  for (int round = 0; round < rounds; ++round) {
    if (!seen.queue.empty() && attempt.ask.capacity != seen.queue.capacity())
      co_return co_await refuse_capacity(attempt, seen.queue, false, how);
    std::optional<std::vector<const queue_entry*>> needed;
    if (seen.queue.takes(attempt.ask.weight)) {
      needed.emplace();
    } else if (attempt.ask.order == queue_order::barging) {
      needed = seen.queue.takes_barging(attempt.ask.weight);
    }
    if (!needed || needed->size() > most_at_once) break;
    auto in = co_await enter_by_mark(attempt, seen, *needed, how);
    if (!in) co_return failed(attempt, std::move(in).error());
    if (*in) co_return **in;
  }
  auto doubted = co_await end_late_requests(attempt.mine, how);
  if (!doubted) co_return std::move(doubted).error();
  if (*doubted) {
    auto again = co_await enter_plainly(attempt, how);
    if (!again) co_return as_doubt(again.error());
    co_return std::move(again);
  }
  forget(attempt.mine, true);
  co_return entered{};
}

// ---- by a mark

operation<std::optional<entered>> etcd_engine::enter_by_mark(
    const enter_attempt& attempt, seen_queue& seen, const std::vector<const queue_entry*>& needed,
    invocation how) {
  using outcome = std::optional<entered>;
  if (seen.queue.untouched().size() > most_at_once) {
    if (auto some = co_await touch_some(attempt, seen, how); !some)
      co_return std::move(some).error();
    auto again = co_await look(attempt.ask.name, how);
    if (!again) co_return std::move(again).error();
    seen = std::move(*again);
    co_return outcome{};
  }
  const auto* own = attempt.find_in(seen.queue);
  const auto created = own == nullptr ? 0 : own->created;
  const auto range = keys_of(how_.root, attempt.ask.name);
  const auto epoch = session_->epoch(attempt.under.id);
  rpc::TxnRequest out;
  expect_created(out, attempt.key, created);
  expect_modified(out, epoch.key, epoch.modified);
  expect_unchanged(out, range, seen.revision);
  for (const auto* entry : needed) expect_created(out, entry->key, entry->created);
  marks with;
  with.granted = true;
  add_put(*out.mutable_success(), attempt.key, value_of(*attempt.mine, with), attempt.under.id);
  for (const auto* waiter : seen.queue.untouched())
    if (waiter != own) add_touch(*out.mutable_success(), {waiter->key, waiter->created});
  add_range(*out.mutable_failure(), epoch.key);
  add_range(*out.mutable_failure(), range);
  const auto sent = clock_.now();
  auto got = co_await transact(std::move(out), attempt.ask.name, {attempt.under.id}, how);
  if (!got) co_return std::move(got).error();
  note_repetition(*attempt.mine, got->repeated);
  const auto revision = got->said.header().revision();
  if (got->said.succeeded())
    co_return outcome{granted(attempt, sent, created == 0 ? revision : created,
                              {static_cast<std::uint64_t>(revision)})};
  note_epoch(attempt.under.id, got->said);
  seen = seen_in(got->said, attempt.ask.name);
  own = attempt.find_in(seen.queue);
  if (own == nullptr || !own->entered) co_return outcome{};
  co_return outcome{
      granted(attempt, sent, own->created, own->token)};  // an earlier try of this was it
}

// More waiters than go into one transaction: their keys are touched before, some at a time.
operation<void> etcd_engine::touch_some(const enter_attempt& attempt, const seen_queue& seen,
                                        invocation how) {
  rpc::TxnRequest out;
  const auto all = seen.queue.untouched();
  for (std::size_t i = 0; i < most_at_once; ++i)
    add_touch(*out.mutable_success(), {all[i]->key, all[i]->created});
  auto got = co_await transact(std::move(out), attempt.ask.name, {}, how);
  if (!got) co_return std::move(got).error();
  co_return result<void>{};
}

// ---- several at once

operation<std::vector<grant>> etcd_engine::do_enter_all(std::span<const request> asks,
                                                        invocation how) {
  for (const auto& ask : asks)
    if (ask.mode != lock_mode::exclusive || ask.replaces != nullptr) co_return no_grants{};
  for (int round = 0; round < rounds; ++round) {
    auto in = co_await try_enter_all(asks, how);
    if (!in && round > 0) co_return as_doubt(in.error());  // what was asked for before may be there
    if (!in) co_return std::move(in).error();
    if (*in) co_return std::move(**in);
  }
  co_return kept_changing(asks.front().name);
}

// One transaction that puts all keys if nothing lies under any of the names.
rpc::TxnRequest etcd_engine::enter_all_request(std::span<const enter_attempt> all,
                                               const lease_view& under,
                                               std::vector<own_entries::ref>& leaving) const {
  const auto epoch = session_->epoch(under.id);
  rpc::TxnRequest out;
  expect_modified(out, epoch.key, epoch.modified);
  add_range(*out.mutable_failure(), epoch.key);
  for (const auto& attempt : all) {
    const auto releasing = entries_.releasing(attempt.ask.name);
    leaving.insert(leaving.end(), releasing.begin(), releasing.end());
    const auto sweeps = keys_in(releasing);
    expect_nothing(out, keys_of(how_.root, attempt.ask.name), sweeps);
    for (const auto& key : sweeps) add_delete(*out.mutable_success(), key.key);
    add_put(*out.mutable_success(), attempt.key, value_of(*attempt.mine), under.id);
    add_range(*out.mutable_failure(), attempt.key);
  }
  return out;
}

// What its answer grants: all of them, or none. An earlier try of the same request may have been carried out.
result<std::vector<grant>> etcd_engine::read_all_entered(std::span<const enter_attempt> all,
                                                         const rpc::TxnResponse& said,
                                                         steady_time sent) {
  std::vector<grant> out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto created = said.header().revision();
    if (!said.succeeded()) {
      const auto& kvs = said.responses(static_cast<int>(i) + 1).response_range().kvs();
      if (kvs.empty() || read_queue_entry(kvs[0]).owner != all[i].ask.owner) break;
      created = kvs[0].create_revision();
    }
    const auto in = granted(all[i], sent, created, {static_cast<std::uint64_t>(created)});
    if (in.what != entered::kind::granted)
      return error{errc::outcome_unknown,
                   fmt::format("{}: the session ended in between.", how_.url)};
    out.push_back(in.granted);
  }
  if (out.empty() || out.size() == all.size()) return out;
  const error why{errc::outcome_unknown,
                  fmt::format("{}: only some of the locks are there.", how_.url)};
  for (const auto& attempt : all) static_cast<void>(failed(attempt, why));
  return why;
}

// The grants, or none; nothing: once more.
operation<std::optional<std::vector<grant>>> etcd_engine::try_enter_all(
    std::span<const request> asks, invocation how) {
  using outcome = std::optional<std::vector<grant>>;
  auto lease = co_await session_->ensure(how);
  if (!lease) co_return std::move(lease).error();
  std::vector<enter_attempt> all;
  for (const auto& ask : asks) {
    auto& attempt = all.emplace_back(enter_attempt{ask, entries_.find_or_make(ask), {}, *lease});
    attempt.key = name_key(*attempt.mine, ask, *lease, 0);
  }
  std::vector<own_entries::ref> leaving;
  auto body = enter_all_request(all, *lease, leaving);
  if (body.compare_size() > most_compares) {
    for (const auto& attempt : all) forget(attempt.mine, true);
    co_return outcome{no_grants{}};
  }
  const auto sent = clock_.now();
  begin_sweep(leaving);
  auto got = co_await transact(std::move(body), asks.front().name, {lease->id}, how);
  end_sweep(leaving, got);
  if (!got) {
    for (const auto& attempt : all) static_cast<void>(failed(attempt, got.error()));
    co_return std::move(got).error();
  }
  for (const auto& attempt : all) note_repetition(*attempt.mine, got->repeated);
  auto in = read_all_entered(all, got->said, sent);
  if (!in) co_return std::move(in).error();
  if (!in->empty()) co_return outcome{std::move(*in)};
  note_epoch(lease->id, got->said);
  bool doubted = false;
  for (const auto& attempt : all) {
    auto any = co_await end_late_requests(attempt.mine, how);
    if (!any) co_return std::move(any).error();
    doubted = doubted || *any;
  }
  if (doubted) co_return outcome{};
  for (const auto& attempt : all) forget(attempt.mine, true);
  co_return outcome{no_grants{}};  // or the epoch has moved: one after the other will do
}

}  // namespace holdfast::engines::etcd

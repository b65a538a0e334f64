// locked_shard: holders, waiters and watchers of one record, and the grant rule.
#include "engines/file/shard.hpp"

#include "engines/common/grant_rule.hpp"
#include "engines/file/recovery.hpp"

namespace holdfast::engines::file {

namespace {

void link_front(mapping& store, offset& list, entry& linked) noexcept {
  const offset where = store.offset_of(linked);
  linked.prev = 0;
  linked.next = list;
  if (list != 0) store.entry_at(list).prev = where;
  list = where;
}

void unlink(mapping& store, offset& first, offset* last, entry& linked) noexcept {
  (linked.prev == 0 ? first : store.entry_at(linked.prev).next) = linked.next;
  if (linked.next != 0) {
    store.entry_at(linked.next).prev = linked.prev;
  } else if (last != nullptr) {
    *last = linked.prev;
  }
}

}  // namespace

bool locked_shard::is_ours(const entry& asked, std::uint64_t sequence) const noexcept {
  return asked.sequence == sequence && asked.session == env_.self.session &&
         asked.generation == env_.self.generation &&
         (asked.flags & (entry_fast | entry_replaced)) == 0;
}

bool locked_shard::is_gone(const entry& holder, steady_time now) const noexcept {
  if (to_count(now) > holder.expires) return true;
  return (holder.flags & entry_lasting) == 0 &&
         !is_alive(store_.session_at(holder.session), holder.generation);
}

// Killed in between, we leave it to the next successor; an upgrade whose base has another session then counts beside it
// until the base's time is over.
void locked_shard::take_over(record& in, std::uint64_t sequence, std::uint64_t client) noexcept {
  const auto move = [this](entry& to) {
    to.session = env_.self.session;
    to.generation = env_.self.generation;
  };
  for (offset e = in.holders; e != 0; e = at(e).next) {
    entry& left = at(e);
    if ((left.flags & entry_lasting) == 0 || left.fast_word != client || left.sequence != sequence)
      continue;
    if ((left.flags & entry_replaced) != 0 ||
        is_alive(store_.session_at(left.session), left.generation))
      continue;
    move(left);
    if (left.replaces != 0) move(at(left.replaces));
    changed(in);                                // its session shows in what operators see
    if (in.waiters != 0) wake(at(in.waiters));  // it watches a session that is over, or nobody's
  }
}

entry* locked_shard::find_owner(const record& in, std::uint64_t sequence,
                                bool among_waiters) const noexcept {
  for (offset e = among_waiters ? in.waiters : in.holders; e != 0; e = at(e).next) {
    if (is_ours(at(e), sequence)) return &at(e);
  }
  return nullptr;
}

entry* locked_shard::find_fast(const record& in, std::uint64_t word) const noexcept {
  for (offset e = in.holders; e != 0; e = at(e).next) {
    const entry& holder = at(e);
    if ((holder.flags & entry_fast) == 0 || holder.fast_word != word) continue;
    if (holder.generation == env_.self.generation) return &at(e);
  }
  return nullptr;
}

entry* locked_shard::find_holder(const grant& held, record*& in) const noexcept {
  const offset where = where_of(held.handle);
  if ((held.handle & entry_handle) != 0) {
    entry& holder = at(where);
    if (holder.state != entry_state::holding ||
        incarnation_of(holder.serial) != incarnation_of(held.handle) ||
        !is_ours(holder, held.owner.sequence)) {
      return nullptr;
    }
    in = &store_.record_at(holder.record);
    return &holder;
  }
  in = &store_.record_at(where);
  if (in->incarnation != incarnation_of(held.handle)) return nullptr;
  if (entry* holder = find_owner(*in, held.owner.sequence, false)) return holder;
  return find_fast(
      *in, fast_word(env_.prefix, held.owner.sequence, to_count(held.valid_from + held.ttl)));
}

// ---- from the word to entries

// Completes a fast holder's entry from its notes, once it has written them: by then its word may be an entry already.
void locked_shard::read_notes(const record& of, entry& holder) noexcept {
  if ((holder.flags & entry_fast) == 0) return;
  const std::uint64_t sequence = of.note_sequence, token = of.note_token;
  if (of.note_signature != signature(holder.fast_word, sequence, token)) return;
  holder.sequence = sequence;
  holder.token = token;
  holder.since = of.note_since.get();
  for (std::size_t i = 0; i < label_words; ++i) holder.label[i] = of.note_label[i].get();
  holder.flags = holder.flags & ~entry_fast;  // nothing about it is unknown
}

void locked_shard::inflate(record& of) noexcept {
  for (;;) {
    std::uint64_t word = of.word.load(std::memory_order_acquire);
    if (tag_of(word) == word_tag::slow) {
      if (of.holder_count == 1) read_notes(of, at(of.holders));
      return;
    }
    if (tag_of(word) == word_tag::free) {
      if (of.word.compare_exchange_strong(word, slow_word, std::memory_order_acq_rel)) return;
      continue;
    }
    const auto holder = holder_of(word);
    const auto now = to_count(env_.time.now());
    entry& inflated = new_entry(of, holder.sequence);
    inflated.session = holder.session;
    // The word has only its low bits. If they differ from the current one's, the holder is of an older generation.
    const std::uint32_t current =
        store_.session_at(holder.session).generation.load(std::memory_order_acquire);
    inflated.generation =
        low_bits(current, generation_bits) == holder.generation ? current : current - 1;
    inflated.flags = entry_fast;
    inflated.fast_word = word;
    inflated.mode = lock_mode::exclusive;
    inflated.weight = rw_capacity;
    inflated.ttl = 0;
    inflated.since = now;
    inflated.expires = expiry_of(word, now, longest_ttl.count());
    write_text(inflated.label, {});
    of.capacity = rw_capacity;
    // A rebuild drops it unless the word is slow: until the next step the word is the truth.
    inflated.state.publish(entry_state::holding);
    if (!of.word.compare_exchange_strong(word, slow_word, std::memory_order_acq_rel)) {
      free_entry(inflated);  // released, or taken by another, in between
      continue;
    }
    link_front(store_, of.holders, inflated);
    of.holder_count = 1;
    of.used = rw_capacity;
    ++of.additions;
    read_notes(of, inflated);
    return;
  }
}

// ---- coming and going

void locked_shard::grant_to(record& in, entry& granted, steady_time now) noexcept {
  granted.token = in.token.fetch_add(1, std::memory_order_acq_rel) + 1;
  granted.since = to_count(now);
  granted.expires = to_count(now) + granted.ttl;
  granted.state.publish(entry_state::holding);
  link_front(store_, in.holders, granted);
  in.used += granted.weight;
  ++in.holder_count;
  ++in.additions;
  if (granted.replaces != 0) {
    entry& base = at(granted.replaces);
    base.flags = base.flags | entry_replaced;
    in.used -= base.weight;
    --in.holder_count;
  }
  changed(in);
}

void locked_shard::queue_up(record& in, entry& waiter) noexcept {
  waiter.state.publish(entry_state::waiting);
  offset before = in.last_waiter;
  while (before != 0 && goes_before(waiter, at(before))) before = at(before).prev;
  const offset where = store_.offset_of(waiter);
  waiter.prev = before;
  offset& link = before == 0 ? in.waiters : at(before).next;
  waiter.next = link;
  link = where;
  if (waiter.next == 0) {
    in.last_waiter = where;
  } else {
    at(waiter.next).prev = where;
    wake(at(waiter.next));  // it has another waiter before it now, to monitor
  }
  in.waiter_count = in.waiter_count + 1;
}

void locked_shard::add_watcher(record& in, entry& watcher) noexcept {
  watcher.state.publish(entry_state::watching);
  link_front(store_, in.watchers, watcher);
}

void locked_shard::resize(record& in, entry& holder, std::uint64_t weight,
                          lock_mode mode) noexcept {
  if (holder.replaces != 0) {
    entry& base = at(holder.replaces);
    holder.replaces = 0;
    unlink(store_, in.holders, nullptr, base);
    free_entry(base);
  }
  in.used -= holder.weight;
  in.used += weight;
  holder.weight = weight;
  holder.mode = mode;
  changed(in);
}

void locked_shard::drop_holder(record& in, entry& holder) noexcept {
  const offset where = store_.offset_of(holder);
  if (holder.replaces != 0) {
    // First the base: should we be killed here, the upgrade goes on holding alone, and nothing comes back.
    entry& base = at(holder.replaces);
    unlink(store_, in.holders, nullptr, base);
    free_entry(base);
  }
  // An upgrade that waits has nothing to upgrade any more; its owner asks again and learns that.
  for (offset w = in.waiters; w != 0 && (at(w).flags & entry_upgrade) != 0;) {
    entry& waiter = at(w);
    w = waiter.next;
    if (waiter.replaces != where) continue;
    wake(waiter);
    drop_waiter(in, waiter);
  }
  unlink(store_, in.holders, nullptr, holder);
  in.used -= holder.weight;
  --in.holder_count;
  free_entry(holder);
  changed(in);
}

void locked_shard::end_upgrade(record& in, entry& upgrade, steady_time now) noexcept {
  entry& base = at(upgrade.replaces);
  base.expires = to_count(now) + base.ttl;
  unlink(store_, in.holders, nullptr, upgrade);
  in.used -= upgrade.weight;
  free_entry(upgrade);
  base.flags = base.flags & ~entry_replaced;
  in.used += base.weight;
  ++in.additions;
  changed(in);
}

void locked_shard::drop_waiter(record& in, entry& waiter) noexcept {
  if (waiter.next != 0) wake(at(waiter.next));  // it monitored this one
  unlink(store_, in.waiters, &in.last_waiter, waiter);
  in.waiter_count = in.waiter_count - 1;
  free_entry(waiter);
}

void locked_shard::drop_watcher(record& in, entry& watcher) noexcept {
  unlink(store_, in.watchers, nullptr, watcher);
  free_entry(watcher);
}

// ---- the rule

bool locked_shard::reap(record& in, steady_time now) noexcept {
  bool any = false;
  for (offset e = in.holders; e != 0;) {
    entry& holder = at(e);
    e = holder.next;
    if ((holder.flags & entry_replaced) != 0 || !is_gone(holder, now)) continue;
    tell_lost(holder, false);
    // Dropping an upgrade drops its base with it, which may be the next in the list.
    if (e != 0 && e == holder.replaces) e = at(e).next;
    drop_holder(in, holder);
    any = true;
  }
  return any;
}

void locked_shard::serve(record& in, steady_time now) noexcept {
  while (in.waiters != 0) {
    entry& head = at(in.waiters);
    if (!is_alive(store_.session_at(head.session), head.generation)) {
      unlink(store_, in.waiters, &in.last_waiter, head);
      in.waiter_count = in.waiter_count - 1;
      free_entry(head);
      continue;
    }
    queue_state state{in.capacity, in.used};
    if (head.replaces != 0) state.used -= at(head.replaces).weight;
    if (!fits(state, head.weight)) return;
    unlink(store_, in.waiters, &in.last_waiter, head);
    in.waiter_count = in.waiter_count - 1;
    grant_to(in, head, now);
    wake(head);
  }
}

// The first in the queue monitors the holders. After the usual hand-over it already does: its predecessor has become
// the one holder.
void locked_shard::let_head_monitor_holders(record& in) noexcept {
  if (in.waiters == 0) return;
  entry& head = at(in.waiters);
  const std::uint64_t all = monitors_holders | in.additions;
  if (head.monitors == all) return;
  if (in.holder_count == 1) {
    const entry& holder = at(in.holders);
    // An asynchronous waiter of the holder's own client has no timer, and its session thread is awake now anyway.
    const bool same = head.cookie != 0 && head.session == holder.session;
    if (!same && (holder.flags & entry_replaced) == 0 && head.monitors == holder.serial) return;
  }
  wake(head);
}

void locked_shard::after_change(record& in, steady_time now) noexcept {
  serve(in, now);
  let_head_monitor_holders(in);
  const bool empty = in.holders == 0 && in.waiters == 0 && in.watchers == 0;
  if (empty && in.kind == record_kind::lock &&
      in.word.load(std::memory_order_relaxed) == slow_word) {
    in.word.store(free_word(in.incarnation), std::memory_order_release);
  }
}

}  // namespace holdfast::engines::file

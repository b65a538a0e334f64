// locked_shard: holders, waiters and watchers of one record, and the grant rule.
#include "engines/file/shard.hpp"

#include "engines/common/grant_rule.hpp"
#include "engines/file/recovery.hpp"

namespace holdfast::engines::file {

namespace {

void link_front(mapping& store, offset& list, entry& one) noexcept {
  const offset where = store.offset_of(one);
  one.prev = 0;
  one.next = list;
  if (list != 0) store.entry_at(list).prev = where;
  list = where;
}

void unlink(mapping& store, offset& first, offset* last, entry& one) noexcept {
  (one.prev == 0 ? first : store.entry_at(one.prev).next) = one.next;
  if (one.next != 0) {
    store.entry_at(one.next).prev = one.prev;
  } else if (last != nullptr) {
    *last = one.prev;
  }
}

}  // namespace

bool locked_shard::is_ours(const entry& one, std::uint64_t sequence) const noexcept {
  return one.sequence == sequence && one.session == env_.self.session &&
         one.generation == env_.self.generation && (one.flags & (entry_fast | entry_replaced)) == 0;
}

bool locked_shard::is_gone(const entry& holder, steady_time now) const noexcept {
  return to_count(now) > holder.expires ||
         !is_alive(store_.session_at(holder.session), holder.generation);
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
    const entry& one = at(e);
    if ((one.flags & entry_fast) == 0 || one.fast_word != word) continue;
    if (one.generation == env_.self.generation) return &at(e);
  }
  return nullptr;
}

entry* locked_shard::find_holder(const grant& held, record*& in) const noexcept {
  const offset where = where_of(held.handle);
  if ((held.handle & entry_handle) != 0) {
    entry& one = at(where);
    if (one.state != entry_state::holding ||
        incarnation_of(one.serial) != incarnation_of(held.handle) ||
        !is_ours(one, held.owner.sequence)) {
      return nullptr;
    }
    in = &store_.record_at(one.record);
    return &one;
  }
  in = &store_.record_at(where);
  if (in->incarnation != incarnation_of(held.handle)) return nullptr;
  if (entry* one = find_owner(*in, held.owner.sequence, false)) return one;
  return find_fast(
      *in, fast_word(env_.prefix, held.owner.sequence, to_count(held.valid_from + held.ttl)));
}

// ---- from the word to entries

// Who it is that took the word, once the holder has written that down: when it does, the word may be an entry already.
void locked_shard::read_notes(const record& of, entry& one) noexcept {
  if ((one.flags & entry_fast) == 0) return;
  const std::uint64_t sequence = of.note_sequence, token = of.note_token;
  if (of.note_signature != signature(one.fast_word, sequence, token)) return;
  one.sequence = sequence;
  one.token = token;
  one.since = of.note_since.get();
  for (std::size_t i = 0; i < label_words; ++i) one.label[i] = of.note_label[i].get();
  one.flags = one.flags & ~entry_fast;  // nothing about it is unknown
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
    entry& one = new_entry(of, holder.sequence);
    one.session = holder.session;
    // The word has only its low bits. If they differ from the current one's, the holder is of an older generation.
    const std::uint32_t current =
        store_.session_at(holder.session).generation.load(std::memory_order_acquire);
    one.generation =
        low_bits(current, generation_bits) == holder.generation ? current : current - 1;
    one.flags = entry_fast;
    one.fast_word = word;
    one.mode = lock_mode::exclusive;
    one.weight = rw_capacity;
    one.ttl = 0;
    one.since = now;
    one.expires = expiry_of(word, now, longest_ttl.count());
    write_text(one.label, {});
    of.capacity = rw_capacity;
    // A rebuild drops it unless the word is slow: until the next step the word is the truth.
    one.state.publish(entry_state::holding);
    if (!of.word.compare_exchange_strong(word, slow_word, std::memory_order_acq_rel)) {
      free_entry(one);  // released, or taken by another, in between
      continue;
    }
    link_front(store_, of.holders, one);
    of.holder_count = 1;
    of.used = rw_capacity;
    ++of.additions;
    read_notes(of, one);
    return;
  }
}

// ---- coming and going

void locked_shard::grant_to(record& in, entry& one, steady_time now) noexcept {
  one.token = in.token.fetch_add(1, std::memory_order_acq_rel) + 1;
  one.since = to_count(now);
  one.expires = to_count(now) + one.ttl;
  one.state.publish(entry_state::holding);
  link_front(store_, in.holders, one);
  in.used += one.weight;
  ++in.holder_count;
  ++in.additions;
  if (one.replaces != 0) {
    entry& base = at(one.replaces);
    base.flags = base.flags | entry_replaced;
    in.used -= base.weight;
    --in.holder_count;
  }
  changed(in);
}

void locked_shard::queue_up(record& in, entry& one) noexcept {
  one.state.publish(entry_state::waiting);
  offset before = in.last_waiter;
  while (before != 0 && goes_before(one, at(before))) before = at(before).prev;
  const offset where = store_.offset_of(one);
  one.prev = before;
  offset& link = before == 0 ? in.waiters : at(before).next;
  one.next = link;
  link = where;
  if (one.next == 0) {
    in.last_waiter = where;
  } else {
    at(one.next).prev = where;
    wake(at(one.next));  // it has another waiter before it now, to monitor
  }
  in.waiter_count = in.waiter_count + 1;
}

void locked_shard::add_watcher(record& in, entry& one) noexcept {
  one.state.publish(entry_state::watching);
  link_front(store_, in.watchers, one);
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

void locked_shard::drop_holder(record& in, entry& one) noexcept {
  const offset where = store_.offset_of(one);
  if (one.replaces != 0) {
    // First the base: should we be killed here, the upgrade goes on holding alone, and nothing comes back.
    entry& base = at(one.replaces);
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
  unlink(store_, in.holders, nullptr, one);
  in.used -= one.weight;
  --in.holder_count;
  free_entry(one);
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

void locked_shard::drop_waiter(record& in, entry& one) noexcept {
  if (one.next != 0) wake(at(one.next));  // it monitored this one
  unlink(store_, in.waiters, &in.last_waiter, one);
  in.waiter_count = in.waiter_count - 1;
  free_entry(one);
}

void locked_shard::drop_watcher(record& in, entry& one) noexcept {
  unlink(store_, in.watchers, nullptr, one);
  free_entry(one);
}

// ---- the rule

bool locked_shard::reap(record& in, steady_time now) noexcept {
  bool any = false;
  for (offset e = in.holders; e != 0;) {
    entry& one = at(e);
    e = one.next;
    if ((one.flags & entry_replaced) != 0 || !is_gone(one, now)) continue;
    tell_lost(one, false);
    // Dropping an upgrade drops its base with it, which may be the next in the list.
    if (e != 0 && e == one.replaces) e = at(e).next;
    drop_holder(in, one);
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

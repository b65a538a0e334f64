// locked_shard: finding, making and recycling records and entries.
#include "engines/file/shard.hpp"

#include <algorithm>
#include <cstring>

namespace holdfast::engines::file {

record* locked_shard::find(record_kind kind, std::string_view name,
                           std::uint64_t hash) const noexcept {
  for (offset r = shard_.buckets[hash / shard_count % bucket_count]; r != 0;) {
    record& candidate = store_.record_at(r);
    if (candidate.hash == hash && candidate.kind == kind && candidate.name_length == name.size() &&
        std::memcmp(candidate.name.data(), name.data(), name.size()) == 0) {
      return &candidate;
    }
    r = candidate.next;
  }
  return nullptr;
}

result<record*> locked_shard::find_or_create(record_kind kind, std::string_view name,
                                             std::uint64_t hash) {
  if (record* known = find(kind, name, hash)) return known;
  if (shard_.free_records == 0) {
    // Idle records are kept because locks remember where theirs is; only now they are in the way. When
    // most are in use, recycling would be asked for again and again: grow as well.
    if (recycle_records() < records_per_chunk / 4) {
      auto grown = add_chunk(chunk_kind::records);
      if (!grown && shard_.free_records == 0) return grown.error();
    }
  }
  const offset where = shard_.free_records;
  record& fresh = store_.record_at(where);
  shard_.free_records = fresh.next;

  fresh.incarnation = fresh.incarnation + 1;
  fresh.token.store(shard_.token_base, std::memory_order_relaxed);
  fresh.note_signature = 0;
  fresh.hash = hash;
  fresh.kind = kind;
  fresh.name_length = static_cast<std::uint32_t>(name.size());
  std::memcpy(fresh.name.data(), name.data(), name.size());
  fresh.holders = fresh.waiters = fresh.last_waiter = fresh.watchers = 0;
  fresh.holder_count = 0;
  fresh.waiter_count = 0;
  fresh.capacity = fresh.used = 0;
  fresh.version = ++shard_.last_version;
  fresh.exists = 0;
  fresh.keep = nanoseconds::max().count();
  // Open only now that all of it is true: from here on a rebuild keeps it.
  const bool is_lock = kind == record_kind::lock;
  fresh.word.store(is_lock ? free_word(fresh.incarnation) : slow_word, std::memory_order_release);
  offset& bucket = shard_.buckets[hash / shard_count % bucket_count];
  fresh.next = bucket;
  bucket = where;
  return &fresh;
}

result<void> locked_shard::add_chunk(chunk_kind kind) {
  const auto taken = store_.take_chunk(index_, kind);
  if (!taken) return taken.error();
  chunk& fresh = store_.chunk_at(*taken);
  fresh.next = shard_.chunks;
  shard_.chunks = *taken;
  const auto first = *taken + static_cast<offset>(sizeof(chunk) / offset_unit);
  // Fresh bytes are zero, and zero means closed and free. Backwards, so that the list goes forwards.
  if (kind == chunk_kind::records) {
    for (std::size_t i = records_per_chunk; i-- > 0;) {
      const auto where = first + static_cast<offset>(i * sizeof(record) / offset_unit);
      store_.record_at(where).next = shard_.free_records;
      shard_.free_records = where;
    }
  } else {
    for (std::size_t i = entries_per_chunk; i-- > 0;) {
      const auto where = first + static_cast<offset>(i * sizeof(entry) / offset_unit);
      at(where).next = shard_.free_entries;
      shard_.free_entries = where;
      ++shard_.free_entry_count;
    }
  }
  return {};
}

// ---- recycling

bool locked_shard::is_idle(record& in, std::int64_t wall, steady_time now) noexcept {
  std::uint64_t word = in.word.load(std::memory_order_acquire);
  if (in.kind == record_kind::counter) {
    const bool kept = in.exists != 0 && wall - in.changed < in.keep;
    return word == slow_word && in.watchers == 0 && !kept;
  }
  if (tag_of(word) == word_tag::fast) {
    // A fast word has no waiters, so a dead holder can stay unnoticed until its record is wanted.
    const auto holder = holder_of(word);
    const bool alive = may_be_alive(store_.session_at(holder.session), holder.generation);
    if (alive && to_count(now) <= expiry_of(word, to_count(now), longest_ttl.count())) return false;
  } else if (tag_of(word) != word_tag::free) {
    return false;
  }
  return in.word.compare_exchange_strong(word, closed_word);  // or else a client just took it
}

std::size_t locked_shard::recycle_records() noexcept {
  drop_dead_entries();
  std::size_t found = 0;
  const auto wall = wall_nanoseconds();
  const auto now = env_.time.now();
  for_each_record([&](record& in) {
    if (in.word.load(std::memory_order_relaxed) == closed_word || !is_idle(in, wall, now)) return;
    close(in);
    ++found;
  });
  return found;
}

void locked_shard::close(record& closed) noexcept {
  closed.word.store(closed_word, std::memory_order_release);
  // A later record of the same name begins where this one ends. (A rebuild does the same, should we not
  // get so far.)
  shard_.token_base = std::max(shard_.token_base, closed.token.load(std::memory_order_acquire));
  const offset where = store_.offset_of(closed);
  offset* link = &shard_.buckets[closed.hash / shard_count % bucket_count];
  while (*link != where) link = &store_.record_at(*link).next;
  *link = closed.next;
  closed.next = shard_.free_records;
  shard_.free_records = where;
}

// ---- entries

result<void> locked_shard::reserve(std::uint32_t entries) {
  if (shard_.free_entry_count >= entries) return {};
  drop_dead_entries();
  if (shard_.free_entry_count >= entries_per_chunk / 4) return {};
  auto grown = add_chunk(chunk_kind::entries);
  if (!grown && shard_.free_entry_count < entries) return grown;
  return {};
}

void locked_shard::drop_dead_entries() noexcept {
  const auto now = env_.time.now();
  for_each_record([this, now](record& in) {
    if (in.word.load(std::memory_order_acquire) != slow_word) return;
    const auto bury = [&](offset list, auto drop) {
      for (offset e = list; e != 0;) {
        entry& each = at(e);
        e = each.next;
        if (!is_alive(store_.session_at(each.session), each.generation)) drop(each);
      }
    };
    bury(in.watchers, [&](entry& e) { drop_watcher(in, e); });
    bury(in.waiters, [&](entry& e) { drop_waiter(in, e); });
    reap(in, now);
    after_change(in, now);
  });
}

entry& locked_shard::new_entry(record& of, std::uint64_t sequence) noexcept {
  entry& fresh = at(shard_.free_entries);
  shard_.free_entries = fresh.next;
  --shard_.free_entry_count;
  fresh.cookie = 0;
  fresh.flags = 0;
  fresh.record = store_.offset_of(of);
  fresh.session = env_.self.session;
  fresh.generation = env_.self.generation;
  fresh.replaces = 0;
  fresh.sequence = sequence;
  fresh.serial = ++shard_.last_serial;
  fresh.token = 0;
  fresh.fast_word = 0;
  fresh.monitors = 0;
  fresh.priority = 0;
  fresh.next = fresh.prev = 0;
  return fresh;
}

void locked_shard::free_entry(entry& freed) noexcept {
  freed.state.publish(entry_state::free);
  // Nothing of its next life may be written before its state says that this one is over.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  freed.next = shard_.free_entries;
  shard_.free_entries = store_.offset_of(freed);
  ++shard_.free_entry_count;
}

}  // namespace holdfast::engines::file

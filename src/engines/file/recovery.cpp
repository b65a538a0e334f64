#include "engines/file/recovery.hpp"

#include "engines/file/shard.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace holdfast::engines::file {

namespace {

template <class Item, class Visit>
void for_each_item(mapping& store, offset chunk_at, std::size_t count, Visit visit) {
  const auto first = chunk_at + static_cast<offset>(sizeof(chunk) / offset_unit);
  for (std::size_t i = 0; i < count; ++i) {
    const auto where = first + static_cast<offset>(i * sizeof(Item) / offset_unit);
    if constexpr (std::is_same_v<Item, record>) {
      visit(store.record_at(where), where);
    } else {
      visit(store.entry_at(where), where);
    }
  }
}

class rebuilder {
 public:
  rebuilder(mapping& store, std::uint32_t index)
      : store_(store), shard_(store.shard_at(index)), index_(index) {}

  void run() {
    find_chunks();
    shard_.free_records = shard_.free_entries = 0;
    shard_.free_entry_count = 0;
    shard_.buckets.fill(0);
    each_chunk<record>(chunk_kind::records, records_per_chunk,
                       [this](record& r, offset where) { relink(r, where); });
    each_chunk<entry>(chunk_kind::entries, entries_per_chunk,
                      [this](entry& e, offset where) { sort_out(e, where); });
    link_waiters();
    mark_replaced();
    each_chunk<record>(chunk_kind::records, records_per_chunk,
                       [](record& r, offset) { deflate_if_empty(r); });
  }

 private:
  // A chunk may have been taken for this shard without being linked to it: the headers tell.
  void find_chunks() {
    shard_.chunks = 0;
    // What another process adds beyond our mapping just now is of other shards: for this one it would need our mutex.
    const std::uint32_t count = std::min(store_.head().chunk_count.get(), store_.visible_chunks());
    for (std::uint32_t i = 0; i < count; ++i) {
      chunk& found = store_.chunk_number(i);
      if (found.shard != index_ || found.kind == chunk_kind::unused) continue;
      found.next = shard_.chunks;
      shard_.chunks = store_.offset_of(found);
    }
  }

  template <class Item, class Visit>
  void each_chunk(chunk_kind kind, std::size_t count, Visit visit) {
    for (offset c = shard_.chunks; c != 0; c = store_.chunk_at(c).next) {
      if (store_.chunk_at(c).kind == kind) for_each_item<Item>(store_, c, count, visit);
    }
  }

  void relink(record& r, offset where) {
    r.holders = r.waiters = r.last_waiter = r.watchers = 0;
    r.holder_count = 0;
    r.waiter_count = 0;
    r.used = 0;
    // Its tokens count even if it was being closed when the end came.
    shard_.token_base = std::max(shard_.token_base, r.token.load(std::memory_order_acquire));
    shard_.last_version = std::max(shard_.last_version, r.version);
    offset& list = tag_of(r.word.load(std::memory_order_acquire)) == word_tag::closed
                       ? shard_.free_records
                       : shard_.buckets[r.hash / shard_count % bucket_count];
    r.next = list;
    list = where;
  }

  void sort_out(entry& e, offset where) {
    shard_.last_serial = std::max<std::uint64_t>(shard_.last_serial, e.serial);
    if (e.state != entry_state::free && !is_valid(e)) e.state.publish(entry_state::free);
    e.next = e.prev = 0;
    switch (e.state.get()) {
      case entry_state::free:
        e.next = shard_.free_entries;
        shard_.free_entries = where;
        ++shard_.free_entry_count;
        break;
      case entry_state::watching:
        push(store_.record_at(e.record).watchers, e, where);
        break;
      case entry_state::waiting:
        waiting_.push_back(where);
        break;
      case entry_state::holding: {
        record& r = store_.record_at(e.record);
        push(r.holders, e, where);
        ++r.holder_count;
        r.used += e.weight;
        e.flags = e.flags & ~entry_replaced;
        if (e.replaces != 0) upgrades_.push_back(where);
        break;
      }
    }
  }

  bool is_valid(const entry& e) const {
    if (!store_.is_item(e.record, chunk_kind::records)) return false;
    const std::uint64_t word = store_.record_at(e.record).word.load(std::memory_order_acquire);
    // Made from a fast word, but killed before the word became slow: the word is still the truth. All other
    // entries are made when it is slow already.
    return tag_of(word) == word_tag::slow;
  }

  void push(offset& list, entry& e, offset where) {
    e.next = list;
    if (list != 0) store_.entry_at(list).prev = where;
    list = where;
  }

  void link_waiters() {
    std::sort(waiting_.begin(), waiting_.end(), [this](offset a, offset b) {
      return goes_before(store_.entry_at(a), store_.entry_at(b));
    });
    for (const offset where : waiting_) {
      entry& e = store_.entry_at(where);
      record& r = store_.record_at(e.record);
      e.prev = r.last_waiter;
      (r.last_waiter == 0 ? r.waiters : store_.entry_at(r.last_waiter).next) = where;
      r.last_waiter = where;
      r.waiter_count = r.waiter_count + 1;
    }
  }

  // Entries whose upgrade holds weigh nothing; an upgrade whose base is gone is a holder like any other.
  void mark_replaced() {
    for (const offset where : upgrades_) {
      entry& upgrade = store_.entry_at(where);
      entry& base = store_.entry_at(upgrade.replaces);
      if (!store_.is_item(upgrade.replaces, chunk_kind::entries) ||
          base.state != entry_state::holding || base.record != upgrade.record ||
          base.session != upgrade.session || base.generation != upgrade.generation) {
        upgrade.replaces = 0;
        continue;
      }
      base.flags = base.flags | entry_replaced;
      record& r = store_.record_at(base.record);
      r.used -= base.weight;
      --r.holder_count;
    }
  }

  static void deflate_if_empty(record& r) {
    const bool empty = r.holders == 0 && r.waiters == 0 && r.watchers == 0;
    if (r.kind == record_kind::lock && empty &&
        r.word.load(std::memory_order_acquire) == slow_word) {
      r.word.store(free_word(r.incarnation), std::memory_order_release);
    }
  }

  mapping& store_;
  shard& shard_;
  std::uint32_t index_;
  std::vector<offset> waiting_, upgrades_;
};

bool is_sound_counter(mapping& store, const record& r) {
  return r.kind == record_kind::counter && r.exists != 0 && r.name_length > 0 &&
         r.name_length < name_bytes &&
         r.hash == hash_name(store.head().fixed.hash_seed, {r.name.data(), r.name_length});
}

}  // namespace

bool goes_before(const entry& a, const entry& b) noexcept {
  const bool a_upgrades = (a.flags & entry_upgrade) != 0;
  const bool b_upgrades = (b.flags & entry_upgrade) != 0;
  if (a_upgrades != b_upgrades) return a_upgrades;
  if (a.priority != b.priority) return a.priority > b.priority;
  return a.serial < b.serial;
}

void rebuild(mapping& store, std::uint32_t shard_index) { rebuilder{store, shard_index}.run(); }

void begin_boot(mapping& store) {
  init_robust(store.head().growing);
  for (std::uint32_t i = 0; i < session_count; ++i) {
    session& slot = store.session_at(i);
    slot.generation.fetch_add(1);
    init_robust(slot.alive);
  }
  const std::uint32_t count = store.head().chunk_count;
  for (std::uint32_t i = 0; i < count; ++i) {
    chunk& cleared = store.chunk_number(i);
    const offset where = store.offset_of(cleared);
    // Its page was lost with the power.
    if (cleared.shard >= shard_count) cleared.kind = chunk_kind::unused;
    if (cleared.kind == chunk_kind::entries) {
      for_each_item<entry>(store, where, entries_per_chunk,
                           [](entry& e, offset) { e.state = entry_state::free; });
    }
    if (cleared.kind == chunk_kind::records) {
      for_each_item<record>(store, where, records_per_chunk, [&store](record& r, offset) {
        r.word.store(is_sound_counter(store, r) ? slow_word : closed_word);
      });
    }
  }
  for (std::uint32_t i = 0; i < shard_count; ++i) {
    shard& cleared = store.shard_at(i);
    init_robust(cleared.mutex);
    rebuild(store, i);
    cleared.needs_rebuild = 0;
    cleared.token_base =
        std::max(cleared.token_base + (std::uint64_t{1} << 32), wall_microseconds());
    cleared.last_version += std::uint64_t{1} << 32;
  }
}

}  // namespace holdfast::engines::file

// What the store file looks like. Fixed sizes, no pointers: every process maps it somewhere else.
//
//   header | sessions[4096] | shards[64] | chunk, chunk, ...      (chunks are 64 KiB, of records or entries)
//
// Which fields need a lock: `cell`s and atomics are also read without the lock named in the comment; plain fields
// never. Nothing here is ever moved or given back to the file, so an offset stays what it was.
#pragma once

#include <holdfast/types.hpp>

#include "engines/file/futex.hpp"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace holdfast::engines::file {

// A field that one client may read while another writes it: never torn. Loads acquire, so that several fields can be
// read and one of them checked again afterwards (without fences, which ThreadSanitizer cannot follow).
template <class T>
class cell {
 public:
  T get() const noexcept { return value_.load(std::memory_order_acquire); }
  operator T() const noexcept { return get(); }  // NOLINT
  cell& operator=(T value) noexcept {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  // After everything written so far, for those that read it, also should we be killed.
  void publish(T value) noexcept { value_.store(value, std::memory_order_release); }

 private:
  std::atomic<T> value_;
  static_assert(std::atomic<T>::is_always_lock_free);
};

using offset = std::uint32_t;  // in units of 64 bytes from the start of the file; 0 is nothing

inline constexpr std::size_t offset_unit = 64;
inline constexpr std::uint32_t format_version = 2;
inline constexpr std::uint32_t session_count = 4096;
inline constexpr std::uint32_t shard_count = 64;
inline constexpr std::uint32_t bucket_count = 1024;  // per shard
inline constexpr std::size_t chunk_bytes = 64 * 1024;
inline constexpr std::size_t ring_size = 32;
inline constexpr std::size_t label_words = 8;
inline constexpr std::size_t name_bytes = 256;

using text_words = std::array<cell<std::uint64_t>, label_words>;  // zero-padded

// ---- header

inline constexpr std::array<char, 8> magic{'h', 'o', 'l', 'd', 'f', 'a', 's', 't'};

struct constants {
  std::array<char, 8> magic;
  std::uint32_t version, endian;
  std::uint32_t mutex_bytes, page_bytes, header_bytes, session_bytes, shard_bytes, record_bytes,
      entry_bytes;
  std::uint32_t sessions, shards, buckets;
  std::uint64_t chunk_bytes;
  std::uint64_t sessions_at, shards_at, chunks_at;
  std::uint64_t hash_seed;
  std::uint64_t created;   // wall clock, microseconds
  std::uint64_t checksum;  // over all of the above
};
static_assert(std::has_unique_object_representations_v<constants>, "no padding in the checksum");

inline constexpr std::uint32_t header_ready = 0x59444552;

struct alignas(4096) header {
  constants fixed;
  cell<std::uint32_t> ready;  // header_ready, written last of all
  std::array<char, 36> boot;  // the boot id for which mutexes, sessions and entries are meant
  alignas(64) pthread_mutex_t growing;  // for what follows; taken after a shard's, never before
  cell<std::uint64_t> size;             // of the file as far as it has blocks
  cell<std::uint64_t> limit;            // it must not grow beyond
  cell<std::uint32_t> chunk_count;      // written after the chunk's own header
  std::uint32_t next_session;
};

// ---- sessions

struct ring_slot {
  std::atomic<std::uint64_t> stamp;  // position + 1 in the upper half, cookie in the lower
  cell<std::uint64_t> payload;
};

inline constexpr std::uint32_t lost_cookie = 0x8000'0000;  // | generation; the payload is the owner
inline constexpr std::uint32_t lost_revoked = 0x4000'0000;

// One client. `alive` is held by its session thread as long as it lives; the kernel marks and wakes the word when that
// thread dies, however it dies.
struct alignas(64) session {
  pthread_mutex_t alive;
  futex_word generation;  // one more for each client that has had this slot
  alignas(64) futex_word wake;
  std::atomic<std::uint32_t> ring_head;
  cell<std::int64_t> pid;
  std::array<cell<std::uint64_t>, 2> nonce;
  alignas(64) text_words host;
  std::array<ring_slot, ring_size> ring;
};

// glibc keeps owner and flags in the first word of a robust mutex, as the kernel wants it. We read it to
// tell the living from the dead, and sleep on it. tests/unit/engines/file/session_test.cpp kills a child to check it.
static_assert(offsetof(pthread_mutex_t, __data.__lock) == 0 && sizeof(int) == 4);

// ---- shards

enum class chunk_kind : std::uint32_t { unused = 0, records = 1, entries = 2 };

struct alignas(64) chunk {
  cell<chunk_kind> kind;
  cell<std::uint32_t> shard;
  offset next;  // of the same shard
};

struct alignas(64) shard {
  pthread_mutex_t mutex;
  cell<std::uint32_t> needs_rebuild;     // a client died in here, and none has rebuilt it yet
  alignas(64) std::uint64_t token_base;  // at least every token of names this shard has forgotten
  std::uint64_t last_version;
  std::uint64_t last_serial;
  offset free_records, free_entries;
  cell<offset> chunks;
  std::uint32_t free_entry_count;
  cell<std::uint64_t> rebuilds;  // how often a client died in here; for tests and the curious
  std::array<offset, bucket_count> buckets;
};

// ---- records: one per name

enum class record_kind : std::uint32_t { lock = 0, counter = 1 };

struct alignas(64) record {
  // All that the uncontended path touches, in one cache line.
  std::atomic<std::uint64_t> word;
  std::atomic<std::uint64_t> token;                               // the last one given
  cell<std::uint64_t> note_sequence, note_token, note_signature;  // the fast holder's
  cell<std::int64_t> note_since;
  cell<std::uint32_t> incarnation;  // changes whenever the record gets another name
  cell<std::uint32_t> waiter_count;

  // Under the shard's mutex.
  alignas(64) std::uint64_t hash;
  record_kind kind;
  std::uint32_t name_length;
  offset next;  // in the bucket, or on the free list
  offset holders, waiters, last_waiter, watchers;
  std::uint32_t holder_count;
  std::uint64_t capacity, used, version, additions;

  alignas(64) std::int64_t value;  // of a counter
  std::int64_t keep, changed;      // nanoseconds; the wall clock, as counters outlive a reboot
  cell<std::uint32_t> exists;      // of a counter: written last on creation
  alignas(64) text_words note_label;
  alignas(64) std::array<char, name_bytes> name;
};

// ---- entries: one per holder, waiter or watcher

enum class entry_state : std::uint32_t { free = 0, watching = 1, waiting = 2, holding = 3 };

// Flags. upgrade: goes before all others. fast: made from a fast word; owner and token may be unknown. replaced: an
// upgrade of it holds, so it weighs nothing until that ends. lasting: its session may die, and it stays until its time
// is over (request::outlives_client); fast_word says whose it is.
inline constexpr std::uint32_t entry_upgrade = 1;
inline constexpr std::uint32_t entry_fast = 2;
inline constexpr std::uint32_t entry_replaced = 4;
inline constexpr std::uint32_t entry_lasting = 8;

struct alignas(64) entry {
  cell<entry_state> state;     // the authority: written last when it enters, first when it ends
  futex_word wake;             // bit 0: a thread sleeps on it
  cell<std::uint32_t> cookie;  // 0: a thread waits; else an asynchronous wait of that session
  cell<std::uint32_t> flags;
  cell<offset> record;
  cell<std::uint32_t> session, generation;
  cell<offset> replaces;  // an upgrade: the entry it replaces, or stands before once it holds
  cell<std::uint64_t> sequence, serial, weight, token;

  alignas(64) cell<std::int64_t> since;  // nanoseconds of the steady clock, as are the next two
  cell<std::int64_t> expires, ttl;
  cell<std::uint64_t> fast_word;  // what it was made from; of a lasting one the mark of its client
  std::uint64_t monitors;  // a waiter: the serial of an entry, or additions | monitors_holders
  cell<lock_mode> mode;
  std::int32_t priority;
  offset next, prev;
  alignas(64) text_words label;
};

inline constexpr std::uint64_t monitors_holders = std::uint64_t{1} << 63;

static_assert(sizeof(session) == 704 && sizeof(shard) == 128 + 4096);
static_assert(sizeof(record) == 576 && sizeof(entry) == 192);
static_assert(sizeof(header) == 4096 && sizeof(chunk) == 64);
static_assert(std::is_standard_layout_v<record> && std::is_standard_layout_v<entry>);

inline constexpr std::size_t sessions_at = sizeof(header);
inline constexpr std::size_t shards_at = sessions_at + session_count * sizeof(session);
inline constexpr std::size_t chunks_at =
    (shards_at + shard_count * sizeof(shard) + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
inline constexpr std::size_t records_per_chunk = (chunk_bytes - sizeof(chunk)) / sizeof(record);
inline constexpr std::size_t entries_per_chunk = (chunk_bytes - sizeof(chunk)) / sizeof(entry);

}  // namespace holdfast::engines::file

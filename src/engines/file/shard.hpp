// A shard with its mutex held: records, entries, and the queue of each record.
//
// Waiters that a change lets in or concerns are woken after the mutex is given back, so that none wakes up only to wait
// for it. All changes survive SIGKILL at any instruction: recovery.hpp makes every list anew from the records' words
// and the entries' states, and those are written in an order that is safe to die in.
#pragma once

#include <holdfast/engine.hpp>

#include "engines/file/mapping.hpp"
#include "engines/file/session.hpp"
#include "engines/file/word.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <stop_token>
#include <string_view>
#include <utility>

namespace holdfast::engines::file {

// What the parts of one engine share.
struct environment {
  mapping& store;
  const holdfast::clock& time;
  session_id self{};
  std::uint64_t prefix = 0;  // of our fast words
  bool can_wait_any = true;  // futex_waitv
  // Until when (on steady_clock) calls that must not wait do not even try to: the shard did not answer just now.
  std::array<std::atomic<std::int64_t>, shard_count> stuck_until{};
};

// For threads that have others to serve: the driver and the session thread. A deadline that is over still allows for
// a moment.
inline call impatient(std::stop_token stop = {}) { return {steady_time::min(), std::move(stop)}; }

inline constexpr nanoseconds longest_ttl = std::chrono::hours{24 * 7};

inline std::int64_t to_count(steady_time at) noexcept { return at.time_since_epoch().count(); }
inline steady_time to_steady(std::int64_t count) noexcept {
  return steady_time{nanoseconds{count}};
}

std::uint64_t hash_name(std::uint64_t seed, std::string_view name) noexcept;
constexpr std::uint32_t shard_of(std::uint64_t hash) noexcept {
  return static_cast<std::uint32_t>(hash % shard_count);
}

// Tells the waiter to look again. Costs a system call only when it sleeps.
inline void wake_now(entry& waiter) noexcept {
  if ((waiter.wake.fetch_add(2, std::memory_order_acq_rel) & 1) != 0) futex_wake(waiter.wake, 1);
}

// A handle: where, and which incarnation of it. The top bit tells entries from records.
inline constexpr std::uint64_t entry_handle = std::uint64_t{1} << 63;
constexpr std::uint64_t make_handle(offset where, std::uint64_t incarnation) noexcept {
  return std::uint64_t{where} << 32 | (incarnation & 0xFFFF'FFFF);
}
constexpr offset where_of(std::uint64_t handle) noexcept {
  return static_cast<offset>(handle >> 32) & 0x7FFF'FFFF;
}
constexpr std::uint32_t incarnation_of(std::uint64_t handle) noexcept {
  return static_cast<std::uint32_t>(handle);
}

class locked_shard {
 public:
  locked_shard(environment& env, std::uint32_t index)
      : env_(env), store_(env.store), index_(index), shard_(env.store.shard_at(index)) {}
  locked_shard(const locked_shard&) = delete;
  locked_shard& operator=(const locked_shard&) = delete;
  ~locked_shard() { unlock(); }

  // unavailable when a stopped process has it for longer than the call may take, half a second at most.
  result<void> lock(const call& limits);
  void unlock() noexcept;

  // ---- records (records.cpp)
  record* find(record_kind kind, std::string_view name, std::uint64_t hash) const noexcept;
  result<record*> find_or_create(record_kind kind, std::string_view name, std::uint64_t hash);
  template <class Visit>
  void for_each_record(Visit visit) const;

  // ---- entries (records.cpp)
  // Makes sure that new_entry() can be called that often. Drops the dead, so REQUIRES that the caller has no record or
  // entry in its hands.
  result<void> reserve(std::uint32_t entries);
  entry& new_entry(record& of, std::uint64_t sequence) noexcept;

  // ---- the queue (queue.cpp)
  // Afterwards the truth is in the entries. REQUIRES: reserve(1).
  void inflate(record& of) noexcept;
  entry* find_owner(const record& in, std::uint64_t sequence, bool among_waiters) const noexcept;
  // The holder that a grant speaks of, and its record; null when it is gone.
  entry* find_holder(const grant& held, record*& in) const noexcept;
  // The entry made from this word by a client that could not tell its owner.
  entry* find_fast(const record& in, std::uint64_t word) const noexcept;
  bool is_ours(const entry& asked, std::uint64_t sequence) const noexcept;
  bool is_gone(const entry& holder, steady_time now) const noexcept;  // dead, or out of time

  // What a dead predecessor of this client has left for it is ours from now on.
  void take_over(record& in, std::uint64_t sequence, std::uint64_t client) noexcept;

  void grant_to(record& in, entry& granted, steady_time now) noexcept;
  void queue_up(record& in, entry& waiter) noexcept;
  void add_watcher(record& in, entry& watcher) noexcept;
  void resize(record& in, entry& holder, std::uint64_t weight, lock_mode mode) noexcept;
  void drop_holder(record& in, entry& holder) noexcept;
  void drop_waiter(record& in, entry& waiter) noexcept;
  void drop_watcher(record& in, entry& watcher) noexcept;
  void end_upgrade(record& in, entry& upgrade, steady_time now) noexcept;  // back to what it was

  bool reap(record& in, steady_time now) noexcept;
  void serve(record& in, steady_time now) noexcept;  // waiters that fit enter
  // After any change: waiters that fit enter, the new head learns whom to monitor, an empty record is free.
  void after_change(record& in, steady_time now) noexcept;

  void changed(record& in) noexcept;
  // Differs whenever the holders do; 0 when there are none. Uncontended holders come and go without the
  // mutex, and leave only their tokens behind: so the token is part of it.
  std::uint64_t version_of(const record& in, steady_time now) const noexcept;
  bool has_counter(const record& in) const noexcept;  // and its time is not over
  void wake(entry& waiter) noexcept;
  void tell_lost(const entry& holder, bool revoked) noexcept;

  mapping& store() const noexcept { return store_; }
  shard& raw() const noexcept { return shard_; }

 private:
  struct notice {
    entry* waiter;  // or, when null, a message:
    std::uint32_t session, cookie;
    std::uint64_t payload;
  };

  void read_notes(const record& of, entry& holder) noexcept;
  int wait_for_mutex(const call& limits) noexcept;
  void notify(const notice& pending) noexcept;
  void flush() noexcept;
  void free_entry(entry& freed) noexcept;
  result<void> add_chunk(chunk_kind kind);
  void drop_dead_entries() noexcept;
  std::size_t recycle_records() noexcept;
  bool is_idle(record& in, std::int64_t wall, steady_time now) noexcept;
  void close(record& closed) noexcept;
  void let_head_monitor_holders(record& in) noexcept;
  void after_crash() noexcept;
  entry& at(offset where) const noexcept { return store_.entry_at(where); }

  environment& env_;
  mapping& store_;
  std::uint32_t index_;
  shard& shard_;
  bool locked_ = false;
  std::uint32_t notice_count_ = 0;
  std::array<notice, 16> notices_;  // left as it comes: clearing it would cost more than the lock
};

template <class Visit>
void locked_shard::for_each_record(Visit visit) const {
  for (offset c = shard_.chunks; c != 0; c = store_.chunk_at(c).next) {
    if (store_.chunk_at(c).kind != chunk_kind::records) continue;
    const auto first = c + static_cast<offset>(sizeof(chunk) / offset_unit);
    for (std::size_t i = 0; i < records_per_chunk; ++i) {
      visit(store_.record_at(first + static_cast<offset>(i * sizeof(record) / offset_unit)));
    }
  }
}

}  // namespace holdfast::engines::file

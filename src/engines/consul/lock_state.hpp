// What lies in Consul under one lock name, and what follows from it. Pure: no I/O, no time.
//
//   ROOT NAME/.lock        api.Lock's key: locked by the session of the holder, or of one of the readers that hold. Of
//                          a semaphore: api.Semaphore's record of the sessions that hold a permit each
//   ROOT NAME/.owner-...   one key for each owner of ours that holds or waits, locked by its session, so Consul deletes
//                          it with the session; who came first has the lower CreateIndex
//   ROOT NAME/.queue       is there while anybody waits: a newcomer that finds neither this nor .lock may enter at once
//   ROOT NAME/.readers     changes whenever a reader comes or goes; is there while there may be any
//   ROOT NAME/.count       a counter
//
// An owner holds when its key says so, and only a transaction that saw nothing in its way writes that; so a key that
// waits never holds by itself, and what is done late or twice fails. docs/internals/consul-layout.md has the proofs.
#pragma once

#include "engines/common/ordered_queue.hpp"
#include "engines/consul/kv.hpp"

#include <holdfast/engine.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::consul {

struct queue_entry : ordered_entry {
  std::string key;
  std::string session;
  std::uint64_t modified = 0;
  std::vector<std::string> permit_sessions{};  // of a holder of permits: one for each
  std::int64_t since_ms = 0;                   // by the wall clock of its client; 0: not known
  std::chrono::milliseconds session_lasts{};   // 0: not known
  std::int64_t pid = 0;
  std::string host{}, label{};

  bool holds() const noexcept { return entered; }
};

struct lock_keys {
  std::string folder;  // ROOT NAME/
  std::string lock, queue, readers;
};
lock_keys keys_of(std::string_view root, std::string_view name);
std::string counter_key(std::string_view root, std::string_view name);
std::string epoch_key(std::string_view root, std::string_view session);
std::string owner_key(const lock_keys& of, const owner_id& owner);
// Holders of several permits have a key for each further one.
std::string permit_key(std::string_view owner_key, std::size_t number);
std::string entry_value(const queue_entry& what);

// As it stands in keys. Consul refuses what its version of Unicode does not call printable; so but for what every
// version does, a name's bytes are written as %XX, and so is %: no two names meet in one key.
std::string encoded_name(std::string_view name);
// What to ask for so that all names with this prefix are among the answers. Nothing: no name begins so. Consul would
// take a path with an empty, "." or ".." segment for another one.
std::optional<std::string> listed_prefix(std::string_view prefix);
// Can this be a part of a key as it is?
bool is_printable(std::string_view text);

// What a key under the root is: the name it belongs to, and the rest. nullopt: none of ours.
struct key_parts {
  std::string name;
  std::string_view leaf;
};
std::optional<key_parts> split_key(std::string_view root, std::string_view key);
bool is_lock_leaf(std::string_view leaf);
inline constexpr std::string_view counter_leaf = ".count";

class lock_state {
 public:
  lock_state() = default;
  // The pairs under the name's folder; what lies deeper is left alone. `index`: of the answer that had them; without it
  // what was deleted since the last write that is seen is not known.
  lock_state(const std::vector<kv_pair>& pairs, const lock_keys& keys, std::uint64_t index = 0);

  const ordered_queue<queue_entry>& queue() const noexcept { return queue_; }
  const queue_entry* find(const owner_id& owner) const noexcept { return queue_.find(owner); }
  std::uint64_t lock_index() const noexcept { return lock_ ? lock_->modified : 0; }
  std::uint64_t queue_index() const noexcept { return queue_index_; }
  std::uint64_t readers_index() const noexcept { return readers_index_; }
  // The session that has locked .lock; empty: none.
  std::string_view lock_session() const noexcept {
    return lock_ ? std::string_view{lock_->session} : std::string_view{};
  }
  // It is locked by the session of an owner that holds.
  bool is_lock_ours() const noexcept;
  // Another program holds it.
  bool is_held_by_others() const noexcept { return !lock_session().empty() && !is_lock_ours(); }

  bool is_semaphore() const noexcept { return semaphore_.has_value(); }
  // The record without those that are dead.
  const semaphore_record& semaphore() const noexcept { return *semaphore_; }

  // Its own key says that it holds; is that so? Another program may have taken .lock, or struck it off the record.
  bool is_true(const queue_entry& holder) const noexcept;
  bool counts_all(const std::vector<std::string>& permit_sessions) const noexcept;

  bool anybody_holds() const noexcept;
  bool holds_beside(const queue_entry& except) const noexcept;
  // Is there an owner that waits, other than this one?
  bool anybody_waits(const owner_id& except) const noexcept;
  // The last one before it that waits, too.
  const queue_entry* waiter_before(const queue_entry& own) const noexcept;
  // Keys of owners whose sessions have ended (behavior=release): to be deleted by the way.
  const std::vector<kv_pair>& dead() const noexcept { return dead_; }
  // The index of the last change that is seen here.
  std::uint64_t newest() const noexcept { return newest_; }
  // How many keys there are in all, those of others and of deeper names as well.
  std::size_t size() const noexcept { return size_; }
  // Changes whenever the holders do; 0: there are none.
  std::uint64_t version() const noexcept;

 private:
  void add_foreign_holders(std::vector<queue_entry>& to) const;

  std::optional<kv_pair> lock_;
  std::optional<semaphore_record> semaphore_;
  std::uint64_t queue_index_ = 0, readers_index_ = 0, newest_ = 0;
  std::size_t size_ = 0;
  ordered_queue<queue_entry> queue_;
  std::vector<kv_pair> dead_;
};

}  // namespace holdfast::engines::consul

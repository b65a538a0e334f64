// What this client has put, or may have put, into the store, and the part of its keys that is used again.
#pragma once

#include "engines/common/own_entries.hpp"
#include "engines/etcd/lock_queue.hpp"

#include <holdfast/engine.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::etcd {

// Everything here is under the table's guard.
struct own_entry : engines::own_entry {
  std::string key;                    // empty: none, or it is gone
  std::optional<std::uint64_t> slot;  // its part of the key, to be used again
  std::int64_t since_ms = 0;          // by the wall clock
  bool in_doubt = false;              // a request that puts the key may yet be carried out
  std::int64_t lease = 0;
  std::int64_t created = 0;
  // Requests of ours under way that take the key along, and whether one has, or may have: then it was not lost when a
  // release does not find it.
  int sweepers = 0;
  bool swept = false;
  bool watched = false;
  // A waiter, when we last asked.
  std::int64_t looked = 0;      // the revision then
  bool may_be_passive = false;  // it watches nothing but its own key (lock_queue.hpp)
  stored before;                // the key just before it
  // A holder: the waiters to which it hands over. Those that came after it was granted saw it hold: they watch the
  // queue.
  std::int64_t granted_at = 0;
  std::vector<successor> successors;
  bool more_successors = false;  // behind those, perhaps
  // An upgrade: what it came from, which lives on below it.
  std::shared_ptr<own_entry> over;
  bool covered = false;  // is below an upgrade that was granted
};

class own_entries : public engines::own_entries<own_entry> {
 public:
  // The smallest number that no other entry of that name has. REQUIRES: lock() is held.
  std::uint64_t take_slot(std::string_view name);
  // `is_gone`: from the store, too, so its slot is free. Otherwise no owner gets the slot any more. REQUIRES: lock() is
  // held.
  void drop(const own_entry& which, bool is_gone = false);

 private:
  std::map<std::string, std::set<std::uint64_t>, std::less<>> slots_;
};

// A request may yet be carried out that puts a key of it, or of what it stands on. REQUIRES: the table's lock() is
// held.
bool may_have_late_requests(const own_entry& which);
std::vector<stored> keys_in(const std::vector<own_entries::ref>& entries);
// The waiters to which the holder hands over, as `seen` shows them. REQUIRES: the table's lock() is held.
void learn_successors(own_entry& holder, const lock_queue& seen, const queue_entry& own);

}  // namespace holdfast::engines::etcd

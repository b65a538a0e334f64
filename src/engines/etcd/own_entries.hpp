// What this client has put, or may have put, into the store: an entry for each owner that asked, from before its
// request is sent until its key is certainly gone.
#pragma once

#include "engines/etcd/lock_queue.hpp"
#include "engines/etcd/session.hpp"

#include <holdfast/engine.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace holdfast::engines::etcd {

struct own_entry {
  enum class state : std::uint8_t { asking, waiting, holding, releasing };

  // Never changed.
  std::string name;
  owner_id owner;
  std::string label;
  nanoseconds ttl{};  // as asked for

  // Under the table's guard.
  state is = state::asking;
  std::string key;                    // empty: none, or it is gone
  std::optional<std::uint64_t> slot;  // its part of the key, to be used again
  std::int64_t since_ms = 0;          // by the wall clock
  bool in_doubt = false;              // a request that puts the key may yet be carried out
  std::int64_t lease = 0;
  std::int64_t created = 0;
  fencing_token token;
  lock_mode mode = lock_mode::exclusive;
  std::uint64_t weight = 0;
  // Requests of ours under way that take the key along, and whether one has, or may have: then it was not lost when a
  // release does not find it.
  int sweepers = 0;
  bool swept = false;
  steady_time since{};  // it holds, or waits
  steady_time until{};  // its grant ends if it is not renewed
  bool watched = false;
  // A waiter, when we last asked.
  std::int64_t looked = 0;  // the revision then
  bool may_sleep = false;   // it looks at its own key only (lock_queue.hpp)
  stored before;            // the key just before it
  // A holder: to whom it hands over. Those who came after it was granted saw it hold, and look at the queue themselves.
  std::int64_t granted_at = 0;
  std::vector<successor> successors;
  bool more_successors = false;  // behind those, perhaps
  // An upgrade: what it came from, which lives on below it.
  std::shared_ptr<own_entry> over;
  bool covered = false;  // is below an upgrade that was granted
};

class own_entries {
 public:
  using ref = std::shared_ptr<own_entry>;

  std::unique_lock<std::mutex> lock() const { return std::unique_lock{guard_}; }

  ref find(const owner_id& owner) const;
  ref find_or_make(const request& ask);

  // The smallest number that no other entry of that name has. REQUIRES: lock() is held.
  std::uint64_t take_slot(std::string_view name);
  // It is about to be taken out of the store: for our own eyes it is gone. False: somebody else does that already.
  bool begin_release(own_entry& which);
  // It may still be there: from now on it is ours again, until then. REQUIRES: lock() is held.
  void end_release(own_entry& which, steady_time until);
  // Their keys are to be ignored in what is read, and may be deleted by the way.
  std::vector<ref> releasing(std::string_view name) const;

  // REQUIRES: lock() is held.
  const std::unordered_map<std::uint64_t, ref>& all() const noexcept { return all_; }
  // `is_gone`: from the store, too; its slot is free. Otherwise nobody gets the slot any more.
  void drop(const own_entry& which, bool is_gone = false);

 private:
  void take_off(const own_entry& which);

  mutable std::mutex guard_;
  std::unordered_map<std::uint64_t, ref> all_;  // by the sequence of the owner
  std::multimap<std::string, ref, std::less<>> releasing_;
  std::map<std::string, std::set<std::uint64_t>, std::less<>> slots_;
};

// A request may yet be carried out that puts a key of it, or of what it stands on. REQUIRES: the table's lock() is
// held.
bool may_have_late_requests(const own_entry& which);
std::vector<stored> keys_in(const std::vector<own_entries::ref>& entries);
// To whom the holder hands over, as `seen` shows it. REQUIRES: the table's lock() is held.
void learn_successors(own_entry& holder, const lock_queue& seen, const queue_entry& own);

}  // namespace holdfast::engines::etcd

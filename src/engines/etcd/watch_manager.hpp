// What of the store is watched for this client: the queue of their lock for waiters, their own key for holders,
// versions and counters for watch verbs. All of it over one stream of watches.
//
// A waiter keeps a copy of the queue (queue_cache.hpp), which shows its turn with no further question, and
// outlives the wait for a while: a lock that was contended soon is again. But each event then costs every waiting
// client a message. So passive waiters, to which the entry before them will hand over (lock_queue.hpp), watch only a
// copy of what this client has in that queue. The client of that entry may die: a passive waiter that has waited for a
// second watches the key before its own, too.
//
// A holder's key is watched only when the hold is older than `young`: a short hold shall not pay for it.
//
// Of the driver's thread, but for the few that say otherwise.
#pragma once

#include "engines/common/wait_registry.hpp"
#include "engines/etcd/own_entries.hpp"
#include "engines/etcd/queue_cache.hpp"
#include "engines/etcd/session.hpp"

#include <holdfast/engine.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace holdfast::engines::etcd {

struct its_turn {};  // what a waiter is told; the rest is in its entry
using wait_registry = engines::wait_registry<its_turn, net::reactor>;

class watch_manager {
 public:
  watch_manager(cluster& with, const session& under, own_entries& entries, wait_registry& waits,
                const class clock& time, engine_listener& listener, std::string root);
  void end() noexcept;  // from another thread; no calls any more

  // From any thread: there is a holder or a waiter.
  void plan_tick();
  // From any thread: tells core, from the driver's thread. All that is said for the same reason until then is one call.
  void announce_lost(std::vector<owner_id> owners, std::string_view why);
  void announce_session_lost(std::uint64_t number, std::string why);
  // From any thread: removes keys of ours that are of no use any more, in the background.
  void sweep(std::vector<stored> keys);

  // From any thread: is there a waiter for this lock? Yes, when it is not known; core is likely to ask again, so the
  // queue is watched from then on.
  bool is_contended(std::string_view name);

  // The key of this holder is no longer in the store.
  void is_missing(const own_entries::ref& holder);
  void leave(std::size_t member) { watches_.leave(member); }
  // It awaits its turn, and is in the wait registry already.
  void look_for(const own_entries::ref& waiter);
  // A watch verb waits until the version is no longer `seen`; `alive` becomes false when that has ended.
  using sign_of_life = std::shared_ptr<std::atomic<bool>>;
  void observe(watch_kind kind, const std::string& name, std::uint64_t seen, sign_of_life alive);
  static std::string topic_of(watch_kind kind, std::string_view name);

 private:
  class own_key;
  class predecessor_watch;
  struct observer {
    std::uint64_t seen;
    sign_of_life alive;
  };

  using by_name = std::multimap<std::string, own_entries::ref>;  // waiters; may have left
  static void add(by_name& to, const own_entries::ref& waiter);
  static void take_out(by_name& from, const own_entries::ref& waiter);
  std::vector<own_entries::ref> still_waiting(by_name& of, const std::string& name);
  void hold(own_entry& waiter, fencing_token token);  // REQUIRES: the table's guard is held
  void tell(const own_entry& waiter, bool granted);
  std::shared_ptr<queue_cache> cache_of(watch_kind kind, const std::string& name);
  void changed(watch_kind kind, const std::string& name, queue_cache& now);
  void serve(const std::string& name, const lock_queue& now, std::int64_t revision);
  void serve(own_entry& waiter, const lock_queue& now, std::int64_t revision);
  void become_passive(const own_entries::ref& waiter);
  void become_active(const own_entries::ref& passive_waiter);
  void serve_passive(own_entry& passive_waiter, const lock_queue& own, std::int64_t revision);
  std::shared_ptr<queue_cache> own_queue_of(const std::string& name, std::int64_t lease);
  void note_contention(const std::string& name, bool contended);
  void tell_observers(watch_kind kind, const std::string& name, std::uint64_t version);

  void tick();
  void tend_holders();
  void tend_caches();
  void tend_passive_waiters();
  void watch_own_key(const own_entries::ref& holder);
  void check_soon(own_key& watched);
  void check();
  void checked(const std::vector<std::uint64_t>& asked, const std::vector<stored>& keys,
               const answer& said);
  void ttl_is_over(const own_entries::ref& holder);
  void end_late_requests(const own_entry& lost);

  cluster& cluster_;
  const session& session_;
  own_entries& entries_;
  wait_registry& waits_;
  const class clock& clock_;
  engine_listener& listener_;
  const std::string root_;
  watches watches_;
  std::atomic<bool> tick_planned_{false};  // a tick is planned

  // From any thread. What is_contended() answers, by name; and the owners that were lost, by the reason, until core is
  // told.
  std::mutex guard_;
  std::map<std::string, std::vector<owner_id>, std::less<>> lost_;
  std::map<std::string, bool, std::less<>> contended_;

  std::map<std::string, std::shared_ptr<queue_cache>> caches_;  // by topic
  by_name waiters_, passive_waiters_;
  struct own_queue {
    std::int64_t lease = 0;
    std::shared_ptr<queue_cache> copy{};
  };
  std::map<std::string, own_queue> own_queues_;     // by name
  std::multimap<std::string, observer> observers_;  // by topic
  std::map<std::uint64_t, std::shared_ptr<own_key>> own_keys_;
  std::map<std::uint64_t, std::shared_ptr<predecessor_watch>> predecessors_;  // of passive_waiters
  std::vector<std::uint64_t> to_check_;
  bool ending_ = false;
};

}  // namespace holdfast::engines::etcd

// The reference model of a store: what every verb means, with nothing else around it.
//
// One map from name to holders and queue. A lock is in the map while it has a holder or a waiter. The queue is kept in
// the order in which it is served: an upgrade first, then by priority, then by arrival. After every change the head of
// the queue enters as long as it fits (grant_rule.hpp); that is all the hand-off there is.
//
// Time is passed in. A holder whose ttl is over is removed by the next call that looks at its lock, of any client; so
// that one looks in time, the first waiter that is awaited sleeps no longer than next_change().
//
// Tokens and versions come from one counter each for the whole store, so they rise also across
// names that were forgotten in between. The token counter begins at the wall clock in microseconds:
// a later store of the same name in the same process goes on above it.
//
// REQUIRES, for every member: the caller holds guard().
#pragma once

#include <holdfast/engine.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::memory {

// One client of the store. Called with the store's guard held, so it only takes note.
class session {
 public:
  virtual void lost(const owner_id& owner, std::string_view why) = 0;
  virtual const std::string& host() const noexcept = 0;
  virtual std::int64_t pid() const noexcept = 0;

 protected:
  ~session() = default;
};

// A sleeping thread or async wait. Called with the store's guard held when what it sleeps for may have happened.
class subscriber {
 public:
  virtual void wake() = 0;

 protected:
  ~subscriber() = default;
};

// What a subscriber sleeps for: its ticket, or a change of a lock's holders or of a counter.
struct topic {
  enum class what : std::uint8_t { ticket, lock, counter };
  what about = what::ticket;
  std::string name;
  owner_id owner{};
  friend auto operator<=>(const topic&, const topic&) = default;
};

class store {
 public:
  store();

  std::mutex& guard() noexcept { return guard_; }

  result<entered> enter(const request& ask, session& client, steady_time now);
  entered settle(std::string_view name, const owner_id& owner, steady_time now);
  void leave(std::string_view name, const owner_id& owner, steady_time now);
  bool renew(const grant& held, steady_time now);
  bool release(std::string_view name, const owner_id& owner, steady_time now);
  result<grant> downgrade(const grant& held, lock_mode to, steady_time now);
  // The client is gone: it holds nothing and waits for nothing any more.
  void end(const session& client, steady_time now);

  lock_info inspect(std::string_view name, steady_time now);
  std::vector<lock_info> list(std::string_view prefix, std::size_t limit, steady_time now);
  std::size_t revoke(std::string_view name, steady_time now);
  bool contended(std::string_view name) const;

  counter count(const counter_request& ask, steady_time now);
  std::vector<counter_info> list_counters(std::string_view prefix, std::size_t limit,
                                          steady_time now) const;

  // 0 when there is no such lock or counter.
  std::uint64_t version(watch_kind kind, std::string_view name, steady_time now);
  // When the mere passing of time will change it next.
  steady_time next_change(watch_kind kind, std::string_view name) const;

  void subscribe(const topic& about, subscriber& added);
  void unsubscribe(const topic& about, subscriber& removed);

 private:
  struct entry {
    owner_id owner;
    session* client = nullptr;
    lock_mode mode = lock_mode::exclusive;
    std::uint64_t weight = 0;
    int priority = 0;
    std::string label;
    nanoseconds ttl{};
    steady_time since;  // granted, or began to wait
    // Holders.
    fencing_token token{};
    steady_time expires{};
    // Upgrades. While it waits: the owner it will replace. Once it holds: what it was before, for leave().
    std::optional<owner_id> replaces{};
    std::vector<entry> replaced{};
  };

  struct lock {
    std::uint64_t capacity = 0;
    std::uint64_t version = 0;
    std::vector<entry> holders;
    std::vector<entry> queue;
  };

  struct stored_counter {
    std::int64_t value = 0;
    std::uint64_t version = 0;
    steady_time changed{};
    nanoseconds keep = nanoseconds::max();
  };

  using lock_map = std::map<std::string, lock, std::less<>>;
  using counter_map = std::map<std::string, stored_counter, std::less<>>;

  static grant as_grant(std::string_view name, const entry& holder);
  static holder_info describe(const entry& described, bool holds, steady_time now);
  static std::uint64_t weight_of_holders(const lock& at);
  static bool may_enter_now(const lock& at, const request& ask, const entry* replaced);

  lock_map::iterator expire_and_find(std::string_view name, steady_time now);
  static std::vector<entry>::iterator find_owner(std::vector<entry>& among, const owner_id& owner);
  void queue_up(lock& at, entry&& added);
  void grant_to(lock& at, entry&& granted, steady_time now);
  // After any change of holders or queue: waiters that fit enter; an empty lock is forgotten.
  void after_change(lock_map::iterator at, bool holders_changed, steady_time now);
  void serve(const std::string& name, lock& at, steady_time now);
  void wake(const topic& about);
  void wake_first_awaited(const std::string& name, const lock& at);

  counter_map::iterator expire_and_find_counter(std::string_view name, steady_time now);
  bool apply(const counter_request& ask, counter_map::iterator& at, steady_time now);

  std::mutex guard_;
  lock_map locks_;
  counter_map counters_;
  std::multimap<topic, subscriber*> subscribers_;
  std::uint64_t last_token_;
  std::uint64_t last_version_ = 0;
};

// The store that all clients of this process share under that name.
std::shared_ptr<store> shared_store(const std::string& name);

}  // namespace holdfast::engines::memory

// Everything the store knows about one lock name, opened for change: the slow path of every verb.
//
// open() locks the name's row (creating it if need be), so only one client at a time has the rows of a name open.
// What is changed here becomes visible with commit(), all at once. Then, and not before, wake() interrupts the
// listeners of the clients that have news.
//
// The queue is long and mostly of no interest: only its head is read, and our own place. An object is for one
// transaction connection, and several (lock_all) may share one transaction, opened in the order of their names.
//
// Expiry and absence. A holder whose `expires` has passed is dropped by the next client that looks. A holder may renew
// itself without opening them, by one statement on its own row: so a row in holdfast_entry is dropped by a statement
// that looks at `expires` again. A holder whose client's connection is gone is dropped after its grace (session.hpp).
#pragma once

#include "engines/mysql/connection.hpp"
#include "engines/mysql/sql.hpp"

#include <holdfast/engine.hpp>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::mysql {

using microseconds_count = std::uint64_t;

// How a client asks, besides the request itself.
struct requester {
  std::string_view client;  // 16 bytes
  microseconds_count grace = 0;
  bool push = false;  // it has a listener
};

class lock_rows {
 public:
  // A holder or a waiter; an observer.
  struct entry {
    std::string client;
    std::uint64_t seq = 0;
    entry_state state = entry_state::holder;
    lock_mode mode = lock_mode::exclusive;
    std::uint64_t weight = 0, token = 0;
    microseconds_count ttl = 0, grace = 0, since = 0, expires = 0;
    std::int64_t turn = 0, priority = 0;
    std::uint64_t place = 0;
    bool push = false;
    std::string was, label;
    bool is_present = false;     // its client's session connection is there
    std::uint64_t listener = 0;  // connection; 0 when it is not there
    bool is_inline = false;      // in the lock's own row
  };

  struct absence {
    bool noticed = false;
    microseconds_count drop_at = 0;  // when it will be possible
  };

  // Nothing, when there is no such row and it was not to be made.
  static result<std::optional<lock_rows>> open(connection& on, std::string_view name, bool create,
                                               std::uint64_t capacity, std::string_view client,
                                               std::uint64_t seq);

  // Drops holders that are over and waiters that are dead, and lets in the waiters that can enter then. `me` has its
  // answer by another way than by being told.
  result<void> bring_up_to_date();
  // The first part of it alone: for verbs whose change will let waiters in anyhow.
  result<void> expire();
  // For a name that no client looks at: all that is dead goes.
  result<void> tidy();
  // Looks at holders that seem to be gone; drops those that are gone for long enough.
  result<absence> check_absent_holders();

  const entry* holder(std::string_view client, std::uint64_t seq) const;
  const entry* waiter(std::string_view client, std::uint64_t seq) const;
  const std::vector<entry>& holders() const noexcept { return holders_; }
  const std::vector<entry>& waiters() const noexcept { return waiters_; }
  bool is_first(const entry& waiting) const {
    return !waiters_.empty() && &waiters_.front() == &waiting;
  }
  // When the first holder's time is over; 0 when there is none.
  microseconds_count first_expiry() const;
  // The client whose end would bring this waiter forward: of the waiter ahead of it, else of a holder. Empty when its
  // connection cannot be watched.
  result<std::string> predecessor(const entry& waiting);

  bool is_in_use() const noexcept { return !holders_.empty() || !waiters_.empty(); }
  std::uint64_t capacity() const noexcept { return capacity_; }
  std::uint64_t version() const noexcept { return holders_.empty() ? 0 : fence_; }
  microseconds_count now() const noexcept { return now_; }

  void set_capacity(std::uint64_t capacity) { capacity_ = capacity; }
  bool may_enter(const request& ask) const;
  result<void> admit(const request& ask, const requester& from);
  result<void> queue_up(const request& ask, const requester& from);
  // A holder that asks has heard of its grant: it lasts for its whole ttl now.
  result<void> confirm(std::string_view client, std::uint64_t seq);
  result<void> touch_waiter(std::string_view client, std::uint64_t seq);
  result<void> observe(std::string_view client, std::uint64_t seq, microseconds_count length);
  result<void> stop_observing(std::string_view client, std::uint64_t seq);
  // Takes a holder or waiter out. Says whether it was there.
  result<bool> remove(std::string_view client, std::uint64_t seq);
  result<void> remove_all_of(std::string_view client);
  result<const entry*> shrink(std::string_view client, std::uint64_t seq, lock_mode to,
                              std::uint64_t weight);
  result<std::size_t> revoke();

  // Lets in the waiters that fit, from the head of the queue, and writes the row down.
  result<void> close();
  // After the commit. Best effort: a waiter that is not woken looks for itself after a while. Arrivals of our own
  // client are not woken here, but told by way of arrivals_of().
  void wake();
  // Waiters of our own client that were let in meanwhile.
  std::vector<entry> arrivals_of(std::string_view client) const;
  // Another connection to interrupt, with the others.
  void also_wake(std::uint64_t listener) { to_wake_.insert(listener); }

 private:
  lock_rows(connection& on, std::string_view name) : on_(on), name_(name) {}
  void read_row(const row& from);
  static entry read_entry(const row& from);
  result<void> read_entries(std::string_view client, std::uint64_t seq);
  result<bool> read_more_waiters();
  result<void> drop_dead_waiters();
  result<void> drop_leftovers();
  result<void> serve();
  result<void> let_in(entry next);
  result<void> drop_holder(std::size_t at);
  void insert_waiter(entry&& fresh);
  result<void> put(const entry& what);
  result<void> erase(const entry& what);
  std::uint64_t next_token();
  std::uint64_t used() const;
  std::uint64_t freed_by(const entry& waiting) const;  // of the capacity, by an upgrade
  bool is_dead(const entry& waiting) const;
  void wake_after_commit(const entry& which);

  connection& on_;
  std::string name_;
  std::uint64_t capacity_ = rw_capacity, fence_ = 0, places_ = 0, more_ = 0;
  entry blank_;  // the row's own holder, when it holds no more: it keeps its last client
  microseconds_count now_ = 0, since_ = 0;
  std::vector<entry> holders_, observers_;
  std::vector<entry> leftovers_;  // of clients that handed over without opening the rows
  std::vector<entry> waiters_;    // the head of the queue, in order
  std::optional<entry> mine_;     // our own place, when it is further back
  bool all_waiters_read_ = true, count_is_known_ = true;
  bool holders_changed_ = false, queue_changed_ = false, row_changed_ = false,
       has_fresh_token_ = false;
  std::string me_;
  std::uint64_t my_seq_ = 0;
  std::vector<entry> arrivals_;
  std::set<std::uint64_t> to_wake_;
};

}  // namespace holdfast::engines::mysql

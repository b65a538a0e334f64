// Every statement of this engine, and the tables they are about.
//
// holdfast_lock     a row per lock name. It carries the fence and room for one holder, so that an uncontended
//                   acquire and release are one statement each. A client that changes anything else about the name
//                   locks this row first.
// holdfast_entry    further holders, waiters and observers of a name; `more` in holdfast_lock says whether there may
//                   be any
// holdfast_session  a row per client: where it runs, and since when its connection has been found gone
// holdfast_counter  latches and barriers
//
// Time is the server's, in microseconds since 1970 (UTC). A holder holds while `expires` is in the future.
// Order of locking, so that there are no deadlocks: rows of holdfast_lock by name, then rows of holdfast_entry by
// primary key, then rows of holdfast_session by primary key. Nothing is ever locked by way of a secondary index.
//
// Only what both MariaDB 10.3 and MySQL 8 understand: no RETURNING, no row aliases, no SKIP LOCKED.
#pragma once

#include "engines/mysql/connection.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::mysql {

// Of rows in holdfast_entry. From `observer` on, the client's listener wants to know of every change.
enum class entry_state : std::uint8_t { holder, waiter, observer, arrived, lost };
// arrived: a holder whose grant was handed to it while it waited. lost: a revocation notice, which tells a client that
// a grant of it was revoked.

// Of a row that statements::news shows: something of ours was revoked.
inline bool is_revocation(const row& news) {
  return static_cast<entry_state>(news.number(3)) == entry_state::lost;
}

// What a holder leaves when it hands over in one statement: a row of state `holder` whose `expires` is 0. Its client
// queues up again by means of it (queue_again); lock_rows takes it away when there are no waiters, or when it is old.

// Places in the queue are so far apart. An observer takes a place in between, so that a client that hands over
// without opening the rows sees that it came.
inline constexpr std::uint64_t place_step = 256;

// How long a waiter counts as alive after it last asked, in microseconds.
inline constexpr std::uint64_t patience_of_push = 30'000'000, patience_of_poll = 3'000'000;

// Names of different things never meet.
enum class space : std::uint8_t { locks, counters, revocations };

// The column lists that sql.cpp and the readers of rows agree on.
namespace lock_column {
enum : std::size_t {
  capacity,
  fence,
  places,
  more,
  client,
  seq,
  mode,
  weight,
  token,
  ttl,
  grace,
  since,
  expires,
  was,
  label,
  now,
  is_present,
  listener,
  count
};
}
namespace entry_column {
enum : std::size_t {
  client,
  seq,
  state,
  mode,
  weight,
  token,
  ttl,
  grace,
  since,
  expires,
  turn,
  priority,
  place,
  push,
  was,
  label,
  now,
  is_present,
  listener,
  count
};
}

struct statements {
  // The uncontended path.
  statement enter, release, surely_taken, check_tables;
  // One name, under its row's lock.
  statement lock_row, insert_row, update_row, entries, more_waiters, before_me;
  statement waits_next, hand_over, queue_again, clients_ahead;
  statement insert_entry, grant_entry, confirm_entry, shrink_entry, touch_entry, delete_entry,
      delete_expired;
  // Looking, without locks.
  statement find_owner, inspect, list, version;
  // Sessions.
  statement join_session, look_at_session, note_gone, insert_session, leave_session;
  statement take_lock, free_lock, connection_with_lock, is_there;
  statement names_of_client;
  // Renewal, of 1, 8 or 64 at a time.
  static constexpr std::array<std::size_t, 3> sizes{64, 8, 1};
  std::array<statement, 3> renew_rows, renew_entries, check_rows, check_entries;
  // Being told.
  statement watch_for_news, news, absent_holders, delete_revocation;
  statement is_observing, delete_observer;  // of a lock; of a counter
  statement is_galera;
  // Counters.
  statement read_counter, lock_counter, insert_counter, update_counter, delete_counter, observers;
  statement insert_observer, list_counters;
  // Sweeping.
  static constexpr std::size_t swept_at_once = 512;
  statement insert_sweep, claim_sweep, swept_so_far, end_sweep;
  statement some_rows, delete_rows, stale_names, old_sessions, old_entries, old_counters;
  statement delete_session, delete_old_counter;
};

const statements& sql();

// CREATE TABLE statements, one per table.
const std::vector<std::string>& schema_statements();
// The same as one text with explanations, for `holdfast schema mysql`.
std::string schema();

// Names of user locks: at most 64 characters, and the same in any case.
std::string session_lock(std::string_view client);
std::string listener_lock(std::string_view client);

}  // namespace holdfast::engines::mysql

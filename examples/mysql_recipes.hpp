// One item, many buyers: the database's own recipes to sell it, each as small as it can be, with its trap.
//
// Every recipe reads how many there are, thinks, and writes one fewer. They differ in what keeps two buyers from
// thinking about the same one. All work at the server's own isolation level (REPEATABLE READ unless changed).
#pragma once

#include "mysql_database.hpp"

#include <holdfast/holdfast.hpp>

#include <functional>
#include <string>

namespace recipes {

enum class bought {
  yes,
  sold_out,
  again,  // another buyer was faster: nothing was changed, begin anew
};

// What a buyer does between its read and its write.
using thought = std::function<void()>;

constexpr const char* schema =
    "CREATE TABLE IF NOT EXISTS stock (item INT NOT NULL PRIMARY KEY, sku VARCHAR(32) NOT NULL, "
    "amount INT NOT NULL, version BIGINT UNSIGNED NOT NULL, changed DATETIME(6) NOT NULL, "
    "changed_s DATETIME NOT NULL) ENGINE=InnoDB";

inline void put(database& db, int item, int amount) {
  db.run("REPLACE INTO stock VALUES (?,?,?,0,NOW(6),NOW())",
         {std::to_string(item), "sku-" + std::to_string(item), std::to_string(amount)});
}

inline int left(database& db, int item) {
  return std::stoi(
      db.run("SELECT amount FROM stock WHERE item=?", {std::to_string(item)}).row.at(0));
}

// Begins, and rolls back unless committed.
class transaction {
 public:
  explicit transaction(database& on) : on_(on) { on_.run("START TRANSACTION"); }
  ~transaction() {
    if (!open_) return;
    try {
      on_.run("ROLLBACK");
    } catch (const sql_error&) {  // the connection is gone, and the transaction with it
      return;
    }
  }
  transaction(const transaction&) = delete;
  transaction& operator=(const transaction&) = delete;
  void commit() {
    on_.run("COMMIT");
    open_ = false;
  }

 private:
  database& on_;
  bool open_ = true;
};

// ---- not like this

// Two buyers read 1, both write 0, both have bought. Oversells.
inline bought read_then_write(database& db, int item, const thought& think) {
  const int seen = left(db, item);
  if (seen <= 0) return bought::sold_out;
  think();
  db.run("UPDATE stock SET amount=? WHERE item=?",
         {std::to_string(seen - 1), std::to_string(item)});
  return bought::yes;
}

// ---- like this

// The statement itself is the check, and the fastest of all. Trap: it sees this one row, and there is no time to think.
inline bought single_statement(database& db, int item, const thought&) {
  const auto done =
      db.run("UPDATE stock SET amount=amount-1 WHERE item=? AND amount>0", {std::to_string(item)});
  return done.rows == 1 ? bought::yes : bought::sold_out;
}

// The row is locked from the read to the end of the transaction. Traps: the condition needs an index, or every row that
// is looked at is locked (see lock_by_sku); thinking keeps the others waiting, until innodb_lock_wait_timeout; a buyer
// of several rows locks them in one order, or deadlocks (1213: roll back, begin anew); and a plain SELECT before this
// one shows the past.
inline bought select_for_update(database& db, int item, const thought& think) {
  const std::string which = std::to_string(item);
  transaction work{db};
  const auto seen = db.run("SELECT amount FROM stock WHERE item=? FOR UPDATE", {which});
  const int amount = std::stoi(seen.row.at(0));
  if (amount <= 0) return bought::sold_out;
  think();
  db.run("UPDATE stock SET amount=? WHERE item=?", {std::to_string(amount - 1), which});
  work.commit();
  return bought::yes;
}

// Nothing is locked while we think; the slower one finds no row to change and begins anew. Traps: every conflict costs
// all the work, so not for hot rows; and the new try must be a new transaction, for at REPEATABLE READ the old one
// reads the old version for ever. Here each statement is its own.
inline bought optimistic_version(database& db, int item, const thought& think) {
  const std::string which = std::to_string(item);
  const auto seen = db.run("SELECT amount,version FROM stock WHERE item=?", {which}).row;
  const int amount = std::stoi(seen.at(0));
  if (amount <= 0) return bought::sold_out;
  think();
  const auto done = db.run("UPDATE stock SET amount=?,version=version+1 WHERE item=? AND version=?",
                           {std::to_string(amount - 1), which, seen.at(1)});
  return done.rows == 1 ? bought::yes : bought::again;
}

// The same with a time, where there is no version. Trap: two changes within one tick of the clock look like none, and
// oversell. So microseconds, and one more than the last whatever the clock says.
inline bought optimistic_timestamp(database& db, int item, const thought& think) {
  const std::string which = std::to_string(item);
  const auto seen = db.run("SELECT amount,changed FROM stock WHERE item=?", {which}).row;
  const int amount = std::stoi(seen.at(0));
  if (amount <= 0) return bought::sold_out;
  think();
  const auto done = db.run(
      "UPDATE stock SET amount=?,changed=GREATEST(NOW(6),changed + INTERVAL 1 MICROSECOND) "
      "WHERE item=? AND changed=?",
      {std::to_string(amount - 1), which, seen.at(1)});
  return done.rows == 1 ? bought::yes : bought::again;
}

// The trap itself: a clock that ticks once a second, as DATETIME and TIMESTAMP do unless told otherwise. Oversells.
inline bought timestamp_in_seconds(database& db, int item, const thought& think) {
  const std::string which = std::to_string(item);
  const auto seen = db.run("SELECT amount,changed_s FROM stock WHERE item=?", {which}).row;
  const int amount = std::stoi(seen.at(0));
  if (amount <= 0) return bought::sold_out;
  think();
  const auto done = db.run("UPDATE stock SET amount=?,changed_s=NOW() WHERE item=? AND changed_s=?",
                           {std::to_string(amount - 1), which, seen.at(1)});
  return done.rows == 1 ? bought::yes : bought::again;
}

// How a fence runs its statement on this connection.
inline holdfast::sql_fence::runner runner_on(database& db) {
  return [&db](const std::string& text, const std::string& resource,
               std::uint64_t token) -> holdfast::result<std::uint64_t> {
    return db.run(text, {resource, std::to_string(token)}).insert_id;
  };
}

// For work on more than one row, or outside the database: a lock, and its token shown before the first read. The lock
// keeps the others from thinking in vain; the fence keeps out a holder that slept through the end of its lease.
inline bought lock_and_fence(database& db, int item, const thought& think, holdfast::mutex& lock,
                             const holdfast::sql_fence& fence) {
  const auto held = lock.acquire().value();
  transaction work{db};
  if (const auto admitted = fence.admit(held.token(), runner_on(db)); !admitted) {
    if (admitted.error().code() == holdfast::errc::lost) return bought::again;
    throw holdfast::lock_error{admitted.error()};
  }
  const auto outcome = read_then_write(db, item, think);
  if (outcome == bought::yes) work.commit();
  return outcome;
}

// ---- the trap of FOR UPDATE

// By a column without an index: the server looks at every row, and locks what it looks at.
inline void lock_by_sku(database& db, const std::string& sku) {
  db.run("SELECT amount FROM stock WHERE sku=? FOR UPDATE", {sku});
}

// Whether another transaction has this row locked.
inline bool is_blocked(database& db, int item) {
  try {
    const transaction look{db};
    db.run("SELECT amount FROM stock WHERE item=? FOR UPDATE NOWAIT", {std::to_string(item)});
    return false;
  } catch (const sql_error& e) {
    constexpr unsigned lock_wait = 1205, locked_nowait = 3572;  // MariaDB's number, MySQL's
    if (e.number() != lock_wait && e.number() != locked_nowait) throw;
    return true;
  }
}

}  // namespace recipes

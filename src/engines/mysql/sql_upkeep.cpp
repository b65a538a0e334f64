// Sessions, being told, counters, sweeping: the statements beside those of locks and their entries.
#include "engines/mysql/sql_parts.hpp"

#include <fmt/format.h>

namespace holdfast::engines::mysql::sql_parts {

void sessions(statements& out) {
  out.join_session = {fmt::format("INSERT INTO holdfast_session(client,host,pid,gone,since) "
                                  "VALUES(?,?,?,0,{}) ON DUPLICATE "
                                  "KEY UPDATE gone=0",
                                  now_us),
                      "", true};
  out.look_at_session = {
      fmt::format("SELECT gone,IS_FREE_LOCK({}),{} FROM holdfast_session WHERE client=? FOR UPDATE",
                  fmt::format(fmt::runtime(lock_of_session), ""), now_us),
      "uuu"};
  out.note_gone = {"UPDATE holdfast_session SET gone=? WHERE client=?", "", true};
  // Of a client whose row is missing, to have a row to lock. Not INSERT IGNORE: see insert_row.
  out.insert_session = {
      fmt::format("INSERT INTO holdfast_session(client,host,pid,gone,since) VALUES(?,'',0,0,{}) "
                  "ON DUPLICATE KEY UPDATE gone=gone",
                  now_us),
      "", true};
  out.leave_session = {"DELETE FROM holdfast_session WHERE client=?", "", true};
  out.take_lock = {"SELECT GET_LOCK(?,?)", "u"};
  out.free_lock = {"SELECT RELEASE_LOCK(?)", "u"};
  out.connection_with_lock = {"SELECT COALESCE(IS_USED_LOCK(?),0)", "u"};
  // An answer proves that the connection, and so the session's lock, is there; and brings revocations.
  out.is_there = {"SELECT seq FROM holdfast_entry WHERE client=? AND state=4", "u"};
  out.names_of_client = {
      fmt::format(
          "SELECT name FROM holdfast_lock WHERE client=? AND expires>{} UNION SELECT name FROM "
          "holdfast_entry WHERE client=? AND space=0",
          now_us),
      "b"};
}

// The blocking statements look before they sleep: news that came before the statement began is seen, and a client with
// later news interrupts it (KILL QUERY), wherever it is. So nothing is missed in between.
void being_told(statements& out) {
  constexpr std::string_view digest =
      "(SELECT CAST(COALESCE(SUM(token%4294967296+1),0) AS UNSIGNED) FROM holdfast_entry WHERE "
      "client=? AND "
      "state>=2)";
  // First gives back what the statement before may have taken without our knowing (see listener::let_go).
  out.watch_for_news = {
      fmt::format("SELECT IF({}<>?,2,0*COALESCE(RELEASE_LOCK(?),0)+GET_LOCK(?,?/1000))", digest),
      "u"};
  out.news = {fmt::format("SELECT space,name,seq,state,mode,weight,token,ttl,expires,{},turn,place,"
                          "COALESCE(IS_USED_LOCK(?)=CONNECTION_ID(),0) FROM holdfast_entry WHERE "
                          "client=? AND state>=2",
                          now_us),
              "ubuuuuuuuuiuu"};
  out.delete_revocation = {
      "DELETE FROM holdfast_entry WHERE space=2 AND name=? AND client=? AND seq=?", "", true};
  out.is_observing = {
      "SELECT 1 FROM holdfast_entry WHERE space=0 AND name=? AND client=? AND seq=? AND state=2",
      "u"};
  out.delete_observer = {
      "DELETE FROM holdfast_entry WHERE space=1 AND name=? AND client=? AND seq=? AND state=2", "",
      true};
  // Waiters of this client for a name of which a holder has no session any more.
  const auto absent = [](std::string_view of) {
    return fmt::format(fmt::runtime("IS_FREE_LOCK(" + std::string{lock_of_session} + ")"), of);
  };
  out.absent_holders = {
      fmt::format(
          "SELECT w.seq FROM holdfast_entry w JOIN holdfast_lock l ON l.name=w.name WHERE "
          "w.client=? AND "
          "w.state=1 AND l.expires>{0} AND l.grace>0 AND {1} UNION "
          "SELECT w.seq FROM holdfast_entry w JOIN holdfast_entry h ON h.space=0 AND h.name=w.name "
          "AND "
          "h.state IN (0,3) WHERE w.client=? AND w.state=1 AND h.expires>{0} AND h.grace>0 AND {2}",
          now_us, absent("l."), absent("h.")),
      "u"};
  out.is_galera = {"SHOW VARIABLES LIKE 'wsrep_on'", "bb"};
}

void counters(statements& out) {
  const auto text = fmt::format(
      "SELECT value,version,changed,keep_us,{} FROM holdfast_counter WHERE name=?", now_us);
  out.read_counter = {text, "iuuuu"};
  out.lock_counter = {text + " FOR UPDATE", "iuuuu"};
  out.insert_counter = {
      fmt::format(
          "INSERT INTO holdfast_counter(name,value,version,changed,keep_us) VALUES(?,?,{0},{0},?)",
          now_us),
      "", true};
  out.update_counter = {fmt::format("UPDATE holdfast_counter SET "
                                    "value=?,version=GREATEST(version+1,{0}),changed={0},keep_us=? "
                                    "WHERE name=?",
                                    now_us),
                        "", true};
  out.delete_counter = {"DELETE FROM holdfast_counter WHERE name=?", "", true};
  out.list_counters = {
      fmt::format("SELECT name,value,changed,keep_us,{0} FROM holdfast_counter WHERE name>=? AND "
                  "LEFT(name,?)=? AND (keep_us=0 OR changed+keep_us>{0}) ORDER BY name LIMIT ?",
                  now_us),
      "biuuu"};
  out.observers = {
      fmt::format(
          "SELECT client,seq,COALESCE(IS_USED_LOCK({}),0) FROM holdfast_entry WHERE space=? AND "
          "name=? AND state=2",
          fmt::format(fmt::runtime(lock_of_listener), "")),
      "buu"};
  out.insert_observer = {
      fmt::format("INSERT INTO "
                  "holdfast_entry(space,name,client,seq,state,mode,weight,token,ttl,grace,since,"
                  "expires,turn,priority,place,push,was,label) "
                  "VALUES(?,?,?,?,2,0,0,?,0,0,{0},{0}+?,0,0,0,1,'','') "
                  "ON DUPLICATE KEY UPDATE expires=VALUES(expires)",
                  now_us),
      "", true};
}

void sweeping(statements& out) {
  // The sweepers' own row: `gone` is when a sweep last began, `host` the name that it came to.
  out.insert_sweep = {
      "INSERT IGNORE INTO holdfast_session(client,host,pid,gone,since) VALUES(?,'',0,0,0)", "",
      true};
  out.claim_sweep = {
      fmt::format("UPDATE holdfast_session SET gone={0} WHERE client=? AND gone<{0}-?", now_us), "",
      true};
  out.swept_so_far = {"SELECT host FROM holdfast_session WHERE client=?", "b"};
  out.end_sweep = {
      fmt::format("UPDATE holdfast_session SET gone={}-?,host=? WHERE client=?", now_us), "", true};
  // A fence ahead of the clock (which was put back) stays: the name's next token must not be older.
  const auto is_free = fmt::format("more=0 AND expires<{0} AND since<{0}-? AND fence<{0}", now_us);
  // So many names, whatever they are: a statement that looked for free ones might not come to an end in time.
  out.some_rows = {
      fmt::format("SELECT name,{},more>0 AND NOT EXISTS (SELECT 1 FROM holdfast_entry e WHERE "
                  "e.space=0 AND e.name=l.name) FROM holdfast_lock l WHERE name>? ORDER BY name "
                  "LIMIT {}",
                  is_free, statements::swept_at_once),
      "buu"};
  std::string names = "?";
  for (std::size_t i = 1; i < statements::sizes.front(); ++i) names += ",?";
  out.delete_rows = {
      fmt::format("DELETE FROM holdfast_lock WHERE {} AND name IN ({})", is_free, names), "", true};
  out.stale_names = {
      fmt::format(
          "SELECT DISTINCT name FROM holdfast_entry WHERE space=0 AND expires<{}-? LIMIT {}",
          now_us, statements::swept_at_once),
      "b"};
  // Observers of counters, and revocation notices.
  out.old_entries = {fmt::format("SELECT space,name,client,seq FROM holdfast_entry WHERE space IN "
                                 "(1,2) AND expires<{} LIMIT {}",
                                 now_us, statements::swept_at_once),
                     "ubbu"};
  out.old_sessions = {
      fmt::format(
          "SELECT client FROM holdfast_session WHERE since<{}-? AND client<>? AND IS_FREE_LOCK({}) "
          "LIMIT {}",
          now_us, fmt::format(fmt::runtime(lock_of_session), ""), statements::swept_at_once),
      "b"};
  out.delete_session = {"DELETE FROM holdfast_session WHERE client=?", "", true};
  out.delete_old_counter = {
      fmt::format("DELETE FROM holdfast_counter WHERE name=? AND keep_us>0 AND changed+keep_us<{}",
                  now_us),
      "", true};
  out.old_counters = {
      fmt::format(
          "SELECT name FROM holdfast_counter WHERE keep_us>0 AND changed+keep_us<{} LIMIT {}",
          now_us, statements::swept_at_once),
      "b"};
}

}  // namespace holdfast::engines::mysql::sql_parts

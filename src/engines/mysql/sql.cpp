#include "engines/mysql/sql_parts.hpp"

#include <fmt/format.h>

namespace holdfast::engines::mysql {

namespace {

using namespace sql_parts;

std::string presence(std::string_view table) {
  const auto session = fmt::format(fmt::runtime(lock_of_session), table);
  const auto listener = fmt::format(fmt::runtime(lock_of_listener), table);
  return fmt::format("IS_USED_LOCK({}) IS NOT NULL, COALESCE(IS_USED_LOCK({}),0)", session,
                     listener);
}

// In the order of lock_column.
constexpr std::string_view lock_columns =
    "{0}capacity,{0}fence,{0}places,{0}more,{0}client,{0}seq,{0}mode,{0}weight,{0}token,{0}ttl,{0}"
    "grace,"
    "{0}since,{0}expires,{0}was,{0}label,{1},{2}";
constexpr std::string_view lock_types = "uuuubuuuuuuuubbuuu";
// In the order of entry_column.
constexpr std::string_view entry_columns =
    "{0}client,{0}seq,{0}state,{0}mode,{0}weight,{0}token,{0}ttl,{0}grace,{0}since,{0}expires,{0}"
    "turn,"
    "{0}priority,{0}place,{0}push,{0}was,{0}label,{1},{2}";
constexpr std::string_view entry_types = "buuuuuuuuuiiuubbuuu";

std::string columns_of_lock(std::string_view table = "") {
  return fmt::format(fmt::runtime(lock_columns), table, now_us, presence(table));
}
std::string columns_of_entry(std::string_view table = "") {
  return fmt::format(fmt::runtime(entry_columns), table, now_us, presence(table));
}

// The one statement of an uncontended acquire. Assignments are made from left to right, so `expires`, which the others
// look at, comes last. VALUES(since) is "now". Won when rows were affected; the token is the insert id.
//
// Free: it has no holder, and `more` is 0, so no waiter either. Again: it is ours already (the answer was lost, or core
// asks a second time); then it is as if it were granted now: the grace counts from `since`.
std::string enter_text() {
  constexpr std::string_view is_free = "more=0 AND expires<=VALUES(since)";
  constexpr std::string_view is_again =
      "expires>VALUES(since) AND client=VALUES(client) AND seq=VALUES(seq) AND mode=VALUES(mode)";
  std::string text = fmt::format(
      "INSERT INTO "
      "holdfast_lock(name,capacity,fence,places,more,client,seq,mode,weight,token,ttl,grace,since,"
      "expires,was,label) VALUES(?,?,LAST_INSERT_ID({0}),0,0,?,?,?,?,{0},?,?,{0},{0}+?,'',?) "
      "ON DUPLICATE KEY UPDATE fence=IF({1},LAST_INSERT_ID(GREATEST(fence+1,VALUES(since))),"
      "IF({2},LAST_INSERT_ID(token),fence)),token=IF({1},fence,token)",
      now_us, is_free, is_again);
  for (const std::string_view column :
       {"capacity", "mode", "weight", "ttl", "grace", "was", "label", "client", "seq"})
    text += fmt::format(",{0}=IF({1},VALUES({0}),{0})", column, is_free);
  text += fmt::format(",since=IF({} OR {},VALUES(since),since)", is_free, is_again);
  text += fmt::format(
      ",expires=IF((more=0 OR expires>VALUES(since)) AND client=VALUES(client) AND seq=VALUES(seq) "
      "AND "
      "mode=VALUES(mode),VALUES(expires),expires)");
  return text;
}

// Is it surely taken? By a holder that is there, beside which we do not fit, or, in fifo order, by a waiter that is
// there. Takes no locks, so it neither waits for clients that are changing the name just now, nor do they for it.
std::string surely_taken_text() {
  const auto session = [](std::string_view of) {
    return fmt::format("IS_USED_LOCK({}) IS NOT NULL",
                       fmt::format(fmt::runtime(lock_of_session), of));
  };
  const auto listener = fmt::format(fmt::runtime(lock_of_listener), "w.");
  return fmt::format(
      "SELECT COUNT(*) FROM holdfast_lock l WHERE l.name=? AND l.capacity=? AND NOT (l.client=? "
      "AND l.seq=?) AND "
      "((l.expires>{0} AND l.weight+?>l.capacity AND (l.grace=0 OR {1})) OR "
      "(l.more>0 AND (EXISTS (SELECT 1 FROM holdfast_entry h WHERE h.space=0 AND h.name=l.name AND "
      "h.state IN (0,3) "
      "AND h.expires>{0} AND h.weight+?>l.capacity AND (h.grace=0 OR {2})) OR "
      "(?=0 AND EXISTS (SELECT 1 FROM holdfast_entry w WHERE w.space=0 AND w.name=l.name AND "
      "w.state=1 AND "
      "w.expires>{0} AND w.turn<=? AND (w.push=0 OR ({3} AND IS_USED_LOCK({4}) IS NOT NULL)))))))",
      now_us, session("l."), session("h."), session("w."), listener);
}

// `pairs` of name and owner's number. Point look-ups by primary key, in its order.
std::string any_of(std::string_view pair, std::size_t pairs) {
  std::string out;
  for (std::size_t i = 0; i < pairs; ++i) out += (i == 0 ? "" : " OR ") + std::string{pair};
  return "(" + out + ")";
}

void renewals(statements& out) {
  for (std::size_t i = 0; i < statements::sizes.size(); ++i) {
    const auto which = any_of("(name=? AND seq=?)", statements::sizes[i]);
    out.renew_rows[i] = {
        fmt::format("UPDATE holdfast_lock FORCE INDEX (PRIMARY) SET expires={0}+ttl "
                    "WHERE client=? AND expires>{0} AND {1}",
                    now_us, which),
        "", true};
    out.renew_entries[i] = {
        fmt::format(
            "UPDATE holdfast_entry FORCE INDEX (PRIMARY) SET expires={0}+ttl WHERE space=0 AND "
            "client=? AND state IN (0,3) AND expires>{0} AND {1}",
            now_us, which),
        "", true};
    out.check_rows[i] = {
        fmt::format("SELECT seq FROM holdfast_lock FORCE INDEX (PRIMARY) WHERE client=? "
                    "AND expires>{0} AND {1}",
                    now_us, which),
        "u"};
    out.check_entries[i] = {
        fmt::format(
            "SELECT seq FROM holdfast_entry FORCE INDEX (PRIMARY) WHERE space=0 AND client=? AND "
            "state IN (0,3) AND expires>{0} AND {1}",
            now_us, which),
        "u"};
  }
}

void rows_of_locks(statements& out) {
  out.lock_row = {
      fmt::format("SELECT {} FROM holdfast_lock WHERE name=? FOR UPDATE", columns_of_lock()),
      std::string{lock_types}};
  // Not INSERT IGNORE: when the row is there already, that locks it for reading, and two clients that then want it for
  // writing wait for each other.
  out.insert_row = {
      fmt::format(
          "INSERT INTO holdfast_lock(name,capacity,fence,places,more,client,seq,mode,weight,"
          "token,ttl,grace,since,expires,was,label) VALUES(?,?,{0},0,0,?,0,0,0,0,0,0,{0},0,'','') "
          "ON DUPLICATE KEY UPDATE fence=fence",
          now_us),
      "", true};
  out.update_row = {
      "UPDATE holdfast_lock SET "
      "capacity=?,fence=?,places=?,more=?,client=?,seq=?,mode=?,weight=?,token=?,"
      "ttl=?,grace=?,since=?,expires=?,was=?,label=? WHERE name=?",
      "", true};
}

void reading_entries(statements& out) {
  const auto columns = columns_of_entry();
  out.entries = {
      fmt::format(
          "(SELECT {0} FROM holdfast_entry WHERE space=0 AND name=? AND state<>1) UNION ALL "
          "(SELECT {0} FROM holdfast_entry WHERE space=0 AND name=? AND state=1 ORDER BY "
          "turn,place "
          "LIMIT 4) UNION ALL "
          "(SELECT {0} FROM holdfast_entry WHERE space=0 AND name=? AND client=? AND seq=? AND "
          "state=1)",
          columns),
      std::string{entry_types}};
  out.more_waiters = {
      fmt::format(
          "SELECT {0} FROM holdfast_entry WHERE space=0 AND name=? AND state=1 AND (turn>? OR "
          "(turn=? AND place>?)) ORDER BY turn,place LIMIT 16",
          columns),
      std::string{entry_types}};
  out.before_me = {
      fmt::format(
          "SELECT client,IS_USED_LOCK({}) IS NOT NULL FROM holdfast_entry WHERE space=0 AND name=? "
          "AND "
          "state=1 AND (turn<? OR (turn=? AND place<?)) ORDER BY turn DESC,place DESC LIMIT 1",
          fmt::format(fmt::runtime(lock_of_session), "")),
      "bu"};
}

void changing_entries(statements& out) {
  out.insert_entry = {
      "INSERT INTO "
      "holdfast_entry(space,name,client,seq,state,mode,weight,token,ttl,grace,since,expires,turn,"
      "priority,place,push,was,label) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
      "", true};
  out.grant_entry = {
      "UPDATE holdfast_entry SET state=?,token=?,since=?,expires=?,was=? WHERE space=0 AND name=? "
      "AND "
      "client=? AND seq=?",
      "", true};
  out.confirm_entry = {
      "UPDATE holdfast_entry SET state=0,since=?,expires=? WHERE space=0 AND name=? AND client=? "
      "AND "
      "seq=?",
      "", true};
  out.shrink_entry = {
      "UPDATE holdfast_entry SET state=0,mode=?,weight=?,was='' WHERE space=0 AND name=? AND "
      "client=? AND seq=?",
      "", true};
  out.touch_entry = {
      "UPDATE holdfast_entry SET expires=? WHERE space=0 AND name=? AND client=? AND seq=?", "",
      true};
  out.delete_entry = {"DELETE FROM holdfast_entry WHERE space=? AND name=? AND client=? AND seq=?",
                      "", true};
  out.delete_expired = {
      "DELETE FROM holdfast_entry WHERE space=0 AND name=? AND client=? AND seq=? AND expires<=?",
      "", true};
}

// From an exclusive holder to an exclusive waiter with a listener, by one statement that is its own transaction. It
// looks again at all that waits_next has seen: any other change of holders has changed the fence, and an observer the
// places. The order of assignments to several tables is not defined, so none depends on another. The rows are locked in
// the order of the tables here, each by its primary key.
//
// An index keeps what is no longer true until the server has purged it, and that may be long: so the ends of ranges are
// looked for from where they are. A waiter is behind the holder, which has waited itself.
void handing_over(statements& out) {
  out.waits_next = {
      fmt::format(
          "SELECT "
          "l.capacity,l.fence,l.places,{0},n.client,n.seq,n.weight,n.push,n.was,n.expires,{1} "
          "FROM holdfast_lock l,holdfast_entry n FORCE INDEX (queue) WHERE l.name=? AND n.space=0 "
          "AND n.name=? AND "
          "n.state=1 AND n.turn=? AND n.place>? AND NOT EXISTS (SELECT 1 FROM holdfast_entry o "
          "WHERE "
          "o.space=0 AND o.name=? AND (o.state=2 OR (o.state=1 AND o.turn<?))) ORDER BY "
          "n.turn,n.place LIMIT 1",
          now_us, presence("n.")),
      "uuuubuuubuuu"};
  out.hand_over = {
      fmt::format(
          "UPDATE holdfast_lock l,holdfast_entry m,holdfast_entry n SET l.fence=?,l.since={0},"
          "m.state=0,m.expires=0,m.since={0},n.state=3,n.token=?,n.since={0},n.expires={0}+n.ttl "
          "WHERE l.name=? AND l.fence=? AND MOD(l.places,{1})=? AND l.expires<={0} AND "
          "m.space=0 AND m.name=? AND m.client=? AND m.seq=? AND m.state IN (0,3) AND "
          "m.expires>{0} AND "
          "m.weight=l.capacity AND n.space=0 AND n.name=? AND n.client=? AND n.seq=? AND n.state=1 "
          "AND "
          "n.weight=l.capacity AND n.push=1 AND n.was='' AND n.expires>{0}",
          now_us, place_step),
      "", true};
  // Some servers take l.places as it was, some as it is now: either is behind all places given before, and ahead of
  // all that will be given.
  out.queue_again = {
      fmt::format("UPDATE holdfast_lock l,holdfast_entry m SET "
                  "l.places=l.places+{1},m.place=l.places+{2},m.seq=?,"
                  "m.state=1,m.mode=?,m.weight=?,m.token=0,m.ttl=?,m.grace=?,m.since={0},m.expires="
                  "{0}+{3},m.turn=?,"
                  "m.priority=?,m.push=1,m.was='',m.label=? WHERE l.name=? AND l.capacity=? AND "
                  "NOT (l.client=m.client AND l.seq=? AND l.expires>{0}) AND m.space=0 AND "
                  "m.name=? AND m.client=? AND "
                  "m.seq=? AND m.state=0 AND m.expires=0",
                  now_us, place_step, place_step / 2, patience_of_push),
      "", true};
  // The holder, if it was handed over to, and the end of the queue from the back.
  const auto columns = fmt::format("client,seq,expires,grace,{},IS_USED_LOCK({}) IS NOT NULL",
                                   now_us, fmt::format(fmt::runtime(lock_of_session), ""));
  out.clients_ahead = {
      fmt::format(
          "(SELECT 0,{1} FROM holdfast_entry WHERE space=0 AND name=? AND state=3 AND expires>{0} "
          "ORDER BY turn DESC,place DESC LIMIT 1) UNION ALL "
          "(SELECT 1,{1} FROM holdfast_entry WHERE space=0 AND name=? AND state=1 "
          "ORDER BY turn DESC,place DESC LIMIT 3)",
          now_us, columns),
      "ubuuuuu"};
}

void looking(statements& out) {
  out.find_owner = {
      fmt::format(
          "SELECT 0,mode,weight,token,ttl,since,expires,{0} FROM holdfast_lock WHERE name=? AND "
          "client=? AND seq=? AND expires>{0} UNION ALL "
          "SELECT 1+(state=1),mode,weight,token,ttl,since,expires,{0} FROM holdfast_entry WHERE "
          "space=0 AND name=? AND client=? AND seq=? AND (state=1 OR expires>{0})",
          now_us),
      "uuuuuuuu"};
  const auto pair = fmt::format(
      "l.name,{},{},COALESCE(ls.host,''),COALESCE(ls.pid,0),"
      "COALESCE(es.host,''),COALESCE(es.pid,0)",
      columns_of_lock("l."), columns_of_entry("e."));
  const auto pair_types = fmt::format("b{}{}bubu", lock_types, entry_types);
  constexpr std::string_view joined =
      "LEFT JOIN holdfast_entry e ON e.space=0 AND e.name=l.name "
      "LEFT JOIN holdfast_session ls ON ls.client=l.client "
      "LEFT JOIN holdfast_session es ON es.client=e.client";
  out.inspect = {
      fmt::format("SELECT {} FROM holdfast_lock l {} WHERE l.name=? ORDER BY e.turn,e.place", pair,
                  joined),
      pair_types};
  out.list = {
      fmt::format(
          "SELECT {0} FROM (SELECT * FROM holdfast_lock WHERE name>=? AND LEFT(name,?)=? AND "
          "(expires>{1} OR (more>0 AND EXISTS (SELECT 1 FROM holdfast_entry h WHERE h.space=0 AND "
          "h.name=holdfast_lock.name AND h.state IN (0,1,3) AND h.expires>{1}))) ORDER BY name "
          "LIMIT ?) l {2} ORDER BY l.name,e.turn,e.place",
          pair, now_us, joined),
      pair_types};
  // 0 when it has no holder; and when the first of the holders ends.
  out.version = {
      fmt::format(
          "SELECT l.fence,{0},GREATEST(IF(l.expires>{0},l.expires,0),COALESCE((SELECT "
          "MAX(e.expires) "
          "FROM holdfast_entry e WHERE e.space=0 AND e.name=l.name AND e.state IN (0,3)),0)) FROM "
          "holdfast_lock l WHERE l.name=?",
          now_us),
      "uuu"};
}

statements make() {
  statements out;
  out.enter = {enter_text(), "", true};
  out.release = {
      fmt::format(
          "UPDATE holdfast_lock SET expires=0,since={0} WHERE name=? AND client=? AND seq=? "
          "AND more=0 AND expires>{0}",
          now_us),
      "", true};
  out.check_tables = {
      "SELECT 1 FROM holdfast_lock,holdfast_entry,holdfast_session,holdfast_counter LIMIT 0", "u"};
  out.surely_taken = {surely_taken_text(), "u"};
  rows_of_locks(out);
  reading_entries(out);
  changing_entries(out);
  handing_over(out);
  looking(out);
  sessions(out);
  renewals(out);
  being_told(out);
  counters(out);
  sweeping(out);
  return out;
}

// As HEX() of the server.
std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("{:02X}", static_cast<unsigned char>(c));
  return out;
}

}  // namespace

const statements& sql() {
  static const auto& the = *new statements{make()};
  return the;
}

std::string session_lock(std::string_view client) { return "holdfast:s:" + hex(client); }
std::string listener_lock(std::string_view client) { return "holdfast:l:" + hex(client); }

}  // namespace holdfast::engines::mysql

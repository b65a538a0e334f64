// Guards that check a fencing token where the work happens.
//
// A lease can end between the check and the act. The resource itself must refuse a holder that comes with an older
// token than it has seen, from the first touch on, reads included: a fence checked only on writes lets an old holder's
// write in after the new holder has read.
//
//   file_fence  the resource is a file, a directory, a device: anything whose users can reach one small file
//   sql_fence   the resource is rows in MySQL or MariaDB
//   etcd_fence  the resource is keys in etcd
//   zk_fence    the resource is nodes in ZooKeeper
//   consul_fence  the resource is keys in Consul
//
// One fence per lock name: tokens of different names or stores must not be compared. A fence is as good as its tokens:
// see capabilities().fencing. None of these needs a client. Thread-safe: all members are const.
#pragma once

#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace holdfast {

// Keeps the newest token of one resource in a small file beside it (or anywhere all its users can reach).
//
//   holdfast::file_fence fence{"/srv/stock.fence"};
//   fence.admit(lease.token()).value();     // throws lock_error lost when a newer holder was here already
//   ... read and write the resource ...
//
// The check and the act are two steps: a holder that is paused after admit() may act when a newer one was admitted
// meanwhile. Call it as late as you can, and again between steps of long work; where that is not enough the resource
// itself must compare the tokens. The file is locked (flock) for the moment of the call, so its file system must
// support that between all its users; and it is private to its user (0600) unless it is there before.
class file_fence {
 public:
  // Opens nothing.
  explicit file_fence(std::string path);
  // ok and remembered when `token` is not older than any seen; lost otherwise: stop. The new token is on disk (fsync)
  // before ok. Creates the file, not its folder. Blocks for the disk, and while other processes are in a call of the
  // same fence; not cancellable. misconfigured: token 0, no such folder, or the path is not a plain file (also a
  // symbolic link). denied: no permission. protocol: the file is damaged; the sentence says how to mend it.
  // unavailable: the disk failed or is full; the token counts as not admitted.
  result<void> admit(fencing_token token) const;
  // The newest token that was admitted; 0 when there was none, or no file. For people and tests: it remembers nothing,
  // so it is no check. Errors as those of admit(), except lost.
  result<fencing_token> newest() const;

 private:
  std::string path_;
};

// Keeps the newest token of one resource in a table beside the data, and checks it inside the transaction that does
// the work. For MySQL and MariaDB, InnoDB; with your connection and your driver.
//
//   const holdfast::sql_fence fence{"stock/sku-42"};   // its table: fence.schema(), once
//   START TRANSACTION
//   fence.admit(lease.token(), run).value();           // first; throws lock_error lost: a newer holder was here
//   ... read and write the resource ...
//   COMMIT                                             // or ROLLBACK, which takes the token back, too
//
// The fence's row stays locked until the transaction ends, so a holder with another token waits for that, and
// nothing that an older one has read can be written any more. So admit() goes before the first read: at REPEATABLE
// READ an earlier read would show data from before the newest holder. And inside a transaction: with autocommit the
// row is let go at once, and what remains is a check and an act with an instant in between. A transaction that only
// reads is committed, too.
//
// The first one at a resource inserts its row. Should that one roll back while others wait, they may get a deadlock
// (1213), with which every transaction must reckon: roll back and begin anew. A row that is there before, with token
// 0, avoids it.
class sql_fence {
 public:
  // Runs a statement with two question marks, for `resource` (bytes) and `token` (unsigned, 64 bits), and tells the
  // insert id that the server answered: mysql_stmt_insert_id, lastrowid, LastInsertId, or SELECT LAST_INSERT_ID(). On
  // the connection of the transaction. Called once by admit(), on its thread.
  using runner = std::function<result<std::uint64_t>(
      const std::string& text, const std::string& resource, std::uint64_t token)>;

  // Throws lock_error misconfigured: a resource has 1 to 255 bytes; a table is [database.]table, of letters,
  // digits and underscores.
  explicit sql_fence(std::string resource, std::string table = "holdfast_fence");

  // CREATE TABLE IF NOT EXISTS. Its users need SELECT, INSERT and UPDATE on it.
  std::string schema() const;
  // What admit() runs: remembers the larger token, locks the row, and answers the larger token as insert id. For
  // programs that run it without a runner: equal to the token shown is ok, larger is lost.
  const std::string& statement() const noexcept { return statement_; }

  // ok when `token` is not older than any seen by a transaction that was committed; lost otherwise: roll back and stop.
  // Blocks for as long as `run` does, which waits for other transactions on the row (innodb_lock_wait_timeout).
  // misconfigured: token 0. protocol: the insert id that came back is smaller than the token, so the statement or its
  // answer was not passed on as it is. What `run` fails with, or throws, is passed on.
  result<void> admit(fencing_token token, const runner& run) const;

 private:
  std::string resource_, table_, statement_;
};

// Keeps the newest token of one resource in a key beside the data, and has etcd compare it inside the transactions that
// do the work. With your client, to which it speaks in serialised messages of etcd's API (etcdserverpb: TxnRequest and
// TxnResponse, of KV.Txn).
//
//   const holdfast::etcd_fence fence{"stock/sku-42.fence"};
//   fence.judge(token, send(fence.admission(token))).value();  // first; throws lock_error lost: a newer one was here
//   ... read the resource ...
//   request.MergeFromString(fence.guard(token));               // your TxnRequest, with what you write
//   fence.judge(token, send(request.SerializeAsString())).value();
//
// The admission remembers the token, once per lease and before the first read. From then on every transaction that
// carries the guard of an older token does nothing. So what the newest holder reads (linearizably, as is etcd's
// default) no older holder changes behind its back, and reads need no guard; all that is written does. A transaction
// with the guard of a token that was not admitted does nothing either, so an admission that was forgotten is found out
// and not a hole.
//
// An admission may be sent again when no answer came. Equal tokens are not kept apart: they are one grant's.
//
// Where the data are in the same cluster as the locks, no key of yours may lie under the name of a lock: etcd:// would
// take it for a waiter. Give the locks a prefix (etcd://host/locks).
//
// Clients that take no bytes build the same from key() and value(). The admission: if the VALUE of key() is GREATER
// than value(token), nothing; else put value(token). In that order, because a compare with a key that does not exist is
// false. The guard: the VALUE of key() is EQUAL to value(token).
class etcd_fence {
 public:
  // Throws lock_error misconfigured when the key is empty.
  explicit etcd_fence(std::string key);

  const std::string& key() const noexcept { return key_; }
  // 20 digits, because etcd compares bytes. Throws lock_error misconfigured for token 0, which belongs to no lease;
  // admission() and guard(), too.
  static std::string value(fencing_token token);

  // A whole TxnRequest. The first reads, or all the work if one transaction is enough, can go along: append them to
  // its `failure`, which is what is done when no newer holder was here. But add no compare there; it would let
  // older ones in.
  std::string admission(fencing_token token) const;
  // A part of a TxnRequest, to be merged into yours: one compare, and in `failure` a read of the fence, for judge().
  std::string guard(fencing_token token) const;

  // What a TxnResponse says about the fence, of an admission or of a transaction with a guard.
  // ok: it did not object. If a guarded transaction did not succeed, then because of another compare of yours.
  // lost: a newer holder was here, and nothing was done. misconfigured: there was no admission before the guard, or the
  // key was removed since. protocol: these are not the bytes of an answer, or what the key holds is not a token.
  result<void> judge(fencing_token token, std::string_view answer) const;

 private:
  std::string key_;
};

// Keeps the newest token of one resource in a node beside the data, in ZooKeeper. Each change of the data then goes in
// a multi together with a check of that node's version, which every newer holder has raised. With your client: the C
// client, or any other.
//
//   const holdfast::zk_fence fence{"/stock/sku-42.fence"};
//   const auto pass = fence.admit(lease.token(), my_session).value();   // first; throws lock_error lost
//   ... read the resource, over the same session ...
//   zoo_check_op_init(&ops[0], fence.path().c_str(), pass);             // the guard, in every multi that writes
//   zoo_set_op_init(&ops[1], ...);
//   if (zoo_multi(session, 2, ops, results) == ZBADVERSION && results[0].err == ZBADVERSION) stop();
//
// The admission is a write, so what is read afterwards over the same session is not older than it; and from then on a
// multi with the guard of an older token does nothing. So what the newest holder reads no older holder changes behind
// its back. A change without a guard is a hole.
//
// Nobody may delete the fence's node, nor write it otherwise: versions would begin anew. It must not lie below the path
// of a lock. An admission may be repeated when no answer came. Equal tokens are not kept apart: they are one grant's.
class zk_fence {
 public:
  // Your client's three calls on one path, each on the thread of admit(). What they fail with, or throw, is passed on.
  struct node {
    std::string data;
    std::int32_t version = 0;
  };
  struct session {
    std::function<result<std::optional<node>>(const std::string& path)> get;  // nothing: ZNONODE
    // Persistent, with this content. False: ZNODEEXISTS.
    std::function<result<bool>(const std::string& path, const std::string& data)> create;
    // The new version (of the Stat that comes back); nothing: ZBADVERSION, or ZNONODE.
    std::function<result<std::optional<std::int32_t>>(
        const std::string& path, const std::string& data, std::int32_t version)>
        set;
  };

  // Throws lock_error misconfigured unless it is a path: "/a/b".
  explicit zk_fence(std::string path);
  const std::string& path() const noexcept { return path_; }

  // Remembers the token; the version to check from now on. lost: a newer holder was here. misconfigured: token 0.
  // protocol: what the node holds is not a token. unavailable: others change the node all the time.
  result<std::int32_t> admit(fencing_token token, const session& with) const;

 private:
  std::string path_;
};

// Keeps the newest token in a key in Consul beside the data. Consul's transactions compare the index of a key's last
// change; so the token is written by compare and set, and the index that comes of it guards what is done afterwards.
//
//   const holdfast::consul_fence fence{"stock/sku-42.fence"};
//   const auto pass = fence.admit(lease.token(), my_calls).value();   // first; throws lock_error lost
//   const auto left = read(...);          // with ?consistent, or in a transaction with the guard
//   txn("[" + fence.guard(pass) + "," + put("stock/sku-42", left - 1) + "]");   // PUT /v1/txn; 409: stop
//
// From the admission on a transaction with the guard of an older token does nothing. So what the newest holder reads no
// older holder changes behind its back. A change without a guard is a hole.
//
// Nobody may delete the fence's key, nor write it otherwise. It must not lie below the path of a lock. An admission may
// be repeated when no answer came. Equal tokens are not kept apart: they are one grant's.
class consul_fence {
 public:
  // Your client's two calls on one key, each on the thread of admit(). What they fail with, or throw, is passed on.
  struct key {
    std::string value;
    std::uint64_t index = 0;  // ModifyIndex
  };
  struct calls {
    // GET /v1/kv/KEY?consistent; nothing: 404.
    std::function<result<std::optional<key>>(const std::string& path)> get;
    // PUT /v1/txn with the one operation {"KV": {"Verb": "cas", ...}}: the ModifyIndex of its answer; nothing: 409,
    // another one was faster. With index 0 the key must not be there.
    std::function<result<std::optional<std::uint64_t>>(
        const std::string& path, const std::string& value, std::uint64_t index)>
        cas;
  };

  // Throws lock_error misconfigured unless it is a key as Consul takes it: no slash at its ends, no empty, "." or ".."
  // segment, which Consul would take for another key.
  explicit consul_fence(std::string path);
  const std::string& path() const noexcept { return path_; }

  // Remembers the token; the index to check from now on. lost: a newer holder was here. misconfigured: token 0.
  // protocol: what the key holds is not a token. unavailable: others change the key all the time.
  result<std::uint64_t> admit(fencing_token token, const calls& with) const;
  // One operation of a transaction, as JSON: the key is as it was when we were admitted.
  std::string guard(std::uint64_t pass) const;

 private:
  std::string path_;
};

}  // namespace holdfast

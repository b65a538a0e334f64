// The part of ZooKeeper's protocol that a lock needs, as pure code: requests as bytes, answers as values.
//
//   std::string out;
//   append_create(out, xid, {.path = "/locks/a/lock-", .data = "x", .mode = create_mode::ephemeral_sequential});
//   ...
//   auto body = open_reply(frame);                  // the header of the reply, and what follows it
//   auto made = read_created(body->rest);
#pragma once

#include "jute/jute.hpp"

#include <holdfast/result.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::jute {

// ---- what an answer says

// The server's own numbers; what is not named here is kept as it is.
enum class code : std::int32_t {
  ok = 0,
  runtime_inconsistency = -2,  // of a part of a multi behind the one that failed
  connection_loss = -4,
  marshalling = -5,
  unimplemented = -6,
  timed_out = -7,
  bad_arguments = -8,
  unknown_session = -12,
  new_config_no_quorum = -13,
  no_node = -101,
  no_auth = -102,
  bad_version = -103,
  no_children_for_ephemerals = -108,
  node_exists = -110,
  not_empty = -111,
  session_expired = -112,
  invalid_acl = -114,
  auth_failed = -115,
  session_moved = -118,
  not_read_only = -119,
  quota_exceeded = -125,
  throttled = -127,
};
std::string_view name_of(code what) noexcept;  // "NoNode"; "an unknown error" for others

struct stat {
  std::int64_t czxid = 0, mzxid = 0;
  std::int64_t ctime = 0, mtime = 0;  // milliseconds of the leader's wall clock
  std::int32_t version = 0, cversion = 0, aversion = 0;
  std::int64_t ephemeral_owner = 0;  // a session, or 0: servers do not say that it is a container
  std::int32_t data_length = 0, children = 0;
  std::int64_t pzxid = 0;

  friend bool operator==(const stat&, const stat&) = default;
};

struct reply {
  std::int32_t xid = 0;
  std::int64_t zxid =
      0;  // of the change that a write made; of the last change that the server knew of a read
  code err = code::ok;
  std::string_view rest;
};
// Of the inside of a frame.
result<reply> open_reply(std::string_view inside);

enum class event_type : std::int32_t {
  none = -1,
  created = 1,
  deleted = 2,
  data_changed = 3,
  children_changed = 4
};
struct event {
  event_type what = event_type::none;
  std::int32_t state = 0;
  std::string_view path;
};
result<event> read_event(std::string_view rest);

struct created {
  std::string_view path;
  struct stat stat;
};
struct node {
  std::string_view data;
  struct stat stat;
};
struct children {
  std::vector<std::string_view> names;
  struct stat stat;
};
result<created> read_created(std::string_view rest);
result<node> read_node(std::string_view rest);
result<struct stat> read_stat(std::string_view rest);
result<children> read_children(std::string_view rest);

// One part of a multi's answer. When a part fails, all do, and none has had an effect.
struct part {
  code err = code::ok;
  std::string_view path{};  // of a create
  struct stat stat {};      // of a setData; of a create2 only where the server tells (3.8 does not)
};
result<std::vector<part>> read_parts(std::string_view rest);
// Why the multi with this answer had no effect; ok: it had.
code failure_of(const reply& multi);

struct connected {
  std::int32_t timeout_ms = 0;  // as negotiated; 0: the session is over
  std::int64_t session = 0;
  std::string_view password;
  bool read_only = false;
};
result<connected> read_connected(std::string_view inside);

// ---- what is asked

enum class create_mode : std::int32_t {
  persistent = 0,
  ephemeral = 1,
  persistent_sequential = 2,
  ephemeral_sequential = 3,
  container = 4,
};
namespace permission {
inline constexpr std::int32_t read = 1, write = 2, create = 4, erase = 8, admin = 16, all = 31;
}
struct acl {
  std::int32_t permissions = permission::all;
  std::string_view scheme = "world";
  std::string_view id = "anyone";
};
// Everybody may do everything; only the logged-in users that created a node may.
std::span<const acl> open_to_all() noexcept;
std::span<const acl> creator_only() noexcept;

struct creation {
  std::string_view path;
  std::string_view data{};
  std::span<const acl> rights = open_to_all();
  create_mode mode = create_mode::persistent;
};

struct connecting {
  std::int64_t last_zxid = 0;  // no older server will do
  std::int32_t timeout_ms = 0;
  std::int64_t session = 0;  // 0: a new one
  std::string_view password{};
};
void append_connect(std::string& to, const connecting& what);
void append_auth(std::string& to, std::string_view scheme, std::string_view id);
void append_ping(std::string& to);
void append_close(std::string& to, std::int32_t xid);

inline constexpr std::int32_t any_version = -1;
void append_create(std::string& to, std::int32_t xid, const creation& what);  // answered by created
void append_delete(std::string& to, std::int32_t xid, std::string_view path,
                   std::int32_t version = any_version);
void append_exists(std::string& to, std::int32_t xid, std::string_view path, bool watch);  // stat
void append_get(std::string& to, std::int32_t xid, std::string_view path, bool watch);     // node
void append_set(std::string& to, std::int32_t xid, std::string_view path, std::string_view data,
                std::int32_t version = any_version);  // stat
void append_children(std::string& to, std::int32_t xid, std::string_view path, bool watch);
void append_sync(std::string& to, std::int32_t xid, std::string_view path);
struct acls {
  std::vector<acl> rights;
  struct stat stat;
};
void append_get_acl(std::string& to, std::int32_t xid, std::string_view path);
result<acls> read_acls(std::string_view rest);

// All paths of one kind in it that changed after `since` are told at once, the others are watched.
struct watch_list {
  std::int64_t since = 0;
  std::vector<std::string> data, existence, children;
};
void append_set_watches(std::string& to, const watch_list& what);
// Of this session: on the children of the node, or on the node itself.
void append_remove_watches(std::string& to, std::int32_t xid, std::string_view path,
                           bool of_children);

// Several changes as one: all or none. The parts are answered by read_parts().
class multi {
 public:
  multi(std::string& to, std::int32_t xid);
  multi(const multi&) = delete;
  multi& operator=(const multi&) = delete;
  ~multi();  // complete

  multi& create(const creation& what);
  multi& erase(std::string_view path, std::int32_t version = any_version);
  multi& set(std::string_view path, std::string_view data, std::int32_t version = any_version);
  multi& check(std::string_view path, std::int32_t version = any_version);

 private:
  void head(std::int32_t type, bool done);
  framed frame_;
  writer out_;
};

}  // namespace holdfast::jute

#include "jute/zookeeper.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace holdfast::jute {

namespace {

namespace op {
constexpr std::int32_t create = 1, erase = 2, exists = 3, get = 4, set = 5, get_acl = 6, sync = 9,
                       ping = 11, children2 = 12, check = 13, multi = 14, create2 = 15,
                       remove_watches = 18, container = 19, auth = 100, set_watches = 101,
                       close = -11, failure = -1;
}

// Of a multi's answer; nobody here asks for as many. A part takes far more memory than bytes in an answer.
constexpr std::size_t most_parts = 10'000;

error not_understood(std::string_view what) {
  return {errc::protocol, std::string{what} + " makes no sense"};
}

stat take_stat(reader& in) {
  stat out;
  out.czxid = in.big();
  out.mzxid = in.big();
  out.ctime = in.big();
  out.mtime = in.big();
  out.version = in.integer();
  out.cversion = in.integer();
  out.aversion = in.integer();
  out.ephemeral_owner = in.big();
  out.data_length = in.integer();
  out.children = in.integer();
  out.pzxid = in.big();
  return out;
}

// A record that takes all of the bytes.
template <class T>
result<T> whole(const reader& in, T&& value, std::string_view what) {
  if (!in.ok() || !in.at_end()) return not_understood(what);
  return std::forward<T>(value);
}

void put_creation(writer& out, const creation& what) {
  out.text(what.path);
  out.text(what.data);
  out.integer(static_cast<std::int32_t>(what.rights.size()));
  for (const auto& right : what.rights) {
    out.integer(right.permissions);
    out.text(right.scheme);
    out.text(right.id);
  }
  out.integer(static_cast<std::int32_t>(what.mode));
}

std::int32_t op_of(const creation& what) {
  return what.mode == create_mode::container ? op::container : op::create2;
}

// A frame with the header of a request.
class request {
 public:
  request(std::string& to, std::int32_t xid, std::int32_t type) : frame_(to), out(to) {
    out.integer(xid);
    out.integer(type);
  }

 private:
  framed frame_;

 public:
  writer out;
};

}  // namespace

std::string_view name_of(code what) noexcept {
  constexpr std::array names{
      std::pair{code::ok, "Ok"},
      std::pair{code::runtime_inconsistency, "RuntimeInconsistency"},
      std::pair{code::connection_loss, "ConnectionLoss"},
      std::pair{code::marshalling, "MarshallingError"},
      std::pair{code::unimplemented, "Unimplemented"},
      std::pair{code::timed_out, "OperationTimeout"},
      std::pair{code::bad_arguments, "BadArguments"},
      std::pair{code::unknown_session, "UnknownSession"},
      std::pair{code::new_config_no_quorum, "NewConfigNoQuorum"},
      std::pair{code::no_node, "NoNode"},
      std::pair{code::no_auth, "NoAuth"},
      std::pair{code::bad_version, "BadVersion"},
      std::pair{code::no_children_for_ephemerals, "NoChildrenForEphemerals"},
      std::pair{code::node_exists, "NodeExists"},
      std::pair{code::not_empty, "NotEmpty"},
      std::pair{code::session_expired, "SessionExpired"},
      std::pair{code::invalid_acl, "InvalidACL"},
      std::pair{code::auth_failed, "AuthFailed"},
      std::pair{code::session_moved, "SessionMoved"},
      std::pair{code::not_read_only, "NotReadOnly"},
      std::pair{code::quota_exceeded, "QuotaExceeded"},
      std::pair{code::throttled, "ThrottledOp"},
  };
  const auto* const at = std::ranges::find(names, what, [](const auto& row) { return row.first; });
  return at == names.end() ? "an unknown error" : at->second;
}

// ---- answers

result<reply> open_reply(std::string_view inside) {
  reader in{inside};
  reply out;
  out.xid = in.integer();
  out.zxid = in.big();
  out.err = static_cast<code>(in.integer());
  out.rest = in.rest();
  if (!in.ok()) return not_understood("the header of an answer");
  return out;
}

result<event> read_event(std::string_view rest) {
  reader in{rest};
  event out;
  out.what = static_cast<event_type>(in.integer());
  out.state = in.integer();
  out.path = in.text();
  return whole(in, std::move(out), "an event");
}

result<created> read_created(std::string_view rest) {
  reader in{rest};
  created out;
  out.path = in.text();
  out.stat = take_stat(in);
  return whole(in, std::move(out), "the answer to a create");
}

result<node> read_node(std::string_view rest) {
  reader in{rest};
  node out;
  out.data = in.text();
  out.stat = take_stat(in);
  return whole(in, std::move(out), "the content of a node");
}

result<struct stat> read_stat(std::string_view rest) {
  reader in{rest};
  auto out = take_stat(in);
  return whole(in, std::move(out), "the description of a node");
}

result<children> read_children(std::string_view rest) {
  reader in{rest};
  children out;
  const auto count = in.items(4);
  out.names.reserve(count);
  for (std::size_t i = 0; i < count; ++i) out.names.push_back(in.text());
  out.stat = take_stat(in);
  return whole(in, std::move(out), "a list of children");
}

result<acls> read_acls(std::string_view rest) {
  reader in{rest};
  acls out;
  for (auto count = in.items(12); count > 0; --count) {
    auto& right = out.rights.emplace_back();
    right.permissions = in.integer();
    right.scheme = in.text();
    right.id = in.text();
  }
  out.stat = take_stat(in);
  return whole(in, std::move(out), "a list of rights");
}

result<std::vector<part>> read_parts(std::string_view rest) {
  reader in{rest};
  std::vector<part> out;
  while (in.ok()) {
    const auto type = in.integer();
    const bool done = in.boolean();
    const auto err = static_cast<code>(in.integer());
    if (done) return whole(in, std::move(out), "the answer to a multi");
    if (out.size() == most_parts) break;
    auto& one = out.emplace_back();
    one.err = err;
    switch (type) {
      case op::failure:
        one.err = static_cast<code>(in.integer());
        break;
      case op::create:
        one.path = in.text();
        break;
      case op::container:
      case op::create2:
        one.path = in.text();
        one.stat = take_stat(in);
        break;
      case op::set:
        one.stat = take_stat(in);
        break;
      case op::erase:
      case op::check:
        break;
      default:
        return not_understood("a part of the answer to a multi");
    }
  }
  return not_understood("the answer to a multi");
}

// The parts before the one that failed say ok, those behind it that they were not tried.
code failure_of(const reply& multi) {
  if (multi.err != code::ok) return multi.err;
  const auto parts = read_parts(multi.rest);
  if (!parts) return code::marshalling;
  for (const auto& one : *parts)
    if (one.err != code::ok && one.err != code::runtime_inconsistency) return one.err;
  return code::ok;
}

result<connected> read_connected(std::string_view inside) {
  reader in{inside};
  connected out;
  static_cast<void>(in.integer());  // the version of the protocol
  out.timeout_ms = in.integer();
  out.session = in.big();
  out.password = in.text();
  if (!in.at_end()) out.read_only = in.boolean();  // servers before 3.4 do not say
  return whole(in, std::move(out), "the answer to the greeting");
}

// ---- requests

std::span<const acl> open_to_all() noexcept {
  static constexpr acl all[]{acl{}};
  return all;
}

std::span<const acl> creator_only() noexcept {
  static constexpr acl creator[]{acl{permission::all, "auth", ""}};
  return creator;
}

void append_connect(std::string& to, const connecting& what) {
  const framed frame{to};
  writer out{to};
  out.integer(0);  // the version of the protocol
  out.big(what.last_zxid);
  out.integer(what.timeout_ms);
  out.big(what.session);
  out.text(what.password.empty() ? std::string_view{"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16}
                                 : what.password);
  out.boolean(false);  // a server that cannot write is of no use
}

void append_auth(std::string& to, std::string_view scheme, std::string_view id) {
  request ask{to, auth_xid, op::auth};
  ask.out.integer(0);
  ask.out.text(scheme);
  ask.out.text(id);
}

void append_ping(std::string& to) { const request ask{to, ping_xid, op::ping}; }

void append_close(std::string& to, std::int32_t xid) { const request ask{to, xid, op::close}; }

void append_create(std::string& to, std::int32_t xid, const creation& what) {
  request ask{to, xid, op_of(what)};
  put_creation(ask.out, what);
}

void append_delete(std::string& to, std::int32_t xid, std::string_view path, std::int32_t version) {
  request ask{to, xid, op::erase};
  ask.out.text(path);
  ask.out.integer(version);
}

void append_exists(std::string& to, std::int32_t xid, std::string_view path, bool watch) {
  request ask{to, xid, op::exists};
  ask.out.text(path);
  ask.out.boolean(watch);
}

void append_get(std::string& to, std::int32_t xid, std::string_view path, bool watch) {
  request ask{to, xid, op::get};
  ask.out.text(path);
  ask.out.boolean(watch);
}

void append_set(std::string& to, std::int32_t xid, std::string_view path, std::string_view data,
                std::int32_t version) {
  request ask{to, xid, op::set};
  ask.out.text(path);
  ask.out.text(data);
  ask.out.integer(version);
}

void append_children(std::string& to, std::int32_t xid, std::string_view path, bool watch) {
  request ask{to, xid, op::children2};
  ask.out.text(path);
  ask.out.boolean(watch);
}

void append_sync(std::string& to, std::int32_t xid, std::string_view path) {
  request ask{to, xid, op::sync};
  ask.out.text(path);
}

void append_get_acl(std::string& to, std::int32_t xid, std::string_view path) {
  request ask{to, xid, op::get_acl};
  ask.out.text(path);
}

void append_set_watches(std::string& to, const watch_list& what) {
  request ask{to, set_watches_xid, op::set_watches};
  ask.out.big(what.since);
  for (const auto* paths : {&what.data, &what.existence, &what.children}) {
    ask.out.integer(static_cast<std::int32_t>(paths->size()));
    for (const auto& path : *paths) ask.out.text(path);
  }
}

void append_remove_watches(std::string& to, std::int32_t xid, std::string_view path,
                           bool of_children) {
  request ask{to, xid, op::remove_watches};
  ask.out.text(path);
  ask.out.integer(of_children ? 1 : 2);
}

// ---- multi

multi::multi(std::string& to, std::int32_t xid) : frame_(to), out_(to) {
  out_.integer(xid);
  out_.integer(op::multi);
}

multi::~multi() { head(-1, true); }

void multi::head(std::int32_t type, bool done) {
  out_.integer(type);
  out_.boolean(done);
  out_.integer(-1);
}

multi& multi::create(const creation& what) {
  head(op_of(what), false);
  put_creation(out_, what);
  return *this;
}

multi& multi::erase(std::string_view path, std::int32_t version) {
  head(op::erase, false);
  out_.text(path);
  out_.integer(version);
  return *this;
}

multi& multi::set(std::string_view path, std::string_view data, std::int32_t version) {
  head(op::set, false);
  out_.text(path);
  out_.text(data);
  out_.integer(version);
  return *this;
}

multi& multi::check(std::string_view path, std::int32_t version) {
  head(op::check, false);
  out_.text(path);
  out_.integer(version);
  return *this;
}

}  // namespace holdfast::jute

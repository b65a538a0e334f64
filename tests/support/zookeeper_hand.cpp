#include "support/zookeeper_hand.hpp"

#include "support/loopback.hpp"
#include "support/wait_until.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace holdfast::testing {

zookeeper_error::zookeeper_error(jute::code why, std::string_view doing, std::string_view what)
    : std::runtime_error(
          fmt::format("{} ({}): {} {}", jute::name_of(why), static_cast<int>(why), doing, what)),
      code_(why) {}

// A connection that is cut into frames.
class zookeeper_hand::wire {
 public:
  wire(const zookeeper_server& server, std::size_t node)
      : connection_(server.at(node, [&] {
          return std::make_unique<loopback_connection>(server.plain_port(node), patience);
        })) {}

  bool send(std::string_view bytes) const {
    return connection_->is_open() && connection_->send(bytes);
  }
  // What is inside the next frame. None: the connection ended, or the server is silent.
  std::optional<std::string> next() {
    for (;;) {
      const auto frame = jute::next_frame(arrived_).value();
      if (frame.length > 0) {
        std::string_view bytes{arrived_};
        std::string inside{jute::take_frame(bytes)};
        arrived_.erase(0, frame.length);
        return inside;
      }
      if (connection_->receive(arrived_) != loopback_connection::received::something) return {};
    }
  }

 private:
  static constexpr std::chrono::seconds patience{10};
  std::unique_ptr<loopback_connection> connection_;
  std::string arrived_;
};

// ---- the session

zookeeper_hand::zookeeper_hand(const zookeeper_server& server)
    : zookeeper_hand(server, options{}) {}

zookeeper_hand::zookeeper_hand(const zookeeper_server& server, const options& how)
    : server_(server), node_(how.node), wire_(std::make_unique<wire>(server, how.node)) {
  connect(how);
}

zookeeper_hand::~zookeeper_hand() {
  try {
    if (wire_) close();
  } catch (const zookeeper_error&) {  // the session is over already, or nothing answers
  }
}

void zookeeper_hand::connect(const options& how) {
  std::string greeting;
  jute::append_connect(greeting, {.timeout_ms = static_cast<std::int32_t>(how.timeout.count()),
                                  .session = how.session,
                                  .password = how.password});
  std::optional<std::string> said;
  if (wire_->send(greeting)) said = wire_->next();
  if (!said) throw zookeeper_error{jute::code::connection_loss, "connect to", server_.url(node_)};
  const auto connected = jute::read_connected(*said).value();
  if (connected.timeout_ms == 0)
    throw zookeeper_error{jute::code::session_expired, "go on with",
                          fmt::format("{:#x}", how.session)};
  session_ = connected.session;
  password_ = connected.password;
  timeout_ = std::chrono::milliseconds{connected.timeout_ms};
}

void zookeeper_hand::close() {
  ask("close", "the session", [](auto& to, auto xid) { jute::append_close(to, xid); });
  hang_up();
}

void zookeeper_hand::hang_up() { wire_.reset(); }

void zookeeper_hand::log_in(std::string_view user_and_password) {
  std::string request;
  jute::append_auth(request, "digest", user_and_password);
  exchange(request, jute::auth_xid, "log in", "");
}

// ---- the sessions of others

bool zookeeper_hand::end(std::int64_t session, std::string_view password) {
  // Both at once. Still, the client may come back in between, and our end be refused: then again.
  std::string request;
  jute::append_connect(request, {.timeout_ms = static_cast<std::int32_t>(timeout_.count()),
                                 .session = session,
                                 .password = password});
  jute::append_close(request, 1);
  bool was_there = false;
  const bool is_over = wait_until([&] {
    wire other{server_, node_};
    if (!other.send(request)) return false;
    const auto greeting = other.next();
    if (!greeting) {  // the client was faster, or so was our end
      was_there = true;
      return false;
    }
    if (jute::read_connected(*greeting).value().timeout_ms == 0) return true;
    was_there = true;
    const auto said = other.next();
    return said && jute::open_reply(*said).value().err == jute::code::ok;
  });
  if (!is_over)
    throw zookeeper_error{jute::code::connection_loss, "end", fmt::format("{:#x}", session)};
  return was_there;
}

// ZooKeeperServer.generatePasswd: 16 bytes of `new java.util.Random(session ^ superSecret)`.
std::string zookeeper_hand::password_of(std::int64_t session) {
  constexpr std::uint64_t super_secret = 0xB3415C00, factor = 0x5DEECE66D, addend = 0xB;
  constexpr std::uint64_t mask = (std::uint64_t{1} << 48U) - 1;
  auto seed = (static_cast<std::uint64_t>(session) ^ super_secret ^ factor) & mask;
  std::string out;
  while (out.size() < 16) {
    seed = (seed * factor + addend) & mask;
    for (const unsigned byte : {0U, 1U, 2U, 3U})  // of an int, the lowest first
      out.push_back(static_cast<char>(seed >> (16U + 8U * byte)));
  }
  return out;
}

// ---- questions

jute::reply zookeeper_hand::exchange(const std::string& request, std::int32_t xid,
                                     std::string_view doing, std::string_view what) {
  if (wire_ && wire_->send(request)) {
    while (auto inside = wire_->next()) {
      frame_ = *std::move(inside);
      const auto reply = jute::open_reply(frame_).value();
      if (reply.xid != xid) continue;
      if (reply.err != jute::code::ok) throw zookeeper_error{reply.err, doing, what};
      return reply;
    }
  }
  throw zookeeper_error{jute::code::connection_loss, doing, what};
}

template <class Append>
jute::reply zookeeper_hand::ask(std::string_view doing, std::string_view what, Append&& append) {
  std::string request;
  const auto xid = ++last_xid_;
  append(request, xid);
  return exchange(request, xid, doing, what);
}

void zookeeper_hand::catch_up() {
  if (server_.nodes() == 1) return;
  ask("sync", "/", [](auto& to, auto xid) { jute::append_sync(to, xid, "/"); });
}

std::string zookeeper_hand::create(const jute::creation& what) {
  const auto said =
      ask("create", what.path, [&](auto& to, auto xid) { jute::append_create(to, xid, what); });
  return std::string{jute::read_created(said.rest).value().path};
}

void zookeeper_hand::erase(std::string_view path, std::int32_t version) {
  ask("delete", path, [&](auto& to, auto xid) { jute::append_delete(to, xid, path, version); });
}

std::optional<jute::stat> zookeeper_hand::stat(std::string_view path) {
  catch_up();
  try {
    const auto said =
        ask("stat", path, [&](auto& to, auto xid) { jute::append_exists(to, xid, path, false); });
    return jute::read_stat(said.rest).value();
  } catch (const zookeeper_error& refused) {
    if (refused.code() != jute::code::no_node) throw;
    return std::nullopt;
  }
}

bool zookeeper_hand::ping() {
  std::string request;
  jute::append_ping(request);
  try {
    exchange(request, jute::ping_xid, "ping", "");
    return true;
  } catch (const zookeeper_error&) {
    return false;
  }
}

bool zookeeper_hand::remembers(std::string_view path) {
  try {
    ask("stat", path, [&](auto& to, auto xid) { jute::append_exists(to, xid, path, false); });
    return true;
  } catch (const zookeeper_error&) {
    return false;
  }
}

zookeeper_hand::node zookeeper_hand::get(std::string_view path) {
  catch_up();
  const auto said =
      ask("get", path, [&](auto& to, auto xid) { jute::append_get(to, xid, path, false); });
  const auto found = jute::read_node(said.rest).value();
  return {std::string{found.data}, found.stat};
}

jute::stat zookeeper_hand::set(std::string_view path, std::string_view data, std::int32_t version) {
  const auto said =
      ask("set", path, [&](auto& to, auto xid) { jute::append_set(to, xid, path, data, version); });
  return jute::read_stat(said.rest).value();
}

jute::code zookeeper_hand::change(const std::function<void(jute::multi&)>& fill) {
  const auto said = ask("multi", {}, [&](auto& to, auto xid) {
    jute::multi all{to, xid};
    fill(all);
  });
  return jute::failure_of(said);
}

std::vector<std::string> zookeeper_hand::children(std::string_view path) {
  catch_up();
  return names_below(path);
}

std::vector<std::string> zookeeper_hand::names_below(std::string_view path) {
  const auto said = ask("children", path,
                        [&](auto& to, auto xid) { jute::append_children(to, xid, path, false); });
  const auto found = jute::read_children(said.rest).value();
  std::vector<std::string> names{found.names.begin(), found.names.end()};
  std::ranges::sort(names);
  return names;
}

std::size_t zookeeper_hand::count_below(std::string_view path) {
  catch_up();
  return count(std::string{path});
}

std::size_t zookeeper_hand::count(const std::string& path) {
  std::vector<std::string> names;
  try {
    names = names_below(path);
  } catch (const zookeeper_error& refused) {
    if (refused.code() != jute::code::no_node) throw;  // gone while we count
  }
  const bool is_root = path == "/";
  if (is_root) std::erase(names, "zookeeper");
  auto all = names.size();
  for (const auto& name : names) all += count((is_root ? "" : path) + "/" + name);
  return all;
}

}  // namespace holdfast::testing

#include "engines/mysql/connection.hpp"

#include "engines/mysql/errors.hpp"

#include <errmsg.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <mutex>
#include <optional>

namespace holdfast::engines::mysql {

namespace {

using namespace std::chrono_literals;

// In the session of every connection: READ COMMITTED, because it takes no gap locks; no sql_mode that changes what
// our statements mean; and a wait for a row that ends before the caller's patience does.
constexpr const char* introduction =
    "SET SESSION sql_mode='STRICT_TRANS_TABLES', SESSION innodb_lock_wait_timeout=3, "
    "SESSION wait_timeout=86400, SESSION transaction_isolation='READ-COMMITTED'";
constexpr const char* introduction_of_mariadb =
    "SET SESSION sql_mode='STRICT_TRANS_TABLES', SESSION innodb_lock_wait_timeout=3, "
    "SESSION wait_timeout=86400, SESSION tx_isolation='READ-COMMITTED'";

// MySQL's information_schema.processlist fails while any client runs a statement with bytes that are no text in it. The
// other one is new in 8.0.22, empty where the performance schema is off, and lacks connections when it has no room left
// for them (performance_schema_max_thread_instances). So each connection is looked for where it has seen itself.
struct of_processes {
  explicit of_processes(std::string_view table)
      : own_identity{fmt::format("SELECT CONNECTION_ID(), COALESCE((SELECT HOST FROM {} WHERE ID = "
                                 "CONNECTION_ID()), '')",
                                 table),
                     "ub"},
        is_known{fmt::format("SELECT COUNT(*) FROM {} WHERE ID=? AND HOST=?", table), "u"} {}
  statement own_identity, is_known;
};

const of_processes& processes(bool in_performance_schema) {
  static const auto& plain = *new of_processes{"information_schema.processlist"};
  static const auto& other = *new of_processes{"performance_schema.processlist"};
  return in_performance_schema ? other : plain;
}

constexpr std::size_t longest_bytes = 512;  // of a value; the widest column has 255

server_version read_version(MYSQL* of) {
  server_version out;
  out.text = mysql_get_server_info(of);
  out.is_mariadb = mariadb_connection(of) != 0;
  const auto number = mysql_get_server_version(of);
  out.major = static_cast<unsigned>(number / 10000);
  out.minor = static_cast<unsigned>(number / 100 % 100);
  return out;
}

bool is_too_old(const server_version& v) {
  if (v.is_mariadb) return v.major < 10 || (v.major == 10 && v.minor < 3);
  return v.major < 8;
}

void init_library() {
  static std::once_flag once;
  std::call_once(once, [] { mysql_library_init(0, nullptr, nullptr); });
}

}  // namespace

// A statement on the server, and where its answers are put.
struct connection::prepared {
  explicit prepared(MYSQL* of) : handle(mysql_stmt_init(of)) {}
  prepared(const prepared&) = delete;
  prepared& operator=(const prepared&) = delete;
  ~prepared() {
    if (handle != nullptr) mysql_stmt_close(handle);
  }

  struct place {
    std::uint64_t number = 0;
    std::array<char, longest_bytes> bytes;
    unsigned long length = 0;
    my_bool is_null = 0, is_cut = 0;
  };
  MYSQL_STMT* handle;
  std::vector<MYSQL_BIND> in, out;
  std::vector<place> places;
  std::vector<std::uint64_t> numbers;
};

// While a call is under way: the watchdog watches, and a stop shortens it.
class connection::armed {
 public:
  explicit armed(connection& what) : what_(what) {
    what_.deadline_->arm(what_.limits_.deadline);
    if (what_.limits_.stop.stop_possible()) on_stop_.emplace(what_.limits_.stop, *what_.deadline_);
  }
  armed(const armed&) = delete;
  armed& operator=(const armed&) = delete;
  ~armed() {
    on_stop_.reset();
    if (what_.deadline_->disarm()) what_.broken_ = what_.may_still_run_ = true;
    if (!what_.broken_) what_.heard_at_ = std::chrono::steady_clock::now();
  }

 private:
  connection& what_;
  std::optional<stop_shortens> on_stop_;
};

connection::connection(const settings& how, kind what) : how_(how), kind_(what) {}

connection::~connection() {
  prepared_.clear();
  deadline_.reset();
  if (handle_ != nullptr) mysql_close(handle_);
}

result<std::unique_ptr<connection>> connection::open(const settings& how, watchdog& by, kind what,
                                                     const call& limits) {
  init_library();
  std::unique_ptr<connection> self{new connection{how, what}};
  self->limits_ = limits;
  if (auto ok = self->connect(by, limits); !ok) return std::move(ok).error();
  if (auto ok = self->introduce(limits); !ok) {
    // Nothing was asked for yet, so nothing is unknown.
    auto why = std::move(ok).error();
    if (why.code() != errc::outcome_unknown) return why;
    return error{errc::unavailable, why.message()};
  }
  self->limits_ = {};
  return self;
}

result<void> connection::connect(watchdog& by, const call& limits) {
  handle_ = mysql_init(nullptr);
  if (handle_ == nullptr) return error{errc::unavailable, "There is no memory for a connection."};
  const unsigned for_long = 120;  // a back-stop; the watchdog is faster
  const unsigned off = 0;
  const my_bool no = 0, yes = 1;
  mysql_options(handle_, MYSQL_OPT_NONBLOCK, nullptr);
  mysql_options(handle_, MYSQL_OPT_CONNECT_TIMEOUT, &for_long);
  mysql_options(handle_, MYSQL_OPT_READ_TIMEOUT, &for_long);
  mysql_options(handle_, MYSQL_OPT_WRITE_TIMEOUT, &for_long);
  mysql_options(handle_, MYSQL_OPT_LOCAL_INFILE, &off);
  mysql_options(handle_, MYSQL_OPT_RECONNECT, &no);
  // Names and owners are bytes; MySQL would convert what is said to be text.
  mysql_options(handle_, MYSQL_SET_CHARSET_NAME, "binary");
  if (how_.use_tls) {
    mysql_options(handle_, MYSQL_OPT_SSL_ENFORCE, &yes);
    mysql_options(handle_, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &yes);
    if (!how_.ca.empty()) mysql_options(handle_, MYSQL_OPT_SSL_CA, how_.ca.c_str());
    if (!how_.certificate.empty())
      mysql_options(handle_, MYSQL_OPT_SSL_CERT, how_.certificate.c_str());
    if (!how_.key.empty()) mysql_options(handle_, MYSQL_OPT_SSL_KEY, how_.key.c_str());
  }
  const unsigned protocol = how_.socket.empty() ? MYSQL_PROTOCOL_TCP : MYSQL_PROTOCOL_SOCKET;
  mysql_options(handle_, MYSQL_OPT_PROTOCOL, &protocol);
  if (!shake_hands(limits)) {
    broken_ = true;
    return failed(mysql_errno(handle_), mysql_error(handle_), false);
  }
  const int socket = static_cast<int>(mysql_get_socket(handle_));
  // A child that our user starts must not keep the connection, and with it our session, alive.
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  deadline_ = std::make_unique<watchdog::socket_deadline>(by, socket);
  if (deadline_->is_on()) return {};
  deadline_.reset();
  broken_ = true;
  return error{errc::unavailable, "There is no file descriptor left for a connection."};
}

// Step by step, because the driver's own time-out is in whole seconds, counts anew for each step, and knows no stop.
bool connection::shake_hands(const call& limits) {
  constexpr std::chrono::milliseconds between_looks{50};  // at the stop token
  MYSQL* connected = nullptr;
  int wanted = mysql_real_connect_start(&connected, handle_, how_.host.c_str(), how_.user.c_str(),
                                        how_.password.c_str(), how_.database.c_str(), how_.port,
                                        how_.socket.empty() ? nullptr : how_.socket.c_str(), 0);
  while (wanted != 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        limits.deadline - std::chrono::steady_clock::now());
    const bool in_time = left.count() > 0 && !limits.stop.stop_requested();
    pollfd socket{static_cast<int>(mysql_get_socket(handle_)), 0, 0};
    if ((wanted & MYSQL_WAIT_READ) != 0) socket.events |= POLLIN;
    if ((wanted & MYSQL_WAIT_WRITE) != 0) socket.events |= POLLOUT;
    const auto look = static_cast<int>(std::min(left, between_looks).count());
    if (in_time && ::poll(&socket, 1, look) == 0) continue;
    int ready = in_time ? 0 : MYSQL_WAIT_TIMEOUT;
    if (in_time && (socket.revents & ~POLLOUT) != 0) ready |= wanted & MYSQL_WAIT_READ;
    if (in_time && (socket.revents & ~POLLIN) != 0) ready |= wanted & MYSQL_WAIT_WRITE;
    if (ready == 0) ready = wanted & (MYSQL_WAIT_READ | MYSQL_WAIT_WRITE);
    wanted = mysql_real_connect_cont(&connected, handle_, ready);
  }
  return connected != nullptr;
}

result<void> connection::introduce(const call& limits) {
  limits_ = limits;
  version_ = read_version(handle_);
  if (is_too_old(version_))
    return not_done{
        errc::misconfigured,
        fmt::format("The server of {} is too old ({}): MariaDB 10.3 or MySQL 8.0 is needed.",
                    how_.url, version_.text)};
  const auto* text = version_.is_mariadb ? introduction_of_mariadb : introduction;
  if (auto ok = command(text); !ok) return ok;
  if (kind_ == kind::transactions)
    if (auto ok = command("SET SESSION autocommit=0"); !ok) return ok;
  bool in_performance_schema = !version_.is_mariadb;
  auto me = ask(processes(in_performance_schema).own_identity, {});
  if (in_performance_schema && (!me || me->front().bytes(1).empty())) {
    in_performance_schema = false;
    me = ask(processes(in_performance_schema).own_identity, {});
  }
  if (!me) return std::move(me).error();
  identity_ = {me->front().number(0), me->front().bytes(1), in_performance_schema};
  economise();
  if (kind_ == kind::transactions) return commit();
  return {};
}

void connection::economise() { prepared_.clear(); }

void connection::begin(const call& limits, std::string_view about, bool and_others) {
  limits_ = limits;
  about_ = about;
  identity_.about = and_others ? std::string_view{} : about;
}

// Fixed texts and numbers only.
result<void> connection::command(const char* text) {
  if (broken_) return error{errc::unavailable, "The connection is broken."};
  const armed watch{*this};
  last_error_ = 0;
  if (mysql_query(handle_, text) == 0) return {};
  return failed(mysql_errno(handle_), mysql_error(handle_), false);
}

result<void> connection::define(const std::string& text) { return command(text.c_str()); }

// Not prepared: MySQL takes no parameters here.
void connection::interrupt(std::uint64_t other) {
  static_cast<void>(command(fmt::format("KILL QUERY {}", other).c_str()));
}
void connection::end(std::uint64_t other) {
  static_cast<void>(command(fmt::format("KILL CONNECTION {}", other).c_str()));
}

result<bool> connection::knows(const identity& other) {
  auto found = ask(processes(other.in_performance_schema).is_known,
                   {other.id, std::string_view{other.host}});
  if (!found) return std::move(found).error();
  return found->front().number(0) != 0;
}

result<void> connection::commit() {
  if (broken_) return error{errc::unavailable, "The connection is broken."};
  const armed watch{*this};
  last_error_ = 0;
  if (mysql_commit(handle_) == 0) return {};
  return failed(mysql_errno(handle_), mysql_error(handle_), true, true);
}

void connection::rollback() {
  if (broken_) return;
  const armed watch{*this};
  if (mysql_rollback(handle_) == 0) return;
  static_cast<void>(failed(mysql_errno(handle_), mysql_error(handle_), false));
  // Whatever it was: the transaction may still be open, with all its rows.
  broken_ = may_still_run_ = true;
}

bool connection::is_stale() const noexcept {
  pollfd look{static_cast<int>(mysql_get_socket(handle_)), POLLIN | POLLRDHUP, 0};
  return broken_ || ::poll(&look, 1, 0) != 0;
}

result<connection::prepared*> connection::prepare(const statement& what) {
  if (const auto known = prepared_.find(&what); known != prepared_.end())
    return known->second.get();
  auto fresh = std::make_unique<prepared>(handle_);
  if (fresh->handle == nullptr)
    return error{errc::unavailable, "There is no memory for a statement."};
  const auto& text = what.text;
  bool is_made = mysql_stmt_prepare(fresh->handle, text.data(), text.size()) == 0;
  if (!is_made && is_out_of_statements(mysql_stmt_errno(fresh->handle))) {
    economise();  // what we have may be just what is missing
    is_made = mysql_stmt_prepare(fresh->handle, text.data(), text.size()) == 0;
  }
  if (!is_made)
    return failed(mysql_stmt_errno(fresh->handle), mysql_stmt_error(fresh->handle), false);
  const auto count = mysql_stmt_param_count(fresh->handle);
  fresh->in.resize(count);
  fresh->numbers.resize(count);
  fresh->places.resize(what.columns.size());
  fresh->out.resize(what.columns.size());
  for (std::size_t i = 0; i < what.columns.size(); ++i) {
    auto& to = fresh->out[i];
    auto& place = fresh->places[i];
    to = {};
    const bool is_bytes = what.columns[i] == 'b';
    to.buffer_type = is_bytes ? MYSQL_TYPE_STRING : MYSQL_TYPE_LONGLONG;
    to.buffer = is_bytes ? static_cast<void*>(place.bytes.data()) : &place.number;
    to.buffer_length = is_bytes ? longest_bytes : sizeof place.number;
    to.is_unsigned = what.columns[i] == 'u';
    to.length = &place.length;
    to.is_null = &place.is_null;
    to.error = &place.is_cut;
  }
  if (!fresh->out.empty()) mysql_stmt_bind_result(fresh->handle, fresh->out.data());
  return (prepared_[&what] = std::move(fresh)).get();
}

result<rows> connection::ask(const statement& what, parameters with) {
  rows out;
  if (auto ok = execute(what, with, &out); !ok) return std::move(ok).error();
  return out;
}

result<done> connection::execute(const statement& what, parameters with, rows* into) {
  if (broken_)
    return error{errc::unavailable, fmt::format("The connection to {} is broken.", how_.url)};
  const armed watch{*this};
  last_error_ = 0;
  auto made = prepare(what);
  if (!made) return std::move(made).error();
  auto& to = **made;
  if (to.in.size() != with.size())
    return not_done{errc::protocol, fmt::format("{} parameters for: {}", with.size(), what.text)};
  for (std::size_t i = 0; i < with.size(); ++i) {
    auto& bind = to.in[i];
    bind = {};
    if (const auto* bytes = std::get_if<std::string_view>(&with[i])) {
      bind.buffer_type = MYSQL_TYPE_BLOB;
      // Without an address it would be NULL.
      bind.buffer = const_cast<char*>(bytes->empty() ? "" : bytes->data());  // NOLINT: only read
      bind.buffer_length = bytes->size();
      continue;
    }
    const auto* natural = std::get_if<std::uint64_t>(&with[i]);
    to.numbers[i] =
        natural != nullptr ? *natural : static_cast<std::uint64_t>(std::get<std::int64_t>(with[i]));
    bind.buffer_type = MYSQL_TYPE_LONGLONG;
    bind.buffer = &to.numbers[i];
    bind.is_unsigned = natural != nullptr;
  }
  if (!with.empty()) mysql_stmt_bind_param(to.handle, to.in.data());
  if (mysql_stmt_execute(to.handle) != 0)
    return failed(mysql_stmt_errno(to.handle), mysql_stmt_error(to.handle),
                  what.writes && kind_ == kind::plain);
  done out{mysql_stmt_affected_rows(to.handle), mysql_stmt_insert_id(to.handle)};
  if (into != nullptr)
    if (auto ok = fetch(to, *into); !ok) return std::move(ok).error();
  return out;
}

result<void> connection::fetch(prepared& from, rows& into) {
  if (mysql_stmt_store_result(from.handle) != 0)
    return failed(mysql_stmt_errno(from.handle), mysql_stmt_error(from.handle), false);
  int more = 0;
  while ((more = mysql_stmt_fetch(from.handle)) == 0) {
    row fetched;
    fetched.cells_.resize(from.places.size());
    for (std::size_t i = 0; i < from.places.size(); ++i) {
      const auto& place = from.places[i];
      auto& cell = fetched.cells_[i];
      cell.is_null = place.is_null != 0;
      if (cell.is_null) continue;
      if (from.out[i].buffer_type == MYSQL_TYPE_STRING) {
        cell.bytes.assign(place.bytes.data(), std::min<std::size_t>(place.length, longest_bytes));
      } else {
        cell.number = place.number;
      }
    }
    into.push_back(std::move(fetched));
  }
  mysql_stmt_free_result(from.handle);
  if (more == MYSQL_NO_DATA) return {};
  if (more == MYSQL_DATA_TRUNCATED)
    return not_done{errc::protocol,
                    fmt::format("{} has a value that is longer than its column "
                                "should be; were its tables made by another program?",
                                how_.url)};
  return failed(mysql_stmt_errno(from.handle), mysql_stmt_error(from.handle), false);
}

error connection::failed(unsigned code, const char* text, bool may_have_changed, bool is_commit) {
  last_error_ = code;
  if (is_lost_connection(code)) {
    // A commit whose answer is lost may have happened, and so may a statement that commits by itself.
    broken_ = true;
    may_still_run_ = deadline_ != nullptr;
    // The driver may have closed its socket; deadline_ has it open still, and the server must hear of it now.
    if (deadline_) deadline_->cut();
  }
  const bool cut = deadline_ != nullptr && std::chrono::steady_clock::now() >= limits_.deadline;
  timed_out_ = timed_out_ || (broken_ && cut);
  return explain({code, text, may_have_changed, cut, is_commit, deadline_ == nullptr}, about_,
                 how_);
}

}  // namespace holdfast::engines::mysql

// One connection to the server: prepared statements, deadlines, and errors as sentences.
//
// Statements are prepared when first used and kept. A connection is for one thread at a time. Once a call failed for
// lack of an answer, or was cut at its deadline, the connection is broken for good: its late answer must never be taken
// for another call's. There is no automatic reconnect: it would lose user locks and transactions without a word.
//
// Two kinds. A plain connection commits every statement by itself; one for transactions commits when told to. When the
// answer to a statement is lost, a plain connection may have changed something (outcome_unknown), one for transactions
// has not (unavailable), unless it was the commit.
#pragma once

#include "engines/mysql/settings.hpp"
#include "engines/mysql/watchdog.hpp"

#include <holdfast/engine.hpp>

#include <mysql.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace holdfast::engines::mysql {

// What a call may take that no user has bounded.
inline call within(nanoseconds length) {
  call out;
  out.deadline = std::chrono::steady_clock::now() + length;
  return out;
}

// SQL text, known for the life of the program: its address is its identity.
struct statement {
  std::string text;
  std::string columns{};  // of the answer, a letter each: u unsigned, i signed, b bytes
  bool writes = false;
};

using parameter = std::variant<std::uint64_t, std::int64_t, std::string_view>;
using parameters = std::span<const parameter>;

// A row of an answer.
class row {
 public:
  std::uint64_t number(std::size_t column) const { return cells_[column].number; }
  std::int64_t integer(std::size_t column) const {
    return static_cast<std::int64_t>(cells_[column].number);
  }
  const std::string& bytes(std::size_t column) const { return cells_[column].bytes; }
  bool is_null(std::size_t column) const { return cells_[column].is_null; }

 private:
  friend class connection;
  struct cell {
    std::uint64_t number = 0;
    std::string bytes;
    bool is_null = false;
  };
  std::vector<cell> cells_;
};
using rows = std::vector<row>;

struct done {
  std::uint64_t affected = 0;
  std::uint64_t insert_id = 0;
};

// As the server sees it: to end it from elsewhere, and only it.
struct identity {
  std::uint64_t id = 0;
  std::string host;
  bool in_performance_schema = false;  // where it is listed
  std::string about{};                 // the name that its last statement was about; empty: any
};

// What the server is. Asked once per connection, because behind one address there may be several.
struct server_version {
  bool is_mariadb = false;
  unsigned major = 0, minor = 0;
  std::string text;
};

class connection {
 public:
  enum class kind : std::uint8_t { plain, transactions };

  // unavailable, denied (1045, 1044), misconfigured (no such database, too old a server).
  static result<std::unique_ptr<connection>> open(const settings& how, watchdog& by, kind what,
                                                  const call& limits);
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;
  ~connection();

  // How long the calls from here on may take, and which lock they are about (for sentences, and for the identity), or
  // which and others. The stop token must live until the next begin().
  void begin(const call& limits, std::string_view about, bool and_others = false);

  result<done> run(const statement& what, std::initializer_list<parameter> with) {
    return execute(what, {with.begin(), with.size()}, nullptr);
  }
  result<done> run(const statement& what, parameters with) { return execute(what, with, nullptr); }
  result<rows> ask(const statement& what, std::initializer_list<parameter> with) {
    return ask(what, parameters{with.begin(), with.size()});
  }
  result<rows> ask(const statement& what, parameters with);

  // CREATE TABLE and the like.
  result<void> define(const std::string& text);
  // Ends the statement that another connection runs, or that connection altogether. Best effort: what came of it shows.
  void interrupt(std::uint64_t other);
  void end(std::uint64_t other);
  // Is that connection there?
  result<bool> knows(const identity& other);
  result<void> commit();
  void rollback();  // whatever happens, nothing of the transaction stays

  // The statements prepared so far are not needed again soon: the server keeps so many in all.
  void economise();

  // The server's number for the last error; 0 when there was none.
  unsigned last_error() const noexcept { return last_error_; }
  bool is_broken() const noexcept { return broken_; }
  // Did the server end it while it was idle?
  bool is_stale() const noexcept;
  // A statement of it, on the server, although we gave it up.
  bool may_still_run() const noexcept { return may_still_run_; }
  // It was given up because no answer came in time.
  bool has_timed_out() const noexcept { return timed_out_; }
  const identity& own_identity() const noexcept { return identity_; }
  // When the server last answered.
  steady_time heard_at() const noexcept { return heard_at_; }
  const server_version& version() const noexcept { return version_; }
  // Ends whatever it does, from any thread.
  void cut() noexcept { deadline_->cut(); }

 private:
  struct prepared;
  connection(const settings& how, kind what);
  result<void> connect(watchdog& by, const call& limits);
  bool shake_hands(const call& limits);
  result<void> introduce(const call& limits);
  result<void> command(const char* text);
  result<prepared*> prepare(const statement& what);
  result<done> execute(const statement& what, parameters with, rows* into);
  result<void> fetch(prepared& from, rows& into);
  error failed(unsigned code, const char* text, bool may_have_changed, bool is_commit = false);
  class armed;

  const settings& how_;
  const kind kind_;
  MYSQL* handle_ = nullptr;
  std::unique_ptr<watchdog::socket_deadline> deadline_;
  std::unordered_map<const statement*, std::unique_ptr<prepared>> prepared_;
  identity identity_;
  server_version version_;
  call limits_;
  std::string about_;
  steady_time heard_at_ = steady_time::min();
  unsigned last_error_ = 0;
  bool broken_ = false, may_still_run_ = false, timed_out_ = false;
};

}  // namespace holdfast::engines::mysql

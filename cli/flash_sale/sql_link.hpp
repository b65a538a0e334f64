// One blocking connection to MariaDB or MySQL, over Connector/C: what a program without a lock library has.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

struct st_mysql;
struct st_mysql_stmt;

namespace holdfast::cli::flash {

class sql_error : public std::runtime_error {
 public:
  sql_error(unsigned number, const std::string& text) : std::runtime_error(text), number_(number) {}
  // Another transaction was in the way, and the server rolled ours back: begin anew.
  bool is_conflict() const noexcept { return number_ == 1213 || number_ == 1205; }

 private:
  unsigned number_;
};

class sql_link {
 public:
  struct answer {
    std::uint64_t rows = 0;          // found, whether they changed or not
    std::uint64_t insert_id = 0;     // see LAST_INSERT_ID(x)
    std::vector<std::string> row{};  // the first one
    bool is_there() const noexcept { return !row.empty(); }
  };

  // mysql://user[:password]@host[:port]/database. Throws sql_error.
  explicit sql_link(const std::string& url);
  ~sql_link();
  sql_link(const sql_link&) = delete;
  sql_link& operator=(const sql_link&) = delete;

  // Text without values: START TRANSACTION, CREATE TABLE.
  void run(const std::string& text);
  // A prepared statement with a value for each question mark.
  answer run(const std::string& text, const std::vector<std::string>& values);

 private:
  st_mysql_stmt* prepared(const std::string& text);
  st_mysql* handle_;
  std::map<std::string, st_mysql_stmt*> prepared_;
};

// Begins, and rolls back unless committed.
class sql_transaction {
 public:
  explicit sql_transaction(sql_link& on) : on_(on) { on_.run("START TRANSACTION"); }
  ~sql_transaction();
  sql_transaction(const sql_transaction&) = delete;
  sql_transaction& operator=(const sql_transaction&) = delete;
  void commit() {
    on_.run("COMMIT");
    is_open_ = false;
  }

 private:
  sql_link& on_;
  bool is_open_ = true;
};

}  // namespace holdfast::cli::flash

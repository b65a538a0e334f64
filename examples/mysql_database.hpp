// A connection for the recipes: prepared statements, every value as text. Enough for an example; you have your driver.
#pragma once

#include <holdfast/url.hpp>

#include <mysql.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

class sql_error : public std::runtime_error {
 public:
  sql_error(unsigned number, const std::string& text) : std::runtime_error(text), number_(number) {}
  unsigned number() const noexcept { return number_; }

 private:
  unsigned number_;
};

class database {
 public:
  struct answer {
    std::uint64_t rows = 0;        // found, whether they changed or not, as most drivers count
    std::uint64_t insert_id = 0;   // see LAST_INSERT_ID(x)
    std::vector<std::string> row;  // the first one
  };

  // mysql://user@host:port/database; the password is in HOLDFAST_PASSWORD.
  explicit database(const std::string& address) : handle_(mysql_init(nullptr)) {
    const auto url = holdfast::store_url::parse(address).value();
    const auto& at = url.endpoints().front();
    if (mysql_real_connect(handle_, at.host.c_str(), url.user().c_str(),
                           std::getenv("HOLDFAST_PASSWORD"), url.path().substr(1).c_str(),
                           at.port.value_or(std::uint16_t{3306}), nullptr,
                           CLIENT_FOUND_ROWS) == nullptr) {
      const sql_error why{mysql_errno(handle_), mysql_error(handle_)};
      mysql_close(handle_);
      throw why;
    }
  }
  ~database() {
    for (const auto& [text, statement] : prepared_) mysql_stmt_close(statement);
    mysql_close(handle_);
  }
  database(const database&) = delete;
  database& operator=(const database&) = delete;

  // Text without values: START TRANSACTION, CREATE TABLE, SET.
  void run(const std::string& text) {
    if (mysql_query(handle_, text.c_str()) != 0)
      throw sql_error{mysql_errno(handle_), mysql_error(handle_)};
  }

  // One statement with a value for each question mark.
  answer run(const std::string& text, const std::vector<std::string>& values) {
    auto* const statement = prepare(text);
    std::vector<MYSQL_BIND> in(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      in[i].buffer_type = MYSQL_TYPE_STRING;
      in[i].buffer = const_cast<char*>(values[i].data());  // NOLINT: it is only read
      in[i].buffer_length = values[i].size();
    }
    if (mysql_stmt_bind_param(statement, in.data()) != 0 || mysql_stmt_execute(statement) != 0)
      throw sql_error{mysql_stmt_errno(statement), mysql_stmt_error(statement)};
    answer out{mysql_stmt_affected_rows(statement), mysql_stmt_insert_id(statement), {}};
    if (mysql_stmt_field_count(statement) > 0) out.row = first_row(statement);
    return out;
  }

 private:
  MYSQL_STMT* prepare(const std::string& text) {
    auto& statement = prepared_[text];
    if (statement != nullptr) return statement;
    statement = mysql_stmt_init(handle_);
    if (mysql_stmt_prepare(statement, text.data(), text.size()) == 0) return statement;
    const sql_error why{mysql_stmt_errno(statement), mysql_stmt_error(statement)};
    mysql_stmt_close(statement);
    prepared_.erase(text);
    throw why;
  }

  static std::vector<std::string> first_row(MYSQL_STMT* statement) {
    constexpr std::size_t widest = 256;
    const auto columns = mysql_stmt_field_count(statement);
    std::vector<std::array<char, widest>> buffers(columns);
    std::vector<unsigned long> lengths(columns);
    std::vector<MYSQL_BIND> to(columns);
    for (std::size_t i = 0; i < columns; ++i) {
      to[i].buffer_type = MYSQL_TYPE_STRING;
      to[i].buffer = buffers[i].data();
      to[i].buffer_length = widest;
      to[i].length = &lengths[i];
    }
    if (mysql_stmt_bind_result(statement, to.data()) != 0 ||
        mysql_stmt_store_result(statement) != 0)
      throw sql_error{mysql_stmt_errno(statement), mysql_stmt_error(statement)};
    std::vector<std::string> row;
    if (mysql_stmt_fetch(statement) == 0)
      for (std::size_t i = 0; i < columns; ++i) row.emplace_back(buffers[i].data(), lengths[i]);
    mysql_stmt_free_result(statement);
    return row;
  }

  MYSQL* handle_;
  std::map<std::string, MYSQL_STMT*> prepared_;
};

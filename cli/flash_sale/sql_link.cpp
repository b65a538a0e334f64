#include "flash_sale/sql_link.hpp"

#include "flash_sale/stores.hpp"

#include <holdfast/url.hpp>

#include <mysql.h>

#include <array>

namespace holdfast::cli::flash {

namespace {

std::vector<std::string> first_row(MYSQL_STMT* statement) {
  constexpr std::size_t widest = 256;
  const auto columns = ::mysql_stmt_field_count(statement);
  std::vector<std::array<char, widest>> buffers(columns);
  std::vector<unsigned long> lengths(columns);
  std::vector<MYSQL_BIND> to(columns);
  for (std::size_t i = 0; i < columns; ++i) {
    to[i].buffer_type = MYSQL_TYPE_STRING;
    to[i].buffer = buffers[i].data();
    to[i].buffer_length = widest;
    to[i].length = &lengths[i];
  }
  if (::mysql_stmt_bind_result(statement, to.data()) != 0 ||
      ::mysql_stmt_store_result(statement) != 0)
    throw sql_error{::mysql_stmt_errno(statement), ::mysql_stmt_error(statement)};
  std::vector<std::string> row;
  if (::mysql_stmt_fetch(statement) == 0)
    for (std::size_t i = 0; i < columns; ++i) row.emplace_back(buffers[i].data(), lengths[i]);
  ::mysql_stmt_free_result(statement);
  return row;
}

}  // namespace

sql_link::sql_link(const std::string& text) : handle_(::mysql_init(nullptr)) {
  const auto url = store_url::parse(text).value();
  const auto& at = url.endpoints().front();
  const auto* socket = url.find("socket");
  const auto password = password_of(url);
  if (::mysql_real_connect(handle_, at.host.c_str(), url.user().c_str(), password.c_str(),
                           url.path().empty() ? "" : url.path().substr(1).c_str(),
                           at.port.value_or(std::uint16_t{3306}),
                           socket == nullptr ? nullptr : socket->c_str(),
                           CLIENT_FOUND_ROWS) == nullptr) {
    const auto number = ::mysql_errno(handle_);
    const std::string why = ::mysql_error(handle_);
    ::mysql_close(handle_);
    throw sql_error{number, why};
  }
}

sql_link::~sql_link() {
  for (const auto& [text, statement] : prepared_) ::mysql_stmt_close(statement);
  ::mysql_close(handle_);
}

void sql_link::run(const std::string& text) {
  if (::mysql_query(handle_, text.c_str()) != 0)
    throw sql_error{::mysql_errno(handle_), ::mysql_error(handle_)};
}

sql_link::answer sql_link::run(const std::string& text, const std::vector<std::string>& values) {
  auto* const statement = prepared(text);
  std::vector<MYSQL_BIND> in(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    in[i].buffer_type = MYSQL_TYPE_STRING;
    in[i].buffer = const_cast<char*>(values[i].data());  // NOLINT: it is only read
    in[i].buffer_length = values[i].size();
  }
  if ((!in.empty() && ::mysql_stmt_bind_param(statement, in.data()) != 0) ||
      ::mysql_stmt_execute(statement) != 0)
    throw sql_error{::mysql_stmt_errno(statement), ::mysql_stmt_error(statement)};
  answer out{::mysql_stmt_affected_rows(statement), ::mysql_stmt_insert_id(statement), {}};
  if (::mysql_stmt_field_count(statement) > 0) out.row = first_row(statement);
  return out;
}

st_mysql_stmt* sql_link::prepared(const std::string& text) {
  auto& statement = prepared_[text];
  if (statement != nullptr) return statement;
  statement = ::mysql_stmt_init(handle_);
  if (::mysql_stmt_prepare(statement, text.data(), text.size()) == 0) return statement;
  const auto number = ::mysql_stmt_errno(statement);
  const std::string why = ::mysql_stmt_error(statement);
  ::mysql_stmt_close(statement);
  prepared_.erase(text);
  throw sql_error{number, why};
}

sql_transaction::~sql_transaction() {
  if (!is_open_) return;
  try {
    on_.run("ROLLBACK");
  } catch (const sql_error&) {  // the connection is gone, and the transaction with it
    return;
  }
}

}  // namespace holdfast::cli::flash

// sql_fence: one statement that compares, remembers and locks, and whose answer needs no second round trip.
//
// LAST_INSERT_ID(x) is x, and makes the server answer x as the insert id, also when the row stays as it is. A plain
// SELECT instead would read an old snapshot at REPEATABLE READ, and let an old token in. The cast is for drivers that
// send numbers as text: the server would take those for signed.
#include <holdfast/fence.hpp>

#include "fences/token_text.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace holdfast {

namespace {

// The name becomes part of a statement. At most one dot, between two words.
bool is_plain(const std::string& table) {
  const auto is_word = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  };
  return !table.empty() && table.front() != '.' && table.back() != '.' &&
         std::ranges::all_of(table, is_word) && std::ranges::count(table, '.') <= 1;
}

}  // namespace

sql_fence::sql_fence(std::string resource, std::string table)
    : resource_(std::move(resource)), table_(std::move(table)) {
  if (resource_.empty() || resource_.size() > 255) {
    throw lock_error{{errc::misconfigured,
                      fmt::format("The resource of a fence has 1 to 255 bytes, and {} has {}.",
                                  support::quoted(resource_), resource_.size())}};
  }
  if (!is_plain(table_)) {
    throw lock_error{
        {errc::misconfigured,
         fmt::format("The table of a fence is named table or database.table, of letters, digits "
                     "and underscores, and not {}.",
                     support::quoted(table_))}};
  }
  statement_ = fmt::format(
      "INSERT INTO {} (resource,token) VALUES (?,LAST_INSERT_ID(CAST(? AS UNSIGNED))) "
      "ON DUPLICATE KEY UPDATE token=LAST_INSERT_ID(GREATEST(token,VALUES(token)))",
      table_);
}

std::string sql_fence::schema() const {
  return fmt::format(
      "CREATE TABLE IF NOT EXISTS {} (resource VARBINARY(255) NOT NULL PRIMARY KEY, "
      "token BIGINT UNSIGNED NOT NULL) ENGINE=InnoDB",
      table_);
}

result<void> sql_fence::admit(fencing_token token, const runner& run) const {
  if (token.value == 0) return fences::no_lease_has_it();
  const auto newest = run(statement_, resource_, token.value);
  if (!newest) return newest.error();
  if (*newest == token.value) return {};
  if (*newest > token.value) {
    return error{errc::lost,
                 fmt::format("The fence of {} has seen token {} and refuses the older {}: another "
                             "holder was here since, so roll back and stop.",
                             support::quoted(resource_), *newest, token.value)};
  }
  return error{
      errc::protocol,
      fmt::format("The fence of {} was shown token {}, and the insert id that came back is "
                  "{}: the statement was not run as it is, or its answer was not passed on.",
                  support::quoted(resource_), token.value, *newest)};
}

}  // namespace holdfast

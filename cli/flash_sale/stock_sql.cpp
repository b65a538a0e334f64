// The stock in MariaDB or MySQL: a row per shelf, with what the recipes of the database compare: a version, a time, and
// the newest token.
#include "flash_sale/sql_link.hpp"
#include "flash_sale/stock.hpp"

#include <fmt/format.h>

namespace holdfast::cli::flash {

namespace {

class sql_stock final : public stock {
 public:
  explicit sql_stock(const sale_setting& about)
      : link_(about.url(store_kind::mysql)), table_(about.table()) {}

  std::int64_t read(int shelf) override {
    return std::stoll(
        link_
            .run(fmt::format("SELECT amount FROM {} WHERE item=?", table_), {std::to_string(shelf)})
            .row.at(0));
  }
  void write(int shelf, std::int64_t amount) override {
    link_.run(fmt::format("UPDATE {} SET amount=? WHERE item=?", table_),
              {std::to_string(amount), std::to_string(shelf)});
  }
  // Should a newer holder come between the two statements, our write will be refused.
  std::optional<std::int64_t> read(int shelf, fencing_token shown) override {
    const auto token = std::to_string(shown.value);
    const auto admitted =
        link_.run(fmt::format("UPDATE {} SET token=? WHERE item=? AND token<=?", table_),
                  {token, std::to_string(shelf), token});
    if (admitted.rows == 0) return std::nullopt;
    return read(shelf);
  }
  bool write(int shelf, std::int64_t amount, fencing_token shown) override {
    const auto token = std::to_string(shown.value);
    return link_
               .run(fmt::format("UPDATE {} SET amount=?,token=? WHERE item=? AND token<=?", table_),
                    {std::to_string(amount), token, std::to_string(shelf), token})
               .rows == 1;
  }

 private:
  sql_link link_;
  std::string table_;
};

}  // namespace

std::unique_ptr<stock> open_stock_sql(const sale_setting& about) {
  return std::make_unique<sql_stock>(about);
}

void put_stock_sql(const sale_setting& about) {
  sql_link link{about.url(store_kind::mysql)};
  link.run(fmt::format(
      "CREATE TABLE {} (item INT NOT NULL PRIMARY KEY, amount BIGINT NOT NULL, version BIGINT "
      "NOT NULL, changed DATETIME(6) NOT NULL, changed_s DATETIME NOT NULL, token BIGINT UNSIGNED "
      "NOT NULL) ENGINE=InnoDB",
      about.table()));
  link.run(
      fmt::format("CREATE TABLE {}_lock (name VARCHAR(64) NOT NULL PRIMARY KEY, owner "
                  "VARCHAR(64) NOT NULL, expires DATETIME(6) NOT NULL) ENGINE=InnoDB",
                  about.table()));
  for (int shelf = 0; shelf < about.shelves(); ++shelf)
    link.run(fmt::format("INSERT INTO {} VALUES ({},{},0,NOW(6),NOW(),0)", about.table(), shelf,
                         about.on_shelf(shelf)));
}

void remove_stock_sql(const sale_setting& about) {
  sql_link{about.url(store_kind::mysql)}.run(
      fmt::format("DROP TABLE IF EXISTS {0},{0}_lock", about.table()));
}

}  // namespace holdfast::cli::flash

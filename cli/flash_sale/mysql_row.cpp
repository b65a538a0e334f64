// A row with a unique name is the lock: whoever can insert it has it.
//
// Safe as long as no holder takes longer than its row lasts: the end that is written into the row frees it from the
// dead, by the clock of the server, and lets a paused holder write over what others did. Waiting is asking again and
// again. A primary key alone, without an end, would stand for ever when its holder dies.
#include "flash_sale/recipes.hpp"
#include "flash_sale/sql_link.hpp"
#include "flash_sale/stock.hpp"

#include <fmt/format.h>

#include <random>

namespace holdfast::cli::flash {

namespace {

class by_unique_row final : public buyer {
 public:
  by_unique_row(const sale_setting& about, till& with)
      : till_(with),
        db_(about.url(store_kind::mysql)),
        stock_(open_stock(about)),
        microseconds_(std::to_string(
            std::chrono::duration_cast<std::chrono::microseconds>(about.ttl).count())),
        sweep_(fmt::format("DELETE FROM {}_lock WHERE name='stock' AND expires<NOW(6)",
                           about.table())),
        take_(fmt::format("INSERT IGNORE INTO {}_lock VALUES "
                          "('stock',?,NOW(6) + INTERVAL CAST(? AS UNSIGNED) MICROSECOND)",
                          about.table())),
        give_back_(
            fmt::format("DELETE FROM {}_lock WHERE name='stock' AND owner=?", about.table())) {
    std::random_device dice;
    me_ = fmt::format("{:08x}{:08x}{:08x}{:08x}", dice(), dice(), dice(), dice());
  }

  bought buy() override {
    while (!is_taken()) {
      if (till_.is_closing()) return bought::again;
      till_.waits_a_little();
    }
    const auto outcome =
        till_.sell([&] { return std::optional{stock_->read(0)}; },
                   [&](std::int64_t left) { return stock_->write(0, left), true; });
    while (!is_done(give_back_, {me_})) till_.waits_a_little();
    return outcome;
  }

 private:
  bool is_taken() {
    std::uint64_t rows = 0;
    if (!is_done(take_, {me_, microseconds_}, &rows)) return false;
    if (rows == 0) is_done(sweep_, {});
    return rows == 1;
  }
  // False: a deadlock, which the server ends by rolling back one of the two.
  bool is_done(const std::string& text, const std::vector<std::string>& values,
               std::uint64_t* rows = nullptr) {
    try {
      const auto done = db_.run(text, values);
      if (rows != nullptr) *rows = done.rows;
      return true;
    } catch (const sql_error& e) {
      if (e.is_conflict()) return false;
      throw;
    }
  }

  till& till_;
  sql_link db_;
  std::unique_ptr<stock> stock_;
  std::string microseconds_, sweep_, take_, give_back_, me_;
};

}  // namespace

std::unique_ptr<shop> open_mysql_row(const sale_setting& about) {
  return each_alone<by_unique_row>(about);
}

}  // namespace holdfast::cli::flash

#include "flash_sale/stock.hpp"

#include <fmt/format.h>

#include <stdexcept>

namespace holdfast::cli::flash {

std::string_view word(place where) noexcept {
  switch (where) {
    case place::file:
      return "file";
    case place::redis:
      return "redis";
    case place::mysql:
      return "mysql";
  }
  return "";
}

std::string_view word(flaw what) noexcept {
  switch (what) {
    case flaw::traffic:
      return "traffic";
    case flaw::kill:
      return "kill";
    case flaw::pause:
      return "pause";
    case flaw::none:
      return "none";
  }
  return "";
}

std::string sale_setting::name(std::string_view of) const {
  return fmt::format("holdfast-sale:{}:{}", id, of);
}

std::string sale_setting::lock_name() const { return fmt::format("holdfast-sale/{}/stock", id); }

std::string sale_setting::table() const { return fmt::format("holdfast_sale_{}", id); }

int sale_setting::shelves() const noexcept { return what->shelves; }

std::int64_t sale_setting::on_shelf(int shelf) const noexcept {
  const std::int64_t each = stock / shelves();
  return shelf < stock % shelves() ? each + 1 : each;
}

std::int64_t stock_left(const sale_setting& about) {
  const auto all = open_stock(about);
  std::int64_t sum = 0;
  for (int shelf = 0; shelf < about.shelves(); ++shelf) sum += all->read(shelf);
  return sum;
}

std::unique_ptr<stock> open_stock(const sale_setting& about) {
  switch (about.where) {
    case place::file:
      break;
#if HOLDFAST_FLASH_REDIS
    case place::redis:
      return open_stock_redis(about);
#endif
#if HOLDFAST_FLASH_SQL
    case place::mysql:
      return open_stock_sql(about);
#endif
    default:
      throw std::logic_error("This build cannot keep a stock there");
  }
  return open_stock_file(about);
}

void put_stock(const sale_setting& about) {
#if HOLDFAST_FLASH_REDIS
  if (about.where == place::redis) return put_stock_redis(about);
#endif
#if HOLDFAST_FLASH_SQL
  if (about.where == place::mysql) return put_stock_sql(about);
#endif
  put_stock_file(about);
}

void remove_stock([[maybe_unused]] const sale_setting& about) {
#if HOLDFAST_FLASH_REDIS
  if (about.where == place::redis) remove_stock_redis(about);
#endif
#if HOLDFAST_FLASH_SQL
  if (about.where == place::mysql) remove_stock_sql(about);
#endif
  // The file goes with the folder.
}

}  // namespace holdfast::cli::flash

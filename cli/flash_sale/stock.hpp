// The stock, for recipes whose lock knows nothing of it: a number per shelf, read and written in two steps.
//
// With a fence the store itself compares: whoever reads shows its token first, and from then on the store takes no
// number from a holder with a lower one. Reads count, too: a fence that only writes must pass lets the old holder's
// write in between the new holder's read and its write.
#pragma once

#include "flash_sale/scheme.hpp"

#include <holdfast/types.hpp>

#include <cstdint>
#include <memory>
#include <optional>

namespace holdfast::cli::flash {

// Of one buyer.
class stock {
 public:
  virtual ~stock() = default;
  virtual std::int64_t read(int shelf) = 0;
  virtual void write(int shelf, std::int64_t amount) = 0;
  // Nothing, false: refused, a newer holder was here.
  virtual std::optional<std::int64_t> read(int shelf, fencing_token shown) = 0;
  virtual bool write(int shelf, std::int64_t amount, fencing_token shown) = 0;
};

// Put there before the first buyer comes, and taken away after the last. Throws what the store throws.
void put_stock(const sale_setting& about);
void remove_stock(const sale_setting& about);
// On all shelves together.
std::int64_t stock_left(const sale_setting& about);

std::unique_ptr<stock> open_stock(const sale_setting& about);

// The makers of the three places.
std::unique_ptr<stock> open_stock_file(const sale_setting& about);
std::unique_ptr<stock> open_stock_redis(const sale_setting& about);
std::unique_ptr<stock> open_stock_sql(const sale_setting& about);
void put_stock_file(const sale_setting& about);
void put_stock_redis(const sale_setting& about);
void put_stock_sql(const sale_setting& about);
void remove_stock_redis(const sale_setting& about);
void remove_stock_sql(const sale_setting& about);

}  // namespace holdfast::cli::flash

// What the hand-written locks on Redis have in common: who we are, where the stock is, and that a busy lock is asked
// for again a little later.
#pragma once

#include "flash_sale/redis_link.hpp"
#include "flash_sale/scheme.hpp"
#include "flash_sale/stock.hpp"

#include <fmt/format.h>

#include <random>

namespace holdfast::cli::flash {

class redis_lock_buyer : public buyer {
 public:
  redis_lock_buyer(const sale_setting& about, till& with)
      : till_(with),
        redis_(about.url(store_kind::redis)),
        stock_(open_stock(about)),
        lock_(about.name("lock")),
        ttl_(std::chrono::duration_cast<std::chrono::milliseconds>(about.ttl)) {
    std::random_device dice;
    me_ = fmt::format("{:08x}{:08x}{:08x}{:08x}", dice(), dice(), dice(), dice());
  }

 protected:
  template <class Try>
  bool is_taken_by(Try&& tries) {
    while (!tries()) {
      if (till_.is_closing()) return false;
      till_.waits_a_little();
    }
    return true;
  }
  bought sell_one() {
    return till_.sell([&] { return std::optional{stock_->read(0)}; },
                      [&](std::int64_t left) { return stock_->write(0, left), true; });
  }
  std::string milliseconds() const { return std::to_string(ttl_.count()); }

  till& till_;
  redis_link redis_;
  std::unique_ptr<stock> stock_;
  std::string lock_, me_;
  std::chrono::milliseconds ttl_;
};

}  // namespace holdfast::cli::flash

// No lock, and a lock that reaches no further than its process.
#include "flash_sale/recipes.hpp"
#include "flash_sale/stock.hpp"

#include <mutex>

namespace holdfast::cli::flash {

namespace {

// Unsafe: two buyers read 7, both write 6, both have bought, and the stock knows of one.
class without_a_lock final : public buyer {
 public:
  without_a_lock(const sale_setting& about, till& with) : till_(with), stock_(open_stock(about)) {}
  bought buy() override {
    return till_.sell([&] { return std::optional{stock_->read(0)}; },
                      [&](std::int64_t left) { return stock_->write(0, left), true; });
  }

 private:
  till& till_;
  std::unique_ptr<stock> stock_;
};

// Unsafe as soon as there is a second process, and a shop with one process is rare: the mutex lies in the memory of
// one.
class under_a_process_mutex final : public buyer {
 public:
  under_a_process_mutex(std::mutex& lock, const sale_setting& about, till& with)
      : lock_(lock), inner_(about, with) {}
  bought buy() override {
    const std::scoped_lock guard{lock_};
    return inner_.buy();
  }

 private:
  std::mutex& lock_;
  without_a_lock inner_;
};

class shop_with_a_mutex final : public shop {
 public:
  explicit shop_with_a_mutex(const sale_setting& about) : about_(about) {}
  std::unique_ptr<buyer> new_buyer(till& with) override {
    return std::make_unique<under_a_process_mutex>(lock_, about_, with);
  }
  std::chrono::nanoseconds takeover() const override { return about_.ttl; }

 private:
  const sale_setting& about_;
  std::mutex lock_;
};

}  // namespace

std::unique_ptr<shop> open_unlocked(const sale_setting& about) {
  return each_alone<without_a_lock>(about);
}

std::unique_ptr<shop> open_process_mutex(const sale_setting& about) {
  return std::make_unique<shop_with_a_mutex>(about);
}

}  // namespace holdfast::cli::flash

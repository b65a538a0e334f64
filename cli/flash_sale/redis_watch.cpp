// WATCH, MULTI, EXEC: the optimistic way of Redis.
//
// Safe: EXEC does nothing when the key was changed by anybody since WATCH. No holder, so a death stops nobody and a
// write after a pause is refused. Under a rush nearly all tries are in vain: of all that read the same number one
// sells.
#include "flash_sale/recipes.hpp"
#include "flash_sale/redis_link.hpp"

namespace holdfast::cli::flash {

namespace {

class by_watch final : public buyer {
 public:
  by_watch(const sale_setting& about, till& with)
      : till_(with), redis_(about.url(store_kind::redis)), stock_(about.name("stock:0")) {}

  bought buy() override {
    return till_.sell(
        [&] {
          redis_.ask({"WATCH", stock_});
          return std::optional{std::stoll(redis_.ask({"GET", stock_}).text)};
        },
        [&](std::int64_t left) {
          redis_.ask({"MULTI"});
          redis_.ask({"SET", stock_, std::to_string(left)});
          return !redis_.ask({"EXEC"}).is_nil;
        });
  }

 private:
  till& till_;
  redis_link redis_;
  std::string stock_;
};

}  // namespace

std::unique_ptr<shop> open_redis_watch(const sale_setting& about) {
  return each_alone<by_watch>(about);
}

}  // namespace holdfast::cli::flash

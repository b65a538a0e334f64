// The stock in Redis: a key per shelf, and beside it the newest token, which scripts compare.
#include "flash_sale/redis_link.hpp"
#include "flash_sale/stock.hpp"

#include <fmt/format.h>

namespace holdfast::cli::flash {

namespace {

// Tokens are compared as text of one width: numbers of Lua are exact to 2^53 only.
std::string as_token(fencing_token shown) { return fmt::format("{:020}", shown.value); }

constexpr std::string_view read_fenced = R"lua(
local newest = redis.call('GET', KEYS[2])
if newest and newest > ARGV[1] then return false end
redis.call('SET', KEYS[2], ARGV[1])
return redis.call('GET', KEYS[1])
)lua";

constexpr std::string_view write_fenced = R"lua(
local newest = redis.call('GET', KEYS[2])
if newest and newest > ARGV[1] then return false end
redis.call('SET', KEYS[2], ARGV[1])
return redis.call('SET', KEYS[1], ARGV[2])
)lua";

class redis_stock final : public stock {
 public:
  explicit redis_stock(const sale_setting& about)
      : about_(about), link_(about.url(store_kind::redis)) {}

  std::int64_t read(int shelf) override { return std::stoll(link_.ask({"GET", key(shelf)}).text); }
  void write(int shelf, std::int64_t amount) override {
    link_.ask({"SET", key(shelf), std::to_string(amount)});
  }
  std::optional<std::int64_t> read(int shelf, fencing_token shown) override {
    const auto got = link_.run(read_fenced, {key(shelf), fence(shelf)}, {as_token(shown)});
    if (got.is_nil) return std::nullopt;
    return std::stoll(got.text);
  }
  bool write(int shelf, std::int64_t amount, fencing_token shown) override {
    return link_
        .run(write_fenced, {key(shelf), fence(shelf)}, {as_token(shown), std::to_string(amount)})
        .is_ok();
  }
  void remove(int shelf) { link_.ask({"DEL", key(shelf), fence(shelf)}); }

 private:
  std::string key(int shelf) const { return about_.name(fmt::format("stock:{}", shelf)); }
  std::string fence(int shelf) const { return about_.name(fmt::format("fence:{}", shelf)); }
  const sale_setting& about_;
  redis_link link_;
};

}  // namespace

std::unique_ptr<stock> open_stock_redis(const sale_setting& about) {
  return std::make_unique<redis_stock>(about);
}

void put_stock_redis(const sale_setting& about) {
  redis_stock all{about};
  for (int shelf = 0; shelf < about.shelves(); ++shelf) all.write(shelf, about.on_shelf(shelf));
}

void remove_stock_redis(const sale_setting& about) {
  redis_stock all{about};
  for (int shelf = 0; shelf < about.shelves(); ++shelf) all.remove(shelf);
  redis_link{about.url(store_kind::redis)}.ask(
      {"DEL", about.name("lock"), about.name("last-token")});
}

}  // namespace holdfast::cli::flash

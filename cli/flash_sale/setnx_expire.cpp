// SETNX, and then EXPIRE: the lock of most old tutorials, and what a script makes of it.
#include "flash_sale/recipes.hpp"
#include "flash_sale/redis_lock.hpp"

namespace holdfast::cli::flash {

namespace {

// Unsafe: whoever dies between the two commands leaves a lock without an end, and nobody ever sells again. And as with
// every lock that just expires, a holder that is paused for longer writes over what others did meanwhile.
class in_two_commands final : public redis_lock_buyer {
 public:
  using redis_lock_buyer::redis_lock_buyer;
  bought buy() override {
    if (!is_taken_by([&] { return redis_.ask({"SETNX", lock_, me_}).number == 1; }))
      return bought::again;
    till_.between_commands();
    redis_.ask({"PEXPIRE", lock_, milliseconds()});
    const auto outcome = sell_one();
    redis_.run(delete_if_mine, {lock_}, {me_});
    return outcome;
  }

 private:
  static constexpr std::string_view delete_if_mine =
      "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end";
};

// Both in one script: no death can come between them. What remains is the pause.
class in_one_script final : public redis_lock_buyer {
 public:
  using redis_lock_buyer::redis_lock_buyer;
  bought buy() override {
    if (!is_taken_by([&] { return redis_.run(take, {lock_}, {me_, milliseconds()}).number == 1; }))
      return bought::again;
    const auto outcome = sell_one();
    redis_.run(give_back, {lock_}, {me_});
    return outcome;
  }

 private:
  static constexpr std::string_view take =
      "if redis.call('SETNX', KEYS[1], ARGV[1]) == 0 then return 0 end "
      "return redis.call('PEXPIRE', KEYS[1], ARGV[2])";
  static constexpr std::string_view give_back =
      "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end";
};

}  // namespace

std::unique_ptr<shop> open_setnx_then_expire(const sale_setting& about) {
  return each_alone<in_two_commands>(about);
}

std::unique_ptr<shop> open_setnx_expire_lua(const sale_setting& about) {
  return each_alone<in_one_script>(about);
}

}  // namespace holdfast::cli::flash

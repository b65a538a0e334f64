// SET key me NX PX: lock and end in one command.
#include "flash_sale/recipes.hpp"
#include "flash_sale/redis_lock.hpp"

namespace holdfast::cli::flash {

namespace {

constexpr std::string_view delete_if_it_is_mine =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end";

// Safe as long as no holder takes longer than its lock lasts. One that was paused still believes in it, and writes.
// Only the owner deletes the lock, which is what the random value is for.
class with_owner_check final : public redis_lock_buyer {
 public:
  using redis_lock_buyer::redis_lock_buyer;
  bought buy() override {
    if (!is_taken_by([&] {
          return redis_.ask({"SET", lock_, me_, "NX", "PX", milliseconds()}).is_ok();
        }))
      return bought::again;
    const auto outcome = sell_one();
    redis_.run(delete_if_it_is_mine, {lock_}, {me_});
    return outcome;
  }
};

// Unsafe: the same with a plain DEL. A holder that was paused deletes the lock of its successor, so a third one comes
// in beside that, and deletes the lock of a fourth: one pause is enough for a queue of wrong owners.
class with_plain_delete final : public redis_lock_buyer {
 public:
  using redis_lock_buyer::redis_lock_buyer;
  bought buy() override {
    if (!is_taken_by([&] {
          return redis_.ask({"SET", lock_, me_, "NX", "PX", milliseconds()}).is_ok();
        }))
      return bought::again;
    const auto outcome = sell_one();
    redis_.ask({"DEL", lock_});
    return outcome;
  }
};

// Safe, also after a pause: each holder draws a number that only rises, shows it when it reads, and Redis takes no
// number of the stock from one with a lower number. Lock and number in one script.
class with_a_fence final : public redis_lock_buyer {
 public:
  with_a_fence(const sale_setting& about, till& with)
      : redis_lock_buyer(about, with), numbers_(about.name("last-token")) {}
  bought buy() override {
    fencing_token mine;
    if (!is_taken_by([&] {
          mine.value = static_cast<std::uint64_t>(
              redis_.run(take_with_token, {lock_, numbers_}, {me_, milliseconds()}).number);
          return mine.value != 0;
        }))
      return bought::again;
    const auto outcome =
        till_.sell([&] { return stock_->read(0, mine); },
                   [&](std::int64_t left) { return stock_->write(0, left, mine); });
    redis_.run(delete_if_it_is_mine, {lock_}, {me_});
    return outcome;
  }

 private:
  static constexpr std::string_view take_with_token =
      "if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end "
      "return redis.call('INCR', KEYS[2])";
  std::string numbers_;
};

}  // namespace

std::unique_ptr<shop> open_set_nx_px(const sale_setting& about) {
  return each_alone<with_owner_check>(about);
}

std::unique_ptr<shop> open_set_nx_px_del(const sale_setting& about) {
  return each_alone<with_plain_delete>(about);
}

std::unique_ptr<shop> open_set_nx_px_fenced(const sale_setting& about) {
  return each_alone<with_a_fence>(about);
}

}  // namespace holdfast::cli::flash

// GETSET: the lock holds the time at which it ends, and the manual of SETNX once recommended it.
//
// Takes over from the dead without any expiry in Redis: whoever finds a time that has passed writes its own with
// GETSET, and has the lock if it got the old time back. Fragile: every client's own clock decides, so all clocks must
// agree; who loses that race has overwritten the winner's time all the same; nothing says whose it is, so to give it
// back is a guess by the clock. And a holder that was paused writes on.
#include "flash_sale/recipes.hpp"
#include "flash_sale/redis_lock.hpp"

namespace holdfast::cli::flash {

namespace {

class by_getset final : public redis_lock_buyer {
 public:
  using redis_lock_buyer::redis_lock_buyer;
  bought buy() override {
    std::int64_t ends = 0;
    if (!is_taken_by([&] {
          ends = clock_ms() + ttl_.count();
          return takes(std::to_string(ends));
        }))
      return bought::again;
    const auto outcome = sell_one();
    if (clock_ms() < ends) redis_.ask({"DEL", lock_});  // after that it may be another's
    return outcome;
  }

 private:
  static std::int64_t clock_ms() {
    using namespace std::chrono;
    return duration_cast<std::chrono::milliseconds>(system_clock::now().time_since_epoch()).count();
  }
  bool takes(const std::string& ends) {
    if (redis_.ask({"SETNX", lock_, ends}).number == 1) return true;
    const auto seen = redis_.ask({"GET", lock_});
    if (seen.is_nil || std::stoll(seen.text) >= clock_ms()) return false;
    return redis_.ask({"GETSET", lock_, ends}).text == seen.text;
  }
};

}  // namespace

std::unique_ptr<shop> open_getset(const sale_setting& about) {
  return each_alone<by_getset>(about);
}

}  // namespace holdfast::cli::flash

// A scheme: a way to sell without selling twice, or one that only looks like it. The table of all is in schemes.cpp,
// the recipes are in the file that is named after their family.
#pragma once

#include "flash_sale/stores.hpp"
#include "flash_sale/till.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::cli::flash {

// Where the stock lies.
enum class place { file, redis, mysql };
std::string_view word(place where) noexcept;

struct scheme;

// What a sale is about; the same for all its processes.
struct sale_setting {
  const scheme* what = nullptr;
  std::string id;      // of this run, in the names of everything
  std::string folder;  // of this run, for the stock and the locks that need no server
  store_urls stores;
  place where = place::file;
  unsigned buyers = 0, processes = 0;
  std::int64_t stock = 0;
  std::chrono::nanoseconds think{}, ttl{};
  fault strike = fault::none;

  const std::string& url(store_kind kind) const { return stores.at(kind); }
  std::string name(std::string_view of) const;  // "holdfast-sale:1f2e:stock"
  std::string lock_name() const;                // "holdfast-sale/1f2e/stock"
  std::string table() const;                    // "holdfast_sale_1f2e"
  int shelves() const noexcept;
  std::int64_t on_shelf(int shelf) const noexcept;  // at the beginning
};

// One who buys again and again, in a thread of its own. A recipe is such a class.
class buyer {
 public:
  virtual ~buyer() = default;
  // Tries to buy one. Throws what its store throws.
  virtual bought buy() = 0;
};

// What the buyers of one process share, such as a client of our library.
class shop {
 public:
  virtual ~shop() = default;
  virtual std::unique_ptr<buyer> new_buyer(till& with) = 0;
  // After the death or in the pause of a holder, others are let in within this time.
  virtual std::chrono::nanoseconds takeover() const = 0;
};

using shop_maker = std::unique_ptr<shop> (*)(const sale_setting&);

// A shop in which each buyer comes with a connection of its own and nothing is shared.
template <class Recipe>
std::unique_ptr<shop> each_alone(const sale_setting& about) {
  class street final : public shop {
   public:
    explicit street(const sale_setting& of) : about_(of) {}
    std::unique_ptr<buyer> new_buyer(till& with) override {
      return std::make_unique<Recipe>(about_, with);
    }
    std::chrono::nanoseconds takeover() const override { return about_.ttl; }

   private:
    const sale_setting& about_;
  };
  return std::make_unique<street>(about);
}

// The least that goes wrong before a scheme sells what is not there, or sells no more.
enum class flaw {
  traffic,  // two buyers at a time are enough
  kill,     // a holder that dies
  pause,    // a holder that is paused for longer than its lock lasts
  none,     // nothing of these
};
std::string_view word(flaw what) noexcept;

struct text_pair {
  std::string_view en, zh;
};

struct scheme {
  std::string_view name, family;
  std::vector<store_kind> needs;  // empty: no server at all
  flaw breaks_by = flaw::none;
  text_pair why;
  shop_maker open = nullptr;  // null: this build has not what it needs
  std::string_view missing;   // which is this
  bool owns_place = true;     // the stock lies where the lock is; else in the best place there is
  int shelves = 1;
  weak_spot spot = weak_spot::thinking;
};

// In the order in which they are shown.
const std::vector<scheme>& schemes();

}  // namespace holdfast::cli::flash

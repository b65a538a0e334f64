// Sells a stock by all recipes of mysql_recipes.hpp, and says which of them sold what was not there.
//
//   mysql_recipes mysql://user@127.0.0.1:3306/database [buyers] [amount]       (password: in HOLDFAST_PASSWORD)
//
// Makes the tables stock, holdfast_fence and those of holdfast in that database.
#include "mysql_recipes.hpp"

#include <atomic>
#include <chrono>
#include <iomanip>
#include <iostream>
#include <thread>
#include <vector>

namespace {

using recipes::bought;
using recipe = std::function<bought(database&)>;

struct sales {
  std::atomic<int> sold{0};
  std::atomic<int> tries{0};
};

// All buyers buy until there is nothing left.
void sell(const std::string& url, int buyers, const recipe& buy, sales& count) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < buyers; ++i)
    threads.emplace_back([&] {
      database db{url};
      for (bool over = false; !over;) {
        const auto outcome = buy(db);
        ++count.tries;
        if (outcome == bought::yes) ++count.sold;
        over = outcome == bought::sold_out;
      }
    });
}

struct row {
  std::string name;
  recipe buy;
  bool is_safe = true;
};

// Whether it did what its row says.
bool show(const std::string& url, const row& shown, int buyers, int amount) {
  database db{url};
  recipes::put(db, 1, amount);
  sales count;
  const auto begin = std::chrono::steady_clock::now();
  sell(url, buyers, shown.buy, count);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const int sold = count.sold, tries = count.tries;
  std::cout << std::left << std::setw(24) << shown.name << std::right << std::setw(6) << sold
            << std::setw(10) << sold - amount << std::setw(8) << tries << std::setw(10)
            << static_cast<int>(sold / took.count()) << '\n';
  return (sold == amount) == shown.is_safe;
}

// A buyer locks item 1 by a column without an index, then with one. Is item 2 blocked for others?
bool show_trap(const std::string& url) {
  database first{url}, second{url};
  recipes::put(first, 1, 1);
  recipes::put(first, 2, 1);
  bool blocked[2];
  for (const bool has_index : {false, true}) {
    if (has_index) first.run("ALTER TABLE stock ADD INDEX by_sku (sku)");
    const recipes::transaction work{first};
    recipes::lock_by_sku(first, "sku-1");
    blocked[has_index ? 1 : 0] = recipes::is_blocked(second, 2);
  }
  std::cout << "\nFOR UPDATE of item 1 by a column without an index: item 2 is "
            << (blocked[0] ? "blocked" : "free")
            << "; with an index: " << (blocked[1] ? "blocked" : "free") << ".\n";
  return blocked[0] && !blocked[1];
}

std::vector<row> rows(holdfast::mutex& lock, const holdfast::sql_fence& fence) {
  const auto plain = [](bought (*sell_one)(database&, int, const recipes::thought&)) -> recipe {
    return [sell_one](database& db) { return sell_one(db, 1, [] {}); };
  };
  return {{"read, then write", plain(recipes::read_then_write), false},
          {"single statement", plain(recipes::single_statement)},
          {"SELECT ... FOR UPDATE", plain(recipes::select_for_update)},
          {"optimistic, version", plain(recipes::optimistic_version)},
          {"optimistic, timestamp", plain(recipes::optimistic_timestamp)},
          {"timestamp in seconds", plain(recipes::timestamp_in_seconds), false},
          {"lock and fence", [&](database& db) {
             return recipes::lock_and_fence(
                 db, 1, [] {}, lock, fence);
           }}};
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::cerr << "Usage: mysql_recipes mysql://user@host:port/database [buyers] [amount]\n";
    return 64;
  }
  const std::string url = argv[1];
  const int buyers = argc > 2 ? std::stoi(argv[2]) : 8,
            amount = argc > 3 ? std::stoi(argv[3]) : 200;
  const auto client =
      holdfast::client::open(url + "?create=1");  // before any thread: it prepares the driver
  holdfast::mutex lock{client, "stock/1"};
  const holdfast::sql_fence fence{"stock/1"};
  database db{url};
  db.run("DROP TABLE IF EXISTS stock");
  db.run(recipes::schema);
  db.run(fence.schema());

  std::cout << buyers << " buyers, " << amount << " to sell\n\n"
            << "recipe                    sold  oversold   tries   sales/s\n";
  bool as_told = true;
  for (const auto& shown : rows(lock, fence)) as_told = show(url, shown, buyers, amount) && as_told;
  as_told = show_trap(url) && as_told;
  return as_told ? 0 : 1;
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 1;
}

// The database's own ways (examples/mysql_recipes.hpp) on a real MariaDB: which sell what is there, and which more.
#include "e2e/mysql_suite.hpp"
#include "support/process.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

namespace {

using recipes::bought;
using recipe = bought (*)(database&, int, const recipes::thought&);

class mysql_recipes : public e2e::mysql_suite {
 protected:
  // So that the clock does not tick, whatever the machine does.
  std::unique_ptr<database> connect_with_frozen_clock() {
    auto db = connect();
    db->run("SET timestamp=1700000000");
    return db;
  }

  // Everybody buys until it is sold out; how many were sold of `amount`.
  int sell(int amount, const std::function<bought(database&)>& buy) {
    constexpr int buyers = 8;
    recipes::put(*connect(), 1, amount);
    std::atomic<int> sold{0};
    {
      std::vector<std::jthread> crowd;
      for (int i = 0; i < buyers; ++i)
        crowd.emplace_back([&] {
          const auto db = connect();
          for (bool over = false; !over;) {
            const auto outcome = buy(*db);
            if (outcome == bought::yes) ++sold;
            over = outcome == bought::sold_out;
          }
        });
    }
    return sold;
  }

  // Two buyers of the last one, both of whom have read before either writes.
  std::pair<bought, bought> two_at_once(recipe buy) {
    recipes::put(*connect_with_frozen_clock(), 1, 1);
    std::barrier both_have_read{2};
    std::pair<bought, bought> out;
    {
      const auto take = [&](bought& outcome) {
        const auto db = connect_with_frozen_clock();
        outcome = buy(*db, 1, [&] { both_have_read.arrive_and_wait(); });
      };
      const std::jthread first{take, std::ref(out.first)}, second{take, std::ref(out.second)};
    }
    return out;
  }
};

int sales(const std::pair<bought, bought>& of) {
  return (of.first == bought::yes ? 1 : 0) + (of.second == bought::yes ? 1 : 0);
}

TEST_F(mysql_recipes, no_safe_way_sells_more_than_there_is) {
  constexpr int amount = 100;
  for (const recipe buy : {recipes::single_statement, recipes::select_for_update,
                           recipes::optimistic_version, recipes::optimistic_timestamp}) {
    EXPECT_EQ(sell(amount, [&](database& db) { return buy(db, 1, [] {}); }), amount);
    EXPECT_EQ(recipes::left(*connect(), 1), 0);
  }
}

TEST_F(mysql_recipes, neither_does_a_lock_with_a_fence) {
  constexpr int amount = 100;
  const holdfast::sql_fence fence{"stock/1"};
  server->sql(fence.schema());
  const auto client = holdfast::client::open(server->url());
  holdfast::mutex lock{client, "stock/1"};
  EXPECT_EQ(sell(amount,
                 [&](database& db) {
                   return recipes::lock_and_fence(
                       db, 1, [] {}, lock, fence);
                 }),
            amount);
  EXPECT_EQ(recipes::left(*connect(), 1), 0);
}

TEST_F(mysql_recipes, to_read_and_then_write_sells_the_last_one_twice) {
  EXPECT_EQ(sales(two_at_once(recipes::read_then_write)), 2);
  EXPECT_EQ(recipes::left(*connect(), 1), 0) << "and the stock does not show it";
}

TEST_F(mysql_recipes, of_two_optimists_one_begins_anew_even_within_one_tick_of_the_clock) {
  for (const recipe buy : {recipes::optimistic_version, recipes::optimistic_timestamp}) {
    const auto outcome = two_at_once(buy);
    EXPECT_EQ(sales(outcome), 1);
    EXPECT_TRUE(outcome.first == bought::again || outcome.second == bought::again);
  }
}

TEST_F(mysql_recipes, a_timestamp_in_seconds_sells_the_last_one_twice) {
  EXPECT_EQ(sales(two_at_once(recipes::timestamp_in_seconds)), 2);
}

TEST_F(mysql_recipes, for_update_without_an_index_locks_other_rows_too) {
  const auto first = connect(), second = connect();
  for (const int item : {1, 2}) recipes::put(*first, item, 10);
  {
    const recipes::transaction work{*first};
    recipes::lock_by_sku(*first, "sku-1");
    EXPECT_TRUE(recipes::is_blocked(*second, 1));
    EXPECT_TRUE(recipes::is_blocked(*second, 2)) << "nobody asked for item 2";
  }
  EXPECT_FALSE(recipes::is_blocked(*second, 2));

  server->sql("ALTER TABLE stock ADD INDEX by_sku (sku)");
  const recipes::transaction work{*first};
  recipes::lock_by_sku(*first, "sku-1");
  EXPECT_TRUE(recipes::is_blocked(*second, 1));
  EXPECT_FALSE(recipes::is_blocked(*second, 2));
}

// At READ COMMITTED the rows that do not fit are let go again, but they must be locked to be looked at.
TEST_F(mysql_recipes, read_committed_does_not_save_who_has_no_index) {
  const auto first = connect(), second = connect();
  for (const int item : {1, 2}) recipes::put(*first, item, 10);
  for (const auto* db : {&first, &second})
    (*db)->run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
  second->run("SET SESSION innodb_lock_wait_timeout=0");
  const recipes::transaction work{*first};
  recipes::lock_by_sku(*first, "sku-1");
  EXPECT_FALSE(recipes::is_blocked(*second, 2));
  const recipes::transaction other{*second};
  try {
    recipes::lock_by_sku(*second, "sku-2");
    ADD_FAILURE() << "item 2 was found without a look at item 1";
  } catch (const sql_error& e) {
    EXPECT_EQ(e.number(), 1205U) << e.what();
  }
}

// At REPEATABLE READ a retry inside the transaction finds the old version again.
TEST_F(mysql_recipes, an_optimist_who_stays_in_its_transaction_reads_the_past_for_ever) {
  const auto slow = connect(), quick = connect();
  recipes::put(*slow, 1, 10);
  const recipes::transaction work{*slow};
  const auto race = [&] {
    return recipes::optimistic_version(
        *slow, 1, [&] { ASSERT_EQ(recipes::optimistic_version(*quick, 1, [] {}), bought::yes); });
  };
  EXPECT_EQ(race(), bought::again);
  EXPECT_EQ(recipes::optimistic_version(*slow, 1, [] {}), bought::again) << "nobody else was there";
}

#ifdef HOLDFAST_MYSQL_RECIPES
TEST_F(mysql_recipes, the_example_shows_it_all) {
  server->sql("GRANT DROP, ALTER, INDEX ON holdfast.* TO holdfast@'%'");
  const auto output = (server->folder() / "recipes.txt").string();
  holdfast::testing::process example{
      {HOLDFAST_MYSQL_RECIPES,
       "mysql://holdfast@127.0.0.1:" + std::to_string(server->port()) + "/holdfast", "8", "100"},
      output};
  const auto code = example.wait(std::chrono::seconds{60});
  std::ostringstream said;
  said << std::ifstream{output}.rdbuf();
  EXPECT_EQ(code, 0) << said.str();
  EXPECT_NE(said.str().find("lock and fence             100         0"), std::string::npos)
      << said.str();
}
#endif

}  // namespace

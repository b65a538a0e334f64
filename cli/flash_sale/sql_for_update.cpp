// SELECT ... FOR UPDATE: the database locks the row from the read to the end of the transaction.
//
// Safe. A process that dies loses its connection, and the server rolls back at once. One that is paused keeps the row:
// nobody else sells until it goes on, or until their innodb_lock_wait_timeout (50 s) is over and they begin anew; what
// it writes afterwards is therefore never stale. The price is one open transaction, and one connection, per buyer that
// waits.
#include "flash_sale/recipes.hpp"
#include "flash_sale/sql_link.hpp"

#include <fmt/format.h>

namespace holdfast::cli::flash {

namespace {

class by_select_for_update final : public buyer {
 public:
  by_select_for_update(const sale_setting& about, till& with)
      : till_(with),
        db_(about.url(store_kind::mysql)),
        select_(fmt::format("SELECT amount FROM {} WHERE item=0 FOR UPDATE", about.table())),
        update_(fmt::format("UPDATE {} SET amount=? WHERE item=0", about.table())) {}

  bought buy() override {
    try {
      sql_transaction work{db_};
      return till_.sell([&] { return std::optional{std::stoll(db_.run(select_, {}).row.at(0))}; },
                        [&](std::int64_t left) {
                          db_.run(update_, {std::to_string(left)});
                          work.commit();
                          return true;
                        });
    } catch (const sql_error& e) {
      if (e.is_conflict()) return bought::again;
      throw;
    }
  }

 private:
  till& till_;
  sql_link db_;
  std::string select_, update_;
};

}  // namespace

std::unique_ptr<shop> open_sql_for_update(const sale_setting& about) {
  return each_alone<by_select_for_update>(about);
}

}  // namespace holdfast::cli::flash

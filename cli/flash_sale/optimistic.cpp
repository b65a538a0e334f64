// Optimistic: nothing is locked. Whoever writes says what it had read, and the database takes the write only when that
// is still true; who was too slow begins anew.
//
// Safe when what is compared changes with every write: a version does, a time does if it never stands still. There is
// no holder, so nothing stands still when a process dies, and a write after a pause is refused. Every conflict costs
// all the work, so it is for rows that are rarely wanted by two at a time, which the row of a flash sale is not.
#include "flash_sale/recipes.hpp"
#include "flash_sale/sql_link.hpp"

#include <fmt/format.h>

namespace holdfast::cli::flash {

namespace {

// What is compared, and how it changes.
struct by_version {
  static constexpr auto column = "version";
  static constexpr auto change = "version=version+1";
};
// One microsecond more than the last, whatever the clock says: two writes never have the same time.
struct by_time {
  static constexpr auto column = "changed";
  static constexpr auto change = "changed=GREATEST(NOW(6),changed + INTERVAL 1 MICROSECOND)";
};
// Unsafe: DATETIME counts whole seconds unless told otherwise, and two writes within one look like none.
struct by_time_in_seconds {
  static constexpr auto column = "changed_s";
  static constexpr auto change = "changed_s=NOW()";
};

template <class Compared>
class optimist final : public buyer {
 public:
  optimist(const sale_setting& about, till& with)
      : till_(with),
        db_(about.url(store_kind::mysql)),
        select_(
            fmt::format("SELECT amount,{} FROM {} WHERE item=0", Compared::column, about.table())),
        update_(fmt::format("UPDATE {} SET amount=?,{} WHERE item=0 AND {}=?", about.table(),
                            Compared::change, Compared::column)) {}

  bought buy() override {
    std::string seen;
    return till_.sell(
        [&] {
          const auto row = db_.run(select_, {}).row;
          seen = row.at(1);
          return std::optional{std::stoll(row.at(0))};
        },
        [&](std::int64_t left) {
          return db_.run(update_, {std::to_string(left), seen}).rows == 1;
        });
  }

 private:
  till& till_;
  sql_link db_;
  std::string select_, update_;
};

}  // namespace

std::unique_ptr<shop> open_optimistic_version(const sale_setting& about) {
  return each_alone<optimist<by_version>>(about);
}

std::unique_ptr<shop> open_optimistic_time(const sale_setting& about) {
  return each_alone<optimist<by_time>>(about);
}

std::unique_ptr<shop> open_optimistic_seconds(const sale_setting& about) {
  return each_alone<optimist<by_time_in_seconds>>(about);
}

}  // namespace holdfast::cli::flash

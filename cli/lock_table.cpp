#include "lock_table.hpp"

#include "text.hpp"
#include "words.hpp"

#include <fmt/format.h>

namespace holdfast::cli {

table lock_table(std::span<const lock_info> locks) {
  table rows{{{"NAME", align::left, 48},
              {"MODE"},
              {"HOLDER", align::left, 40},
              {"LABEL", align::left, 32, 3},
              {"HELD FOR", align::right},
              {"EXPIRES IN", align::right, 60, 2},
              {"TOKEN", align::right, 60, 1},
              {"WAITERS", align::right}}};
  for (const auto& lock : locks) {
    const auto waiters = std::to_string(lock.waiters.size());
    const auto look = lock.waiters.empty() ? style::plain : style::yellow;
    const std::string free = lock.free_permits ? fmt::format("{} free", *lock.free_permits) : "-";
    if (lock.holders.empty()) rows.add({lock.name, free, "-", "", "", "", "", waiters}, look);
    for (const auto& holder : lock.holders)
      rows.add({lock.name, mode_of(lock, holder), process_of(holder), holder.label,
                brief(holder.age), brief(holder.expires_in), token_of(holder), waiters},
               look);
  }
  return rows;
}

}  // namespace holdfast::cli

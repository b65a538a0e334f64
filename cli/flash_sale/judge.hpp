// The judge of a sale: counts from the buyers' own record and from the stock that is left. Knows no scheme, no lock and
// no store.
#pragma once

#include "flash_sale/board.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::cli::flash {

// All that was written down about one sale.
struct ledger {
  std::int64_t stock = 0;            // at the beginning
  std::optional<std::int64_t> left;  // at the end; unset: the store could not be asked
  instant opened = 0;
  std::vector<std::vector<order>> orders;  // of each buyer
  std::vector<int> process_of;             // of each buyer: its process
  // ---- the fault, if there was one
  fault struck = fault::none;
  int struck_process = -1;
  instant struck_at = 0, resumed_at = 0;
  instant closed = 0;  // when the judge stopped waiting
};

struct verdict {
  std::int64_t sold = 0;
  // Orders that were taken beyond the stock there was.
  std::int64_t oversold = 0;
  // Orders that wrote a number which another order had written, too: one of the two was forgotten.
  std::int64_t lost_updates = 0;
  // Their buyer died before the answer: sold or not, nobody knows.
  std::int64_t unknown = 0;
  // Items that are gone without an order, or (negative) orders without an item that went. 0 in a sale without deaths.
  std::optional<std::int64_t> unexplained;
  double orders_per_second = 0;
  std::chrono::nanoseconds wait_p50{}, wait_p99{};  // from coming to having bought
  std::int64_t fewest = 0, most = 0;                // orders of one buyer
  // ---- after a fault
  std::optional<std::chrono::nanoseconds> stood_still;  // until the next order of another process
  bool stood_for_good = false;  // there was none; stood_still is how long the judge waited
  // Writes of the paused process that were computed before the pause and came after it, when others had written that
  // very number.
  std::int64_t stale_accepted = 0, stale_refused = 0;

  bool is_clean() const noexcept { return oversold == 0 && lost_updates == 0; }
};

verdict judge(const ledger& of);

}  // namespace holdfast::cli::flash

// One sale: its buyers in their processes, one fault, and what the judge says.
#pragma once

#include "flash_sale/judge.hpp"
#include "flash_sale/scheme.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace holdfast::cli::flash {

struct sale_result {
  verdict said;
  std::uint64_t retries = 0;
  // What the servers counted themselves while it was open; nothing for those that do not tell.
  std::map<store_kind, std::optional<std::uint64_t>> commands;
  bool was_struck = false;   // the fault found its buyer
  bool is_sold_out = false;  // else the time was over
  std::string failed;        // why there is nothing to judge
  std::string note;          // a buyer that ended early, a full record

  // Of all stores together; nothing when one of them does not tell.
  std::optional<double> commands_per_order() const;
};

// Asked now and then, with how much is sold; true: stop.
using watcher = std::function<bool(std::int64_t sold)>;

// Forks, so no thread may exist. Leaves neither a process nor the stock behind.
sale_result hold_sale(const sale_setting& about, const watcher& watch);

}  // namespace holdfast::cli::flash

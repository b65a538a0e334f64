// What a run of many sales found, and how it is shown: as a table, as JSON, as a page.
#pragma once

#include "flash_sale/sale.hpp"

#include <map>
#include <string>
#include <vector>

namespace holdfast::cli::flash {

enum class tongue { en, zh };

struct scheme_report {
  const scheme* what = nullptr;
  place where = place::file;
  std::string skipped;  // why it was not run
  std::map<fault, sale_result> runs;

  // The run under this fault, if there was one that could be judged.
  const sale_result* run(fault under) const;
};

struct sale_report {
  std::string machine;
  std::map<store_kind, std::string> stores;  // without their passwords
  unsigned buyers = 0, processes = 0;
  std::int64_t stock = 0;
  std::chrono::nanoseconds think{}, ttl{};
  std::vector<fault> faults;
  std::vector<scheme_report> schemes;

  // Schemes that failed under what their row says they bear: a bug of ours.
  std::vector<std::string> broken_promises() const;
};

std::string table_of(const sale_report& all, tongue in);
std::string json_of(const sale_report& all);
std::string page_of(const sale_report& all);
std::string list_of_schemes(tongue in);

// ---- cells that table and page share; "-" where there is nothing
std::string rate_cell(const scheme_report& of);
std::string wait_cell(std::chrono::nanoseconds wait);
std::string commands_cell(const scheme_report& of);
std::string standstill_cell(const sale_result& run);

}  // namespace holdfast::cli::flash

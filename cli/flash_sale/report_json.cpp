#include "flash_sale/report.hpp"

#include <nlohmann/json.hpp>

namespace holdfast::cli::flash {

namespace {

using sale_json = nlohmann::ordered_json;

double as_seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

sale_json as_json(const sale_result& run, fault under) {
  if (!run.failed.empty()) return {{"failed", run.failed}};
  const auto& said = run.said;
  sale_json commands = sale_json::object();
  for (const auto& [kind, count] : run.commands)
    commands[std::string{word(kind)}] = count ? sale_json(*count) : sale_json();
  const auto each = run.commands_per_order();
  sale_json out{{"sold", said.sold},
                {"oversold", said.oversold},
                {"lost_updates", said.lost_updates},
                {"unknown", said.unknown},
                {"unexplained", said.unexplained ? sale_json(*said.unexplained) : sale_json()},
                {"sold_out", run.is_sold_out},
                {"orders_per_second", said.orders_per_second},
                {"wait_p50_seconds", as_seconds(said.wait_p50)},
                {"wait_p99_seconds", as_seconds(said.wait_p99)},
                {"fewest_orders_of_a_buyer", said.fewest},
                {"most_orders_of_a_buyer", said.most},
                {"retries", run.retries},
                {"commands", commands},
                {"commands_per_order", each ? sale_json(*each) : sale_json()},
                {"note", run.note}};
  if (under == fault::none) return out;
  out["struck"] = run.was_struck;
  out["stood_still_seconds"] =
      said.stood_still ? sale_json(as_seconds(*said.stood_still)) : sale_json();
  out["stood_for_good"] = said.stood_for_good;
  if (under == fault::pause) {
    out["stale_writes_accepted"] = said.stale_accepted;
    out["stale_writes_refused"] = said.stale_refused;
  }
  return out;
}

sale_json as_json(const scheme_report& one) {
  auto needs = sale_json::array();
  for (const auto kind : one.what->needs) needs.push_back(word(kind));
  sale_json out{{"name", one.what->name},  {"family", one.what->family},
                {"needs", needs},          {"breaks_by", word(one.what->breaks_by)},
                {"why", one.what->why.en}, {"why_zh", one.what->why.zh}};
  if (!one.skipped.empty()) {
    out["skipped"] = one.skipped;
    return out;
  }
  out["stock_in"] = word(one.where);
  out["runs"] = sale_json::object();
  for (const auto& [under, run] : one.runs)
    out["runs"][std::string{word(under)}] = as_json(run, under);
  return out;
}

}  // namespace

std::string json_of(const sale_report& all) {
  sale_json stores = sale_json::object();
  for (const auto& [kind, url] : all.stores) stores[std::string{word(kind)}] = url;
  auto faults = sale_json::array();
  for (const auto one : all.faults) faults.push_back(word(one));
  sale_json out{{"machine", all.machine},
                {"stores", stores},
                {"buyers", all.buyers},
                {"processes", all.processes},
                {"stock", all.stock},
                {"think_seconds", as_seconds(all.think)},
                {"ttl_seconds", as_seconds(all.ttl)},
                {"faults", faults},
                {"broken_promises", all.broken_promises()},
                {"schemes", sale_json::array()}};
  for (const auto& one : all.schemes) out["schemes"].push_back(as_json(one));
  // ASCII only, as everything that --json prints.
  return out.dump(2, ' ', true, sale_json::error_handler_t::replace) + '\n';
}

}  // namespace holdfast::cli::flash

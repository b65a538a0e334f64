#include "flash_sale/report.hpp"

#include "output.hpp"
#include "table.hpp"
#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::cli::flash {

namespace {

std::string_view in_words(flaw what, tongue in) {
  const bool zh = in == tongue::zh;
  switch (what) {
    case flaw::traffic:
      return zh ? "两个买家同时来就出错" : "breaks when two buyers meet";
    case flaw::kill:
      return zh ? "持有者死亡时出错" : "breaks when a holder dies";
    case flaw::pause:
      return zh ? "持有者暂停过久时出错" : "breaks when a holder is paused";
    case flaw::none:
      return zh ? "以上都不会出错" : "breaks by none of these";
  }
  return "";
}

std::string stale_cell(const sale_result& run) {
  return fmt::format("{} / {}", run.said.stale_accepted, run.said.stale_refused);
}

std::string legend(tongue in) {
  if (in == tongue::zh)
    return "\nOVERSOLD 超卖的订单；LOST 与另一订单写回相同数字的订单；WAIT 从来到至买到；CMDS "
           "服务器自己统计的"
           "每单命令数；\nSHARE 单个买家最少-最多的订单数；DEAD 持有者被杀后停售的时间；STALE "
           "暂停后迟到的写入（被接受 / 被拒绝），PAUSED 为该次销售中的超卖。\n";
  return "\nOVERSOLD: orders beyond the stock. LOST: orders that wrote the same number as another. "
         "WAIT: from\ncoming to having bought. CMDS: commands per order by the servers' own count. "
         "SHARE: fewest-most\norders of a buyer. DEAD: no order for so long after a holder was "
         "killed. STALE: late writes after\na pause, accepted / refused; PAUSED: what that sale "
         "oversold.\n";
}

std::vector<std::string> cells_of(const scheme_report& one) {
  const std::string name{one.what->name};
  std::vector<std::string> out(14, "-");
  out[0] = name;
  out[1] = word(one.where);
  std::string note;
  for (const auto& [under, run] : one.runs) {
    if (!run.failed.empty()) note = fmt::format("{}: {}", word(under), run.failed);
    if (!run.note.empty()) note = fmt::format("{}: {}", word(under), run.note);
  }
  if (const auto* plain = one.run(fault::none)) {
    const auto& said = plain->said;
    out[2] = grouped(static_cast<double>(said.sold));
    out[3] = grouped(static_cast<double>(said.oversold));
    out[4] = grouped(static_cast<double>(said.lost_updates));
    out[5] = rate_cell(one);
    out[6] = wait_cell(said.wait_p50);
    out[7] = wait_cell(said.wait_p99);
    out[8] = commands_cell(one);
    out[9] = fmt::format("{}-{}", said.fewest, said.most);
    if (!plain->is_sold_out && note.empty()) note = "not sold out in time";
  }
  if (const auto* killed = one.run(fault::kill)) out[10] = standstill_cell(*killed);
  if (const auto* paused = one.run(fault::pause)) {
    out[11] = stale_cell(*paused);
    out[12] = grouped(static_cast<double>(paused->said.oversold));
  }
  out[13] = note;
  return out;
}

style look_of(const scheme_report& one) {
  bool is_clean = true, sells_on = true;
  for (const auto& [under, run] : one.runs) {
    is_clean = is_clean && run.said.is_clean() && run.said.stale_accepted == 0;
    sells_on = sells_on && !(under == fault::kill && run.said.stood_for_good);
  }
  const auto* plain = one.run(fault::none);
  if (plain != nullptr && !plain->said.is_clean()) return style::red;
  return is_clean && sells_on ? style::plain : style::yellow;
}

// What a run must show when its row says that the scheme bears the fault.
bool is_kept(fault under, const sale_result& run) {
  if (!run.failed.empty() || !run.said.is_clean() || run.said.stale_accepted > 0) return false;
  if (under == fault::kill && run.was_struck && run.said.stood_for_good) return false;
  const auto gone = run.said.unexplained.value_or(0);
  return gone >= 0 && gone <= run.said.unknown;
}

bool bears(flaw breaks_by, fault under) {
  switch (under) {
    case fault::none:
      return breaks_by != flaw::traffic;
    case fault::kill:
      return breaks_by == flaw::pause || breaks_by == flaw::none;
    case fault::pause:
      return breaks_by == flaw::none;
  }
  return false;
}

}  // namespace

const sale_result* scheme_report::run(fault under) const {
  const auto found = runs.find(under);
  return found == runs.end() || !found->second.failed.empty() ? nullptr : &found->second;
}

std::vector<std::string> sale_report::broken_promises() const {
  std::vector<std::string> out;
  for (const auto& one : schemes)
    for (const auto& [under, run] : one.runs)
      if (run.failed.empty() && bears(one.what->breaks_by, under) && !is_kept(under, run))
        out.push_back(fmt::format("{} ({})", one.what->name, word(under)));
  return out;
}

std::string rate_cell(const scheme_report& of) {
  const auto* plain = of.run(fault::none);
  return plain == nullptr ? "-" : grouped(plain->said.orders_per_second);
}

std::string wait_cell(std::chrono::nanoseconds wait) { return brief(wait); }

std::string commands_cell(const scheme_report& of) {
  const auto* plain = of.run(fault::none);
  const auto each = plain == nullptr ? std::nullopt : plain->commands_per_order();
  return each ? fmt::format("{:.1f}", *each) : "-";
}

std::string standstill_cell(const sale_result& run) {
  if (!run.was_struck || !run.said.stood_still) return "-";
  const auto time = brief(*run.said.stood_still);
  return run.said.stood_for_good ? "for good (" + time + "+)" : time;
}

std::string table_of(const sale_report& all, tongue in) {
  table out{{{"SCHEME"},
             {"STOCK IN"},
             {"SOLD", align::right},
             {"OVERSOLD", align::right},
             {"LOST", align::right},
             {"ORDERS/S", align::right},
             {"WAIT P50", align::right},
             {"P99", align::right},
             {"CMDS", align::right},
             {"SHARE", align::right},
             {"DEAD", align::right},
             {"STALE", align::right},
             {"PAUSED", align::right},
             {"", align::left, 60}}};
  std::map<std::string, std::string> skipped;
  for (const auto& one : all.schemes) {
    if (one.skipped.empty()) {
      out.add(cells_of(one), look_of(one));
    } else {
      skipped[one.skipped] +=
          fmt::format("{}{}", skipped[one.skipped].empty() ? "" : ", ", one.what->name);
    }
  }
  std::string not_run;
  for (const auto& [why, names] : skipped)
    not_run += wrapped(fmt::format("Not run ({}): {}.", printable(why), names), 96, 2) + '\n';
  return fmt::format("{} to sell, {} buyers in {} processes, think {}, ttl {}; {}\n\n{}{}{}{}",
                     all.stock, all.buyers, all.processes, brief(all.think), brief(all.ttl),
                     printable(all.machine), out.str(), not_run.empty() ? "" : "\n", not_run,
                     legend(in));
}

std::string list_of_schemes(tongue in) {
  std::string text;
  for (const auto& one : schemes()) {
    std::string needs;
    for (const auto kind : one.needs) needs += fmt::format(" {}", word(kind));
    text +=
        fmt::format("{}{}{}  {}.cpp,{}; {}{}\n    {}\n", on(style::bold), one.name, off(),
                    one.family, needs.empty() ? " no server" : needs, in_words(one.breaks_by, in),
                    one.open == nullptr ? fmt::format(" (not built: no {})", one.missing) : "",
                    wrapped(in == tongue::zh ? one.why.zh : one.why.en, 96, 4));
  }
  return text;
}

}  // namespace holdfast::cli::flash

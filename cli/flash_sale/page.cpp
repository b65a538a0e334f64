// The result as one page: nothing is loaded from elsewhere, names are escaped, light and dark follow the reader's
// system, and it can be read on a phone. Both languages are in it; a button changes between them.
#include "flash_sale/report.hpp"

#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

namespace holdfast::cli::flash {

namespace {

std::string html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string both(std::string_view en, std::string_view zh) {
  return fmt::format("<span class=en>{}</span><span class=zh lang=zh>{}</span>", html(en),
                     html(zh));
}

constexpr std::string_view page_style = R"css(
:root{--back:#fff;--ink:#1c1f23;--dim:#667;--line:#d9dce1;--good:#1a7f4b;--bad:#c0272d;--soft:#b26a00;--bar:#3b6fb6}
@media(prefers-color-scheme:dark){:root{--back:#15181c;--ink:#e6e8ea;--dim:#9aa2ab;--line:#333a42;--good:#4cc38a;
--bad:#ff6b6b;--soft:#f0b04a;--bar:#7aa7e6}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:84rem;padding:1rem;background:var(--back);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;margin:.2rem 0}h2{font-size:1.15rem;margin:2rem 0 .3rem}
p,li,dd{max-width:46rem;overflow-wrap:anywhere}.dim,small{color:var(--dim)}
html[lang=en] .zh,html[lang=zh] .en{display:none}
button{float:right;font:inherit;color:inherit;background:none;border:1px solid var(--line);border-radius:.4rem;
padding:.2rem .7rem;cursor:pointer}
.wide{overflow-x:auto;border:1px solid var(--line);border-radius:.5rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.4rem .6rem;text-align:right;border-bottom:1px solid var(--line);vertical-align:top;white-space:nowrap}
th{font-size:.8rem;color:var(--dim)}
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--back);min-width:8rem}
td.why{white-space:normal;text-align:left}dt{font-weight:600}dd{margin:0 0 .6rem}
tr:last-child td{border-bottom:0}
.bad{color:var(--bad);font-weight:600}.soft{color:var(--soft)}.good{color:var(--good)}
.plot{display:grid;grid-template-columns:minmax(7.5rem,12rem) 1fr 6.2rem;gap:.15rem .6rem;align-items:center;
font-size:.85rem;font-variant-numeric:tabular-nums}
.plot svg{width:100%;height:.8rem;display:block}.plot b{font-weight:400;text-align:right}
.plot span{overflow-wrap:anywhere}
rect{fill:var(--bar)}rect.bad{fill:var(--bad)}rect.soft{fill:var(--soft)}rect.none{fill:none}
@media(max-width:40rem){body{padding:.6rem;font-size:15px}.plot{grid-template-columns:7.2rem 1fr 5rem;font-size:.78rem}}
)css";

constexpr std::string_view page_script = R"js(
const root=document.documentElement,button=document.getElementById('language');
const show=lang=>{root.lang=lang;button.textContent=lang==='zh'?'English':'中文'};
show((navigator.language||'').startsWith('zh')?'zh':'en');
button.addEventListener('click',()=>show(root.lang==='zh'?'en':'zh'));
)js";

// How a scheme came out, as a class of the style.
std::string_view outcome_class(const scheme_report& one) {
  const auto* plain = one.run(fault::none);
  if (plain != nullptr && !plain->said.is_clean()) return "bad";
  const auto* killed = one.run(fault::kill);
  if (killed != nullptr && killed->said.stood_for_good) return "bad";
  for (const auto& [under, run] : one.runs)
    if (run.failed.empty() && (!run.said.is_clean() || run.said.stale_accepted > 0)) return "soft";
  return "good";
}

// ---------------------------------------------------------------- plots

struct plot {
  text_pair title, note;
  std::function<std::optional<double>(const scheme_report&)> value;
  std::function<std::string(const scheme_report&)> text;
  bool is_logarithmic = true;
};

double length_of(double value, double least, double most, bool is_logarithmic) {
  if (value <= 0 || most <= 0) return 0;
  if (!is_logarithmic || least >= most) return 1000 * value / most;
  // The least has a bar, too.
  const double from = std::log10(least) - 0.15;
  return 1000 * (std::log10(value) - from) / (std::log10(most) - from);
}

std::string drawn(const plot& what, const sale_report& all) {
  double least = 0, most = 0;
  for (const auto& one : all.schemes)
    if (const auto value = what.value(one); value && *value > 0) {
      least = least == 0 ? *value : std::min(least, *value);
      most = std::max(most, *value);
    }
  std::string rows;
  bool is_empty = true;
  for (const auto& one : all.schemes) {
    const auto value = what.value(one);
    if (!value) continue;
    is_empty = false;
    const auto colour = outcome_class(one);
    rows += fmt::format(
        "<span>{}</span><svg viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" role=img "
        "aria-label=\"{}: {}\"><rect class=\"{}\" width=\"{:.0f}\" "
        "height=\"10\"/></svg><b>{}</b>\n",
        html(one.what->name), html(one.what->name), html(what.text(one)), colour,
        length_of(*value, least, most, what.is_logarithmic), html(what.text(one)));
  }
  if (is_empty) return "";
  return fmt::format(
      "<section><h2>{}</h2><p class=dim>{}</p><div class=plot>\n{}</div></section>\n",
      both(what.title.en, what.title.zh), both(what.note.en, what.note.zh), rows);
}

std::optional<double> from_run(const scheme_report& one, fault under,
                               const std::function<std::optional<double>(const sale_result&)>& of) {
  const auto* run = one.run(under);
  return run == nullptr ? std::nullopt : of(*run);
}

std::vector<plot> plots() {
  const auto oversold = [](const sale_result& run) {
    return std::optional{static_cast<double>(run.said.oversold)};
  };
  return {
      {{"Sold without being there", "卖出了并不存在的商品"},
       {"Orders beyond the stock, without any fault.", "没有任何故障时，超出库存的订单。"},
       [=](const scheme_report& one) { return from_run(one, fault::none, oversold); },
       [](const scheme_report& one) {
         return grouped(static_cast<double>(one.run(fault::none)->said.oversold));
       },
       false},
      {{"Orders per second", "每秒订单数"},
       {"More is better; logarithmic. What oversells is fast because nobody waits.",
        "越多越好；对数刻度。会超卖的方案之所以快，是因为没有人等待。"},
       [](const scheme_report& one) {
         return from_run(one, fault::none, [](const sale_result& run) {
           return std::optional{run.said.orders_per_second};
         });
       },
       rate_cell},
      {{"Wait, p99", "等待时间 p99"},
       {"From coming to having bought, of the slowest hundredth; less is better; logarithmic.",
        "从来到至买到，最慢的百分之一；越少越好；对数刻度。"},
       [](const scheme_report& one) {
         return from_run(one, fault::none, [](const sale_result& run) {
           return std::optional{static_cast<double>(run.said.wait_p99.count())};
         });
       },
       [](const scheme_report& one) { return wait_cell(one.run(fault::none)->said.wait_p99); }},
      {{"Commands per order", "每单命令数"},
       {"By the servers' own counters; what scripts call counts, too. Less is better; logarithmic.",
        "由服务器自己的计数器统计，脚本里的调用也算在内。越少越好；对数刻度。"},
       [](const scheme_report& one) {
         return from_run(one, fault::none,
                         [](const sale_result& run) { return run.commands_per_order(); });
       },
       commands_cell},
      {{"Standstill after a death", "持有者死亡后的停售时间"},
       {"A process was killed while its buyer held the lock: the time to the next order; "
        "logarithmic.",
        "持有锁的进程被杀死后，到下一笔订单的时间；对数刻度。"},
       [](const scheme_report& one) {
         return from_run(one, fault::kill, [](const sale_result& run) -> std::optional<double> {
           if (!run.was_struck || !run.said.stood_still) return std::nullopt;
           return static_cast<double>(run.said.stood_still->count());
         });
       },
       [](const scheme_report& one) { return standstill_cell(*one.run(fault::kill)); }},
      {{"Oversold after a pause", "暂停之后的超卖"},
       {"A holder was stopped until others had sold, and then went on to write.",
        "持有者被停住，直到别人卖出之后才继续写入。"},
       [=](const scheme_report& one) { return from_run(one, fault::pause, oversold); },
       [](const scheme_report& one) {
         return grouped(static_cast<double>(one.run(fault::pause)->said.oversold));
       },
       true},
  };
}

// ---------------------------------------------------------------- the table

std::string marked(std::int64_t number, std::string_view when_not_zero) {
  return fmt::format("<td class=\"{}\">{}</td>", number == 0 ? "" : when_not_zero,
                     grouped(static_cast<double>(number)));
}

std::string plain_cells(const scheme_report& one) {
  const auto* run = one.run(fault::none);
  if (run == nullptr)
    return "<td>-</td><td>-</td><td>-</td><td>-</td><td>-</td><td>-</td><td>-</td><td>-</td>";
  const auto& said = run->said;
  return fmt::format("<td>{}</td>{}{}<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}-{}</td>",
                     grouped(static_cast<double>(said.sold)), marked(said.oversold, "bad"),
                     marked(said.lost_updates, "bad"), rate_cell(one), wait_cell(said.wait_p50),
                     wait_cell(said.wait_p99), commands_cell(one), said.fewest, said.most);
}

std::string fault_cells(const scheme_report& one) {
  std::string out = "<td>-</td>";
  if (const auto* killed = one.run(fault::kill))
    out = fmt::format("<td class=\"{}\">{}</td>", killed->said.stood_for_good ? "bad" : "",
                      html(standstill_cell(*killed)));
  if (const auto* paused = one.run(fault::pause)) {
    const auto& said = paused->said;
    return out + fmt::format("<td class=\"{}\">{} / {}</td>{}",
                             said.stale_accepted > 0 ? "soft" : "good", said.stale_accepted,
                             said.stale_refused, marked(said.oversold, "soft"));
  }
  return out + "<td>-</td><td>-</td>";
}

std::string row_of(const scheme_report& one) {
  const auto& what = *one.what;
  const auto name = fmt::format("<td><b class=\"{}\">{}</b><br><small>{}.cpp{}</small></td>",
                                one.skipped.empty() ? outcome_class(one) : "dim", html(what.name),
                                html(what.family),
                                one.skipped.empty() ? fmt::format(", {}", word(one.where)) : "");
  if (!one.skipped.empty())
    return fmt::format("<tr data-scheme=\"{}\">{}<td class=\"dim why\" colspan=11>{}</td></tr>\n",
                       html(what.name), name, html(one.skipped));
  return fmt::format("<tr data-scheme=\"{}\">{}{}{}</tr>\n", html(what.name), name,
                     plain_cells(one), fault_cells(one));
}

std::string table_part(const sale_report& all) {
  std::string head;
  for (const auto& [en, zh] : std::initializer_list<text_pair>{{"scheme", "方案"},
                                                               {"sold", "售出"},
                                                               {"oversold", "超卖"},
                                                               {"lost updates", "丢失更新"},
                                                               {"orders/s", "订单/秒"},
                                                               {"wait p50", "等待 p50"},
                                                               {"p99", "p99"},
                                                               {"commands", "命令/单"},
                                                               {"fewest-most", "最少-最多"},
                                                               {"holder killed", "持有者被杀"},
                                                               {"late writes", "迟到的写入"},
                                                               {"then oversold", "随后超卖"}})
    head += fmt::format("<th>{}</th>", both(en, zh));
  std::string rows;
  for (const auto& one : all.schemes) rows += row_of(one);
  return fmt::format(
      "<div class=wide><table><thead><tr>{}</tr></thead><tbody>\n{}</tbody></table></div>\n", head,
      rows);
}

std::string schemes_part(const sale_report& all) {
  std::string list;
  for (const auto& one : all.schemes)
    list += fmt::format("<dt>{}</dt><dd>{}</dd>\n", html(one.what->name),
                        both(one.what->why.en, one.what->why.zh));
  return fmt::format("<h2>{}</h2><dl>\n{}</dl>\n", both("The schemes", "各个方案"), list);
}

std::string reading_part() {
  return "<h2>" + both("How to read it", "如何阅读") + "</h2><ul>" + "<li>" +
         both(
             "Every buyer reads how many there are, thinks, and writes one fewer. What keeps two "
             "of "
             "them from thinking about the same number is the scheme.",
             "每个买家读取剩余数量、思考片刻、写回减一的值。防止两个买家同时想着同一个数的，就是方"
             "案。") +
         "</li><li>" +
         both(
             "Lost updates: orders that wrote the same number as another. Both numbers are counted "
             "from the buyers' own record and from the stock that is left.",
             "丢失更新：与另一订单写回相同数字的订单。这些数来自买家自己的记录和剩余库存，与锁的说"
             "法无关。") +
         "</li><li>" +
         both("Holder killed: no order for so long after a process was killed that held the lock.",
              "持有者被杀：持有锁的进程被杀死后，多久没有订单。") +
         "</li><li>" +
         both(
             "Late writes: a holder was stopped until others had sold, then went on. How many of "
             "its writes the store accepted / refused.",
             "迟到的写入：持有者被停住直到别人卖出，然后继续。它的写入被存储接受 / 拒绝的数目。") +
         "</li></ul>\n";
}

}  // namespace

std::string page_of(const sale_report& all) {
  std::string stores;
  for (const auto& [kind, url] : all.stores) stores += fmt::format(" {}", html(url));
  auto out = fmt::format(
      "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
      "<meta name=viewport content=\"width=device-width,initial-scale=1\">"
      "<meta name=color-scheme content=\"light dark\"><link rel=icon href=\"data:,\">"
      "<title>Flash sale</title><style>{}</style></head><body>\n"
      "<button id=language type=button>中文</button><h1>{}</h1>\n<p class=dim>{}<br>{}</p>\n",
      page_style, both("The flash sale", "限时抢购"),
      both(fmt::format("{} to sell, {} buyers in {} processes, {} to think, locks of {}. {}.",
                       all.stock, all.buyers, all.processes, brief(all.think), brief(all.ttl),
                       all.machine),
           fmt::format("库存 {}，{} 个买家，{} 个进程，思考 {}，锁的期限 {}。{}。", all.stock,
                       all.buyers, all.processes, brief(all.think), brief(all.ttl), all.machine)),
      stores);
  out += table_part(all) + reading_part();
  for (const auto& one : plots()) out += drawn(one, all);
  out += schemes_part(all);
  return out + fmt::format("<script>{}</script>\n</body></html>\n", page_script);
}

}  // namespace holdfast::cli::flash

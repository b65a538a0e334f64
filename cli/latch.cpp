// holdfast latch: a count-down from shell scripts.
#include "args.hpp"
#include "exit_codes.hpp"
#include "json.hpp"
#include "output.hpp"
#include "signals.hpp"
#include "table.hpp"
#include "text.hpp"

#include <holdfast/latch.hpp>

#include <fmt/format.h>

namespace holdfast::cli {

namespace {

constexpr std::int64_t most = 1'000'000'000;

void report(const arguments& args, std::int64_t left) {
  print(args.has("--json") ? latch_json(args.text("NAME"), left) : fmt::format("{}\n", left));
}

client opened(const arguments& args) {
  auto store = args.open_store();
  warn_if_private(store);
  return store;
}

}  // namespace

int latch_set(const arguments& args) {
  const auto count = args.integer("N", 1, 0, most);
  latch named{opened(args), args.text("NAME")};
  named.set(count).value();
  if (args.has("--json")) report(args, count);
  return exit_code::ok;
}

int latch_down(const arguments& args) {
  const auto by = args.integer("K", 1, 1, most);
  latch named{opened(args), args.text("NAME")};
  report(args, named.count_down(by).value());
  return exit_code::ok;
}

int latch_wait(const arguments& args) {
  const auto limit = args.duration("--wait", forever);
  signal_inbox signals;
  const latch named{opened(args), args.text("NAME")};
  cancel_on_signal cancel{signals};
  const auto opened = named.wait(limit, cancel.token());
  cancel.finish();
  if (cancel.signal() != 0) return exit_code::by_signal + cancel.signal();
  opened.value();
  if (args.has("--json")) report(args, 0);
  return exit_code::ok;
}

int latch_show(const arguments& args) {
  report(args, latch{opened(args), args.text("NAME")}.value().value());
  return exit_code::ok;
}

int latch_ls(const arguments& args) {
  const auto latches = opened(args).latches(args.text("PREFIX")).value();
  if (args.has("--json")) {
    print(latches_json(latches));
    return exit_code::ok;
  }
  table rows{{{"NAME"}, {"LEFT", align::right}, {"FORGOTTEN IN", align::right}}};
  for (const auto& each : latches)
    rows.add({each.name, std::to_string(each.left), brief(each.forgotten_in)});
  print(latches.empty() ? "There is no latch.\n" : rows.str());
  return exit_code::ok;
}

int latch_rm(const arguments& args) {
  latch named{opened(args), args.text("NAME")};
  named.value().value();  // a name that was mistyped shall not look like success
  named.remove().value();
  if (args.has("--json")) print(removed_json(args.text("NAME")));
  return exit_code::ok;
}

}  // namespace holdfast::cli

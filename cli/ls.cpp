// holdfast ls and show: holders and waiters of locks.
#include "args.hpp"
#include "exit_codes.hpp"
#include "json.hpp"
#include "lock_table.hpp"
#include "output.hpp"
#include "prometheus.hpp"
#include "text.hpp"
#include "words.hpp"

#include <fmt/format.h>

namespace holdfast::cli {

namespace {

using namespace std::chrono_literals;

std::string titled(std::string_view title, const std::string& body) {
  return fmt::format("\n{}{}{}\n{}", on(style::bold), title, off(), body);
}

std::string holders_of(const lock_info& lock) {
  table rows{{{"HOLDER"},
              {"MODE"},
              {"LABEL"},
              {"HELD FOR", align::right},
              {"EXPIRES IN", align::right},
              {"TOKEN", align::right},
              {"OWNER"}}};
  for (const auto& holder : lock.holders)
    rows.add({process_of(holder), mode_of(lock, holder), holder.label, brief(holder.age),
              brief(holder.expires_in), token_of(holder), owner_of(holder)});
  return rows.str();
}

std::string waiters_of(const lock_info& lock) {
  table rows{{{"NEXT", align::right},
              {"WAITER"},
              {"MODE"},
              {"LABEL"},
              {"WAITS FOR", align::right},
              {"PRIORITY", align::right},
              {"OWNER"}}};
  std::size_t position = 0;
  for (const auto& waiter : lock.waiters)
    rows.add({std::to_string(++position), process_of(waiter), mode_of(lock, waiter), waiter.label,
              brief(waiter.age), std::to_string(waiter.priority), owner_of(waiter)});
  return rows.str();
}

// Names are data here, one per line as they are; on a terminal they are made harmless like all else.
std::string names_of(const std::vector<lock_info>& locks) {
  std::string text;
  for (const auto& lock : locks)
    text += (stdout_is_terminal() ? printable(lock.name) : lock.name) + '\n';
  return text;
}

}  // namespace

int ls(const arguments& args) {
  const bool names = args.has("--names");
  // --names is what shells ask for on the Tab key: better no names than a long wait.
  const auto store =
      args.open_store({.call_timeout = names ? nanoseconds{500ms} : nanoseconds{5s}});
  const auto locks = store.list(args.text("PREFIX")).value();
  if (args.has("--json")) {
    print(locks_json(locks));
  } else if (names) {
    print(names_of(locks));
  } else if (args.has("--prometheus")) {
    print(locks_prometheus(locks));
  } else if (locks.empty()) {
    print("No lock is held.\n");
  } else {
    print(lock_table(locks).str());
  }
  return exit_code::ok;
}

int show(const arguments& args) {
  const auto lock = args.open_store().inspect(args.text("NAME")).value();
  if (args.has("--json")) {
    print(lock_json(lock));
    return exit_code::ok;
  }
  auto text = fmt::format("{}{}{}: {} {}, {} {}{}\n", on(style::bold), printable(lock.name), off(),
                          lock.holders.size(), lock.holders.size() == 1 ? "holder" : "holders",
                          lock.waiters.size(), lock.waiters.size() == 1 ? "waiter" : "waiters",
                          is_semaphore(lock) ? ", " + permits_of(lock) : "");
  if (!lock.holders.empty()) text += titled("Held by", holders_of(lock));
  if (!lock.waiters.empty()) text += titled("Waiting, in the order of service", waiters_of(lock));
  print(text);
  return exit_code::ok;
}

}  // namespace holdfast::cli

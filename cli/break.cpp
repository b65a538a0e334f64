// holdfast break: an operator takes a lock away.
#include "args.hpp"
#include "exit_codes.hpp"
#include "json.hpp"
#include "output.hpp"
#include "text.hpp"
#include "words.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>

namespace holdfast::cli {

namespace {

bool confirmed(const client& store, const std::string& name) {
  const auto lock = store.inspect(name).value();
  std::string question;
  for (const auto& holder : lock.holders)
    question += fmt::format("{} holds it{}{}\n", process_of(holder), held_for(holder),
                            holder.label.empty() ? "" : fmt::format(" ({})", holder.label));
  // Printed line by line: printable() would take the line ends for control characters.
  for (std::size_t begin = 0; begin < question.size();) {
    const auto end = question.find('\n', begin);
    fmt::print(stderr, "{}\n", printable(question.substr(begin, end - begin)));
    begin = end + 1;
  }
  fmt::print(stderr, "Take the lock \"{}\" away from {} {}? [y/N] ", printable(name),
             lock.holders.size(), lock.holders.size() == 1 ? "holder" : "holders");
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

}  // namespace

int break_lock(const arguments& args) {
  const auto& name = args.text("NAME");
  const bool asks = !args.has("--yes");
  if (asks && (::isatty(STDIN_FILENO) != 1 || !stderr_is_terminal()))
    throw usage_error("There is no terminal to ask on; say --yes to break the lock unasked.");
  const auto store = args.open_store();
  if (asks && !confirmed(store, name)) {
    complain("Nothing was done.");
    return exit_code::ok;
  }
  const auto holders = store.revoke(name).value();
  if (args.has("--json")) {
    print(broken_json(name, holders));
  } else if (holders == 0) {
    print(fmt::format("The lock \"{}\" was not held.\n", printable(name)));
  } else {
    print(fmt::format("Taken away: {} {} lost \"{}\".\n", holders,
                      holders == 1 ? "holder" : "holders", printable(name)));
  }
  return exit_code::ok;
}

}  // namespace holdfast::cli
